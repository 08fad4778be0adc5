//! The same bounds for HTTP/2 that somebody else speaks: frames are counted as their bytes go by.
//!
//! Why: below the door of tonic hyper speaks HTTP/2, whose bounds are its own and which tells nobody when one is met. How: of
//! what comes only the nine bytes that each frame begins with are looked at, and held against what `floods` allows; of what
//! goes, so that a goodbye is not said in the middle of a frame, and to see why the other side says one.
//!
//! It is a little coarser than `receive`, which knows windows and streams: a stream's number that has been used is taken for
//! trailers, and a connection's window may be widened once for each call.
//!
//! What it deliberately does not do: change anything, decode headers, say what is wrong with a frame.

use super::floods::Floods;
use super::frame::{self, Head};
use super::receive::broken;
use super::{Broken, HEAD_BYTES, PREFACE, Reason, block_bounds};

/// A frame of less that is not the last is counted, as in `data`.
use super::data::DATA_BYTES_MIN;

/// What goes by on one connection.
#[derive(Debug)]
pub(in crate::service) struct Passing {
    incoming: Heads,
    outgoing: Heads,
    floods: Floods,
    /// How many frames and bytes headers may be in that have not ended.
    block_max: (usize, usize),
    block: Option<(usize, usize)>,
    /// The newest stream that the client has opened.
    newest: u32,
    /// How often it may widen its connection's window without being counted.
    updates_left: u32,
}

/// Where frames begin.
#[derive(Debug)]
struct Heads {
    /// What is still to come of the preface, or of the frame that goes by.
    skipped: usize,
    /// What has come of the next one's head.
    head: [u8; HEAD_BYTES],
    known: usize,
}

// === impl Passing ===

impl Passing {
    /// A new connection. So many resets and frames that bring no call on in a second, and headers of so many bytes.
    pub(in crate::service) fn new(
        resets_max: u32,
        control_frames_max: u32,
        header_list_bytes_max: usize,
    ) -> Self {
        Self {
            incoming: Heads::new(PREFACE.len()),
            outgoing: Heads::new(0),
            floods: Floods::new(resets_max, control_frames_max),
            block_max: block_bounds(header_list_bytes_max),
            block: None,
            newest: 0,
            updates_left: 1,
        }
    }

    /// Looks at bytes that have come, until where so many frames have begun and the next one would. Says how many began, and
    /// what it has not looked at.
    pub(in crate::service) fn came<'b>(
        &mut self,
        bytes: &'b [u8],
        frames_max: usize,
        now_us: u64,
    ) -> Result<(usize, &'b [u8]), Broken> {
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

    fn frame(&mut self, head: Head, now_us: u64) -> Result<(), Broken> {
        match head.kind {
            frame::HEADERS => {
                self.updates_left = self.updates_left.saturating_add(1);
                if head.stream <= self.newest {
                    self.floods.control_frame(now_us)?;
                }
                self.newest = self.newest.max(head.stream);
                self.block(head, 1, head.length)
            }
            frame::CONTINUATION => {
                let (frames, bytes) = self.block.unwrap_or_default();
                let bytes = bytes.saturating_add(head.length);
                self.block(head, frames.saturating_add(1), bytes)
            }
            frame::DATA if head.length >= DATA_BYTES_MIN || head.has(frame::END_STREAM) => Ok(()),
            frame::RST_STREAM => self.floods.reset(now_us),
            frame::WINDOW_UPDATE if head.stream == 0 && self.updates_left > 0 => {
                self.updates_left = self.updates_left.saturating_sub(1);
                Ok(())
            }
            _ => self.floods.control_frame(now_us),
        }
    }

    fn block(&mut self, head: Head, frames: usize, bytes: usize) -> Result<(), Broken> {
        let (frames_max, bytes_max) = self.block_max;
        self.block = (!head.has(frame::END_HEADERS)).then_some((frames, bytes));
        if self.block.is_some() && (frames > frames_max || bytes > bytes_max) {
            return broken(Reason::EnhanceYourCalm, "headers without end");
        }
        Ok(())
    }

    /// Looks at bytes that have gone, and says why whoever speaks HTTP/2 here says that it is over, where he does.
    pub(in crate::service) fn went(&mut self, mut bytes: &[u8]) -> Option<&'static str> {
        let mut why = None;
        while let Some((head, payload)) = self.outgoing.next(&mut bytes) {
            // The last stream, and the reason.
            let code = payload.get(4..).and_then(frame::u32_at_start);
            if let (frame::GOAWAY, Some(code @ 1..)) = (head.kind, code) {
                why = Some(Reason::named(code));
            }
        }
        why
    }

    /// What tells the client to calm down; none in the middle of a frame.
    pub(in crate::service) fn goodbye(&self, broken: &Broken) -> Option<Vec<u8>> {
        let last = self.newest.to_be_bytes();
        let payload = [last, (broken.reason as u32).to_be_bytes()].concat();
        let mut bytes = Vec::new();
        frame::write(frame::GOAWAY, 0, 0, &payload, &mut bytes);
        self.outgoing.is_between().then_some(bytes)
    }
}

// === impl Heads ===

impl Heads {
    /// Frames begin after so many bytes.
    fn new(skipped: usize) -> Self {
        Self {
            skipped,
            head: [0; HEAD_BYTES],
            known: 0,
        }
    }

    /// Drops from `bytes` what is still to come of the frame that goes by.
    fn skip(&mut self, bytes: &mut &[u8]) {
        let skipped = self.skipped.min(bytes.len());
        self.skipped = self.skipped.saturating_sub(skipped);
        *bytes = bytes.get(skipped..).unwrap_or_default();
    }

    /// The next frame that begins in `bytes`, and what of its payload is there; what lies before is dropped from `bytes`.
    fn next<'b>(&mut self, bytes: &mut &'b [u8]) -> Option<(Head, &'b [u8])> {
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
        let head = Head::read(&self.head)?;
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
    fn passing() -> Passing {
        Passing::new(2, 3, 16_384)
    }

    /// How many frames go by before the connection breaks, and how many begin, whichever way the bytes are cut.
    fn until_broken(frames: &[Vec<u8>]) -> Option<usize> {
        let at_a_time = [usize::MAX, 1, 3].into_iter();
        let found: Vec<_> = at_a_time
            .flat_map(|max| [1, 2, 7, 9, 10, 1_000_000].map(|cut| (max, cut)))
            .map(|(max, cut)| {
                let mut passing = passing();
                let bytes = [PREFACE.to_vec(), frames.concat()].concat();
                let mut begun = 0;
                for mut part in bytes.chunks(cut) {
                    while !part.is_empty() {
                        match passing.came(part, max, 5) {
                            Ok((frames, rest)) => {
                                assert!(frames <= max);
                                begun += frames;
                                part = rest;
                            }
                            Err(broken) => {
                                assert_eq!(broken.reason, Reason::EnhanceYourCalm);
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
        let mut passing = passing();
        let calm = Broken {
            reason: Reason::EnhanceYourCalm,
            why: "",
        };
        let (front, rest) = (written(frame::PING, 0, 0, &[0; 8]), [0; 3]);
        let (front, behind) = front.split_at(14);
        assert_eq!(passing.went(front), None);
        assert_eq!(passing.goodbye(&calm), None);
        assert_eq!(passing.went(behind), None);
        let goodbye = passing.goodbye(&calm).unwrap();
        assert_eq!(passing.went(&goodbye), Some("enhance_your_calm"));
        assert_eq!(passing.went(&rest), None);
        let no_error = written(frame::GOAWAY, 0, 0, &[0; 8]);
        assert_eq!(Passing::new(1, 1, 1).went(&no_error), None);
    }
}
