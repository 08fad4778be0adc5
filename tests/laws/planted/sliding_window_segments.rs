//! Bugs in sliding windows in segments. The list is in `mod.rs`.
//!
//! How: a log that is always asked at the start of the present segment is a window in segments. So
//! a wrong start makes a wrong window.
//!
//! What it deliberately does not do: repeat the arithmetic where a change before or after the real
//! one is enough.

use std::num::{NonZeroU16, NonZeroU32};

use tollgate_limiter::algorithm::{SlidingLog, SlidingWindow, SlidingWindowSegments};
use tollgate_limiter::{Algorithm, Hits, Limit, Operation, Outcome, State, Timestamp, Unit};

use super::{Planted, decide_at, undoing_as_refund};

fn segments(limit: &Limit) -> u64 {
    limit.segments().unwrap().get().into()
}

/// The limit with another number of requests, in a window of so many segments of the same length;
/// none when that is not a whole number of seconds.
fn other(limit: &Limit, requests: u32, segments: u64) -> Option<Limit> {
    let scaled_us = limit.window().as_us() * segments;
    let unit_us = self::segments(limit) * 1_000_000;
    let seconds = u32::try_from(scaled_us.checked_div(unit_us)?).ok()?;
    let segments = NonZeroU16::new(segments.try_into().ok()?)?;
    let other = Limit::per(requests, Unit::Second, NonZeroU32::new(seconds)?);
    scaled_us
        .is_multiple_of(unit_us)
        .then_some(other.with_segments(segments))
}

/// A log asked at the start of segments.
fn segments_begin(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
    begin: impl Fn(Timestamp) -> Timestamp,
) -> Outcome {
    let hits = match ask.hits {
        Hits::Undo { hits, taken_at } => Hits::Undo {
            hits,
            taken_at: begin(taken_at),
        },
        hits => hits,
    };
    decide_at(begin(now), &SlidingLog, limit, state, hits.into(), now)
}

fn segments_are_cut_short(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let length_us = (limit.window().as_us() / segments(limit)).max(1);
    segments_begin(limit, state, ask, now, |time| {
        time.minus_us(time.as_us() % length_us)
    })
}

fn segments_begin_half_way(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let length_us = (limit.window().as_us() / segments(limit)).max(1);
    segments_begin(limit, state, ask, now, |time| {
        time.minus_us((time.as_us() + length_us / 2) % length_us)
    })
}

fn oldest_leaves_a_segment_late(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let longer = other(limit, limit.requests_per_unit(), segments(limit) + 1);
    SlidingWindowSegments.decide(&longer.unwrap_or(*limit), state, ask, now)
}

fn oldest_leaves_a_segment_early(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let shorter = other(limit, limit.requests_per_unit(), segments(limit) - 1);
    SlidingWindowSegments.decide(&shorter.unwrap_or(*limit), state, ask, now)
}

/// Weighs the oldest segment as `sliding_window` weighs its previous window.
fn oldest_leaves_by_and_by(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let mut refused = state.clone();
    let outcome = SlidingWindowSegments.decide(limit, &mut refused, ask, now);
    let window_us = limit.window().as_us();
    let length_us = window_us / segments(limit);
    let oldest = refused.marks.iter().next().copied();
    let left = oldest.map_or(0, |oldest| {
        let left_us = window_us.saturating_sub(now.since_us(oldest.at));
        let share = u128::from(oldest.hits) * u128::from(left_us.min(length_us));
        oldest.hits - u64::try_from(share / u128::from(length_us)).unwrap()
    });
    let used = outcome
        .used_before
        .saturating_sub(left)
        .saturating_add(ask.hits.requested());
    let larger = other(limit, u32::MAX, segments(limit));
    match larger {
        Some(larger) if !outcome.allowed && used <= limit.requests() => {
            SlidingWindowSegments.decide(&larger, state, ask, now)
        }
        _ => {
            *state = refused;
            outcome
        }
    }
}

fn only_the_present_segment_counts(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let one = other(limit, limit.requests_per_unit(), 1);
    SlidingWindowSegments.decide(&one.unwrap_or(*limit), state, ask, now)
}

fn slides_smoothly(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    SlidingWindow.decide(limit, state, ask, now)
}

fn undoes_what_was_to_go_first(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    SlidingWindowSegments.decide(limit, state, undoing_as_refund(ask), now)
}

fn keeps_a_mark_a_hit(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    SlidingLog.decide(limit, state, ask, now)
}

pub(super) mod found {
    use super::SlidingWindowSegments;

    crate::planted::planted_in! {
        SlidingWindowSegments;
        segments_are_cut_short by Agreement Laws;
        segments_begin_half_way by Agreement Promise;
        oldest_leaves_a_segment_late by Agreement;
        oldest_leaves_a_segment_early by Agreement Promise;
        oldest_leaves_by_and_by by Agreement Promise;
        only_the_present_segment_counts by Agreement Promise;
        slides_smoothly by Agreement Laws;
        undoes_what_was_to_go_first by Agreement Undo;
        keeps_a_mark_a_hit by Agreement Laws;
    }
}
