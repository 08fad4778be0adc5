//! Calls as they come: their headers, their trailers, and the way from a call to its answer.
//!
//! How: a call whose body is whole in one frame of data is handed out as it lies there. One that comes in parts, or whose end
//! does, waits in its stream; a long one in parts goes to tonic, which takes it as it comes.
//!
//! What it deliberately does not do: decode headers (`head`), answer (`send`).

use std::borrow::Cow;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use tokio::sync::mpsc;

use super::frame::{self, Head};
use super::head::{Asked, Trailers};
use super::receive::{Came, Event, broken};
use super::{
    Block, Broken, FRAME_BYTES_MAX, Forwarded, Goodbye, Handed, Http2, Late, Part, Reason, Stage,
    Stream, Unfinished, WINDOW_BYTES,
};

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");

const UNDECODABLE: &str = "headers that nobody can decode";

/// Whose requests go on as long as the client likes.
const REFLECTION: &str = "/grpc.reflection.";

/// The longest header block that is read at all, in bytes. What is longer than a connection keeps
/// is dropped as it comes, up to here; beyond it the connection is closed.
const BLOCK_BYTES_MAX: usize = 1024 * 1024;

/// A block may come in so many frames however short, and in one more for each of so many bytes.
const BLOCK_FRAMES: usize = 8;
const BYTES_PER_BLOCK_FRAME: usize = 4 * 1024;

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
            return self.block(head.stream, Some(block), end_stream, now_us);
        }
        self.block = Some(Block {
            stream: head.stream,
            end_stream,
            bytes: block.to_vec(),
            dropped: false,
            received_bytes: block.len(),
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
        block.frames = block.frames.saturating_add(1);
        block.received_bytes = block.received_bytes.saturating_add(payload.len());
        let frames_max = BLOCK_FRAMES.saturating_add(block.received_bytes / BYTES_PER_BLOCK_FRAME);
        if block.received_bytes > BLOCK_BYTES_MAX || block.frames > frames_max {
            return broken(Reason::EnhanceYourCalm, "headers without end");
        }
        if !self.keep_or_drop(&mut block, payload) {
            return broken(Reason::Compression, UNDECODABLE);
        }
        if head.has(frame::END_HEADERS) {
            let bytes = (!block.dropped).then_some(&block.bytes[..]);
            return self.block(block.stream, bytes, block.end_stream, now_us);
        }
        self.block = Some(block);
        Ok(None)
    }

    /// Keeps what has come of a block, or drops all of it once it is too long. False when it
    /// cannot be decoded.
    fn keep_or_drop(&mut self, block: &mut Block, payload: &[u8]) -> bool {
        if block.dropped {
            return self.heads.drop_part(payload).is_some();
        }
        block.bytes.extend_from_slice(payload);
        let (_, bytes_max) = block_bounds(self.limits.header_list_bytes_max);
        if block.bytes.len() <= bytes_max {
            return true;
        }
        block.dropped = true;
        self.heads.begin_to_drop();
        let bytes = std::mem::take(&mut block.bytes);
        self.heads.drop_part(&bytes).is_some()
    }

    /// A block of headers is whole; none where it was too long to be kept.
    fn block<'b>(
        &mut self,
        stream: u32,
        block: Option<&[u8]>,
        end_stream: bool,
        now_us: u64,
    ) -> Came<'b> {
        if stream.is_multiple_of(2) {
            return broken(Reason::Protocol, "a client's streams have odd numbers");
        }
        if stream <= self.newest {
            return self.trailers(stream, block, end_stream, now_us);
        }
        let asked = match block {
            Some(block) => self.heads.read(block),
            None => self.heads.read_dropped(),
        };
        let Some(asked) = asked else {
            return broken(Reason::Compression, UNDECODABLE);
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
            Asked::TooLong { .. } | Asked::Malformed => None,
        };
        // Who asks for reflection may go on asking for ever; all others have one thing to say.
        let goes_on = matches!(&asked, Asked::Other(request, _) if request.uri().path().starts_with(REFLECTION));
        let unfinished = (!end_stream && !goes_on)
            .then(|| Unfinished::new(now_us, body_bytes, self.limits.message_bytes_max));
        let says_too_much = end_stream && body_bytes.is_some_and(|bytes| bytes > 0);
        match asked {
            Asked::Malformed => self.refuse_malformed(stream, now_us)?,
            _ if says_too_much => self.refuse_malformed(stream, now_us)?,
            Asked::TooLong { grpc } => {
                self.floods.reset(now_us)?;
                self.refuse_headers(stream, grpc, end_stream);
            }
            Asked::Call(call) => {
                let stage = Stage::Call {
                    call,
                    body: Vec::new(),
                    padding: 0,
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

    /// Answers a request whose headers are longer than they may be, on its stream alone: with the
    /// status that gRPC clients show, or with 431.
    fn refuse_headers(&mut self, stream: u32, grpc: bool, end_stream: bool) {
        self.met.header_lists = self.met.header_lists.saturating_add(1);
        let mut headers = HeaderMap::new();
        let mut status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        if grpc {
            let bytes_max = self.limits.header_list_bytes_max;
            let words = format!(
                "the call's metadata is larger than {bytes_max} bytes; send less of it, or raise --header-list-size-max"
            );
            status = StatusCode::OK;
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert(GRPC_STATUS, RESOURCE_EXHAUSTED);
            if let Ok(words) = HeaderValue::try_from(words) {
                headers.insert(GRPC_MESSAGE, words);
            }
        }
        self.write_head(stream, status, &headers, true);
        if !end_stream {
            // The answer is complete, so the rest of the request is not needed.
            self.write_reset(stream, Reason::NoError);
        }
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
    fn trailers<'b>(
        &mut self,
        id: u32,
        block: Option<&[u8]>,
        end_stream: bool,
        now_us: u64,
    ) -> Came<'b> {
        // No client of gRPC has any.
        self.floods.control_frame(now_us)?;
        let trailers = match block {
            Some(block) => self.heads.read_trailers(block),
            None => self.heads.read_dropped().map(|_| Trailers::Malformed),
        };
        let Some(trailers) = trailers else {
            return broken(Reason::Compression, UNDECODABLE);
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
            self.bodies.give_back(unfinished.held_bytes);
        }
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

    /// A frame for a stream that has ended here. Where it was reset here the client did not know
    /// yet, and the frame is ignored (RFC 9113, section 5.1).
    pub(super) fn of_a_closed_stream<'b>(&mut self, id: u32, now_us: u64) -> Came<'b> {
        self.floods.control_frame(now_us)?;
        let ignored = matches!(self.goodbye, Goodbye::Final(last) if id > last)
            || self.reset_streams.iter().rev().any(|reset| *reset == id);
        if !ignored {
            self.write_reset(id, Reason::StreamClosed);
        }
        Ok(None)
    }

    /// A call's body is whole.
    pub(super) fn asked<'b>(&mut self, id: u32, body: Cow<'b, [u8]>) -> Option<Event<'b>> {
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
        let (call, padding) = match &stream.stage {
            Stage::Call { call, padding, .. } => (call, *padding),
            // All of its body has come, and no window matters any more.
            Stage::Asked(call) => (call, 0),
            Stage::Answered(_) | Stage::Forwarded(_) => return None,
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
        forwarded.receive_room = forwarded.receive_room.saturating_sub(padding);
        forwarded.receive_owed = forwarded.receive_owed.saturating_add(padding);
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
}

// === impl Forwarded ===

impl Forwarded {
    fn new(parts: mpsc::UnboundedSender<Part>) -> Self {
        Self {
            parts,
            receive_room: WINDOW_BYTES,
            receive_owed: 0,
            uneaten: 0,
            withheld: 0,
            starved: false,
            task: None,
        }
    }
}
