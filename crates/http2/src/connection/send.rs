//! What goes: answers, as much of them as the client has room for, and what a connection says besides.
//!
//! How: a good answer is written whole behind what is to be sent, unless its stream or the connection has no room for its
//! message; then it waits in its stream and goes when the client widens a window. What tonic answers is written by whoever
//! carries it, as room comes. All that was written leaves together ([`Http2::to_send`]).
//!
//! What it deliberately does not do: choose among streams. Answers go in the order in which they are ready.

use std::task::{Context, Poll};

use http::{HeaderMap, StatusCode};

use super::frame::{self, Head};
use super::hpack::Encoder;
use super::{
    Answered, FRAME_BYTES_MAX, GOODBYE_PING, Goodbye, Http2, KEEPALIVE_PING, OUT_BYTES_MAX,
    RESET_STREAMS_REMEMBERED_MAX, Reason, Stage, Stream, UNREAD_BYTES_MAX, USUAL_WINDOW_BYTES,
    WINDOW_BYTES,
};

/// How much of what was sent may lie in front of what was not, beside half of all: so what is left is not moved often.
const SENT_BYTES_MAX: usize = 64 * 1024;

// === impl Http2 ===

impl Http2 {
    /// What is to be sent.
    pub(in super::super) fn to_send(&self) -> &[u8] {
        self.out.get(self.sent..).unwrap_or_default()
    }

    /// So much of it has been sent.
    pub(in super::super) fn sent(&mut self, bytes: usize) {
        let (full_before, full) = (self.is_full(), {
            self.sent = self.sent.saturating_add(bytes);
            self.is_full()
        });
        if self.sent >= self.out.len() {
            self.sent = 0;
            self.out.clear();
            // Connections are many and most of them silent; few have something to say at the same moment.
            self.buffers.give_back(std::mem::take(&mut self.out));
        } else if self.sent >= SENT_BYTES_MAX.max(self.out.len() / 2) {
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        if full_before && !full {
            self.send_waiting();
        }
    }

    /// Whether so much waits for the client that nothing more is read of it.
    pub(in super::super) fn is_full(&self) -> bool {
        self.out.len().saturating_sub(self.sent) > OUT_BYTES_MAX
    }

    /// Whether a stream is there no more.
    pub(in super::super) fn is_gone(&self, id: u32) -> bool {
        !self.streams.is_open(id)
    }

    /// Answers a call: `write` writes a gRPC frame of so many bytes.
    pub(in super::super) fn answer(
        &mut self,
        id: u32,
        bytes: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let connection_room = self.send_room;
        let waiting = self.to_send().len().saturating_add(self.kept_bytes);
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        let room = usize::try_from(connection_room.min(stream.send_room)).unwrap_or(0);
        if waiting > 0 && waiting.saturating_add(bytes) > UNREAD_BYTES_MAX {
            self.met.answers_unread = self.met.answers_unread.saturating_add(1);
            return self.reset(id, Reason::Cancel);
        }
        if bytes > room.min(self.frame_bytes_max) {
            self.answer_later(id, bytes, write);
        } else {
            self.streams.remove(id);
            self.send_room = self.send_room.saturating_sub_unsigned(bytes as u64);
            self.write_good_head(id);
            let out = self.out();
            let head = Head {
                length: bytes,
                kind: frame::DATA,
                flags: 0,
                stream: id,
            };
            head.write(out);
            write(out);
            self.write_good_trailers(id);
        }
        self.wake();
    }

    fn answer_later(&mut self, id: u32, bytes: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let mut frame = Vec::with_capacity(bytes);
        write(&mut frame);
        // Other answers may come between its head and its trailers.
        let mut headers = HeaderMap::with_capacity(1);
        let kind = http::HeaderValue::from_static("application/grpc");
        headers.insert(http::header::CONTENT_TYPE, kind);
        self.write_head(id, StatusCode::OK, &headers, false);
        self.kept_bytes = self.kept_bytes.saturating_add(frame.len());
        if let Some(stream) = self.streams.get_mut(id) {
            stream.stage = Stage::Answered(Box::new(Answered { frame, sent: 0 }));
        }
        self.send_waiting_of(id);
    }

    /// Answers a call or a request without a body.
    pub(in super::super) fn refuse(&mut self, id: u32, status: StatusCode, headers: &HeaderMap) {
        if !self.is_gone(id) {
            self.write_head(id, status, headers, true);
            self.finish(id);
            self.wake();
        }
    }

    /// Begins an answer that goes on.
    pub(in super::super) fn begin(&mut self, id: u32, status: StatusCode, headers: &HeaderMap) {
        if !self.is_gone(id) {
            self.write_head(id, status, headers, false);
            self.wake();
        }
    }

    /// Waits until a stream has room, and says how much; none when the stream is gone.
    pub(in super::super) fn poll_room(
        &mut self,
        id: u32,
        cx: &mut Context<'_>,
    ) -> Poll<Option<usize>> {
        let (full, connection_room) = (self.is_full(), self.send_room);
        let Some(stream) = self.streams.get_mut(id) else {
            return Poll::Ready(None);
        };
        let room = connection_room.min(stream.send_room);
        if let Stage::Forwarded(forwarded) = &mut stream.stage {
            forwarded.starved = room <= 0;
        }
        match usize::try_from(room) {
            Ok(room) if room > 0 && !full => Poll::Ready(Some(room.min(self.frame_bytes_max))),
            _ => {
                stream.wait(cx);
                Poll::Pending
            }
        }
    }

    /// Waits until a stream is gone.
    pub(in super::super) fn poll_gone(&mut self, id: u32, cx: &mut Context<'_>) -> Poll<()> {
        match self.streams.get_mut(id) {
            None => Poll::Ready(()),
            Some(stream) => {
                stream.wait(cx);
                Poll::Pending
            }
        }
    }

    /// Sends data for which there was room.
    pub(in super::super) fn data_out(&mut self, id: u32, data: &[u8]) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.send_room = stream.send_room.saturating_sub_unsigned(data.len() as u64);
            stream.unread_since_us = None;
            self.send_room = self.send_room.saturating_sub_unsigned(data.len() as u64);
            self.write_frame(frame::DATA, 0, id, data);
            self.wake();
        }
    }

    /// Ends an answer, with trailers if there are any.
    pub(in super::super) fn end_answer(&mut self, id: u32, trailers: Option<&HeaderMap>) {
        if self.is_gone(id) {
            return;
        }
        match trailers {
            None => self.write_frame(frame::DATA, frame::END_STREAM, id, &[]),
            Some(trailers) => {
                let mut block = Vec::new();
                self.encoder.trailers(trailers, &mut block);
                self.write_block(id, &block, frame::END_STREAM);
            }
        }
        self.finish(id);
        self.wake();
    }

    /// Ends a stream before its time.
    pub(in super::super) fn reset(&mut self, id: u32, reason: Reason) {
        self.remove(id);
        self.write_reset(id, reason);
        self.wake();
    }

    /// Says GOAWAY; streams that were opened before the client knows are still served.
    pub(in super::super) fn say_goodbye(&mut self) {
        if self.goodbye == Goodbye::None {
            self.goodbye = Goodbye::Said;
            self.write_goaway(frame::MAX_31_BITS, Reason::NoError);
            self.write_frame(frame::PING, 0, 0, &GOODBYE_PING);
        }
    }

    /// Says why the connection ends.
    pub(in super::super) fn say_broken(&mut self, reason: Reason) {
        let last = match self.goodbye {
            Goodbye::Final(last) => last,
            Goodbye::None | Goodbye::Said => self.newest,
        };
        self.write_goaway(last, reason);
    }

    /// Asks whether anybody is there.
    pub(in super::super) fn ask_whether_there(&mut self) {
        self.ping_answered = false;
        self.write_frame(frame::PING, 0, 0, &KEEPALIVE_PING);
        self.wake();
    }

    /// Whether that was answered.
    pub(in super::super) fn is_there(&self) -> bool {
        self.ping_answered
    }

    pub(super) fn say_hello(&mut self) {
        let settings = [
            (
                frame::MAX_CONCURRENT_STREAMS,
                u32::try_from(self.limits.streams_max).unwrap_or(u32::MAX),
            ),
            (frame::INITIAL_WINDOW_SIZE, WINDOW_BYTES),
            (
                frame::MAX_HEADER_LIST_SIZE,
                u32::try_from(self.limits.header_list_bytes_max).unwrap_or(u32::MAX),
            ),
        ];
        let mut payload = Vec::new();
        for (name, value) in settings {
            payload.extend_from_slice(&name.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        self.write_frame(frame::SETTINGS, 0, 0, &payload);
        self.write_window_update(0, WINDOW_BYTES.saturating_sub(USUAL_WINDOW_BYTES));
    }

    pub(super) fn say_last_goodbye(&mut self) {
        if self.goodbye == Goodbye::Said {
            self.goodbye = Goodbye::Final(self.newest);
            self.write_goaway(self.newest, Reason::NoError);
        }
    }

    /// The connection has room again: what waited for it goes.
    pub(super) fn send_waiting(&mut self) {
        let waiting: Vec<u32> = self
            .streams
            .each_mut()
            .filter(|(_, stream)| !matches!(stream.stage, Stage::Call { .. } | Stage::Asked(_)))
            .map(|(id, _)| id)
            .collect();
        for id in waiting {
            self.send_waiting_of(id);
        }
    }

    /// A stream has room again: what waited for it goes.
    pub(super) fn send_waiting_of(&mut self, id: u32) {
        loop {
            let connection_room = self.send_room;
            let Some(stream) = self.streams.get_mut(id) else {
                return;
            };
            let answered = match &mut stream.stage {
                Stage::Forwarded(forwarded) => return forwarded.wake(),
                Stage::Answered(answered) => answered,
                Stage::Call { .. } | Stage::Asked(_) => return,
            };
            let rest = answered.frame.get(answered.sent..).unwrap_or_default();
            if rest.is_empty() {
                let mut trailers = HeaderMap::with_capacity(1);
                let good = http::HeaderValue::from_static("0");
                trailers.insert(http::HeaderName::from_static("grpc-status"), good);
                return self.end_answer(id, Some(&trailers));
            }
            let room = usize::try_from(connection_room.min(stream.send_room)).unwrap_or(0);
            let bytes = rest.len().min(room).min(self.frame_bytes_max);
            if bytes == 0 {
                return;
            }
            let part = rest.get(..bytes).unwrap_or_default().to_vec();
            answered.sent = answered.sent.saturating_add(bytes);
            self.data_out(id, &part);
        }
    }

    /// All was said on our side.
    fn finish(&mut self, id: u32) {
        if let Some(stream) = self.remove(id)
            && !stream.received
        {
            // What the client would still say matters to nobody.
            self.write_reset(id, Reason::NoError);
        }
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<Stream> {
        let mut stream = self.streams.remove(id)?;
        let mut withheld = 0;
        if let Stage::Answered(answered) = &stream.stage {
            self.kept_bytes = self.kept_bytes.saturating_sub(answered.frame.len());
        }
        if let Stage::Forwarded(forwarded) = &mut stream.stage {
            forwarded.wake();
            withheld = std::mem::take(&mut forwarded.withheld);
        }
        if let Some(unfinished) = &stream.unfinished {
            self.bodies.give_back(unfinished.held_bytes);
        }
        if withheld > 0 {
            self.make_room(withheld);
        }
        Some(stream)
    }

    /// Where to write.
    fn out(&mut self) -> &mut Vec<u8> {
        if self.out.capacity() == 0 {
            self.out = self.buffers.take();
        }
        &mut self.out
    }

    fn write_good_head(&mut self, id: u32) {
        if self.encoder.knows_good_answers() {
            let [s0, s1, s2, s3] = id.to_be_bytes();
            let [h0, h1] = Encoder::GOOD_HEAD;
            let flags = frame::END_HEADERS;
            let bytes = [0, 0, 2, frame::HEADERS, flags, s0, s1, s2, s3, h0, h1];
            self.out().extend_from_slice(&bytes);
        } else {
            let mut block = Vec::new();
            self.encoder.good_head(&mut block);
            self.write_block(id, &block, 0);
        }
    }

    fn write_good_trailers(&mut self, id: u32) {
        if self.encoder.knows_good_answers() {
            let [s0, s1, s2, s3] = id.to_be_bytes();
            let [h0] = Encoder::GOOD_TRAILERS;
            let flags = frame::END_HEADERS | frame::END_STREAM;
            let bytes = [0, 0, 1, frame::HEADERS, flags, s0, s1, s2, s3, h0];
            self.out().extend_from_slice(&bytes);
        } else {
            let mut block = Vec::new();
            self.encoder.good_trailers(&mut block);
            self.write_block(id, &block, frame::END_STREAM);
        }
    }

    pub(super) fn write_head(
        &mut self,
        id: u32,
        status: StatusCode,
        headers: &HeaderMap,
        end_stream: bool,
    ) {
        let mut block = Vec::new();
        self.encoder.head(status, headers, &mut block);
        let flags = if end_stream { frame::END_STREAM } else { 0 };
        self.write_block(id, &block, flags);
    }

    /// Headers, in as many frames as they take.
    fn write_block(&mut self, id: u32, block: &[u8], flags: u8) {
        let (mut kind, mut flags, mut rest) = (frame::HEADERS, flags, block);
        while let Some((part, more)) = rest.split_at_checked(FRAME_BYTES_MAX)
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
        self.write_frame(frame::RST_STREAM, 0, id, &(reason as u32).to_be_bytes());
    }

    pub(super) fn write_window_update(&mut self, id: u32, bytes: u32) {
        self.write_frame(frame::WINDOW_UPDATE, 0, id, &bytes.to_be_bytes());
    }

    fn write_goaway(&mut self, last: u32, reason: Reason) {
        let [l0, l1, l2, l3] = last.to_be_bytes();
        let [r0, r1, r2, r3] = (reason as u32).to_be_bytes();
        let payload = [l0, l1, l2, l3, r0, r1, r2, r3];
        self.write_frame(frame::GOAWAY, 0, 0, &payload);
    }

    pub(super) fn write_frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        frame::write(kind, flags, id, payload, self.out());
    }
}

// === impl Stream ===

impl Stream {
    /// Who waits for room, or for the end.
    fn wait(&mut self, cx: &mut Context<'_>) {
        if let Stage::Forwarded(forwarded) = &mut self.stage
            && !forwarded
                .task
                .as_ref()
                .is_some_and(|known| known.will_wake(cx.waker()))
        {
            forwarded.task = Some(cx.waker().clone());
        }
    }
}
