//! Concurrency: how many are in flight.
//!
//! The idea: a check takes a slot, a refund frees it. Two things go wrong with a mere count: Envoy sends its refund whether
//! or not the check was allowed, and none at all when its client left while the check was in flight. So each slot
//! carries an id, that of the request which took it: a refund frees the slots of its id and nobody else's, once; and each
//! slot has a time of its own after which it frees itself, which only a look (0 hits) with its id puts off.
//!
//! The promise: at most N in flight, where a slot that was neither freed nor renewed counts for `slot_seconds`.
//!
//! A check without an id takes a slot that is nobody's, which any refund without an id frees: right for callers that give
//! back exactly what they were given, and wrong for Envoy. An id that is sent twice holds two slots: if it meant one,
//! whoever chose its id could share a slot for ever. For the same reason the id should be one that callers cannot choose.
//!
//! The arithmetic: a slot taken or renewed at t counts until, and without, t + `slot_seconds`. Refused hits take nothing.
//!
//! What it costs: a mark of 24 bytes a slot held, so N is bounded. A refund or a renewal looks through the slots held.
//!
//! Registers: the slots held, and none.
//!
//! What it deliberately does not do: queue, or guess that a slot was freed. Its retry time is when the first slot ends by
//! itself; one that is given back sooner helps sooner.

use super::{
    Algorithm, AlgorithmOption, Hits, Limit, MARKS_REQUESTS_MAX, Mark, Operation, Outcome, State,
    Timestamp, used_changed,
};

/// See the file's own words.
#[derive(Debug)]
pub struct Concurrency;

// === impl Concurrency ===

impl Algorithm for Concurrency {
    fn name(&self) -> &'static str {
        "concurrency"
    }

    fn promise(&self) -> &'static str {
        "at most N in flight; a lost one comes back when its slot expires"
    }

    fn has_marks(&self) -> bool {
        true
    }

    fn options(&self) -> &'static [AlgorithmOption] {
        &[AlgorithmOption::Slots]
    }

    fn requests_max(&self) -> u32 {
        MARKS_REQUESTS_MAX
    }

    fn decide(&self, limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
        let slot_us = limit.window().as_us();
        let State {
            registers, marks, ..
        } = state;
        let mut held = registers[0];
        // In the first slot's time since 1970 none can have run out.
        if now.as_us() >= slot_us {
            held = held.saturating_sub(marks.expire_until(now.minus_us(slot_us)));
        }
        let before = held;
        let slot = |hits| Mark {
            at: now,
            hits,
            holder: ask.holder,
        };
        let its = |mark: &Mark| mark.holder == ask.holder;
        let allowed = match ask.hits {
            Hits::Take(0) => {
                if ask.holder.is_some() {
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
            Hits::Refund(hits) => {
                held = held.saturating_sub(marks.remove_hits(hits, its));
                true
            }
            Hits::Undo { hits, taken_at } => {
                // One that a look has renewed since cannot be told from one taken later: it stays, rather than let one
                // more in, until its time is over.
                let that = |mark: &Mark| its(mark) && mark.at == taken_at;
                held = held.saturating_sub(marks.remove_hits(hits, that));
                true
            }
        };
        *registers = [held, 0];

        Outcome {
            bucket_time: now,
            allowed,
            used_before: before,
            remaining: limit.requests().saturating_sub(held),
            reset_us: marks
                .newest()
                .map_or(0, |mark| mark.ages_in_us(slot_us, now)),
            retry_us: if allowed {
                Some(0)
            } else {
                let room = limit.requests().checked_sub(ask.hits.requested());
                room.and_then(|room| marks.aged_in_us(held.saturating_sub(room), slot_us, now))
            },
        }
    }

    fn changed(
        &self,
        _limit: &Limit,
        _was: (Timestamp, [u64; 2]),
        state: &State,
        ask: Operation,
        outcome: &Outcome,
    ) -> bool {
        // A look renews the slots of its holder.
        let renews = ask.hits == Hits::PEEK && ask.holder.is_some();
        used_changed(state, outcome)
            || renews && state.marks.iter().any(|mark| mark.holder == ask.holder)
    }

    fn ttl_us(&self, limit: &Limit) -> u64 {
        limit.window().as_us()
    }
}
