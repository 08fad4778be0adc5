//! Bugs in concurrency. The list is in `mod.rs`.
//!
//! What it deliberately does not do: repeat the arithmetic where a change before or after the real
//! one is enough.

use tollgate_limiter::algorithm::Concurrency;
use tollgate_limiter::{Algorithm, Hits, Holder, Limit, Operation, Outcome, State, Timestamp};

use super::{Planted, decide_at, undoing_as_refund};

/// The holder of the oldest slot, or else the caller.
fn oldest_holder(state: &State, ask: Operation) -> Option<Holder> {
    let oldest = state.marks.iter().next();
    oldest.map_or(ask.holder, |mark| mark.holder)
}

fn holds_any(state: &State, holder: Option<Holder>) -> bool {
    state.marks.iter().any(|mark| mark.holder == holder)
}

fn is_refund(ask: Operation) -> bool {
    matches!(ask.hits, Hits::Refund(_))
}

/// Expired slots are no longer in the state.
fn at_present(limit: &Limit, state: &mut State, now: Timestamp) -> Outcome {
    Concurrency.decide(limit, state, Hits::PEEK.into(), now)
}

fn refund_frees_the_oldest_slot(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    at_present(limit, state, now);
    let holder = if is_refund(ask) {
        oldest_holder(state, ask)
    } else {
        ask.holder
    };
    Concurrency.decide(limit, state, Operation { holder, ..ask }, now)
}

/// The second refund of one id, or that of a check which was refused.
fn refund_of_nothing_frees_anothers(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    at_present(limit, state, now);
    let holder = if is_refund(ask) && !holds_any(state, ask.holder) {
        oldest_holder(state, ask)
    } else {
        ask.holder
    };
    Concurrency.decide(limit, state, Operation { holder, ..ask }, now)
}

fn anonymous_refund_frees_a_named_slot(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    at_present(limit, state, now);
    let named = state.marks.iter().find_map(|mark| mark.holder);
    let holder = if is_refund(ask) && !holds_any(state, None) {
        ask.holder.or(named)
    } else {
        ask.holder
    };
    Concurrency.decide(limit, state, Operation { holder, ..ask }, now)
}

fn refund_frees_nothing_of_a_named_slot(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let holder = ask.holder.filter(|_| !is_refund(ask));
    Concurrency.decide(limit, state, Operation { holder, ..ask }, now)
}

fn an_id_holds_one_slot(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let before = at_present(limit, state, now);
    let holds = ask.holder.is_some() && holds_any(state, ask.holder);
    if holds && ask.hits.requested() > 0 && before.allowed {
        return before;
    }
    Concurrency.decide(limit, state, ask, now)
}

fn a_look_renews_everybody(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    if ask.hits == Hits::PEEK {
        at_present(limit, state, now);
        let holders: Vec<_> = state.marks.iter().map(|mark| mark.holder).collect();
        for holder in holders {
            let hits = Hits::PEEK;
            Concurrency.decide(limit, state, Operation { hits, holder }, now);
        }
    }
    Concurrency.decide(limit, state, ask, now)
}

fn a_peek_renews_no_slot(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let holder = ask.holder.filter(|_| ask.hits != Hits::PEEK);
    Concurrency.decide(limit, state, Operation { holder, ..ask }, now)
}

fn a_take_renews_what_is_held(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    if ask.hits.requested() > 0 {
        let holder = ask.holder;
        let hits = Hits::PEEK;
        Concurrency.decide(limit, state, Operation { hits, holder }, now);
    }
    Concurrency.decide(limit, state, ask, now)
}

fn a_slot_counts_a_microsecond_longer(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let slot_us = limit.window().as_us();
    let just_over = |since: Timestamp| now.since_us(since) == slot_us;
    let then = if state.marks.iter().any(|mark| just_over(mark.at)) {
        now.minus_us(1)
    } else {
        now
    };
    decide_at(then, &Concurrency, limit, state, ask, now)
}

/// A counter without slots.
fn slots_never_run_out(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let hits = match ask.hits {
        Hits::Undo { hits, .. } => Hits::Undo {
            hits,
            taken_at: Timestamp::default(),
        },
        hits => hits,
    };
    let then = Timestamp::default();
    let outcome = Concurrency.decide(limit, state, Operation { hits, ..ask }, then);
    Outcome {
        bucket_time: now,
        ..outcome
    }
}

fn undoes_the_oldest_of_the_id(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    Concurrency.decide(limit, state, undoing_as_refund(ask), now)
}

fn refused_hits_take_a_slot(
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let outcome = Concurrency.decide(limit, state, ask, now);
    if !outcome.allowed && ask.hits.requested() > 0 {
        let larger = Limit::in_flight(u32::MAX, limit.unit_multiplier());
        let hits = Hits::Take(1);
        Concurrency.decide(&larger, state, Operation { hits, ..ask }, now);
    }
    outcome
}

pub(super) mod found {
    use super::Concurrency;

    crate::planted::planted_in! {
        Concurrency;
        refund_frees_the_oldest_slot by Agreement Promise;
        refund_of_nothing_frees_anothers by Agreement Promise;
        anonymous_refund_frees_a_named_slot by Agreement Promise;
        refund_frees_nothing_of_a_named_slot by Agreement;
        an_id_holds_one_slot by Agreement;
        a_look_renews_everybody by Agreement Laws;
        a_peek_renews_no_slot by Agreement Laws Promise;
        a_take_renews_what_is_held by Agreement Laws;
        a_slot_counts_a_microsecond_longer by Agreement Laws;
        slots_never_run_out by Agreement Laws;
        undoes_the_oldest_of_the_id by Agreement Undo Promise;
        refused_hits_take_a_slot by Agreement Laws;
    }
}
