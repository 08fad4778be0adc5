//! Request bodies: frames of data, the windows that they use, and memory for what is incomplete.
//!
//! How: a window is returned as soon as its bytes are read, so a started body never waits for one. A
//! body that is incomplete at the end of a turn is settled with the process's budget
//! ([`Http2::settle_bodies`], `bodies`).
//!
//! What it deliberately does not do: read headers or hand requests over (`calls`).

use std::borrow::Cow;

use bytes::Bytes;

use super::frame::{self, Head};
use super::receive::{Came, Event, broken};
use super::{Http2, Part, Reason, Stage, Stream, Unfinished, WINDOW_OWED_BYTES_MAX};

/// How long a body in parts may be to be put together here. Much less than a stream has room for, so that nobody waits to be
/// told of more.
const PARTS_BYTES_MAX: usize = 64 * 1024;

/// A frame of less that is neither a body's first nor its last is counted: what it brings weighs
/// less than what keeps it.
pub(super) const DATA_BYTES_MIN: usize = 64;

/// For how many streams a list is kept that is empty at the end of every turn.
const UNSETTLED_KEPT_MAX: usize = 64;

/// How long a gRPC frame's head is: a flag and the message's length.
pub(super) const GRPC_HEAD_BYTES: usize = 5;

// === impl Http2 ===

impl Http2 {
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
        let few = data.len() < DATA_BYTES_MIN && !end_stream;
        let Some(stream) = self.streams.get_mut(head.stream) else {
            self.make_room(length);
            return self.of_a_closed_stream(head.stream, now_us);
        };
        let first = !data.is_empty()
            && stream
                .unfinished
                .is_some_and(|body| body.received_bytes == 0);
        if few && !first {
            self.floods.control_frame(now_us)?;
        }
        if stream.received {
            self.make_room(length);
            return self.reset_for_fault(head.stream, Reason::StreamClosed, now_us);
        }
        if !stream.take_data(data.len(), end_stream) {
            self.make_room(length);
            return self.reset_for_fault(head.stream, Reason::Protocol, now_us);
        }
        // A stream that may go on for ever is bounded by the windows alone.
        let goes_on = stream.unfinished.is_none();
        let mut expected_bytes = 0;
        if let Some(unfinished) = &mut stream.unfinished {
            if end_stream {
                self.bodies.give_back(unfinished.held_bytes);
                stream.unfinished = None;
            } else {
                unfinished.add(data, self.limits.message_bytes_max);
                expected_bytes = unfinished.needed_bytes();
                if expected_bytes > unfinished.held_bytes && !unfinished.unsettled {
                    unfinished.unsettled = true;
                    self.unsettled.push(head.stream);
                }
            }
        }
        let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
        match &mut stream.stage {
            Stage::Call { body, padding, .. } => {
                if body.is_empty() && end_stream {
                    // Nearly always.
                    self.make_room(length);
                    return Ok(self.asked(head.stream, Cow::Borrowed(data)));
                }
                // Who says that it will be long is answered before it is whole, where it may not be.
                let says = frame::u32_at_start(body.get(1..).unwrap_or_default());
                let says_long =
                    !end_stream && says.is_some_and(|says| says as usize > PARTS_BYTES_MAX);
                *padding = padding.saturating_add(length.saturating_sub(bytes));
                if says_long || body.len().saturating_add(data.len()) > PARTS_BYTES_MAX {
                    let body = std::mem::take(body);
                    self.make_room(length);
                    return Ok(self
                        .hand_over(head.stream, &[&body, data])
                        .map(Event::Request));
                }
                if end_stream {
                    let mut body = std::mem::take(body);
                    body.extend_from_slice(data);
                    self.make_room(length);
                    return Ok(self.asked(head.stream, Cow::Owned(body)));
                }
                grow(body, data.len(), expected_bytes as usize);
                body.extend_from_slice(data);
                self.make_room(length);
            }
            Stage::Forwarded(forwarded) => {
                let Some(room) = forwarded.receive_room.checked_sub(length) else {
                    self.make_room(length);
                    return self.reset_for_fault(head.stream, Reason::FlowControl, now_us);
                };
                forwarded.receive_room = room;
                forwarded.uneaten = forwarded.uneaten.saturating_add(bytes);
                let padding = length.saturating_sub(bytes);
                forwarded.receive_owed = forwarded.receive_owed.saturating_add(padding);
                let withheld = if goes_on { bytes } else { 0 };
                forwarded.withheld = forwarded.withheld.saturating_add(withheld);
                if !data.is_empty() {
                    let data = Bytes::copy_from_slice(data);
                    let _ = forwarded.parts.send(Part::Data(data));
                }
                if end_stream {
                    let _ = forwarded.parts.send(Part::End);
                }
                self.make_room(length.saturating_sub(withheld));
            }
            Stage::Asked(_) | Stage::Answered(_) => self.make_room(length),
        }
        Ok(None)
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
        let withheld = bytes.min(forwarded.withheld);
        forwarded.withheld = forwarded.withheld.saturating_sub(withheld);
        self.make_room(withheld);
        self.tell_stream_room(id);
        self.wake();
    }

    pub(super) fn tell_stream_room(&mut self, id: u32) {
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

    /// The connection has room for so many bytes again; the client is told when there are many.
    pub(super) fn make_room(&mut self, bytes: u32) {
        self.receive_owed = self.receive_owed.saturating_add(bytes);
        if self.receive_owed >= WINDOW_OWED_BYTES_MAX {
            let owed = std::mem::take(&mut self.receive_owed);
            self.receive_room = self.receive_room.saturating_add(owed);
            self.write_window_update(0, owed);
        }
    }

    /// Takes what bodies that are incomplete need from the process's budget. Returns the streams
    /// for which the connection holds too much already: the caller refuses them. Called at the end
    /// of a turn, so that a call whose body has arrived by then is never refused.
    pub(in super::super) fn settle_bodies(&mut self) -> Vec<u32> {
        let mut refused = Vec::new();
        for id in self.unsettled.drain(..) {
            let Some(stream) = self.streams.get_mut(id) else {
                continue;
            };
            let Some(unfinished) = &mut stream.unfinished else {
                continue;
            };
            unfinished.unsettled = false;
            let needed = unfinished.needed_bytes();
            if self
                .bodies
                .take(needed.saturating_sub(unfinished.held_bytes))
            {
                unfinished.held_bytes = needed;
            } else {
                refused.push(id);
            }
        }
        // Its memory is used again, but a crowd's is not kept.
        self.unsettled.shrink_to(UNSETTLED_KEPT_MAX);
        refused
    }
}

// === impl Stream ===

impl Stream {
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

// === impl Unfinished ===

impl Unfinished {
    /// A body of which nothing has come, and how long it is if its request says so.
    pub(super) fn new(since_us: u64, body_bytes: Option<u64>, message_bytes_max: u32) -> Self {
        Self {
            since_us,
            received_bytes: 0,
            declared_bytes: within_message(body_bytes.unwrap_or(0), message_bytes_max),
            head: [0; GRPC_HEAD_BYTES],
            held_bytes: 0,
            unsettled: false,
        }
    }

    /// Takes note of a part of the body.
    fn add(&mut self, data: &[u8], message_bytes_max: u32) {
        let known = self.received_bytes as usize;
        for (byte, came) in self.head.iter_mut().skip(known).zip(data) {
            *byte = *came;
        }
        let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
        self.received_bytes = self.received_bytes.saturating_add(bytes);
        if self.declared_bytes == 0 && self.received_bytes as usize >= GRPC_HEAD_BYTES {
            let [_, message @ ..] = self.head;
            let bytes = u64::from(u32::from_be_bytes(message)) + GRPC_HEAD_BYTES as u64;
            self.declared_bytes = within_message(bytes, message_bytes_max);
        }
    }

    /// How much of the budget it needs once it has started: what has come, and what is known to
    /// come.
    pub(super) fn needed_bytes(&self) -> u32 {
        match self.received_bytes {
            0 => 0,
            received => received.max(self.declared_bytes),
        }
    }
}

/// This length of a body, if a message may be so long; 0 otherwise.
fn within_message(bytes: u64, message_bytes_max: u32) -> u32 {
    let bytes_max = u64::from(message_bytes_max) + GRPC_HEAD_BYTES as u64;
    u32::try_from(bytes)
        .ok()
        .filter(|_| bytes <= bytes_max)
        .unwrap_or(0)
}

/// Makes room for more of a body: for twice as much, but not for more than is expected of it.
fn grow(body: &mut Vec<u8>, more: usize, expected: usize) {
    let wanted = body.len().saturating_add(more);
    if wanted > body.capacity() {
        let room = body.capacity().saturating_mul(2).min(expected).max(wanted);
        body.reserve_exact(room.saturating_sub(body.len()));
    }
}
