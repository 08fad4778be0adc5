//! Concurrency: limits how many requests are in flight.
//!
//! The idea: a check takes a slot, a refund frees it. A plain count fails in two ways: Envoy sends
//! its refund whether or not the check was allowed, and sends none when its client left while the
//! check was in flight. So each slot carries the id of the request that took it, and a refund frees
//! only the slots with its id, once. Each slot also expires after a time. Only a peek (0 hits) with
//! its id renews it.
//!
//! The promise: at most N in flight, where a slot that was neither freed nor renewed counts for
//! `slot_seconds`.
//!
//! A check without an id takes an anonymous slot, which any refund without an id frees. That is
//! right for callers that give back exactly what they took, and wrong for Envoy. An id that is sent
//! twice holds two slots. With one slot, a caller that chooses its id could share it for ever. For
//! the same reason the id should be one that callers cannot choose.
//!
//! The arithmetic: a slot that is taken or renewed at t counts up to, but not including, t +
//! `slot_seconds`. Refused hits take nothing.
//!
//! Cost: a mark of 24 bytes for each slot held, so N is bounded. A refund or a renewal scans the
//! slots held.
//!
//! Registers: the slots held; the second is unused.
//!
//! What it deliberately does not do: queue, or guess that a slot was freed. Its retry time is when
//! the first slot expires. A slot that is given back earlier frees capacity earlier.

use super::{
    Algorithm, AlgorithmOption, Facts, Hits, Limit, MARKS_REQUESTS_MAX, Mark, Operation, Outcome,
    ReservationOutcome, State, Timestamp, used_changed,
};

/// The `concurrency` algorithm.
#[derive(Debug)]
pub struct Concurrency;

static FACTS: Facts = Facts {
    requests_max: MARKS_REQUESTS_MAX,
    has_marks: true,
    can_reserve: false,
    ..Facts::new(
        "concurrency",
        "at most N in flight; a lost one comes back when its slot expires",
        &[AlgorithmOption::Slots],
    )
};

// === impl Concurrency ===

impl Algorithm for Concurrency {
    fn facts(&self) -> &Facts {
        &FACTS
    }

    fn decide(
        &self,
        limit: &Limit,
        state: &mut State,
        operation: Operation,
        now: Timestamp,
    ) -> Outcome {
        let slot_us = limit.window().as_us();
        let State {
            registers, marks, ..
        } = state;
        let mut held = registers[0];
        // Before one slot time has passed since 1970 no slot can have expired.
        if now.as_us() >= slot_us {
            held = held.saturating_sub(marks.expire_until(now.minus_us(slot_us)));
        }
        let before = held;
        let slot = |hits| Mark {
            at: now,
            hits,
            holder: operation.holder,
        };
        let its = |mark: &Mark| mark.holder == operation.holder;
        let allowed = match operation.hits {
            Hits::Take(0) => {
                if operation.holder.is_some() {
                    let renewed = marks.remove_hits(u64::MAX, its);
                    if renewed > 0 {
                        marks.add(slot(renewed));
                    }
                }
                held <= limit.requests()
            }
            Hits::Take(hits) => {
                let allowed = held.saturating_add(hits) <= limit.requests();
                if allowed {
                    marks.add(slot(hits));
                    held = held.saturating_add(hits);
                }
                allowed
            }
            Hits::Charge(_) | Hits::Reservation(_) => true,
            Hits::Refund(hits) => {
                held = held.saturating_sub(marks.remove_hits(hits, its));
                true
            }
            Hits::Undo { hits, taken_at } => {
                // A slot that a later peek renewed looks the same as one taken later. It
                // stays until it expires, rather than let one more in.
                let that = |mark: &Mark| its(mark) && mark.at == taken_at;
                held = held.saturating_sub(marks.remove_hits(hits, that));
                true
            }
        };
        *registers = [held, 0];

        Outcome {
            bucket_time: now,
            reservation: ReservationOutcome::None,
            blocked: false,
            allowed,
            used_before: before,
            remaining: limit.requests().saturating_sub(held),
            reset_us: marks
                .newest()
                .map_or(0, |mark| mark.ages_in_us(slot_us, now)),
            retry_us: if allowed {
                Some(0)
            } else {
                let headroom = limit.requests().checked_sub(operation.hits.requested());
                headroom.and_then(|headroom| {
                    marks.aged_in_us(held.saturating_sub(headroom), slot_us, now)
                })
            },
        }
    }

    fn changed(
        &self,
        _limit: &Limit,
        _was: (Timestamp, [u64; 2]),
        state: &State,
        operation: Operation,
        outcome: &Outcome,
    ) -> bool {
        // A peek renews the slots of its holder.
        let renews = operation.hits == Hits::PEEK && operation.holder.is_some();
        used_changed(state, outcome)
            || renews
                && state
                    .marks
                    .iter()
                    .any(|mark| mark.holder == operation.holder)
    }
}
