//! Calls as they come: their heads, their bodies, what stands behind them.
//!
//! How: a call whose body is whole in one frame of data is handed out as it lies there. One that comes in parts, or whose end
//! does, waits in its stream; a long one in parts goes to tonic, which takes it as it comes.
//!
//! What it deliberately does not do: decode headers (`head`), answer (`send`).

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use tokio::sync::mpsc;

use super::frame::{self, Head};
use super::head::{Asked, Trailers};
use super::receive::{Came, Event, broken};
use super::{
    Block, Broken, FRAME_BYTES_MAX, Forwarded, Goodbye, Handed, Http2, Late, Part, Reason, Stage,
    Stream, Unfinished, WINDOW_BYTES, WINDOW_OWED_BYTES_MAX,
};

/// Whose requests go on as long as the client likes.
const REFLECTION: &str = "/grpc.reflection.";

/// How long a body in parts may be to be put together here. Much less than a stream has room for, so that nobody waits to be
/// told of more.
const PARTS_BYTES_MAX: usize = 64 * 1024;

/// A frame of less that is not the last is counted: what it brings weighs less than what keeps it.
pub(super) const DATA_BYTES_MIN: usize = 64;

/// In how many frames and bytes headers may come whose list may be so long. It may be a little longer in its bytes than it
/// counts, and be cut as its client likes, within reason.
pub(super) fn block_bounds(header_list_bytes_max: usize) -> (usize, usize) {
    let bytes_max = header_list_bytes_max.saturating_add(FRAME_BYTES_MAX);
    let frames_max = (bytes_max / FRAME_BYTES_MAX).saturating_mul(2).max(8);
    (frames_max, bytes_max)
}

// === impl Http2 ===

impl Http2 {
    pub(super) fn headers<'b>(&mut self, head: Head, payload: &'b [u8], now_us: u64) -> Came<'b> {
        if head.stream == 0 {
            return broken(Reason::Protocol, "headers of no stream");
        }
        let Some(mut block) = frame::without_padding(head, payload) else {
            return broken(Reason::Protocol, "more padding than frame");
        };
        if head.has(frame::PRIORITISED) {
            let Some(rest) = block.get(5..) else {
                return broken(Reason::FrameSize, "headers too short for their priority");
            };
            block = rest;
        }
        let end_stream = head.has(frame::END_STREAM);
        if head.has(frame::END_HEADERS) {
            return self.block(head.stream, block, end_stream, now_us);
        }
        self.block = Some(Block {
            stream: head.stream,
            end_stream,
            bytes: block.to_vec(),
            frames: 1,
        });
        Ok(None)
    }

    pub(super) fn continuation<'b>(&mut self, head: Head, payload: &[u8], now_us: u64) -> Came<'b> {
        let Some(mut block) = self.block.take() else {
            return broken(Reason::Protocol, "nothing to continue");
        };
        if block.stream != head.stream {
            return broken(Reason::Protocol, "another stream's headers continue");
        }
        block.bytes.extend_from_slice(payload);
        block.frames = block.frames.saturating_add(1);
        let (frames_max, bytes_max) = block_bounds(self.limits.header_list_bytes_max);
        if block.bytes.len() > bytes_max || block.frames > frames_max {
            return broken(Reason::EnhanceYourCalm, "headers without end");
        }
        if head.has(frame::END_HEADERS) {
            return self.block(block.stream, &block.bytes, block.end_stream, now_us);
        }
        self.block = Some(block);
        Ok(None)
    }

    /// A block of headers is whole.
    fn block<'b>(&mut self, stream: u32, block: &[u8], end_stream: bool, now_us: u64) -> Came<'b> {
        if stream.is_multiple_of(2) {
            return broken(Reason::Protocol, "a client's streams have odd numbers");
        }
        if stream <= self.newest {
            return self.trailers(stream, block, end_stream, now_us);
        }
        let Some(asked) = self.heads.read(block) else {
            return broken(Reason::Compression, "headers that nobody can decode");
        };
        self.newest = stream;
        if matches!(self.goodbye, Goodbye::Final(_)) {
            return Ok(None);
        }
        if self.streams.open() >= self.limits.streams_max {
            self.floods.reset(now_us)?;
            self.write_reset(stream, Reason::RefusedStream);
            return Ok(None);
        }
        let body_bytes = match &asked {
            Asked::Call(call) => call.body_bytes,
            Asked::Other(_, body_bytes) => *body_bytes,
            Asked::TooLong | Asked::Malformed => None,
        };
        // Who asks for reflection may go on asking for ever; all others have one thing to say.
        let goes_on = matches!(&asked, Asked::Other(request, _) if request.uri().path().starts_with(REFLECTION));
        let unfinished = (!end_stream && !goes_on).then_some(Unfinished {
            since_us: now_us,
            bytes: 0,
        });
        let says_too_much = end_stream && body_bytes.is_some_and(|bytes| bytes > 0);
        match asked {
            Asked::Malformed => self.refuse_malformed(stream, now_us)?,
            _ if says_too_much => self.refuse_malformed(stream, now_us)?,
            Asked::TooLong => {
                self.floods.reset(now_us)?;
                let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
                self.write_head(stream, status, &HeaderMap::new(), true);
                if !end_stream {
                    self.write_reset(stream, Reason::Protocol);
                }
            }
            Asked::Call(call) => {
                let stage = Stage::Call {
                    call,
                    body: Vec::new(),
                };
                self.open(stream, stage, body_bytes, unfinished, end_stream);
                if end_stream {
                    return Ok(self.asked(stream, Cow::Borrowed(&[])));
                }
            }
            Asked::Other(request, _) => {
                let (parts, receiver) = mpsc::unbounded_channel();
                if end_stream {
                    let _ = parts.send(Part::End);
                }
                let stage = Stage::Forwarded(Box::new(Forwarded::new(parts)));
                self.open(stream, stage, body_bytes, unfinished, end_stream);
                return Ok(Some(Event::Request(Handed {
                    stream,
                    request: *request,
                    parts: receiver,
                })));
            }
        }
        Ok(None)
    }

    fn refuse_malformed(&mut self, stream: u32, now_us: u64) -> Result<(), Broken> {
        self.floods.reset(now_us)?;
        self.write_reset(stream, Reason::Protocol);
        Ok(())
    }

    fn open(
        &mut self,
        id: u32,
        stage: Stage,
        body_left: Option<u64>,
        unfinished: Option<Unfinished>,
        received: bool,
    ) {
        let stream = Stream {
            stage,
            send_room: self.stream_send_room,
            received,
            body_left,
            unfinished,
            unread_since_us: None,
        };
        self.streams.push(id, stream);
    }

    /// Headers of a stream that is known: what stands behind its body.
    fn trailers<'b>(&mut self, id: u32, block: &[u8], end_stream: bool, now_us: u64) -> Came<'b> {
        // No client of gRPC has any.
        self.floods.control_frame(now_us)?;
        let Some(trailers) = self.heads.read_trailers(block) else {
            return broken(Reason::Compression, "headers that nobody can decode");
        };
        let Some(stream) = self.streams.get_mut(id) else {
            return self.of_a_closed_stream(id, now_us);
        };
        if stream.received {
            return self.reset_for_fault(id, Reason::StreamClosed, now_us);
        }
        let whole = stream.body_left.is_none_or(|left| left == 0);
        let (Trailers::Good(trailers), true, true) = (trailers, end_stream, whole) else {
            return self.reset_for_fault(id, Reason::Protocol, now_us);
        };
        stream.received = true;
        if let Some(unfinished) = stream.unfinished.take() {
            self.unfinished_bytes = self.unfinished_bytes.saturating_sub(unfinished.bytes);
            self.make_room(0);
        }
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(None);
        };
        match &mut stream.stage {
            Stage::Call { body, .. } => {
                let body = std::mem::take(body);
                return Ok(self.asked(id, Cow::Owned(body)));
            }
            Stage::Forwarded(forwarded) => {
                let _ = forwarded.parts.send(Part::Trailers(Box::new(trailers)));
            }
            Stage::Asked(_) | Stage::Answered(_) => {}
        }
        Ok(None)
    }

    /// Resets a stream because of what its client did. What it had under way may be worked on all the same, so that a
    /// client could have more under way than it may have streams; so it counts as if the client had reset it.
    pub(super) fn reset_for_fault<'b>(&mut self, id: u32, reason: Reason, now_us: u64) -> Came<'b> {
        self.floods.reset(now_us)?;
        self.reset(id, reason);
        Ok(None)
    }

    /// A frame for a stream that has ended here; the client may not know yet.
    fn of_a_closed_stream<'b>(&mut self, id: u32, now_us: u64) -> Came<'b> {
        self.floods.control_frame(now_us)?;
        if !matches!(self.goodbye, Goodbye::Final(last) if id > last) {
            self.write_reset(id, Reason::StreamClosed);
        }
        Ok(None)
    }

    pub(super) fn data<'b>(&mut self, head: Head, payload: &'b [u8], now_us: u64) -> Came<'b> {
        if head.stream == 0 || head.stream > self.newest {
            return broken(Reason::Protocol, "data of no stream");
        }
        // A frame is never so long.
        let length = u32::try_from(head.length).unwrap_or(u32::MAX);
        let Some(room) = self.receive_room.checked_sub(length) else {
            return broken(Reason::FlowControl, "more data than there was room for");
        };
        self.receive_room = room;
        let Some(data) = frame::without_padding(head, payload) else {
            return broken(Reason::Protocol, "more padding than frame");
        };
        let end_stream = head.has(frame::END_STREAM);
        if data.len() < DATA_BYTES_MIN && !end_stream {
            self.floods.control_frame(now_us)?;
        }
        let Some(stream) = self.streams.get_mut(head.stream) else {
            self.make_room(length);
            return self.of_a_closed_stream(head.stream, now_us);
        };
        if stream.received {
            self.make_room(length);
            return self.reset_for_fault(head.stream, Reason::StreamClosed, now_us);
        }
        if !stream.take_data(data.len(), end_stream) {
            self.make_room(length);
            return self.reset_for_fault(head.stream, Reason::Protocol, now_us);
        }
        if let Some(unfinished) = &mut stream.unfinished {
            if end_stream {
                self.unfinished_bytes = self.unfinished_bytes.saturating_sub(unfinished.bytes);
                stream.unfinished = None;
            } else {
                self.unfinished_bytes = self.unfinished_bytes.saturating_add(length);
                unfinished.bytes = unfinished.bytes.saturating_add(length);
            }
        }
        match &mut stream.stage {
            Stage::Call { body, .. } => {
                if body.is_empty() && end_stream {
                    // Nearly always.
                    self.make_room(length);
                    return Ok(self.asked(head.stream, Cow::Borrowed(data)));
                }
                // Who says that it will be long is answered before it is whole, where it may not be.
                let says = frame::u32_at_start(body.get(1..).unwrap_or_default());
                let says_long =
                    !end_stream && says.is_some_and(|says| says as usize > PARTS_BYTES_MAX);
                if says_long || body.len().saturating_add(data.len()) > PARTS_BYTES_MAX {
                    let body = std::mem::take(body);
                    self.make_room(length);
                    return Ok(self
                        .hand_over(head.stream, &[&body, data])
                        .map(Event::Request));
                }
                body.extend_from_slice(data);
                if end_stream {
                    let body = std::mem::take(body);
                    self.make_room(length);
                    return Ok(self.asked(head.stream, Cow::Owned(body)));
                }
                self.make_room(length);
            }
            Stage::Forwarded(forwarded) => {
                let Some(room) = forwarded.receive_room.checked_sub(length) else {
                    self.make_room(length);
                    return self.reset_for_fault(head.stream, Reason::FlowControl, now_us);
                };
                forwarded.receive_room = room;
                let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
                forwarded.uneaten = forwarded.uneaten.saturating_add(bytes);
                let padding = length.saturating_sub(bytes);
                forwarded.receive_owed = forwarded.receive_owed.saturating_add(padding);
                if !data.is_empty() {
                    let data = Bytes::copy_from_slice(data);
                    let _ = forwarded.parts.send(Part::Data(data));
                }
                if end_stream {
                    let _ = forwarded.parts.send(Part::End);
                }
                self.make_room(padding);
            }
            Stage::Asked(_) | Stage::Answered(_) => self.make_room(length),
        }
        Ok(None)
    }

    /// A call's body is whole.
    fn asked<'b>(&mut self, id: u32, body: Cow<'b, [u8]>) -> Option<Event<'b>> {
        let stream = self.streams.get_mut(id)?;
        let Stage::Call { call, .. } = &stream.stage else {
            return None;
        };
        let call = *call;
        stream.stage = Stage::Asked(call);
        Some(Event::Call {
            stream: id,
            body,
            timeout_us: call.timeout.map(|timeout| timeout.us),
            parent: call.parent,
        })
    }

    /// Makes of a call a request for tonic, whose body begins with these bytes, which there was room for.
    pub(in super::super) fn hand_over(&mut self, id: u32, body: &[&[u8]]) -> Option<Handed> {
        let stream = self.streams.get_mut(id)?;
        let (Stage::Call { call, .. } | Stage::Asked(call)) = &stream.stage else {
            return None;
        };
        let request: Request<()> = call.request();
        let (parts, receiver) = mpsc::unbounded_channel();
        let mut forwarded = Box::new(Forwarded::new(parts));
        for part in body.iter().filter(|part| !part.is_empty()) {
            let _ = forwarded
                .parts
                .send(Part::Data(Bytes::copy_from_slice(part)));
            // The connection has its room back already, and the stream gets it when this is taken.
            let bytes = u32::try_from(part.len()).unwrap_or(u32::MAX);
            forwarded.receive_room = forwarded.receive_room.saturating_sub(bytes);
            forwarded.receive_owed = forwarded.receive_owed.saturating_add(bytes);
        }
        if stream.received {
            let _ = forwarded.parts.send(Part::End);
        }
        stream.stage = Stage::Forwarded(forwarded);
        self.tell_stream_room(id);
        Some(Handed {
            stream: id,
            request,
            parts: receiver,
        })
    }

    /// So much of a forwarded body was taken: the client may send as much again.
    pub(in super::super) fn eaten(&mut self, id: u32, bytes: u32) {
        let Some(Stage::Forwarded(forwarded)) =
            self.streams.get_mut(id).map(|stream| &mut stream.stage)
        else {
            return;
        };
        // The first parts of a call that was handed over were never counted.
        let counted = bytes.min(forwarded.uneaten);
        forwarded.uneaten = forwarded.uneaten.saturating_sub(counted);
        forwarded.receive_owed = forwarded.receive_owed.saturating_add(counted);
        self.make_room(counted);
        self.tell_stream_room(id);
        self.wake();
    }

    /// Resets calls that began longer ago than this and are not whole, and those whose answers were seen to wait for room
    /// as long ago; so many at most. Says how many there were.
    pub(in super::super) fn reset_late(&mut self, now_us: u64, wait_us: u64, max: usize) -> Late {
        let is_over = |since_us: u64| now_us.saturating_sub(since_us) > wait_us;
        let (mut late, mut ids) = (Late::default(), Vec::new());
        for (id, stream) in self.streams.each_mut() {
            if ids.len() >= max {
                late.more = true;
                break;
            }
            let unfinished = stream.unfinished.as_ref();
            if unfinished.is_some_and(|unfinished| is_over(unfinished.since_us)) {
                late.calls = late.calls.saturating_add(1);
                ids.push(id);
            } else if !stream.waits_for_room() {
                stream.unread_since_us = None;
            } else if is_over(*stream.unread_since_us.get_or_insert(now_us)) {
                late.answers = late.answers.saturating_add(1);
                ids.push(id);
            }
        }
        for id in ids {
            self.reset(id, Reason::Cancel);
        }
        late
    }

    fn tell_stream_room(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if let Stage::Forwarded(forwarded) = &mut stream.stage
            && !stream.received
            && forwarded.receive_owed >= WINDOW_OWED_BYTES_MAX
        {
            let owed = std::mem::take(&mut forwarded.receive_owed);
            forwarded.receive_room = forwarded.receive_room.saturating_add(owed);
            self.write_window_update(id, owed);
        }
    }

    /// The connection has room for so many bytes again; the client is told when there are many, and while it has not sent
    /// too much of calls that it does not finish.
    pub(super) fn make_room(&mut self, bytes: u32) {
        self.receive_owed = self.receive_owed.saturating_add(bytes);
        if self.receive_owed >= WINDOW_OWED_BYTES_MAX
            && self.unfinished_bytes <= self.limits.unfinished_bytes_max
        {
            let owed = std::mem::take(&mut self.receive_owed);
            self.receive_room = self.receive_room.saturating_add(owed);
            self.write_window_update(0, owed);
        }
    }
}

// === impl Stream ===

impl Stream {
    /// Whether what it has to say waits for the client to widen a window.
    fn waits_for_room(&self) -> bool {
        match &self.stage {
            Stage::Answered(_) => true,
            Stage::Forwarded(forwarded) => forwarded.starved,
            Stage::Call { .. } | Stage::Asked(_) => false,
        }
    }

    /// Takes note of data. False when it is not as long as the client said.
    fn take_data(&mut self, bytes: usize, end_stream: bool) -> bool {
        self.received = end_stream;
        match &mut self.body_left {
            None => true,
            Some(left) => match left.checked_sub(bytes as u64) {
                None => false,
                Some(rest) => {
                    *left = rest;
                    !end_stream || rest == 0
                }
            },
        }
    }
}

// === impl Forwarded ===

impl Forwarded {
    fn new(parts: mpsc::UnboundedSender<Part>) -> Self {
        Self {
            parts,
            receive_room: WINDOW_BYTES,
            receive_owed: 0,
            uneaten: 0,
            starved: false,
            task: None,
        }
    }
}
