//! Bugs in fixed windows. The list is in `mod.rs`.
//!
//! What it deliberately does not do: repeat the arithmetic where a change before or after the real
//! one is enough.

use tollgate_limiter::algorithm::FixedWindow;
use tollgate_limiter::{
    Algorithm, CountRefused, Hits, Limit, Operation, Outcome, State, Timestamp,
};

use super::{Planted, undoing_as_refund};

fn refuses_at_exactly_the_limit(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let mut outcome = FixedWindow.decide(limit, state, ask, now);
    if ask.hits.requested() > 0 && state.registers[0] == limit.requests() {
        outcome.allowed = false;
        outcome.retry_us = Some(outcome.reset_us);
    }
    outcome
}

fn never_starts_again(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    state.updated_at = now;
    FixedWindow.decide(limit, state, ask, now)
}

fn windows_begin_at_the_first_hit(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let [count, begun_us] = state.registers;
    let window_us = limit.window().as_us();
    let same_window = count > 0 && now.as_us().saturating_sub(begun_us) < window_us;
    let begun_us = if same_window { begun_us } else { now.as_us() };
    state.updated_at = now;
    state.registers = [if same_window { count } else { 0 }, 0];
    let outcome = FixedWindow.decide(limit, state, ask, now);
    state.registers[1] = begun_us;
    let reset_us = begun_us + window_us - now.as_us();
    Outcome {
        reset_us,
        retry_us: outcome.retry_us.map(|us| us.min(1) * reset_us),
        ..outcome
    }
}

fn lets_straddling_hits_pass(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let mut outcome = FixedWindow.decide(limit, state, ask, now);
    if !outcome.allowed && outcome.used_before < limit.requests() {
        outcome.allowed = true;
        outcome.retry_us = Some(0);
    }
    outcome
}

fn clips_straddling_hits(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let outcome = FixedWindow.decide(limit, state, ask, now);
    if !outcome.allowed && outcome.used_before < limit.requests() {
        state.registers[0] = limit.requests();
    }
    outcome
}

fn does_not_count_refused_hits(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let outcome = FixedWindow.decide(limit, state, ask, now);
    if !outcome.allowed {
        state.registers[0] = outcome.used_before;
    }
    outcome
}

fn count_wraps(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    let outcome = FixedWindow.decide(limit, state, ask, now);
    let Hits::Take(hits) = ask.hits else {
        return outcome;
    };
    let after = outcome.used_before.wrapping_add(hits);
    if after > limit.requests() {
        return outcome;
    }
    state.registers[0] = after;
    Outcome {
        allowed: true,
        remaining: limit.requests() - after,
        retry_us: Some(0),
        ..outcome
    }
}

fn refund_wraps(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    let outcome = FixedWindow.decide(limit, state, ask, now);
    if let Hits::Refund(hits) = ask.hits {
        state.registers[0] = outcome.used_before.wrapping_sub(hits);
    }
    outcome
}

fn reset_is_early(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    let outcome = FixedWindow.decide(limit, state, ask, now);
    Outcome {
        reset_us: outcome.reset_us - 1,
        ..outcome
    }
}

fn reset_is_late(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    let outcome = FixedWindow.decide(limit, state, ask, now);
    Outcome {
        reset_us: outcome.reset_us + 1,
        ..outcome
    }
}

fn hopeless_hits_may_retry(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let outcome = FixedWindow.decide(limit, state, ask, now);
    Outcome {
        retry_us: outcome.retry_us.or(Some(outcome.reset_us)),
        ..outcome
    }
}

fn undoes_into_a_turned_window(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    FixedWindow.decide(limit, state, undoing_as_refund(ask), now)
}

fn debt_has_no_bound(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    let limit = match limit.count_refused() {
        Some(CountRefused::All) => &limit.with_count_refused(CountRefused::Blocking),
        _ => limit,
    };
    FixedWindow.decide(limit, state, ask, now)
}

fn refused_hits_are_in_debt_by_default(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let limit = match limit.count_refused() {
        None => &limit.with_count_refused(CountRefused::All),
        _ => limit,
    };
    FixedWindow.decide(limit, state, ask, now)
}

fn knows_no_calendar(limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
    let plain = Limit::per(
        limit.requests_per_unit(),
        limit.unit().unwrap(),
        limit.unit_multiplier(),
    );
    let limit = match limit.count_refused() {
        Some(count_refused) => plain.with_count_refused(count_refused),
        None => plain,
    };
    FixedWindow.decide(&limit, state, ask, now)
}

fn all_windows_are_as_long_as_the_longest(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let outcome = FixedWindow.decide(limit, state, ask, now);
    let start = limit.window_at(now).start;
    let reset_us = limit.window().as_us() - now.since_us(start);
    Outcome {
        reset_us,
        retry_us: outcome.retry_us.map(|us| us.min(1) * reset_us),
        ..outcome
    }
}

pub(super) mod found {
    use super::FixedWindow;

    crate::planted::planted_in! {
        FixedWindow;
        refuses_at_exactly_the_limit by Agreement Laws;
        never_starts_again by Agreement Laws;
        windows_begin_at_the_first_hit by Agreement Promise;
        lets_straddling_hits_pass by Agreement Promise;
        clips_straddling_hits by Agreement;
        does_not_count_refused_hits by Agreement;
        count_wraps by Agreement Promise;
        refund_wraps by Agreement Laws;
        reset_is_early by Agreement Laws;
        reset_is_late by Agreement Laws;
        hopeless_hits_may_retry by Agreement Laws;
        undoes_into_a_turned_window by Agreement Undo;
        debt_has_no_bound by Agreement Laws;
        refused_hits_are_in_debt_by_default by Agreement Laws;
        knows_no_calendar by Agreement Promise;
        all_windows_are_as_long_as_the_longest by Agreement Laws;
    }
}
