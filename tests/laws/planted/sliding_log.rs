//! Bugs in sliding logs. The list is in `mod.rs`.
//!
//! What it deliberately does not do: repeat the arithmetic where a change before or after the real
//! one is enough.

use std::num::NonZeroU32;

use tollgate_limiter::algorithm::SlidingLog;
use tollgate_limiter::{
    Algorithm, CountRefused, Hits, Limit, Operation, Outcome, State, Timestamp, Unit,
};

use super::{Planted, decide_at, undoing_as_refund};

fn counts_what_is_a_window_old(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let window_us = limit.window().as_us();
    let just_old = |since: Timestamp| now.since_us(since) == window_us;
    let then = if state.marks.iter().any(|mark| just_old(mark.at)) {
        now.minus_us(1)
    } else {
        now
    };
    decide_at(then, &SlidingLog, limit, state, ask, now)
}

fn forgets_a_microsecond_early(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    SlidingLog.decide(limit, state, Hits::PEEK.into(), now.plus_us(1));
    SlidingLog.decide(limit, state, ask, now)
}

fn refunds_the_newest_first(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let Hits::Refund(refunded) = ask.hits else {
        return SlidingLog.decide(limit, state, ask, now);
    };
    let before = SlidingLog.decide(limit, state, Hits::PEEK.into(), now);
    let mut left = refunded;
    let newest_first: Vec<_> = state.marks.iter().rev().copied().collect();
    for mark in newest_first {
        let hits = left.min(mark.hits);
        let taken_at = mark.at;
        let back = Hits::Undo { hits, taken_at }.into();
        SlidingLog.decide(limit, state, back, now);
        left -= hits;
    }
    let after = SlidingLog.decide(limit, state, Hits::Refund(0).into(), now);
    Outcome {
        used_before: before.used_before,
        ..after
    }
}

fn counts_milliseconds(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let whole = |time: Timestamp| time.minus_us(time.as_us() % 1_000);
    let hits = match ask.hits {
        Hits::Undo { hits, taken_at } => Hits::Undo {
            hits,
            taken_at: whole(taken_at),
        },
        hits => hits,
    };
    decide_at(whole(now), &SlidingLog, limit, state, hits.into(), now)
}

fn counts_refused_hits(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let limit = limit.with_count_refused(CountRefused::All);
    SlidingLog.decide(&limit, state, ask, now)
}

fn undoes_the_oldest(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    SlidingLog.decide(limit, state, undoing_as_refund(ask), now)
}

/// No outcome is wrong, but expired marks are never removed.
fn never_forgets(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    let mut forgetful = state.clone();
    let said = SlidingLog.decide(limit, &mut forgetful, ask, now);
    let hundred = NonZeroU32::new(100).unwrap();
    let endless = Limit::per(u32::MAX, Unit::Year, hundred);
    let is_take = matches!(ask.hits, Hits::Take(_));
    if is_take && said.allowed && limit.count_refused().is_none() {
        SlidingLog.decide(&endless, state, ask, now);
    } else {
        *state = forgetful;
    }
    said
}

fn retry_is_when_the_oldest_leaves(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let said = SlidingLog.decide(limit, state, ask, now);
    let window_us = limit.window().as_us();
    let oldest = state.marks.iter().next();
    let leaves_us = oldest.map_or(0, |oldest| window_us - now.since_us(oldest.at));
    Outcome {
        retry_us: said.retry_us.map(|us| us.min(leaves_us)),
        ..said
    }
}

fn reset_is_when_the_oldest_leaves(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let said = SlidingLog.decide(limit, state, ask, now);
    let window_us = limit.window().as_us();
    let oldest = state.marks.iter().next();
    Outcome {
        reset_us: oldest.map_or(0, |oldest| window_us - now.since_us(oldest.at)),
        ..said
    }
}

pub(super) mod found {
    use super::SlidingLog;

    crate::planted::planted_in! {
        SlidingLog;
        counts_what_is_a_window_old by Agreement Laws;
        forgets_a_microsecond_early by Agreement Promise;
        refunds_the_newest_first by Agreement;
        counts_milliseconds by Agreement Promise;
        counts_refused_hits by Agreement Laws;
        undoes_the_oldest by Agreement Undo Promise;
        never_forgets by Laws;
        retry_is_when_the_oldest_leaves by Agreement Laws;
        reset_is_when_the_oldest_leaves by Agreement Laws;
    }
}
