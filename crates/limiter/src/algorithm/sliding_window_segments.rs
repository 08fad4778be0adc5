//! Sliding window in segments: a log that knows in which part of the window a hit came, and no more.
//!
//! The idea: cut a window into n segments and count each on its own; every W / n the oldest leaves and its hits return at
//! once. This is what .NET's `SlidingWindowRateLimiter` does with its `SegmentsPerWindow`. One segment is a fixed window
//! that does not count what it refused; many come close to `sliding_log`, for at most n marks a bucket.
//!
//! The promise: at most N in the present segment and the n − 1 before it, exactly; so at most N in any window that begins
//! with a segment, and up to N more in one that does not.
//!
//! The arithmetic: segments are counted from 1970. Segment i begins at i × W / n, rounded up to a microsecond, so that n of
//! them are a window exactly whatever n is. A hit is marked with the beginning of its segment and counts for a window
//! from there; the rest is `sliding_log`'s.
//!
//! What it costs: a mark of 24 bytes a segment that holds a hit, at most n of them; else what `sliding_log` does.
//!
//! Registers: the hits that the marks hold, and none.
//!
//! What it deliberately does not do: weigh a segment by what is left of it (`sliding_window` does that with its two).

use std::num::NonZeroU16;

use super::sliding_log::slide;
use super::{
    Algorithm, AlgorithmOption, Limit, Operation, Outcome, State, Timestamp, used_changed,
};

/// See the file's own words.
#[derive(Debug)]
pub struct SlidingWindowSegments;

// === impl SlidingWindowSegments ===

impl Algorithm for SlidingWindowSegments {
    fn name(&self) -> &'static str {
        "sliding_window_segments"
    }

    fn promise(&self) -> &'static str {
        "at most N in the present segment and the n - 1 before it, exactly"
    }

    fn has_marks(&self) -> bool {
        true
    }

    fn options(&self) -> &'static [AlgorithmOption] {
        &[AlgorithmOption::Segments, AlgorithmOption::CountRefused]
    }

    fn window_max_us(&self) -> u64 {
        Timestamp::MAX_US / 2
    }

    fn decide(&self, limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
        slide(self, limit, state, ask, now, |time| {
            segment_start(limit, time)
        })
    }

    fn changed(
        &self,
        _limit: &Limit,
        _was: (Timestamp, [u64; 2]),
        state: &State,
        _ask: Operation,
        outcome: &Outcome,
    ) -> bool {
        used_changed(state, outcome)
    }

    fn ttl_us(&self, limit: &Limit) -> u64 {
        limit.window().as_us()
    }
}

/// When the segment that holds `time` began.
fn segment_start(limit: &Limit, time: Timestamp) -> Timestamp {
    let segments = u64::from(limit.segments().map_or(1, NonZeroU16::get));
    let window_us = limit.window().as_us();
    // Within the window, so that the products stay small: each is below 2^53 × 2^16.
    let elapsed_us = u128::from(limit.window().elapsed_us(time));
    let (segments, window) = (u128::from(segments), u128::from(window_us));
    let number = elapsed_us
        .saturating_mul(segments)
        .checked_div(window)
        .unwrap_or_default();
    let start_us = number.saturating_mul(window).div_ceil(segments);
    let into_us = elapsed_us.saturating_sub(start_us);
    time.minus_us(u64::try_from(into_us).unwrap_or_default())
}
