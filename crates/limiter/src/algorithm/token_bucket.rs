//! Token bucket: refills continuously and holds `burst`.
//!
//! The idea: hits are taken from a bucket that holds at most `burst` and gains N each window,
//! evenly, in parts of a hit. Also known as GCRA (the generic cell rate algorithm), which keeps the
//! same state as one instant. Both admit the same requests, and `gcra` is accepted as a name.
//!
//! The promise: in any time t at most burst + N × t / window. Refused hits are not counted by
//! default.
//!
//! The arithmetic: the state is not the level but what is *missing* from a full bucket. So an
//! unused bucket is all zeros, a larger burst applies at once after a reload, and what was consumed
//! stays consumed. With the rate as hits / per_us in lowest terms, everything is counted in
//! 1/per_us of a hit: time t fills hits × t, exactly, without drift. Products are below 2^118
//! (u128).
//!
//! Cost: a division or two of 128 bits, and two registers.
//!
//! Registers: whole hits missing, and the missing part of a hit in 1/window (see
//! [`Rate::divisor`]), both as of `updated_at`.
//!
//! What it deliberately does not do: refill once per window (`token_bucket_interval`).

use super::{
    Algorithm, AlgorithmOption, Facts, Hits, LeasePolicy, Limit, MostAdmitted, Operation, Outcome,
    REGISTER_MAX, ReservationOutcome, State, Timestamp, TokenBucketInterval, charged, debt,
    missing_max,
};

#[cfg(doc)]
use super::super::limit::Rate;

/// The `token_bucket` algorithm.
#[derive(Debug)]
pub struct TokenBucket;

static FACTS: Facts = Facts {
    aliases: &["gcra"],
    variants: &[(AlgorithmOption::Refill, &TokenBucketInterval)],
    lease_policy: LeasePolicy::AnyAge,
    refills: true,
    ..Facts::new(
        "token_bucket",
        "refills continuously at N per window, holds `burst` (default N)",
        &[
            AlgorithmOption::Burst,
            AlgorithmOption::Refill,
            AlgorithmOption::CountRefused,
        ],
    )
};

// === impl TokenBucket ===

impl Algorithm for TokenBucket {
    fn facts(&self) -> &Facts {
        &FACTS
    }

    fn most_admitted(&self, limit: &Limit, span_us: u64) -> Option<MostAdmitted> {
        Some(MostAdmitted::growing(
            limit.burst(),
            limit,
            span_us.saturating_sub(1),
        ))
    }

    fn decide(
        &self,
        limit: &Limit,
        state: &mut State,
        operation: Operation,
        now: Timestamp,
    ) -> Outcome {
        let rate = limit.rate();
        let per_us = u128::from(rate.per_us);
        let scaled = |hits: u64| u128::from(hits).saturating_mul(per_us);
        let full = scaled(limit.burst());
        // The time in which the rate fills this much.
        let fills_in_us = |missing: u128| {
            missing
                .checked_add(u128::from(rate.hits.saturating_sub(1)))
                .and_then(|missing| missing.checked_div(u128::from(rate.hits)))
                .map(|us| u64::try_from(us).unwrap_or(u64::MAX))
        };

        let [whole, part] = state.registers;
        let elapsed_us = now.since_us(state.updated_at);
        let filled = u128::from(elapsed_us).saturating_mul(u128::from(rate.hits));
        let before = scaled(whole)
            .saturating_add(u128::from(part.div_ceil(rate.divisor)))
            .saturating_sub(filled);
        let in_hits = |amount: u128| u64::try_from(amount).unwrap_or(u64::MAX);
        let used_before = in_hits(before.div_ceil(per_us));
        let (after, allowed) = match operation.hits {
            Hits::Take(hits) => {
                let after = before.saturating_add(scaled(hits));
                if after <= full {
                    (after, true)
                } else {
                    let owed = debt(self, limit, used_before, hits);
                    (before.saturating_add(scaled(owed)), false)
                }
            }
            Hits::Charge(hits) => {
                let added = charged(self, used_before, hits);
                (before.saturating_add(scaled(added)), true)
            }
            Hits::Reservation(_) => (before, false),
            Hits::Refund(hits) => (before.saturating_sub(scaled(hits)), true),
            Hits::Undo { hits, taken_at } => {
                // The refill since the take could have found the bucket full without it.
                let since_us = u128::from(now.since_us(taken_at));
                let come = since_us.saturating_mul(u128::from(rate.hits));
                let weighs = scaled(hits).saturating_sub(come);
                (before.saturating_sub(weighs), true)
            }
        };
        state.registers = registers(after, rate.per_us, rate.divisor);

        Outcome {
            bucket_time: now,
            reservation: ReservationOutcome::None,
            blocked: false,
            allowed,
            used_before,
            remaining: in_hits(
                full.saturating_sub(after)
                    .checked_div(per_us)
                    .unwrap_or_default(),
            ),
            reset_us: fills_in_us(after).unwrap_or(limit.window().as_us()),
            retry_us: if allowed {
                Some(0)
            } else {
                full.checked_sub(scaled(operation.hits.requested()))
                    .and_then(|headroom| fills_in_us(after.saturating_sub(headroom)))
            },
        }
    }

    fn changed(
        &self,
        limit: &Limit,
        _was: (Timestamp, [u64; 2]),
        _state: &State,
        operation: Operation,
        outcome: &Outcome,
    ) -> bool {
        let missed = outcome.used_before;
        match operation.hits {
            Hits::Take(hits) => {
                hits > 0 && (outcome.allowed || debt(self, limit, missed, hits) > 0)
            }
            // One that charges something is written in any case.
            Hits::Charge(_) | Hits::Reservation(_) => false,
            Hits::Refund(hits) => hits > 0 && missed > 0,
            Hits::Undo { hits, taken_at } => {
                let rate = limit.rate();
                let since_us = u128::from(outcome.bucket_time.since_us(taken_at));
                let come = since_us.saturating_mul(u128::from(rate.hits));
                missed > 0 && u128::from(hits).saturating_mul(u128::from(rate.per_us)) > come
            }
        }
    }

    fn ttl_us(&self, limit: &Limit) -> u64 {
        let rate = limit.rate();
        let deepest = u128::from(missing_max(self, limit)).saturating_mul(u128::from(rate.per_us));
        let fills_in_us = deepest
            .checked_div(u128::from(rate.hits))
            .map_or(0, |us| u64::try_from(us).unwrap_or(u64::MAX));
        fills_in_us.saturating_add(1).max(limit.window().as_us())
    }
}

/// The registers for what is missing.
fn registers(missing: u128, per_us: u64, reduced_by: u64) -> [u64; 2] {
    let per_us = u128::from(per_us);
    let whole = missing.checked_div(per_us).unwrap_or_default();
    let part = missing.checked_rem(per_us).unwrap_or_default();
    [
        u64::try_from(whole).unwrap_or(u64::MAX).min(REGISTER_MAX),
        u64::try_from(part)
            .unwrap_or_default()
            .saturating_mul(reduced_by)
            .min(REGISTER_MAX),
    ]
}
