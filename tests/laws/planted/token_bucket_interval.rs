//! Bugs in token buckets that refill once per window. The list is in `mod.rs`.
//!
//! What it deliberately does not do: repeat the arithmetic where a change before or after the real
//! one is enough.

use tollgate_limiter::algorithm::{TokenBucket, TokenBucketInterval};
use tollgate_limiter::{Algorithm, Hits, Limit, Operation, Outcome, State, Timestamp};

use super::{Planted, undoing_as_refund};

fn number(limit: &Limit, time: Timestamp) -> u64 {
    time.as_us() / limit.window().as_us()
}

fn counts_windows_since_it_was_seen(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let windows = now.since_us(state.updated_at) / limit.window().as_us();
    let filled = windows.saturating_mul(limit.requests());
    state.registers[0] = state.registers[0].saturating_sub(filled);
    state.updated_at = now;
    TokenBucketInterval.decide(limit, state, ask, now)
}

fn fills_between_the_edges(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    TokenBucket.decide(limit, state, ask, now)
}

fn edges_are_counted_from_the_first_hit(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let begun_us = match state.registers {
        [0, _] => now.as_us(),
        [_, begun_us] => begun_us,
    };
    let moved = |time: Timestamp| time.minus_us(begun_us % limit.window().as_us());
    let hits = match ask.hits {
        Hits::Undo { hits, taken_at } => Hits::Undo {
            hits,
            taken_at: moved(taken_at),
        },
        hits => hits,
    };
    state.updated_at = moved(state.updated_at);
    let outcome = TokenBucketInterval.decide(limit, state, hits.into(), moved(now));
    state.registers[1] = begun_us;
    Outcome {
        bucket_time: now,
        ..outcome
    }
}

fn is_full_at_every_edge(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    if number(limit, now) > number(limit, state.updated_at) {
        state.registers = [0, 0];
    }
    TokenBucketInterval.decide(limit, state, ask, now)
}

fn one_edge_fills_however_many_were_crossed(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    if number(limit, now) > number(limit, state.updated_at) + 1 {
        state.updated_at = now.minus_us(limit.window().as_us());
    }
    TokenBucketInterval.decide(limit, state, ask, now)
}

fn retry_is_the_next_edge(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let outcome = TokenBucketInterval.decide(limit, state, ask, now);
    let to_edge_us = limit.window().as_us() - limit.window().elapsed_us(now);
    Outcome {
        retry_us: outcome.retry_us.map(|us| us.min(to_edge_us)),
        ..outcome
    }
}

fn undoes_what_has_come_back_already(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    TokenBucketInterval.decide(limit, state, undoing_as_refund(ask), now)
}

pub(super) mod found {
    use super::TokenBucketInterval;

    crate::planted::planted_in! {
        TokenBucketInterval;
        counts_windows_since_it_was_seen by Agreement Laws;
        fills_between_the_edges by Agreement Promise;
        edges_are_counted_from_the_first_hit by Agreement Promise;
        is_full_at_every_edge by Agreement Laws Promise;
        one_edge_fills_however_many_were_crossed by Agreement Laws;
        retry_is_the_next_edge by Agreement Laws;
        undoes_what_has_come_back_already by Agreement Undo;
    }
}
