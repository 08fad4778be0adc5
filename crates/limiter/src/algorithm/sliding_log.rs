//! Sliding log: remember when each hit came, and forget it a window later.
//!
//! The idea: the only way to know what any window holds is to know every hit in it. So each admitted hit leaves a mark with
//! its time, and hits pass while the marks not yet a window old leave room.
//!
//! The promise: at most N in any window whatever, exactly.
//!
//! The arithmetic: a hit at t counts until, and without, t + W. Hits of one microsecond share a mark. Refused hits are not
//! marked, unless the limit says so: then up to one N of debt.
//!
//! What it costs: at most N marks of 24 bytes a bucket (2N where refused hits count), so N is bounded, and so are the marks
//! of a store. A decision looks at those that have run out; a refusal with a large addend looks as far as it must for the
//! retry time.
//!
//! Registers: the hits that the marks hold, and none.
//!
//! What it deliberately does not do: know whose a hit was. A refund removes the oldest ones, which were to go first anyway:
//! the caller that gave back too much gains the least.

use super::{
    Algorithm, AlgorithmOption, Hits, Limit, MARKS_REQUESTS_MAX, Mark, Operation, Outcome, State,
    Timestamp, debt, used_changed,
};

/// See the file's own words.
#[derive(Debug)]
pub struct SlidingLog;

// === impl SlidingLog ===

impl Algorithm for SlidingLog {
    fn name(&self) -> &'static str {
        "sliding_log"
    }

    fn promise(&self) -> &'static str {
        "at most N in any window whatever, exactly"
    }

    fn has_marks(&self) -> bool {
        true
    }

    fn options(&self) -> &'static [AlgorithmOption] {
        &[AlgorithmOption::CountRefused]
    }

    fn requests_max(&self) -> u32 {
        MARKS_REQUESTS_MAX
    }

    fn window_max_us(&self) -> u64 {
        Timestamp::MAX_US / 2
    }

    fn decide(&self, limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
        slide(self, limit, state, ask, now, |time| time)
    }

    fn changed(
        &self,
        _limit: &Limit,
        _was: (Timestamp, [u64; 2]),
        state: &State,
        _ask: Operation,
        outcome: &Outcome,
    ) -> bool {
        used_changed(state, outcome)
    }

    fn ttl_us(&self, limit: &Limit) -> u64 {
        limit.window().as_us()
    }
}

/// Decides by marks of which each stands at the time that `marked_at` makes of a hit's, and counts for a window from then.
pub(super) fn slide(
    algorithm: &dyn Algorithm,
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
    marked_at: impl Fn(Timestamp) -> Timestamp,
) -> Outcome {
    let window_us = limit.window().as_us();
    let mut used = state.registers[0];
    // In the first window since 1970 nothing can be a window old.
    if now.as_us() >= window_us {
        used = used.saturating_sub(state.marks.expire_until(now.minus_us(window_us)));
    }
    let before = used;
    let allowed = match ask.hits {
        Hits::Take(hits) => {
            let allowed = used.saturating_add(hits) <= limit.requests();
            let counted = if allowed {
                hits
            } else {
                debt(algorithm, limit, used, hits)
            };
            if counted > 0 {
                state.marks.add(Mark {
                    at: marked_at(now),
                    hits: counted,
                    holder: None,
                });
                used = used.saturating_add(counted);
            }
            allowed
        }
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
        allowed,
        used_before: before,
        remaining: limit.requests().saturating_sub(used),
        reset_us: newest.map_or(0, |mark| mark.ages_in_us(window_us, now)),
        retry_us: if allowed {
            Some(0)
        } else {
            let room = limit.requests().checked_sub(ask.hits.requested());
            room.and_then(|room| {
                let too_many = used.saturating_sub(room);
                state.marks.aged_in_us(too_many, window_us, now)
            })
        },
    }
}
