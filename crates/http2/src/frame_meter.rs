//! The same flood limits for HTTP/2 that another library speaks: counts frames as they pass.
//!
//! Not part of the public API: it serves a listener that is deprecated, and is removed with it.
//!
//! It is coarser than `receive`, which knows windows and streams: a stream identifier that has been
//! used is taken for trailers, and a connection's window may be widened once for each request.

use crate::connection::{DATA_BYTES_MIN, block_limits};
use crate::error::connection_error;
use crate::flood_limits::FloodLimits;
use crate::frame::{self, FrameHead, HEAD_BYTES, PREFACE};
use crate::{ConnectionError, Reason};

/// Counts the frames of one connection.
#[derive(Debug)]
pub struct FrameMeter {
    incoming: FrameHeads,
    outgoing: FrameHeads,
    flood_limits: FloodLimits,
    /// Most frames and bytes of a header block that has not ended.
    block_max: (usize, usize),
    block: Option<(usize, usize)>,
    /// The last_stream stream that the client has opened.
    last_stream: u32,
    /// How often the client may widen the connection's window uncounted.
    updates_left: u32,
}

/// Finds where frames begin.
#[derive(Debug)]
struct FrameHeads {
    /// How much of the preface or of the current frame is still to come.
    skipped: usize,
    /// What has arrived of the next frame's head.
    head: [u8; HEAD_BYTES],
    known: usize,
}

// === impl FrameMeter ===

impl FrameMeter {
    /// A new connection with these limits.
    pub fn new(resets_max: u32, control_frames_max: u32, header_list_bytes_max: usize) -> Self {
        Self {
            incoming: FrameHeads::new(PREFACE.len()),
            outgoing: FrameHeads::new(0),
            flood_limits: FloodLimits::new(resets_max, control_frames_max),
            block_max: block_limits(header_list_bytes_max),
            block: None,
            last_stream: 0,
            updates_left: 1,
        }
    }

    /// Counts the frames in bytes from the client, `frames_max` at most. Returns how many there are
    /// and the rest.
    ///
    /// # Errors
    ///
    /// If a limit is exceeded.
    pub fn received<'b>(
        &mut self,
        bytes: &'b [u8],
        frames_max: usize,
        now_us: u64,
    ) -> Result<(usize, &'b [u8]), ConnectionError> {
        let (mut rest, mut frames) = (bytes, 0_usize);
        loop {
            self.incoming.skip(&mut rest);
            if frames >= frames_max && self.incoming.is_between() {
                return Ok((frames, rest));
            }
            let Some((head, _)) = self.incoming.next(&mut rest) else {
                return Ok((frames, rest));
            };
            frames = frames.saturating_add(1);
            self.frame(head, now_us)?;
        }
    }

    fn frame(&mut self, head: FrameHead, now_us: u64) -> Result<(), ConnectionError> {
        match head.kind {
            frame::HEADERS => {
                self.updates_left = self.updates_left.saturating_add(1);
                if head.stream <= self.last_stream {
                    self.flood_limits.control_frame(now_us)?;
                }
                self.last_stream = self.last_stream.max(head.stream);
                self.block(head, 1, head.length)
            }
            frame::CONTINUATION => {
                let (frames, bytes) = self.block.unwrap_or_default();
                let bytes = bytes.saturating_add(head.length);
                self.block(head, frames.saturating_add(1), bytes)
            }
            frame::DATA if head.length >= DATA_BYTES_MIN || head.has(frame::END_STREAM) => Ok(()),
            frame::RST_STREAM => self.flood_limits.reset(now_us),
            frame::WINDOW_UPDATE if head.stream == 0 && self.updates_left > 0 => {
                self.updates_left = self.updates_left.saturating_sub(1);
                Ok(())
            }
            _ => self.flood_limits.control_frame(now_us),
        }
    }

    fn block(
        &mut self,
        head: FrameHead,
        frames: usize,
        bytes: usize,
    ) -> Result<(), ConnectionError> {
        let (frames_max, bytes_max) = self.block_max;
        self.block = (!head.has(frame::END_HEADERS)).then_some((frames, bytes));
        if self.block.is_some() && (frames > frames_max || bytes > bytes_max) {
            return connection_error(
                Reason::EnhanceYourCalm,
                "a header block is too long or in too many frames",
            );
        }
        Ok(())
    }

    /// Reads bytes to the client, and returns the reason of a GOAWAY among them.
    pub fn sent(&mut self, mut bytes: &[u8]) -> Option<&'static str> {
        let mut why = None;
        while let Some((head, payload)) = self.outgoing.next(&mut bytes) {
            // The last stream, and the reason.
            let code = payload.get(4..).and_then(frame::leading_u32);
            if let (frame::GOAWAY, Some(code @ 1..)) = (head.kind, code) {
                why = Some(Reason::name_of(code));
            }
        }
        why
    }

    /// A GOAWAY frame; none in the middle of a frame.
    #[must_use]
    pub fn goaway(&self, error: &ConnectionError) -> Option<Vec<u8>> {
        let last = self.last_stream.to_be_bytes();
        let payload = [last, (error.reason.code()).to_be_bytes()].concat();
        let mut bytes = Vec::new();
        frame::write(frame::GOAWAY, 0, 0, &payload, &mut bytes);
        self.outgoing.is_between().then_some(bytes)
    }
}

// === impl FrameHeads ===

impl FrameHeads {
    /// Frames begin behind this many bytes.
    fn new(skipped: usize) -> Self {
        Self {
            skipped,
            head: [0; HEAD_BYTES],
            known: 0,
        }
    }

    /// Drops the rest of the current frame from `bytes`.
    fn skip(&mut self, bytes: &mut &[u8]) {
        let skipped = self.skipped.min(bytes.len());
        self.skipped = self.skipped.saturating_sub(skipped);
        *bytes = bytes.get(skipped..).unwrap_or_default();
    }

    /// The next frame that begins in `bytes`, and what of its payload is there.
    fn next<'b>(&mut self, bytes: &mut &'b [u8]) -> Option<(FrameHead, &'b [u8])> {
        self.skip(bytes);
        let wanted = HEAD_BYTES.saturating_sub(self.known).min(bytes.len());
        let (part, rest) = bytes.split_at_checked(wanted)?;
        let room = self.head.get_mut(self.known..)?;
        room.get_mut(..wanted)?.copy_from_slice(part);
        self.known = self.known.saturating_add(wanted);
        *bytes = rest;
        if self.known < HEAD_BYTES {
            return None;
        }
        let head = FrameHead::read(&self.head)?;
        self.known = 0;
        self.skipped = head.length;
        let payload = rest.get(..head.length.min(rest.len()));
        Some((head, payload.unwrap_or_default()))
    }

    /// Whether a frame has just ended.
    fn is_between(&self) -> bool {
        self.skipped == 0 && self.known == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame::write(kind, flags, stream, payload, &mut bytes);
        bytes
    }

    /// A connection that may reset twice and send three frames that bring no call on.
    fn meter() -> FrameMeter {
        FrameMeter::new(2, 3, 16_384)
    }

    /// How many frames go by before the connection breaks, and how many begin, whichever way the bytes are cut.
    fn until_broken(frames: &[Vec<u8>]) -> Option<usize> {
        let at_a_time = [usize::MAX, 1, 3].into_iter();
        let found: Vec<_> = at_a_time
            .flat_map(|max| [1, 2, 7, 9, 10, 1_000_000].map(|cut| (max, cut)))
            .map(|(max, cut)| {
                let mut meter = meter();
                let bytes = [PREFACE.to_vec(), frames.concat()].concat();
                let mut begun = 0;
                for mut part in bytes.chunks(cut) {
                    while !part.is_empty() {
                        match meter.received(part, max, 5) {
                            Ok((frames, rest)) => {
                                assert!(frames <= max);
                                begun += frames;
                                part = rest;
                            }
                            Err(error) => {
                                assert_eq!(error.reason, Reason::EnhanceYourCalm);
                                return None;
                            }
                        }
                    }
                }
                Some(begun)
            })
            .collect();
        assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{found:?}");
        found[0]
    }

    #[test]
    fn what_brings_calls_on_is_free_and_all_else_has_its_bound() {
        let call = |stream| {
            let head = written(frame::HEADERS, frame::END_HEADERS, stream, &[7; 40]);
            let data = written(frame::DATA, frame::END_STREAM, stream, b"short");
            [head, data].concat()
        };
        let calls: Vec<_> = (0..50).map(|number| call(number * 2 + 1)).collect();
        assert_eq!(until_broken(&calls), Some(100));
        // A window is widened once for each.
        let widened: Vec<_> = (0..50)
            .flat_map(|number| {
                let room = written(frame::WINDOW_UPDATE, 0, 0, &[0, 0, 1, 0]);
                [call(number * 2 + 1), room]
            })
            .collect();
        assert_eq!(until_broken(&widened), Some(150));
        let head = || written(frame::HEADERS, frame::END_HEADERS, 1, &[7; 40]);
        let after_a_head = |frames: &[Vec<u8>]| until_broken(&[&[head()], frames].concat());
        for (what, frame, max) in [
            ("reset", written(frame::RST_STREAM, 0, 1, &[0; 4]), 2),
            ("ping", written(frame::PING, 0, 0, &[0; 8]), 3),
            ("settings", written(frame::SETTINGS, 0, 0, &[]), 3),
            ("data", written(frame::DATA, 0, 1, &[0; 8]), 3),
            ("trailers", head(), 3),
            (
                "a stream's window",
                written(frame::WINDOW_UPDATE, 0, 1, &[0; 4]),
                3,
            ),
            ("unknown", written(200, 0, 1, &[0; 100]), 3),
        ] {
            assert_eq!(
                after_a_head(&vec![frame.clone(); max]),
                Some(1 + max),
                "{what}"
            );
            assert_eq!(after_a_head(&vec![frame; max + 1]), None, "{what}");
        }
    }

    #[test]
    fn headers_end_some_time() {
        let more = |flags| written(frame::CONTINUATION, flags, 1, &[7; 4_000]);
        let begun = written(frame::HEADERS, 0, 1, &[7; 4_000]);
        let whole = [begun.clone(), more(0), more(0), more(frame::END_HEADERS)];
        assert_eq!(until_broken(&whole), Some(4));
        let endless = [vec![begun.clone()], vec![more(0); 20]].concat();
        assert_eq!(until_broken(&endless), None);
        let nothing = vec![written(frame::CONTINUATION, 0, 1, &[]); 20];
        assert_eq!(until_broken(&[vec![begun], nothing].concat()), None);
    }

    #[test]
    fn a_goodbye_is_said_between_frames_and_the_others_is_understood() {
        let mut meter = meter();
        let calm = ConnectionError {
            reason: Reason::EnhanceYourCalm,
            message: "",
        };
        let (front, rest) = (written(frame::PING, 0, 0, &[0; 8]), [0; 3]);
        let (front, behind) = front.split_at(14);
        assert_eq!(meter.sent(front), None);
        assert_eq!(meter.goaway(&calm), None);
        assert_eq!(meter.sent(behind), None);
        let goodbye = meter.goaway(&calm).unwrap();
        assert_eq!(meter.sent(&goodbye), Some("enhance_your_calm"));
        assert_eq!(meter.sent(&rest), None);
        let no_error = written(frame::GOAWAY, 0, 0, &[0; 8]);
        assert_eq!(FrameMeter::new(1, 1, 1).sent(&no_error), None);
    }
}
