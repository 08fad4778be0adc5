//! Leaky bucket: spaces requests evenly.
//!
//! The idea: water leaks out of a bucket at a constant rate, and hits that would make it overflow
//! are refused. It is a token bucket seen from the other side: the water is what a token bucket
//! misses. It is meant for spacing: by default it holds one hit, so that two are never closer than
//! window / N.
//!
//! The promise: in any time t at most burst + N × t / window, where burst is 1 by default.
//!
//! The arithmetic and the registers are those of the token bucket. Refused hits are not counted by
//! default.
//!
//! Cost: that of the token bucket.
//!
//! What it deliberately does not do: delay a request. The caller learns the retry time.

use super::{
    Algorithm, AlgorithmOption, Facts, Limit, MostAdmitted, Operation, Outcome, State, Timestamp,
    TokenBucket,
};

/// The `leaky_bucket` algorithm.
#[derive(Debug)]
pub struct LeakyBucket;

static FACTS: Facts = Facts {
    default_burst_max: 1,
    refills: true,
    ..Facts::new(
        "leaky_bucket",
        "evenly spaced: N per window, no more than `burst` (default 1) at once",
        &[AlgorithmOption::Burst, AlgorithmOption::CountRefused],
    )
};

// === impl LeakyBucket ===

impl Algorithm for LeakyBucket {
    fn facts(&self) -> &Facts {
        &FACTS
    }

    fn most_admitted(&self, limit: &Limit, span_us: u64) -> Option<MostAdmitted> {
        TokenBucket.most_admitted(limit, span_us)
    }

    fn decide(
        &self,
        limit: &Limit,
        state: &mut State,
        operation: Operation,
        now: Timestamp,
    ) -> Outcome {
        TokenBucket.decide(limit, state, operation, now)
    }

    fn changed(
        &self,
        limit: &Limit,
        was: (Timestamp, [u64; 2]),
        state: &State,
        operation: Operation,
        outcome: &Outcome,
    ) -> bool {
        TokenBucket.changed(limit, was, state, operation, outcome)
    }

    fn ttl_us(&self, limit: &Limit) -> u64 {
        TokenBucket.ttl_us(limit)
    }
}
