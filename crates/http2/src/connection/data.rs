//! Request bodies: DATA frames, the windows that they use, and memory for incomplete bodies.
//!
//! How: a window is returned as soon as its bytes are read, so a started body never waits for one.
//! A body that is incomplete at the end of a turn is settled with the budget of the process
//! ([`ServerConnection::settle_body_budget`], `body_budget`).

use std::borrow::Cow;

use super::ServerConnection;
use super::flow::WINDOW_RETURNED_BYTES_MIN;
use super::receive::Received;
use super::stream::StreamState;
use crate::error::{flow_control, protocol};
use crate::frame::{self, FrameHead};
use crate::{Event, Reason};

/// The longest body in parts that is assembled here, in bytes. Much less than a stream's window, so
/// no client waits for more of one.
const ASSEMBLED_BYTES_MAX: usize = 64 * 1024;

/// A shorter DATA frame that is neither the first of a body nor its last counts as a control frame:
/// it carries less than it costs.
const DATA_BYTES_MIN: usize = 64;

/// For how many streams the list of unsettled bodies keeps memory. It is empty at the end of every
/// turn.
const UNSETTLED_KEPT_MAX: usize = 64;

// === impl ServerConnection ===

impl ServerConnection {
    pub(super) fn data<'b>(
        &mut self,
        head: FrameHead,
        payload: &'b [u8],
        now_us: u64,
    ) -> Received<'b> {
        let id = head.stream;
        if id == 0 || id > self.last_stream {
            return Err(protocol("DATA on an idle stream"));
        }
        // A frame is never as long.
        let length = u32::try_from(head.length).unwrap_or(u32::MAX);
        let window = self
            .flow
            .receive_window
            .checked_sub(length)
            .ok_or(flow_control("DATA exceeds the connection's window"))?;
        self.flow.receive_window = window;
        let data = frame::without_padding(head, payload)
            .ok_or(protocol("padding is longer than its frame"))?;
        let end_stream = head.has(frame::END_STREAM);
        let short = data.len() < DATA_BYTES_MIN && !end_stream;
        let Some(stream) = self.streams.get_mut(id) else {
            self.return_window(length);
            return self.frame_of_closed_stream(id, now_us);
        };
        let first = !data.is_empty()
            && stream
                .partial_body
                .is_some_and(|body| body.received_bytes == 0);
        if short && !first {
            self.flood_limits.control_frame(now_us)?;
        }
        if stream.received {
            self.return_window(length);
            return self.reset_for_fault(id, Reason::StreamClosed, now_us);
        }
        if !stream.count_data(data.len(), end_stream) {
            self.return_window(length);
            return self.reset_for_fault(id, Reason::Protocol, now_us);
        }
        // A streaming body is bounded by the flow control windows only.
        let goes_on = stream.partial_body.is_none();
        let mut expected_bytes = 0;
        if let Some(partial_body) = &mut stream.partial_body {
            if end_stream {
                self.bodies.release(partial_body.held_bytes);
                stream.partial_body = None;
            } else {
                partial_body.add(data, self.config.message_bytes_max);
                expected_bytes = partial_body.needed_bytes();
                if expected_bytes > partial_body.held_bytes && !partial_body.unsettled {
                    partial_body.unsettled = true;
                    self.bodies.unsettled.push(id);
                }
            }
        }
        match &mut stream.state {
            StreamState::CallArriving { body, padding, .. } => {
                if body.is_empty() && end_stream {
                    // Nearly always.
                    self.return_window(length);
                    return Ok(self.call_arrived(id, Cow::Borrowed(data)));
                }
                // A long message is answered before it is whole if it is too long.
                let declared = frame::leading_u32(body.get(1..).unwrap_or_default());
                let declares_long = !end_stream
                    && declared.is_some_and(|bytes| bytes as usize > ASSEMBLED_BYTES_MAX);
                *padding = padding.saturating_add(padding_bytes(length, data));
                if declares_long || body.len().saturating_add(data.len()) > ASSEMBLED_BYTES_MAX {
                    self.return_window(length);
                    return Ok(self.long_call(id, data));
                }
                if end_stream {
                    let mut body = std::mem::take(body);
                    body.extend_from_slice(data);
                    self.return_window(length);
                    return Ok(self.call_arrived(id, Cow::Owned(body)));
                }
                grow(body, data.len(), expected_bytes as usize);
                body.extend_from_slice(data);
                self.return_window(length);
                Ok(None)
            }
            StreamState::Request(_) => self.request_data((id, length), data, goes_on, now_us),
            StreamState::CallPending(_) | StreamState::CallAnswered(_) => {
                self.return_window(length);
                Ok(None)
            }
        }
    }

    /// DATA of a request. `frame` is its stream and its length with padding.
    fn request_data<'b>(
        &mut self,
        (id, length): (u32, u32),
        data: &'b [u8],
        goes_on: bool,
        now_us: u64,
    ) -> Received<'b> {
        let Some(stream) = self.streams.get_mut(id) else {
            return Ok(None);
        };
        let end_stream = stream.received;
        let StreamState::Request(request) = &mut stream.state else {
            return Ok(None);
        };
        let Some(window) = request.receive_window.checked_sub(length) else {
            self.return_window(length);
            return self.reset_for_fault(id, Reason::FlowControl, now_us);
        };
        request.receive_window = window;
        let padding = padding_bytes(length, data);
        let bytes = length.saturating_sub(padding);
        request.unreleased = request.unreleased.saturating_add(bytes);
        request.receive_window_owed = request.receive_window_owed.saturating_add(padding);
        let withheld = if goes_on { bytes } else { 0 };
        request.withheld = request.withheld.saturating_add(withheld);
        self.return_window(length.saturating_sub(withheld));
        let event = Event::Data {
            stream: id,
            bytes: data,
            end_stream,
        };
        Ok((!data.is_empty() || end_stream).then_some(event))
    }

    /// Returns the window of a part of a request's body that was used: the client may send as much
    /// again.
    ///
    /// Bytes beyond those of [`Event::Data`] are ignored, so a program may release
    /// [`crate::Request::body`] as well.
    pub fn release_capacity(&mut self, stream: u32, bytes: usize) {
        let Some(StreamState::Request(request)) =
            self.streams.get_mut(stream).map(|stream| &mut stream.state)
        else {
            return;
        };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let released = bytes.min(request.unreleased);
        request.unreleased = request.unreleased.saturating_sub(released);
        request.receive_window_owed = request.receive_window_owed.saturating_add(released);
        let withheld = bytes.min(request.withheld);
        request.withheld = request.withheld.saturating_sub(withheld);
        self.return_window(withheld);
        self.return_stream_window(stream);
        self.wake();
    }

    /// Sends WINDOW_UPDATE on a stream if enough of its window was used.
    pub(super) fn return_stream_window(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(id) else {
            return;
        };
        if let StreamState::Request(request) = &mut stream.state
            && !stream.received
            && request.receive_window_owed >= WINDOW_RETURNED_BYTES_MIN
        {
            let owed = std::mem::take(&mut request.receive_window_owed);
            request.receive_window = request.receive_window.saturating_add(owed);
            self.outbox.write_window_update(id, owed);
        }
    }

    /// Returns bytes of the connection's window, and sends WINDOW_UPDATE once there are enough.
    #[inline]
    pub(super) fn return_window(&mut self, bytes: u32) {
        if let Some(owed) = self.flow.return_window(bytes) {
            self.outbox.write_window_update(0, owed);
        }
    }

    /// Takes memory for incomplete bodies from the budget. Returns the streams for which there is
    /// none: refuse them, with [`ServerConnection::send_response`] or
    /// [`ServerConnection::send_reset`].
    ///
    /// Call it at the end of a turn, when all input was received: a request whose body has arrived
    /// by then is never refused.
    pub fn settle_body_budget(&mut self) -> Vec<u32> {
        let mut refused = Vec::new();
        let mut unsettled = std::mem::take(&mut self.bodies.unsettled);
        for id in unsettled.drain(..) {
            let Some(stream) = self.streams.get_mut(id) else {
                continue;
            };
            let Some(partial_body) = &mut stream.partial_body else {
                continue;
            };
            partial_body.unsettled = false;
            let needed = partial_body.needed_bytes();
            let more = needed.saturating_sub(partial_body.held_bytes);
            if self.bodies.take(more) {
                partial_body.held_bytes = needed;
            } else {
                refused.push(id);
            }
        }
        // The list keeps its memory, but not that of a flood.
        unsettled.shrink_to(UNSETTLED_KEPT_MAX);
        self.bodies.unsettled = unsettled;
        refused
    }
}

/// How much of a frame of this length is padding.
fn padding_bytes(length: u32, data: &[u8]) -> u32 {
    length.saturating_sub(u32::try_from(data.len()).unwrap_or(u32::MAX))
}

/// Reserves memory for more of a body: twice as much, but not more than is expected.
fn grow(body: &mut Vec<u8>, more: usize, expected: usize) {
    let wanted = body.len().saturating_add(more);
    if wanted > body.capacity() {
        let capacity = body.capacity().saturating_mul(2).min(expected).max(wanted);
        body.reserve_exact(capacity.saturating_sub(body.len()));
    }
}
