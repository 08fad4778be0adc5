//! What comes: frames, and what those that bring no call on do to the connection.
//!
//! How: [`Http2::next`] reads frames off the bytes that it is given until one makes something for others to do. What breaks
//! a rule of the connection ends it ([`Broken`]); what breaks a stream's resets that stream.
//!
//! What it deliberately does not do: read sockets, keep bytes that are no whole frame (`connection`).

use std::borrow::Cow;

use super::frame::{self, Head};
use super::{
    Broken, FRAME_BYTES_MAX, GOODBYE_PING, Greeted, HEAD_BYTES, Handed, Http2, KEEPALIVE_PING,
    PREFACE, Reason,
};
use crate::telemetry::TraceParent;

/// Something to do.
pub(in super::super) enum Event<'b> {
    /// A call of ShouldRateLimit has come.
    Call {
        stream: u32,
        body: Cow<'b, [u8]>,
        timeout_us: Option<u64>,
        parent: Option<TraceParent>,
    },
    /// A request for tonic has come.
    Request(Handed),
    /// Many frames have come that bring no call on, and there may be more: others have waited long enough.
    Nothing,
}

/// How many frames are read that bring no call on, before somebody asks again.
const FRAMES_MAX: usize = 64;

/// So many open streams are as much work to look through as a frame.
const STREAMS_A_FRAME: usize = 32;

/// Who has no room and makes less than this has more to come.
const ROOM_BYTES_MIN: i64 = 1_024;

/// What one frame came to.
pub(super) type Came<'b> = Result<Option<Event<'b>>, Broken>;

pub(super) fn broken<T>(reason: Reason, why: &'static str) -> Result<T, Broken> {
    Err(Broken { reason, why })
}

// === impl Http2 ===

impl Http2 {
    /// Reads frames off `input` until there is something to do; none when the rest of `input` is no whole frame.
    pub(in super::super) fn next<'b>(&mut self, input: &mut &'b [u8], now_us: u64) -> Came<'b> {
        if self.greeted == Greeted::Nothing && !self.read_preface(input)? {
            return Ok(None);
        }
        for _ in 0..FRAMES_MAX {
            let Some(head) = Head::read(input) else {
                return Ok(None);
            };
            if head.length > FRAME_BYTES_MAX {
                return broken(
                    Reason::FrameSize,
                    "a frame is longer than we said it may be",
                );
            }
            let rest = input.get(HEAD_BYTES..).unwrap_or_default();
            let Some((payload, rest)) = rest.split_at_checked(head.length) else {
                return Ok(None);
            };
            *input = rest;
            if let Some(event) = self.frame(head, payload, now_us)? {
                return Ok(Some(event));
            }
        }
        Ok(Some(Event::Nothing))
    }

    fn read_preface(&mut self, input: &mut &[u8]) -> Result<bool, Broken> {
        let known = input.len().min(PREFACE.len());
        if input.get(..known) != PREFACE.get(..known) {
            return broken(Reason::Protocol, "this is no HTTP/2");
        }
        let whole = known == PREFACE.len();
        if whole {
            *input = input.get(known..).unwrap_or_default();
            self.greeted = Greeted::Preface;
        }
        Ok(whole)
    }

    fn frame<'b>(&mut self, head: Head, payload: &'b [u8], now_us: u64) -> Came<'b> {
        if self.block.is_some() != (head.kind == frame::CONTINUATION) {
            return broken(
                Reason::Protocol,
                "headers and what continues them belong together",
            );
        }
        if self.greeted == Greeted::Preface && head.kind != frame::SETTINGS {
            return broken(Reason::Protocol, "settings come first");
        }
        match head.kind {
            frame::DATA => return self.data(head, payload, now_us),
            frame::HEADERS => return self.headers(head, payload, now_us),
            frame::CONTINUATION => return self.continuation(head, payload, now_us),
            frame::RST_STREAM => self.reset_by_client(head, payload, now_us)?,
            frame::WINDOW_UPDATE => self.window_update(head, payload, now_us)?,
            kind => {
                self.floods.control_frame(now_us)?;
                match kind {
                    frame::SETTINGS => self.settings(head, payload, now_us)?,
                    frame::PING => self.ping(head, payload)?,
                    frame::GOAWAY if head.stream != 0 => {
                        return broken(Reason::Protocol, "a goodbye of a stream");
                    }
                    frame::GOAWAY if head.length < 8 => {
                        return broken(Reason::FrameSize, "a goodbye has eight bytes or more");
                    }
                    frame::GOAWAY => self.client_leaves = true,
                    frame::PUSH_PROMISE => {
                        return broken(Reason::Protocol, "a client has nothing to push");
                    }
                    frame::PRIORITY if head.stream == 0 => {
                        return broken(Reason::Protocol, "a priority of no stream");
                    }
                    frame::PRIORITY if head.length != 5 && head.stream <= self.newest => {
                        self.reset(head.stream, Reason::FrameSize);
                    }
                    // Priorities, and what nobody knows yet.
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    fn reset_by_client(&mut self, head: Head, payload: &[u8], now_us: u64) -> Result<(), Broken> {
        if payload.len() != 4 {
            return broken(Reason::FrameSize, "a reset has four bytes");
        }
        if head.stream == 0 || head.stream > self.newest {
            return broken(Reason::Protocol, "a reset of no stream");
        }
        self.floods.reset(now_us)?;
        if self.remove(head.stream).is_none() {
            // Now the client knows that the stream has ended: a later frame is its mistake.
            self.reset_streams.retain(|reset| *reset != head.stream);
        }
        Ok(())
    }

    fn window_update(&mut self, head: Head, payload: &[u8], now_us: u64) -> Result<(), Broken> {
        let (4, Some(bytes)) = (payload.len(), frame::u32_at_start(payload)) else {
            return broken(Reason::FrameSize, "a window's update has four bytes");
        };
        let bytes = i64::from(bytes & frame::MAX_31_BITS);
        if head.stream == 0 {
            if bytes == 0 {
                return broken(Reason::Protocol, "a window is widened by nothing");
            }
            let before = self.send_room;
            // One for each answer is fair, and many a client does so.
            if before >= self.send_room_told {
                self.floods.control_frame(now_us)?;
            }
            // All that wait are looked through: little by little that is much.
            if before <= 0 && bytes < ROOM_BYTES_MIN {
                self.look_through(now_us)?;
            }
            self.send_room = before.saturating_add(bytes);
            if self.send_room > i64::from(frame::MAX_31_BITS) {
                return broken(Reason::FlowControl, "a window wider than any may be");
            }
            self.send_room_told = self.send_room;
            if before <= 0 {
                self.send_waiting();
            }
            return Ok(());
        }
        if head.stream > self.newest {
            return broken(Reason::Protocol, "a window of no stream");
        }
        self.floods.control_frame(now_us)?;
        let Some(stream) = self.streams.get_mut(head.stream) else {
            return Ok(());
        };
        stream.send_room = stream.send_room.saturating_add(bytes);
        if bytes == 0 {
            self.reset_for_fault(head.stream, Reason::Protocol, now_us)?;
        } else if stream.send_room > i64::from(frame::MAX_31_BITS) {
            self.reset_for_fault(head.stream, Reason::FlowControl, now_us)?;
        } else {
            self.send_waiting_of(head.stream);
        }
        Ok(())
    }

    /// All streams are looked through, which is counted as the work that it is.
    fn look_through(&mut self, now_us: u64) -> Result<(), Broken> {
        let frames = self.streams.open() / STREAMS_A_FRAME;
        self.floods.control_frames(frames, now_us)
    }

    fn settings(&mut self, head: Head, payload: &[u8], now_us: u64) -> Result<(), Broken> {
        if head.stream != 0 {
            return broken(Reason::Protocol, "settings of a stream");
        }
        if head.has(frame::ACK) {
            return match payload {
                [] => Ok(()),
                _ => broken(Reason::FrameSize, "settings agreed to with more to say"),
            };
        }
        let (settings, []) = payload.as_chunks::<6>() else {
            return broken(Reason::FrameSize, "a setting has six bytes");
        };
        // Of several the last counts, and streams are looked through once.
        let mut window_bytes = None;
        for [n0, n1, v0, v1, v2, v3] in settings {
            let value = u32::from_be_bytes([*v0, *v1, *v2, *v3]);
            match u16::from_be_bytes([*n0, *n1]) {
                frame::HEADER_TABLE_SIZE => self.encoder.client_remembers(value as usize),
                frame::ENABLE_PUSH if value > 1 => {
                    return broken(Reason::Protocol, "push is on or off");
                }
                frame::INITIAL_WINDOW_SIZE => {
                    if value > frame::MAX_31_BITS {
                        return broken(Reason::FlowControl, "a window wider than any may be");
                    }
                    window_bytes = Some(value);
                }
                frame::MAX_FRAME_SIZE => {
                    if !(16_384..=0xff_ffff).contains(&value) {
                        return broken(Reason::Protocol, "no frame may be so long");
                    }
                    self.frame_bytes_max = value as usize;
                }
                _ => {}
            }
        }
        if let Some(bytes) = window_bytes
            && i64::from(bytes) != self.stream_send_room
        {
            self.look_through(now_us)?;
            self.resize_windows(bytes)?;
        }
        self.greeted = Greeted::Settings;
        self.write_frame(frame::SETTINGS, frame::ACK, 0, &[]);
        Ok(())
    }

    fn resize_windows(&mut self, bytes: u32) -> Result<(), Broken> {
        let wider = i64::from(bytes).saturating_sub(self.stream_send_room);
        self.stream_send_room = i64::from(bytes);
        for (_, stream) in self.streams.each_mut() {
            stream.send_room = stream.send_room.saturating_add(wider);
            if stream.send_room > i64::from(frame::MAX_31_BITS) {
                return broken(Reason::FlowControl, "a window wider than any may be");
            }
        }
        if wider > 0 {
            self.send_waiting();
        }
        Ok(())
    }

    fn ping(&mut self, head: Head, payload: &[u8]) -> Result<(), Broken> {
        if head.stream != 0 {
            return broken(Reason::Protocol, "a ping of a stream");
        }
        if payload.len() != 8 {
            return broken(Reason::FrameSize, "a ping has eight bytes");
        }
        if !head.has(frame::ACK) {
            self.write_frame(frame::PING, frame::ACK, 0, payload);
        } else if payload == GOODBYE_PING {
            self.say_last_goodbye();
        } else if payload == KEEPALIVE_PING {
            self.ping_answered = true;
        }
        Ok(())
    }
}
