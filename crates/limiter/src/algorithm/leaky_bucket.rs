//! Leaky bucket: requests evenly spaced.
//!
//! The idea: water runs out of a bucket with a hole at a constant rate; what would make it overflow is refused. A token
//! bucket seen from the other side (what is missing there is the water here), but meant for spacing: unless told
//! otherwise it holds one hit, so that two are never closer than window / N.
//!
//! The promise: evenly spaced: in any time t at most burst + N × t / window, where burst is 1 unless said.
//!
//! The arithmetic and the registers are the token bucket's. Refused hits are not counted, unless the limit says so.
//!
//! What it costs: what the token bucket does.
//!
//! What it deliberately does not do: hold a request until its turn has come. The caller learns when that is.

use super::{Algorithm, AlgorithmOption, Limit, Operation, Outcome, State, Timestamp, TokenBucket};

/// See the file's own words.
#[derive(Debug)]
pub struct LeakyBucket;

// === impl LeakyBucket ===

impl Algorithm for LeakyBucket {
    fn name(&self) -> &'static str {
        "leaky_bucket"
    }

    fn promise(&self) -> &'static str {
        "evenly spaced: N per window, no more than `burst` (default 1) at once"
    }

    fn options(&self) -> &'static [AlgorithmOption] {
        &[AlgorithmOption::Burst, AlgorithmOption::CountRefused]
    }

    fn default_burst(&self, requests_per_unit: u32) -> u32 {
        requests_per_unit.min(1)
    }

    fn decide(&self, limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
        TokenBucket.decide(limit, state, ask, now)
    }

    fn changed(
        &self,
        limit: &Limit,
        was: (Timestamp, [u64; 2]),
        state: &State,
        ask: Operation,
        outcome: &Outcome,
    ) -> bool {
        TokenBucket.changed(limit, was, state, ask, outcome)
    }

    fn ttl_us(&self, limit: &Limit) -> u64 {
        TokenBucket.ttl_us(limit)
    }
}
