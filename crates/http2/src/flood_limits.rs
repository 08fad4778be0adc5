//! How often a client may do what brings no call on.
//!
//! Why: opening streams and resetting them, pings, settings, frames without content cost a client nothing and a server
//! something each. How: they are counted by the second; a connection beyond its bound is told to calm down, and closed.
//!
//! What it deliberately does not do: bound calls. A limiter is asked as often as its callers like, and one connection has
//! its turn like any other (`connection`).

use super::{Broken, Reason};

/// How long is counted together.
pub(super) const SECOND_US: u64 = 1_000_000;

/// What a client has done in the present second.
#[derive(Debug)]
pub(super) struct Floods {
    began_us: u64,
    resets: Count,
    control_frames: Count,
}

#[derive(Debug)]
struct Count {
    count: u32,
    max: u32,
}

// === impl Floods ===

impl Floods {
    pub(super) fn new(resets_max: u32, control_frames_max: u32) -> Self {
        let count = |max| Count { count: 0, max };
        Self {
            began_us: 0,
            resets: count(resets_max),
            control_frames: count(control_frames_max),
        }
    }

    /// The client has reset a stream, or made us refuse one.
    pub(super) fn reset(&mut self, now_us: u64) -> Result<(), Broken> {
        self.turn(now_us);
        self.resets.add(1, "too many streams reset in a second")
    }

    /// The client has sent a frame that brings no call on.
    pub(super) fn control_frame(&mut self, now_us: u64) -> Result<(), Broken> {
        self.control_frames(1, now_us)
    }

    /// The same, of one that is as much work as so many.
    pub(super) fn control_frames(&mut self, count: usize, now_us: u64) -> Result<(), Broken> {
        self.turn(now_us);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.control_frames
            .add(count, "too many frames in a second that bring no call on")
    }

    fn turn(&mut self, now_us: u64) {
        if now_us.saturating_sub(self.began_us) >= SECOND_US {
            self.began_us = now_us;
            self.resets.count = 0;
            self.control_frames.count = 0;
        }
    }
}

// === impl Count ===

impl Count {
    fn add(&mut self, count: u32, why: &'static str) -> Result<(), Broken> {
        self.count = self.count.saturating_add(count);
        if self.count > self.max {
            return Err(Broken {
                reason: Reason::EnhanceYourCalm,
                why,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_begins_anew_and_each_kind_has_its_own_bound() {
        let mut floods = Floods::new(2, 3);
        for second in 5..8 {
            let now_us = second * SECOND_US;
            assert!((0..2).all(|_| floods.reset(now_us).is_ok()));
            assert!((0..3).all(|_| floods.control_frame(now_us).is_ok()));
        }
        let last_us = 8 * SECOND_US - 1;
        let broken = floods.reset(last_us).unwrap_err();
        assert_eq!(broken.reason, Reason::EnhanceYourCalm);
        assert!(floods.control_frame(last_us).is_err());
        assert!(floods.reset(last_us + 1).is_ok());
    }
}
