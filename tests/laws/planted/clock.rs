//! Bugs in the step that all algorithms share. The list is in `mod.rs`.
//!
//! How: a [`Candidate`] is asked through [`State::apply`], so a bug in it is another function in
//! its place. Each must be found in every algorithm.
//!
//! What it deliberately does not do: plant bugs in an algorithm.

use tollgate_limiter::{ALGORITHMS, Algorithm, Hits, Limit, Operation, Outcome, State, Timestamp};

use crate::properties::{Candidate, Property, StepFn};

fn must_be_found(step: StepFn, by: &[Property]) {
    must_be_found_in(ALGORITHMS, step, by);
}

fn must_be_found_in(algorithms: &[&'static dyn Algorithm], step: StepFn, by: &[Property]) {
    for algorithm in algorithms {
        let candidate = Candidate {
            algorithm: *algorithm,
            step,
        };
        super::must_be_found(&candidate, by);
    }
}

#[test]
fn looking_costs_a_hit() {
    fn step(
        state: &mut State,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        ask: Operation,
        now: Timestamp,
    ) -> Outcome {
        let hits = match ask.hits {
            Hits::Take(hits) => Hits::Take(hits.max(1)),
            back => back,
        };
        let ask = Operation { hits, ..ask };
        state.apply(algorithm, limit, ask, now)
    }
    must_be_found(step, &[Property::Agreement, Property::Laws]);
}

#[test]
fn keeps_the_low_32_bits_of_the_hits() {
    fn step(
        state: &mut State,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        ask: Operation,
        now: Timestamp,
    ) -> Outcome {
        let low = |hits: u64| hits & u64::from(u32::MAX);
        let hits = match ask.hits {
            Hits::Take(hits) => Hits::Take(low(hits)),
            Hits::Refund(hits) => Hits::Refund(low(hits)),
            given_back @ Hits::Undo { .. } => given_back,
            Hits::Charge(_) | Hits::Reservation(_) => {
                unreachable!("these histories have no reservations")
            }
        };
        let ask = Operation { hits, ..ask };
        state.apply(algorithm, limit, ask, now)
    }
    must_be_found(step, &[Property::Agreement, Property::Promise]);
}

#[test]
fn forgets_the_bucket_when_the_clock_steps_back() {
    fn step(
        state: &mut State,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        ask: Operation,
        now: Timestamp,
    ) -> Outcome {
        if now < state.updated_at {
            *state = State::default();
        }
        state.apply(algorithm, limit, ask, now)
    }
    must_be_found(step, &[Property::Agreement, Property::Promise]);
}

#[test]
fn takes_an_older_time_as_it_is() {
    fn step(
        state: &mut State,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        ask: Operation,
        now: Timestamp,
    ) -> Outcome {
        let outcome = algorithm.decide(limit, state, ask, now);
        state.updated_at = now;
        outcome
    }
    must_be_found(step, &[Property::Agreement, Property::Promise]);
}

#[test]
fn waits_for_the_clock_to_return() {
    fn step(
        state: &mut State,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        ask: Operation,
        asked_at: Timestamp,
    ) -> Outcome {
        let behind_us = state.updated_at.since_us(asked_at);
        let later = |us: u64| us.saturating_add(us.min(1) * behind_us);
        let outcome = state.apply(algorithm, limit, ask, asked_at.max(state.updated_at));
        Outcome {
            reset_us: later(outcome.reset_us),
            retry_us: outcome.retry_us.map(later),
            ..outcome
        }
    }
    must_be_found(step, &[Property::Agreement]);
}

#[test]
fn brings_back_at_exactly_one_window() {
    fn step(
        state: &mut State,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        ask: Operation,
        now: Timestamp,
    ) -> Outcome {
        if state.updated_at.since_us(now) == limit.window().as_us() {
            state.updated_at = now;
        }
        state.apply(algorithm, limit, ask, now)
    }
    must_be_found(step, &[Property::Agreement]);
}

#[test]
fn counts_from_the_buckets_time() {
    fn step(
        state: &mut State,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        ask: Operation,
        now: Timestamp,
    ) -> Outcome {
        let is_back = state.updated_at.since_us(now) > limit.window().as_us();
        let now = if is_back {
            now
        } else {
            now.max(state.updated_at)
        };
        state.apply(algorithm, limit, ask, now)
    }
    must_be_found(step, &[Property::Agreement, Property::Laws]);
}

#[test]
fn leaves_what_is_remembered_in_the_future() {
    fn step(
        state: &mut State,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        ask: Operation,
        now: Timestamp,
    ) -> Outcome {
        if state.updated_at.since_us(now) > limit.window().as_us() {
            state.updated_at = now;
        }
        state.apply(algorithm, limit, ask, now)
    }
    let with_marks: Vec<_> = ALGORITHMS
        .iter()
        .copied()
        .filter(|algorithm| algorithm.has_marks())
        .collect();
    assert_eq!(with_marks.len(), 3);
    let by = [Property::Agreement, Property::Laws];
    must_be_found_in(&with_marks, step, &by);
}

#[test]
fn undoes_what_was_taken_in_a_lost_future() {
    fn step(
        state: &mut State,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        ask: Operation,
        now: Timestamp,
    ) -> Outcome {
        let is_back = state.updated_at.since_us(now) > limit.window().as_us();
        let bucket_now = if is_back {
            now
        } else {
            now.max(state.updated_at)
        };
        let lost = matches!(ask.hits, Hits::Undo { taken_at, .. } if taken_at > bucket_now);
        let hits = match ask.hits {
            Hits::Undo { hits, .. } if lost => Hits::Refund(hits),
            hits => hits,
        };
        state.apply(algorithm, limit, Operation { hits, ..ask }, now)
    }
    must_be_found(step, &[Property::Agreement, Property::Undo]);
}

#[test]
fn does_not_undo() {
    fn step(
        state: &mut State,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        ask: Operation,
        now: Timestamp,
    ) -> Outcome {
        let hits = match ask.hits {
            Hits::Undo { .. } => Hits::Refund(0),
            hits => hits,
        };
        state.apply(algorithm, limit, Operation { hits, ..ask }, now)
    }
    must_be_found(step, &[Property::Agreement, Property::Undo]);
}
