//! Sliding log: remembers when each hit came, and forgets it a window later.
//!
//! The idea: to know what any window holds, know every hit in it. Each admitted hit leaves a mark
//! with its time, and hits pass while the marks younger than a window leave capacity.
//!
//! The promise: at most N in any window, exactly.
//!
//! The arithmetic: a hit at t counts up to, but not including, t + W. Hits of one microsecond share
//! a mark. By default refused hits leave no mark. Where they count, there is up to one N of debt.
//!
//! Cost: at most N marks of 24 bytes for each bucket (2N where refused hits count), so N is
//! bounded, and so are the marks of a store. A decision visits the marks that have expired. A
//! refusal with a large addend visits as many as it must for the retry time.
//!
//! Registers: the hits that the marks hold; the second is unused.
//!
//! What it deliberately does not do: know who sent a hit. A refund removes the oldest ones, which
//! would expire first: a caller that gives back too much gains the least.

use super::{
    Algorithm, AlgorithmOption, Facts, Hits, Limit, MARKS_REQUESTS_MAX, Mark, MostAdmitted,
    Operation, Outcome, ReservationOutcome, State, Timestamp, charged, debt,
};

/// The `sliding_log` algorithm.
#[derive(Debug)]
pub struct SlidingLog;

static FACTS: Facts = Facts {
    requests_max: MARKS_REQUESTS_MAX,
    window_max_us: Timestamp::MAX_US / 2,
    has_marks: true,
    can_reserve: false,
    ..Facts::new(
        "sliding_log",
        "at most N in any window whatever, exactly",
        &[AlgorithmOption::CountRefused],
    )
};

// === impl SlidingLog ===

impl Algorithm for SlidingLog {
    fn facts(&self) -> &Facts {
        &FACTS
    }

    fn most_admitted(&self, limit: &Limit, _span_us: u64) -> Option<MostAdmitted> {
        Some(MostAdmitted::constant(limit.requests()))
    }

    fn decide(
        &self,
        limit: &Limit,
        state: &mut State,
        operation: Operation,
        now: Timestamp,
    ) -> Outcome {
        slide(self, limit, state, operation, now, |time| time)
    }
}

/// Decides by marks. `marked_at` maps the time of a hit to the time of its mark, from which it
/// counts for a window.
pub(super) fn slide(
    algorithm: &dyn Algorithm,
    limit: &Limit,
    state: &mut State,
    operation: Operation,
    now: Timestamp,
    marked_at: impl Fn(Timestamp) -> Timestamp,
) -> Outcome {
    let window_us = limit.window().as_us();
    let mut used = state.registers[0];
    // Before one window has passed since 1970 no mark can have expired.
    if now.as_us() >= window_us {
        used = used.saturating_sub(state.marks.expire_until(now.minus_us(window_us)));
    }
    let before = used;
    let marked_max = limit.burst().saturating_mul(2);
    let allowed = match operation.hits {
        Hits::Take(hits) => {
            let allowed = used.saturating_add(hits) <= limit.requests();
            let counted = if allowed {
                hits
            } else {
                debt(algorithm, limit, used, hits)
            };
            if counted > 0 {
                // Deep in debt the newest mark takes them in, so that marks stay bounded.
                let newest = state.marks.newest().filter(|_| used >= marked_max);
                state.marks.add(Mark {
                    at: newest.map_or_else(|| marked_at(now), |mark| mark.at),
                    hits: counted,
                    holder: None,
                });
                used = used.saturating_add(counted);
            }
            allowed
        }
        Hits::Charge(hits) => {
            let counted = charged(algorithm, used, hits);
            if counted > 0 {
                state.marks.add(Mark {
                    at: marked_at(now),
                    hits: counted,
                    holder: None,
                });
                used = used.saturating_add(counted);
            }
            true
        }
        Hits::Reservation(_) => true,
        Hits::Refund(hits) => {
            used = used.saturating_sub(state.marks.remove_hits(hits, |_| true));
            true
        }
        Hits::Undo { hits, taken_at } => {
            let at = marked_at(taken_at);
            used = used.saturating_sub(state.marks.remove_hits(hits, |mark| mark.at == at));
            true
        }
    };
    state.registers = [used, 0];

    let newest = state.marks.newest();
    Outcome {
        bucket_time: now,
        reservation: ReservationOutcome::None,
        blocked: false,
        allowed,
        used_before: before,
        remaining: limit.requests().saturating_sub(used),
        reset_us: newest.map_or(0, |mark| mark.ages_in_us(window_us, now)),
        retry_us: if allowed {
            Some(0)
        } else {
            let headroom = limit.requests().checked_sub(operation.hits.requested());
            headroom.and_then(|headroom| {
                let too_many = used.saturating_sub(headroom);
                state.marks.aged_in_us(too_many, window_us, now)
            })
        },
    }
}
