//! Bugs in token buckets. The list is in `mod.rs`.
//!
//! What it deliberately does not do: repeat the arithmetic where a change before or after the real
//! one is enough.

use tollgate_limiter::algorithm::{REGISTER_MAX, TokenBucket};
use tollgate_limiter::{Algorithm, CountRefused, Limit, Operation, Outcome, State, Timestamp};

use super::{Planted, counts_refused, undoing_as_refund};
use crate::properties::{Candidate, Property};

fn refills_whole_hits_only(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let rate = limit.rate();
    let elapsed_us = u128::from(now.since_us(state.updated_at));
    let filled = elapsed_us * u128::from(rate.hits) / u128::from(rate.per_us);
    let filled = u64::try_from(filled).unwrap_or(u64::MAX);
    state.registers[0] = state.registers[0].saturating_sub(filled);
    state.updated_at = now;
    TokenBucket.decide(limit, state, ask, now)
}

fn rounds_in_the_callers_favour(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let said = TokenBucket.decide(limit, state, ask, now);
    state.registers[1] = 0;
    said
}

fn counts_milliseconds(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let whole = |time: Timestamp| time.minus_us(time.as_us() % 1_000);
    state.updated_at = whole(state.updated_at);
    TokenBucket.decide(limit, state, ask, whole(now))
}

fn ignores_the_burst(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    let limit = Limit::per(
        limit.requests_per_unit(),
        limit.unit().unwrap(),
        limit.unit_multiplier(),
    );
    TokenBucket.decide(&limit, state, ask, now)
}

fn counts_refused_hits(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let said = TokenBucket.decide(limit, state, ask, now);
    if !said.allowed {
        let missing = state.registers[0].saturating_add(ask.hits.requested());
        state.registers[0] = missing.min(REGISTER_MAX);
    }
    said
}

fn retry_is_early(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    let said = TokenBucket.decide(limit, state, ask, now);
    Outcome {
        retry_us: said.retry_us.map(|us| us.saturating_sub(1)),
        ..said
    }
}

fn reset_is_late(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    let said = TokenBucket.decide(limit, state, ask, now);
    Outcome {
        reset_us: said.reset_us.saturating_add(said.reset_us.min(1)),
        ..said
    }
}

/// No outcome is wrong, only the store's use of the TTL: a bucket that is dropped too soon is full
/// too soon.
#[test]
fn lives_one_window_whatever_the_burst() {
    static PLANTED: Planted = Planted {
        base: &TokenBucket,
        decide: |limit, state, ask, now| TokenBucket.decide(limit, state, ask, now),
        life_us: Some(|limit| limit.window().as_us()),
        usual_burst: None,
    };
    super::must_be_found(&Candidate::honest(&PLANTED), &[Property::Laws]);
}

fn undoes_what_has_come_back_already(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    TokenBucket.decide(limit, state, undoing_as_refund(ask), now)
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
        TokenBucket.decide(limit, state, ask, now)
    }
}

fn refused_hits_leave_one_burst(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let said = TokenBucket.decide(limit, state, ask, now);
    if !said.allowed {
        let most = limit.burst().max(said.used_before);
        state.registers[0] = state.registers[0].min(most);
    }
    said
}

fn blocking_counts_nothing(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let limit = match limit.count_refused() {
        Some(CountRefused::Blocking) => &limit.with_count_refused(CountRefused::None),
        _ => limit,
    };
    TokenBucket.decide(limit, state, ask, now)
}

pub(super) mod found {
    use super::TokenBucket;

    crate::planted::planted_in! {
        TokenBucket;
        refills_whole_hits_only by Agreement Laws;
        rounds_in_the_callers_favour by Agreement Laws Promise;
        counts_milliseconds by Agreement Laws;
        ignores_the_burst by Agreement Promise;
        counts_refused_hits by Agreement Laws;
        retry_is_early by Agreement Laws;
        undoes_what_has_come_back_already by Agreement Undo;
        debt_has_no_bound by Agreement Laws;
        refused_hits_leave_one_burst by Agreement Laws;
        blocking_counts_nothing by Agreement Laws;
        reset_is_late by Agreement Laws;
    }
}
