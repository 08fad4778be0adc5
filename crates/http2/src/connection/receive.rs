//! Frames from the client, and what control frames do to the connection.
//!
//! How: [`ServerConnection::receive`] reads frames until one makes an event. A frame that breaks a
//! rule of the connection ends it ([`ConnectionError`]); one that breaks a rule of its stream
//! resets that stream.

use super::{Handshake, ServerConnection};
use crate::error::{flow_control, frame_size, protocol};
use crate::frame::{self, FrameHead, HEAD_BYTES, PAYLOAD_BYTES_MAX, PREFACE};
use crate::{ConnectionError, Event, Reason};

/// How many frames that complete no request are read before others have a chance to run.
const FRAMES_MAX: usize = 64;

/// This many open streams are as much work to visit as one control frame.
const STREAMS_PER_FRAME: usize = 32;

/// Smaller WINDOW_UPDATEs on an exhausted window count as control frames.
const WINDOW_UPDATE_BYTES_MIN: i64 = 1_024;

/// What one frame made.
pub(super) type Received<'b> = Result<Option<Event<'b>>, ConnectionError>;

// === impl ServerConnection ===

impl ServerConnection {
    /// Reads frames from `input` until one makes an event; none if the rest of `input` is less
    /// than a frame. Pass that rest again with more bytes behind it.
    ///
    /// `input` is advanced behind what was read. `now_us` are microseconds of a monotonic clock.
    ///
    /// # Errors
    ///
    /// If the client broke a rule of the protocol or exceeded a limit, so that the connection must
    /// end: call [`ServerConnection::abrupt_shutdown`] with the error's reason.
    pub fn receive<'b>(
        &mut self,
        input: &mut &'b [u8],
        now_us: u64,
    ) -> Result<Option<Event<'b>>, ConnectionError> {
        if self.handshake == Handshake::AwaitsPreface && !self.read_preface(input)? {
            return Ok(None);
        }
        let mut frames = std::mem::take(&mut self.frames_read);
        while frames < FRAMES_MAX {
            let Some(head) = FrameHead::read(input) else {
                return Ok(None);
            };
            if head.length > PAYLOAD_BYTES_MAX {
                return Err(frame_size("a frame is longer than SETTINGS_MAX_FRAME_SIZE"));
            }
            let rest = input.get(HEAD_BYTES..).unwrap_or_default();
            let Some((payload, rest)) = rest.split_at_checked(head.length) else {
                return Ok(None);
            };
            *input = rest;
            frames = frames.saturating_add(1);
            if let Some(event) = self.frame(head, payload, now_us)? {
                if !matches!(event, Event::Call(_) | Event::Request(_)) {
                    self.frames_read = frames;
                }
                return Ok(Some(event));
            }
        }
        Ok(Some(Event::Yield))
    }

    fn read_preface(&mut self, input: &mut &[u8]) -> Result<bool, ConnectionError> {
        let known = input.len().min(PREFACE.len());
        if input.get(..known) != PREFACE.get(..known) {
            return Err(protocol("the connection preface is not that of HTTP/2"));
        }
        let whole = known == PREFACE.len();
        if whole {
            *input = input.get(known..).unwrap_or_default();
            self.handshake = Handshake::AwaitsSettings;
        }
        Ok(whole)
    }

    fn frame<'b>(&mut self, head: FrameHead, payload: &'b [u8], now_us: u64) -> Received<'b> {
        if self.headers.is_in_block() != (head.kind == frame::CONTINUATION) {
            return Err(protocol(
                "a header block is interrupted, or CONTINUATION without one",
            ));
        }
        if self.handshake == Handshake::AwaitsSettings && head.kind != frame::SETTINGS {
            return Err(protocol("SETTINGS must be the first frame"));
        }
        match head.kind {
            frame::DATA => return self.data(head, payload, now_us),
            frame::HEADERS => return self.headers(head, payload, now_us),
            frame::CONTINUATION => return self.continuation(head, payload, now_us),
            frame::RST_STREAM => return self.reset_by_client(head, payload, now_us),
            frame::WINDOW_UPDATE => return self.window_update(head, payload, now_us),
            kind => {
                self.flood_limits.control_frame(now_us)?;
                match kind {
                    frame::SETTINGS => self.settings(head, payload, now_us)?,
                    frame::PING => self.ping(head, payload)?,
                    frame::GOAWAY if head.stream != 0 => {
                        return Err(protocol("GOAWAY on a stream"));
                    }
                    frame::GOAWAY if head.length < 8 => {
                        return Err(frame_size("GOAWAY of less than eight bytes"));
                    }
                    frame::GOAWAY => self.ending.client_leaves = true,
                    frame::PUSH_PROMISE => return Err(protocol("PUSH_PROMISE from a client")),
                    frame::PRIORITY if head.stream == 0 => {
                        return Err(protocol("PRIORITY on stream 0"));
                    }
                    frame::PRIORITY if head.length != 5 && head.stream <= self.last_stream => {
                        return Ok(self.reset_and_report(head.stream, Reason::FrameSize));
                    }
                    // Priorities and unknown frames are ignored.
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    fn reset_by_client<'b>(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        now_us: u64,
    ) -> Received<'b> {
        if payload.len() != 4 {
            return Err(frame_size("RST_STREAM must have four bytes"));
        }
        if head.stream == 0 || head.stream > self.last_stream {
            return Err(protocol("RST_STREAM on an idle stream"));
        }
        self.flood_limits.reset(now_us)?;
        let Some(stream) = self.remove(head.stream) else {
            // Now the client knows that the stream has ended: a later frame is its mistake.
            self.outbox
                .reset_streams
                .retain(|reset| *reset != head.stream);
            return Ok(None);
        };
        Ok(stream.is_request().then_some(Event::Reset {
            stream: head.stream,
        }))
    }

    /// Resets a stream because of a fault of its client, and counts it as if the client had reset
    /// it. Work for it may go on all the same, so that a client could otherwise have more under
    /// way than it may have streams.
    pub(super) fn reset_for_fault<'b>(
        &mut self,
        stream: u32,
        reason: Reason,
        now_us: u64,
    ) -> Received<'b> {
        self.flood_limits.reset(now_us)?;
        Ok(self.reset_and_report(stream, reason))
    }

    fn reset_and_report<'b>(&mut self, id: u32, reason: Reason) -> Option<Event<'b>> {
        let stream = self.streams.get_mut(id);
        let is_request = stream.is_some_and(|stream| stream.is_request());
        self.reset(id, reason);
        is_request.then_some(Event::Reset { stream: id })
    }

    fn window_update<'b>(&mut self, head: FrameHead, payload: &[u8], now_us: u64) -> Received<'b> {
        let (4, Some(bytes)) = (payload.len(), frame::leading_u32(payload)) else {
            return Err(frame_size("WINDOW_UPDATE must have four bytes"));
        };
        let bytes = i64::from(bytes & frame::MAX_31_BITS);
        if head.stream == 0 {
            if bytes == 0 {
                return Err(protocol("WINDOW_UPDATE of 0 bytes"));
            }
            let before = self.flow.send_window;
            // One for each response is fair, and many clients do so.
            if before >= self.flow.send_window_granted {
                self.flood_limits.control_frame(now_us)?;
            }
            // All streams that wait are visited.
            if before <= 0 && bytes < WINDOW_UPDATE_BYTES_MIN {
                self.count_visit(now_us)?;
            }
            self.flow.send_window = before.saturating_add(bytes);
            if self.flow.send_window > i64::from(frame::MAX_31_BITS) {
                return Err(flow_control("a window exceeds 2^31-1 bytes"));
            }
            self.flow.send_window_granted = self.flow.send_window;
            if before <= 0 {
                self.send_waiting();
            }
            return Ok(None);
        }
        if head.stream > self.last_stream {
            return Err(protocol("WINDOW_UPDATE on an idle stream"));
        }
        self.flood_limits.control_frame(now_us)?;
        let Some(stream) = self.streams.get_mut(head.stream) else {
            return Ok(None);
        };
        stream.send_window = stream.send_window.saturating_add(bytes);
        if bytes == 0 {
            return self.reset_for_fault(head.stream, Reason::Protocol, now_us);
        }
        if stream.send_window > i64::from(frame::MAX_31_BITS) {
            return self.reset_for_fault(head.stream, Reason::FlowControl, now_us);
        }
        self.send_waiting_of(head.stream);
        Ok(None)
    }

    /// Counts a frame for which all streams are visited as the work that it is.
    fn count_visit(&mut self, now_us: u64) -> Result<(), ConnectionError> {
        let frames = self.streams.open() / STREAMS_PER_FRAME;
        self.flood_limits.control_frames(frames, now_us)
    }

    fn settings(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        now_us: u64,
    ) -> Result<(), ConnectionError> {
        if head.stream != 0 {
            return Err(protocol("SETTINGS on a stream"));
        }
        if head.has(frame::ACK) {
            return match payload {
                [] => Ok(()),
                _ => Err(frame_size("SETTINGS acknowledgement with a payload")),
            };
        }
        let (settings, []) = payload.as_chunks::<6>() else {
            return Err(frame_size("SETTINGS must have six bytes for each setting"));
        };
        // The last of several counts, and streams are visited once.
        let mut window_bytes = None;
        for [n0, n1, v0, v1, v2, v3] in settings {
            let value = u32::from_be_bytes([*v0, *v1, *v2, *v3]);
            match u16::from_be_bytes([*n0, *n1]) {
                frame::HEADER_TABLE_SIZE => {
                    self.outbox.encoder.set_client_table_bytes(value as usize);
                }
                frame::ENABLE_PUSH if value > 1 => {
                    return Err(protocol("SETTINGS_ENABLE_PUSH must be 0 or 1"));
                }
                frame::INITIAL_WINDOW_SIZE => {
                    if value > frame::MAX_31_BITS {
                        return Err(flow_control("a window exceeds 2^31-1 bytes"));
                    }
                    window_bytes = Some(value);
                }
                frame::MAX_FRAME_SIZE => {
                    if !(16_384..=0xff_ffff).contains(&value) {
                        return Err(protocol("SETTINGS_MAX_FRAME_SIZE is out of range"));
                    }
                    self.flow.send_payload_bytes_max = value as usize;
                }
                _ => {}
            }
        }
        if let Some(bytes) = window_bytes
            && i64::from(bytes) != self.flow.initial_send_window
        {
            self.count_visit(now_us)?;
            self.resize_windows(bytes)?;
        }
        self.handshake = Handshake::Complete;
        self.outbox.write_frame(frame::SETTINGS, frame::ACK, 0, &[]);
        Ok(())
    }

    fn resize_windows(&mut self, bytes: u32) -> Result<(), ConnectionError> {
        let wider = i64::from(bytes).saturating_sub(self.flow.initial_send_window);
        self.flow.initial_send_window = i64::from(bytes);
        for (_, stream) in self.streams.iter_mut() {
            stream.send_window = stream.send_window.saturating_add(wider);
            if stream.send_window > i64::from(frame::MAX_31_BITS) {
                return Err(flow_control("a window exceeds 2^31-1 bytes"));
            }
        }
        if wider > 0 {
            self.send_waiting();
        }
        Ok(())
    }

    fn ping(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), ConnectionError> {
        if head.stream != 0 {
            return Err(protocol("PING on a stream"));
        }
        if payload.len() != 8 {
            return Err(frame_size("PING must have eight bytes"));
        }
        if head.has(frame::ACK) {
            self.ping_acknowledged(payload);
        } else {
            self.outbox.write_frame(frame::PING, frame::ACK, 0, payload);
        }
        Ok(())
    }
}
