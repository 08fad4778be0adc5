//! Bugs in sliding windows. The list is in `mod.rs`.
//!
//! What it deliberately does not do: repeat the arithmetic where a change before or after the real
//! one is enough.

use tollgate_limiter::algorithm::{REGISTER_MAX, SlidingWindow};
use tollgate_limiter::{
    Algorithm, CountRefused, Hits, Limit, Operation, Outcome, State, Timestamp,
};

use super::{Planted, counts_refused, undoing_as_refund};

/// Decides like the real one, except for the weight of the previous window's count, in 1/window of
/// a hit.
fn admit_by_weight(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
    weight: fn(previous: u128, left_us: u128, window_us: u128) -> u128,
) -> Outcome {
    let Hits::Take(taken) = ask.hits else {
        return SlidingWindow.decide(limit, state, ask, now);
    };
    let before = SlidingWindow.decide(limit, state, Hits::PEEK.into(), now);
    state.updated_at = now;
    let refused = SlidingWindow.decide(limit, &mut state.clone(), ask, now);

    let window_us = u128::from(limit.window().as_us());
    let left_us = window_us - u128::from(limit.window().elapsed_us(now));
    let [present, previous] = state.registers.map(u128::from);
    let used = weight(previous, left_us, window_us) + (present + u128::from(taken)) * window_us;
    let allowed = used <= u128::from(limit.requests()) * window_us;
    if allowed {
        state.registers[0] += taken;
    }
    let after = SlidingWindow.decide(limit, state, Hits::PEEK.into(), now);
    Outcome {
        allowed,
        used_before: before.used_before,
        retry_us: if allowed { Some(0) } else { refused.retry_us },
        ..after
    }
}

fn weighs_by_what_has_gone(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    admit_by_weight(limit, state, ask, now, |previous, left_us, window_us| {
        previous * (window_us - left_us)
    })
}

fn rounds_the_weight_down(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    admit_by_weight(limit, state, ask, now, |previous, left_us, window_us| {
        previous * left_us / window_us * window_us
    })
}

fn forgets_the_previous_window(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    if state.updated_at < limit.window().start_of(now) {
        state.registers = [0, 0];
    }
    SlidingWindow.decide(limit, state, ask, now)
}

fn keeps_a_window_too_long(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let start = limit.window().start_of(now);
    if state.updated_at < start {
        state.updated_at = start.minus_us(1);
    }
    SlidingWindow.decide(limit, state, ask, now)
}

fn counts_refused_hits(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let outcome = SlidingWindow.decide(limit, state, ask, now);
    if !outcome.allowed {
        let count = state.registers[0].saturating_add(ask.hits.requested());
        state.registers[0] = count.min(REGISTER_MAX);
    }
    outcome
}

fn gives_back_to_the_previous_window_first(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let Hits::Refund(refunded) = ask.hits else {
        return SlidingWindow.decide(limit, state, ask, now);
    };
    SlidingWindow.decide(limit, state, Hits::PEEK.into(), now);
    let from_present = refunded.saturating_sub(state.registers[1]);
    state.registers[1] = state.registers[1].saturating_sub(refunded);
    state.updated_at = now;
    SlidingWindow.decide(limit, state, Hits::Refund(from_present).into(), now)
}

fn reset_is_the_next_edge(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let outcome = SlidingWindow.decide(limit, state, ask, now);
    let to_edge_us = limit.window().as_us() - limit.window().elapsed_us(now);
    Outcome {
        reset_us: outcome.reset_us.min(to_edge_us),
        ..outcome
    }
}

fn retry_is_early(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    let outcome = SlidingWindow.decide(limit, state, ask, now);
    Outcome {
        retry_us: outcome.retry_us.map(|us| us.saturating_sub(1)),
        ..outcome
    }
}

fn undoes_in_the_present_window(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    SlidingWindow.decide(limit, state, undoing_as_refund(ask), now)
}

fn debt_has_no_bound(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    if counts_refused(limit) {
        counts_refused_hits(
            &limit.with_count_refused(CountRefused::None),
            state,
            ask,
            now,
        )
    } else {
        SlidingWindow.decide(limit, state, ask, now)
    }
}

pub(super) mod found {
    use super::SlidingWindow;

    crate::planted::planted_in! {
        SlidingWindow;
        weighs_by_what_has_gone by Agreement Promise;
        rounds_the_weight_down by Agreement Promise;
        forgets_the_previous_window by Agreement Promise;
        keeps_a_window_too_long by Agreement Laws;
        counts_refused_hits by Agreement Laws;
        gives_back_to_the_previous_window_first by Agreement;
        reset_is_the_next_edge by Agreement Laws;
        retry_is_early by Agreement Laws;
        undoes_in_the_present_window by Agreement Undo;
        debt_has_no_bound by Agreement Laws;
    }
}
