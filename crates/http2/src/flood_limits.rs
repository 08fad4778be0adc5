//! Limits on resets and control frames by the second.
//!
//! Why: streams that are opened and reset, pings, settings and empty frames cost a client nothing
//! and a server something each. A connection that exceeds a limit is closed with
//! ENHANCE_YOUR_CALM. Requests are not limited here.

use crate::error::{ConnectionError, too_much};

/// Length of the window in which frames are counted.
pub(crate) const SECOND_US: u64 = 1_000_000;

/// What a client has done in the current second, and how often it may.
#[derive(Debug)]
pub(crate) struct FloodLimits {
    started_us: u64,
    resets: u32,
    resets_max: u32,
    control_frames: u32,
    control_frames_max: u32,
}

// === impl FloodLimits ===

impl FloodLimits {
    pub(crate) fn new(resets_max: u32, control_frames_max: u32) -> Self {
        Self {
            started_us: 0,
            resets: 0,
            resets_max,
            control_frames: 0,
            control_frames_max,
        }
    }

    /// Counts a stream that the client reset, or that was reset for its mistake.
    pub(crate) fn reset(&mut self, now_us: u64) -> Result<(), ConnectionError> {
        self.roll(now_us);
        self.resets = self.resets.saturating_add(1);
        if self.resets > self.resets_max {
            return Err(too_much("too many streams reset in a second"));
        }
        Ok(())
    }

    /// Counts a frame that carries no part of a request.
    pub(crate) fn control_frame(&mut self, now_us: u64) -> Result<(), ConnectionError> {
        self.control_frames(1, now_us)
    }

    /// Counts a frame that is as much work as `count` of them.
    pub(crate) fn control_frames(
        &mut self,
        count: usize,
        now_us: u64,
    ) -> Result<(), ConnectionError> {
        self.roll(now_us);
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.control_frames = self.control_frames.saturating_add(count);
        if self.control_frames > self.control_frames_max {
            return Err(too_much("too many control frames in a second"));
        }
        Ok(())
    }

    fn roll(&mut self, now_us: u64) {
        if now_us.saturating_sub(self.started_us) >= SECOND_US {
            self.started_us = now_us;
            self.resets = 0;
            self.control_frames = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Reason;

    #[test]
    fn each_kind_has_its_own_limit_which_every_second_renews() {
        let mut limits = FloodLimits::new(2, 3);
        for second in 5..8 {
            let now_us = second * SECOND_US;
            assert!((0..2).all(|_| limits.reset(now_us).is_ok()));
            assert!((0..3).all(|_| limits.control_frame(now_us).is_ok()));
        }
        let last_us = 8 * SECOND_US - 1;
        let error = limits.reset(last_us).unwrap_err();
        assert_eq!(error.reason, Reason::EnhanceYourCalm);
        assert!(limits.control_frame(last_us).is_err());
        assert!(limits.reset(last_us + 1).is_ok());
    }
}
