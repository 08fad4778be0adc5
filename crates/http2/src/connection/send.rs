//! Responses, as far as windows allow, and control frames.
//!
//! How: a response to a call is written whole into the output, unless its stream or the connection
//! has no window for its message; then it waits in its stream until the client widens a window. The
//! responses to other requests are written by the embedding program as windows allow. Streams have
//! no priorities: responses go in the order in which they are ready.

use std::task::{Context, Poll};

use super::stream::{Stream, StreamState, WaitingResponse};
use super::{ServerConnection, UNREAD_BYTES_MAX};
use crate::Reason;
use crate::frame;

// === impl ServerConnection ===

impl ServerConnection {
    /// Bytes to write to the socket.
    #[must_use]
    #[inline]
    pub fn output(&self) -> &[u8] {
        self.outbox.unsent()
    }

    /// The socket has taken this many bytes of the output.
    pub fn consume_output(&mut self, bytes: usize) {
        let was_full = self.outbox.is_full();
        self.outbox.consume(bytes);
        if was_full && !self.outbox.is_full() {
            self.send_waiting();
        }
    }

    /// Whether so much output waits that nothing more should be read from the client.
    #[must_use]
    #[inline]
    pub fn is_output_full(&self) -> bool {
        self.outbox.is_full()
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
            self.outbox.end_unary(stream);
            self.wake();
        } else if !self.is_closed(stream) {
            let mut message = Vec::with_capacity(bytes);
            write(&mut message);
            self.respond_later(stream, message);
        }
    }

    /// Writes what is before the message of a response, and says where to write it; none if the
    /// stream is closed or the message must wait.
    fn begin_unary(&mut self, id: u32, bytes: usize) -> Option<&mut Vec<u8>> {
        let waiting = self.output().len().saturating_add(self.waiting_bytes);
        let stream = self.streams.get_mut(id)?;
        if waiting > 0 && waiting.saturating_add(bytes) > UNREAD_BYTES_MAX {
            self.counts.responses_dropped = self.counts.responses_dropped.saturating_add(1);
            self.reset(id, Reason::Cancel);
            return None;
        }
        if bytes > self.flow.data_bytes_max(stream.send_window) {
            return None;
        }
        self.streams.remove(id);
        self.flow.send(bytes);
        Some(self.outbox.begin_unary(id, bytes))
    }

    fn respond_later(&mut self, id: u32, message: Vec<u8>) {
        // Other responses may come between its head and its trailers.
        let headers: [(&[u8], &[u8]); 1] = [(b"content-type", b"application/grpc")];
        self.outbox.write_head(id, 200, headers, false);
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
            self.outbox.write_head(stream, status, headers, end_stream);
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
        let Some(stream) = self.streams.get_mut(stream) else {
            return Poll::Ready(None);
        };
        let bytes = self.flow.data_bytes_max(stream.send_window);
        if let StreamState::Request(request) = &mut stream.state {
            request.starved = bytes == 0;
        }
        if bytes > 0 && !self.outbox.is_full() {
            return Poll::Ready(Some(bytes));
        }
        stream.wait(cx);
        Poll::Pending
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
        self.flow.send(data.len());
        let flags = if end_stream { frame::END_STREAM } else { 0 };
        self.outbox.write_frame(frame::DATA, flags, stream, data);
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
            self.outbox.write_trailers(stream, trailers);
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
        self.outbox.write_reset(id, reason);
        self.wake();
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
            let bytes = rest.len().min(self.flow.data_bytes_max(stream.send_window));
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
            self.outbox.write_reset(id, Reason::NoError);
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
}
