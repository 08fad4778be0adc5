//! Token bucket that refills once per window: N hits at every edge.
//!
//! The idea: .NET's `TokenBucketRateLimiter` adds its tokens once a period. Between two edges
//! nothing comes, so a caller gets a batch and then waits. Unused hits are kept, up to `burst`.
//!
//! The promise: at each edge of an aligned window N come, and at most `burst` are held: at most
//! burst + N × k in any time that crosses k edges.
//!
//! The arithmetic: whole hits only. The state is what is missing from a full bucket, as in
//! `token_bucket`. Crossing k edges fills k × N of it. Edges are counted from 1970, not from the
//! bucket's first hit as .NET does, so that replicas and restarts agree. Refused hits are not
//! counted by default.
//!
//! Cost: a few divisions and one register.
//!
//! Registers: hits missing; the second is unused. The edges crossed are those between `updated_at`
//! and now.
//!
//! What it deliberately does not do: fill between the edges (`refill: continuous` does).

use super::{
    Algorithm, AlgorithmOption, Facts, Hits, Limit, MostAdmitted, Operation, Outcome, REGISTER_MAX,
    ReservationOutcome, State, Timestamp, charged, debt, missing_max,
};

/// The `token_bucket_interval` algorithm.
#[derive(Debug)]
pub struct TokenBucketInterval;

static FACTS: Facts = Facts {
    refills: true,
    ..Facts::new(
        "token_bucket_interval",
        "refills by N at each edge of an aligned window, holds `burst` (default N)",
        &[AlgorithmOption::Burst, AlgorithmOption::CountRefused],
    )
};

// === impl TokenBucketInterval ===

impl Algorithm for TokenBucketInterval {
    fn facts(&self) -> &Facts {
        &FACTS
    }

    fn most_admitted(&self, limit: &Limit, span_us: u64) -> Option<MostAdmitted> {
        let refilled = match span_us {
            1 => 0,
            _ => limit.requests().min(limit.burst()),
        };
        Some(MostAdmitted::constant(
            limit.burst().saturating_add(refilled),
        ))
    }

    fn decide(
        &self,
        limit: &Limit,
        state: &mut State,
        operation: Operation,
        now: Timestamp,
    ) -> Outcome {
        let (requests, burst) = (limit.requests(), limit.burst());
        let window_us = limit.window().as_us();
        let edges =
            |from: Timestamp| number(now, window_us).saturating_sub(number(from, window_us));
        let filled = |from: Timestamp| requests.saturating_mul(edges(from));
        // The time until this many have come.
        let fills_in_us = |missing: u64| match missing {
            0 => Some(0),
            missing => {
                let edges = missing
                    .checked_add(requests.saturating_sub(1))?
                    .checked_div(requests)?;
                let further_us = edges.saturating_sub(1).saturating_mul(window_us);
                let to_edge_us = window_us.saturating_sub(limit.window().elapsed_us(now));
                Some(further_us.saturating_add(to_edge_us))
            }
        };

        let before = state.registers[0].saturating_sub(filled(state.updated_at));
        let (after, allowed) = match operation.hits {
            Hits::Take(hits) => {
                let after = before.saturating_add(hits);
                if after <= burst {
                    (after, true)
                } else {
                    let owed = debt(self, limit, before, hits);
                    (before.saturating_add(owed), false)
                }
            }
            Hits::Charge(hits) => {
                let added = charged(self, before, hits);
                (before.saturating_add(added), true)
            }
            Hits::Reservation(_) => (before, false),
            Hits::Refund(hits) => (before.saturating_sub(hits), true),
            Hits::Undo { hits, taken_at } => {
                // The refill since the take could have found the bucket full without it.
                let weighs = hits.saturating_sub(filled(taken_at));
                (before.saturating_sub(weighs), true)
            }
        };
        state.registers = [after.min(REGISTER_MAX), 0];

        Outcome {
            bucket_time: now,
            reservation: ReservationOutcome::None,
            blocked: false,
            allowed,
            used_before: before,
            remaining: burst.saturating_sub(after),
            reset_us: fills_in_us(after).unwrap_or(window_us),
            retry_us: if allowed {
                Some(0)
            } else {
                burst
                    .checked_sub(operation.hits.requested())
                    .and_then(|headroom| fills_in_us(after.saturating_sub(headroom)))
            },
        }
    }

    fn ttl_us(&self, limit: &Limit) -> u64 {
        let window_us = limit.window().as_us();
        let edges = missing_max(self, limit).div_ceil(limit.requests().max(1));
        edges.saturating_mul(window_us).max(window_us)
    }
}

/// The number of the window, counted from 1970, that contains `time`.
fn number(time: Timestamp, window_us: u64) -> u64 {
    time.as_us().checked_div(window_us).unwrap_or_default()
}
