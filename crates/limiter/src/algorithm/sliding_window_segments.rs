//! Sliding window in segments: a log that knows the segment of each hit.
//!
//! The idea: cut a window into n segments and count each on its own. Every W / n the oldest leaves
//! and its hits return at once. .NET's `SlidingWindowRateLimiter` does this with its
//! `SegmentsPerWindow`. One segment is a fixed window that does not count refused hits. Many come
//! close to `sliding_log`, for at most n marks a bucket.
//!
//! The promise: at most N in the present segment and the n − 1 before it, exactly. So at most N in
//! any window that begins with a segment, and up to N more in one that does not.
//!
//! The arithmetic: segments are counted from 1970. Segment i begins at i × W / n, rounded up to a
//! microsecond, so that n of them are exactly a window for every n. A hit is marked with the
//! beginning of its segment and counts for a window from there. The rest is that of `sliding_log`.
//!
//! Cost: a mark of 24 bytes for each segment that holds a hit, at most n of them; otherwise that of
//! `sliding_log`.
//!
//! Registers: the hits that the marks hold; the second is unused.
//!
//! What it deliberately does not do: weigh a segment by what is left of it (`sliding_window` does
//! that with its two).

use std::num::NonZeroU16;

use super::sliding_log::slide;
use super::{
    Algorithm, AlgorithmOption, Facts, Limit, MARKED_MAX, MostAdmitted, Operation, Outcome, State,
    Timestamp, most_admitted,
};

/// The `sliding_window_segments` algorithm.
#[derive(Debug)]
pub struct SlidingWindowSegments;

static FACTS: Facts = Facts {
    // Its debt can be as much again.
    requests_max: MARKED_MAX / 2,
    window_max_us: Timestamp::MAX_US / 2,
    has_marks: true,
    can_reserve: false,
    ..Facts::new(
        "sliding_window_segments",
        "at most N in the present segment and the n - 1 before it, exactly",
        &[AlgorithmOption::Segments, AlgorithmOption::CountRefused],
    )
};

// === impl SlidingWindowSegments ===

impl Algorithm for SlidingWindowSegments {
    fn facts(&self) -> &Facts {
        &FACTS
    }

    fn most_admitted(&self, limit: &Limit, span_us: u64) -> Option<MostAdmitted> {
        let turns = if span_us > most_admitted::shortest_turn_us(limit) {
            2
        } else {
            1
        };
        Some(MostAdmitted::constant(
            limit.requests().saturating_mul(turns),
        ))
    }

    fn decide(
        &self,
        limit: &Limit,
        state: &mut State,
        operation: Operation,
        now: Timestamp,
    ) -> Outcome {
        slide(self, limit, state, operation, now, |time| {
            segment_start(limit, time)
        })
    }
}

/// The start of the segment that contains `time`.
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
