//! Responses, as far as windows allow, and control frames.
//!
//! How: a response to a call is written whole into the output, unless its stream or the connection
//! has no window for its message; then it waits in its stream until the client widens a window. The
//! responses to other requests are written by the embedding program as windows allow. Streams have
//! no priorities: responses go in the order in which they are ready.

use std::task::{Context, Poll};

use super::stream::{Stream, StreamState, WaitingResponse};
use super::{
    DEFAULT_WINDOW_BYTES, OUTPUT_BYTES_MAX, RESET_STREAMS_REMEMBERED_MAX, ServerConnection,
    UNREAD_BYTES_MAX, WINDOW_BYTES,
};
use crate::Reason;
use crate::frame::{self, FrameHead, PAYLOAD_BYTES_MAX};
use crate::hpack::Encoder;

/// How much output that was sent may lie before what was not, beside half of all. So what is left
/// is seldom moved.
const SENT_BYTES_MAX: usize = 64 * 1024;

// === impl ServerConnection ===

impl ServerConnection {
    /// Bytes to write to the socket.
    #[must_use]
    #[inline]
    pub fn output(&self) -> &[u8] {
        self.output.get(self.output_sent..).unwrap_or_default()
    }

    /// The socket has taken this many bytes of the output.
    pub fn consume_output(&mut self, bytes: usize) {
        let was_full = self.is_output_full();
        self.output_sent = self.output_sent.saturating_add(bytes);
        let is_full = self.is_output_full();
        if self.output_sent >= self.output.len() {
            self.output_sent = 0;
            self.output.clear();
            // Connections are many, and few have something to write at the same moment.
            self.buffers.put(std::mem::take(&mut self.output));
        } else if self.output_sent >= SENT_BYTES_MAX.max(self.output.len() / 2) {
            self.output.drain(..self.output_sent);
            self.output_sent = 0;
        }
        if was_full && !is_full {
            self.send_waiting();
        }
    }

    /// Whether so much output waits that nothing more should be read from the client.
    #[must_use]
    #[inline]
    pub fn is_output_full(&self) -> bool {
        self.output.len().saturating_sub(self.output_sent) > OUTPUT_BYTES_MAX
    }

    /// Answers a call: HEADERS, one gRPC message of `bytes` bytes with its head, which `write`
    /// appends, and trailers with `grpc-status: 0`.
    ///
    /// The response waits in the connection while there is no window for it. It is dropped, and its
    /// stream reset, when more than 4 MiB wait ([`crate::LimitCounts::responses_dropped`]).
    #[inline]
    pub fn respond_unary(&mut self, stream: u32, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(out) = self.begin_unary(stream, bytes) {
            write(out);
            self.end_unary(stream);
        } else if !self.is_closed(stream) {
            let mut message = Vec::with_capacity(bytes);
            write(&mut message);
            self.respond_later(stream, message);
        }
    }

    /// Writes what is before the message of a response, and says where to write it; none if the
    /// stream is closed or the message must wait.
    fn begin_unary(&mut self, id: u32, bytes: usize) -> Option<&mut Vec<u8>> {
        let connection_window = self.send_window;
        let waiting = self.output().len().saturating_add(self.waiting_bytes);
        let stream = self.streams.get_mut(id)?;
        let window = usize::try_from(connection_window.min(stream.send_window)).unwrap_or(0);
        if waiting > 0 && waiting.saturating_add(bytes) > UNREAD_BYTES_MAX {
            self.counts.responses_dropped = self.counts.responses_dropped.saturating_add(1);
            self.reset(id, Reason::Cancel);
            return None;
        }
        if bytes > window.min(self.send_payload_bytes_max) {
            return None;
        }
        self.streams.remove(id);
        self.send_window = self.send_window.saturating_sub_unsigned(bytes as u64);
        self.write_unary_head(id);
        let out = self.out();
        let head = FrameHead {
            length: bytes,
            kind: frame::DATA,
            flags: 0,
            stream: id,
        };
        head.write(out);
        Some(out)
    }

    fn end_unary(&mut self, id: u32) {
        self.write_unary_trailers(id);
        self.wake();
    }

    fn respond_later(&mut self, id: u32, message: Vec<u8>) {
        // Other responses may come between its head and its trailers.
        let headers: [(&[u8], &[u8]); 1] = [(b"content-type", b"application/grpc")];
        self.write_head(id, 200, headers, false);
        self.waiting_bytes = self.waiting_bytes.saturating_add(message.len());
        if let Some(stream) = self.streams.get_mut(id) {
            let response = WaitingResponse { message, sent: 0 };
            stream.state = StreamState::CallAnswered(Box::new(response));
        }
        self.send_waiting_of(id);
        self.wake();
    }

    /// Sends the head of a response: `:status` and headers, whose names must be in lower case.
    ///
    /// With `end_stream` the response is complete, and so is the stream.
    pub fn send_response<'h>(
        &mut self,
        stream: u32,
        status: u16,
        headers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
        end_stream: bool,
    ) {
        if !self.is_closed(stream) {
            self.write_head(stream, status, headers, end_stream);
            if end_stream {
                self.finish(stream);
            }
            self.wake();
        }
    }

    /// Waits until there is a window for a response, and says how many bytes one
    /// [`ServerConnection::send_data`] may have; none if the stream is closed.
    ///
    /// One task at a time can wait for a stream, here and in [`ServerConnection::poll_closed`].
    pub fn poll_capacity(&mut self, stream: u32, cx: &mut Context<'_>) -> Poll<Option<usize>> {
        let (is_full, connection_window) = (self.is_output_full(), self.send_window);
        let Some(stream) = self.streams.get_mut(stream) else {
            return Poll::Ready(None);
        };
        let window = connection_window.min(stream.send_window);
        if let StreamState::Request(request) = &mut stream.state {
            request.starved = window <= 0;
        }
        match usize::try_from(window) {
            Ok(window) if window > 0 && !is_full => {
                Poll::Ready(Some(window.min(self.send_payload_bytes_max)))
            }
            _ => {
                stream.wait(cx);
                Poll::Pending
            }
        }
    }

    /// Waits until a stream is closed.
    pub fn poll_closed(&mut self, stream: u32, cx: &mut Context<'_>) -> Poll<()> {
        match self.streams.get_mut(stream) {
            None => Poll::Ready(()),
            Some(stream) => {
                stream.wait(cx);
                Poll::Pending
            }
        }
    }

    /// Sends a part of a response's body, as long as [`ServerConnection::poll_capacity`] allows.
    ///
    /// With `end_stream` the response is complete, and so is the stream.
    pub fn send_data(&mut self, stream: u32, data: &[u8], end_stream: bool) {
        let Some(open) = self.streams.get_mut(stream) else {
            return;
        };
        open.send_window = open.send_window.saturating_sub_unsigned(data.len() as u64);
        open.unread_since_us = None;
        self.send_window = self.send_window.saturating_sub_unsigned(data.len() as u64);
        let flags = if end_stream { frame::END_STREAM } else { 0 };
        self.write_frame(frame::DATA, flags, stream, data);
        if end_stream {
            self.finish(stream);
        }
        self.wake();
    }

    /// Sends trailers, whose names must be in lower case: the response is complete, and so is the
    /// stream.
    pub fn send_trailers<'h>(
        &mut self,
        stream: u32,
        trailers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
    ) {
        if !self.is_closed(stream) {
            let mut block = Vec::new();
            self.encoder.trailers(trailers, &mut block);
            self.write_block(stream, &block, frame::END_STREAM);
            self.finish(stream);
            self.wake();
        }
    }

    /// Ends a stream before its response is complete.
    pub fn send_reset(&mut self, stream: u32, reason: Reason) {
        if !self.is_closed(stream) {
            self.reset(stream, reason);
        }
    }

    /// Sends RST_STREAM, whether the stream is open or not.
    pub(super) fn reset(&mut self, id: u32, reason: Reason) {
        self.remove(id);
        self.write_reset(id, reason);
        self.wake();
    }

    /// Writes the server's SETTINGS and widens the connection's window.
    pub(super) fn write_settings(&mut self) {
        let settings = [
            (
                frame::MAX_CONCURRENT_STREAMS,
                u32::try_from(self.config.streams_max).unwrap_or(u32::MAX),
            ),
            (frame::INITIAL_WINDOW_SIZE, WINDOW_BYTES),
            (
                frame::MAX_HEADER_LIST_SIZE,
                u32::try_from(self.config.header_list_bytes_max).unwrap_or(u32::MAX),
            ),
        ];
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        self.write_frame(frame::SETTINGS, 0, 0, &payload);
        self.write_window_update(0, WINDOW_BYTES.saturating_sub(DEFAULT_WINDOW_BYTES));
    }

    /// The connection has a window again: sends what waited for it.
    pub(super) fn send_waiting(&mut self) {
        let waiting: Vec<u32> = self
            .streams
            .iter_mut()
            .filter(|(_, stream)| {
                matches!(
                    stream.state,
                    StreamState::CallAnswered(_) | StreamState::Request(_)
                )
            })
            .map(|(id, _)| id)
            .collect();
        for id in waiting {
            self.send_waiting_of(id);
        }
    }

    /// A stream has a window again: sends what waited for it.
    pub(super) fn send_waiting_of(&mut self, id: u32) {
        loop {
            let connection_window = self.send_window;
            let Some(stream) = self.streams.get_mut(id) else {
                return;
            };
            let response = match &mut stream.state {
                StreamState::Request(request) => return request.wake(),
                StreamState::CallAnswered(response) => response,
                StreamState::CallArriving { .. } | StreamState::CallPending(_) => return,
            };
            let rest = response.message.get(response.sent..).unwrap_or_default();
            if rest.is_empty() {
                return self.send_trailers(id, [(&b"grpc-status"[..], &b"0"[..])]);
            }
            let window = usize::try_from(connection_window.min(stream.send_window)).unwrap_or(0);
            let bytes = rest.len().min(window).min(self.send_payload_bytes_max);
            if bytes == 0 {
                return;
            }
            let part = rest.get(..bytes).unwrap_or_default().to_vec();
            response.sent = response.sent.saturating_add(bytes);
            self.send_data(id, &part, false);
        }
    }

    /// The response is complete.
    fn finish(&mut self, id: u32) {
        if let Some(stream) = self.remove(id)
            && !stream.received
        {
            // The rest of the request is not needed.
            self.write_reset(id, Reason::NoError);
        }
    }

    /// Ends a stream without a frame, and returns what it held.
    pub(super) fn remove(&mut self, id: u32) -> Option<Stream> {
        let mut stream = self.streams.remove(id)?;
        let mut withheld = 0;
        if let StreamState::CallAnswered(response) = &stream.state {
            self.waiting_bytes = self.waiting_bytes.saturating_sub(response.message.len());
        }
        if let StreamState::Request(request) = &mut stream.state {
            request.wake();
            withheld = std::mem::take(&mut request.withheld);
        }
        if let Some(partial_body) = &stream.partial_body {
            self.bodies.release(partial_body.held_bytes);
        }
        if withheld > 0 {
            self.return_window(withheld);
        }
        Some(stream)
    }

    /// The buffer to write into.
    fn out(&mut self) -> &mut Vec<u8> {
        if self.output.capacity() == 0 {
            self.output = self.buffers.take();
        }
        &mut self.output
    }

    fn write_unary_head(&mut self, id: u32) {
        if self.encoder.knows_unary_responses() {
            let [s0, s1, s2, s3] = id.to_be_bytes();
            let [h0, h1] = Encoder::UNARY_HEAD;
            let flags = frame::END_HEADERS;
            let bytes = [0, 0, 2, frame::HEADERS, flags, s0, s1, s2, s3, h0, h1];
            self.out().extend_from_slice(&bytes);
        } else {
            let mut block = Vec::new();
            self.encoder.unary_head(&mut block);
            self.write_block(id, &block, 0);
        }
    }

    fn write_unary_trailers(&mut self, id: u32) {
        if self.encoder.knows_unary_responses() {
            let [s0, s1, s2, s3] = id.to_be_bytes();
            let [h0] = Encoder::UNARY_TRAILERS;
            let flags = frame::END_HEADERS | frame::END_STREAM;
            let bytes = [0, 0, 1, frame::HEADERS, flags, s0, s1, s2, s3, h0];
            self.out().extend_from_slice(&bytes);
        } else {
            let mut block = Vec::new();
            self.encoder.unary_trailers(&mut block);
            self.write_block(id, &block, frame::END_STREAM);
        }
    }

    pub(super) fn write_head<'h>(
        &mut self,
        id: u32,
        status: u16,
        headers: impl IntoIterator<Item = (&'h [u8], &'h [u8])>,
        end_stream: bool,
    ) {
        let mut block = Vec::new();
        self.encoder.head(status, headers, &mut block);
        let flags = if end_stream { frame::END_STREAM } else { 0 };
        self.write_block(id, &block, flags);
    }

    /// Writes a header block in as many frames as it takes.
    fn write_block(&mut self, id: u32, block: &[u8], flags: u8) {
        let (mut kind, mut flags, mut rest) = (frame::HEADERS, flags, block);
        while let Some((part, more)) = rest.split_at_checked(PAYLOAD_BYTES_MAX)
            && !more.is_empty()
        {
            self.write_frame(kind, flags, id, part);
            (kind, flags, rest) = (frame::CONTINUATION, 0, more);
        }
        self.write_frame(kind, flags | frame::END_HEADERS, id, rest);
    }

    pub(super) fn write_reset(&mut self, id: u32, reason: Reason) {
        if self.reset_streams.len() >= RESET_STREAMS_REMEMBERED_MAX {
            self.reset_streams.pop_front();
        }
        self.reset_streams.push_back(id);
        self.write_frame(frame::RST_STREAM, 0, id, &reason.code().to_be_bytes());
    }

    pub(super) fn write_window_update(&mut self, id: u32, bytes: u32) {
        self.write_frame(frame::WINDOW_UPDATE, 0, id, &bytes.to_be_bytes());
    }

    pub(super) fn write_frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        frame::write(kind, flags, id, payload, self.out());
    }
}
