//! Sums of one task that are not yet added to the counters.
//!
//! Why: counters are shared by all cores, and a cache line that every core writes on every request
//! moves between them each time. A task sums up a batch of requests, limit by limit, and adds the
//! sums to the counters once, before the answers are sent, so that no client sees an answer that is
//! not yet counted. Rare events go to their counters at once.

use std::sync::Arc;

use super::{LimitCounters, Metrics};
use tollgate_limiter::{Code, REGISTER_MAX, Tally};

/// How many hits of one descriptor a counter takes in: as many as a bucket counts to and a double
/// holds. More would wrap the counter after a few requests.
const HITS_COUNTED_MAX: u64 = REGISTER_MAX;

/// How many limits have a sum; hits of further ones are added to their counters at once.
const LIMITS_MAX: usize = 64;

/// How many of the newest sums are searched for a limit.
const LIMITS_LOOKED_AT: usize = 4;

/// Requests and hits that are not yet added to the counters.
#[derive(Debug, Default)]
pub struct RequestCounts {
    /// Calls received.
    pub requests: u64,
    ok: u64,
    over_limit: u64,
    limits: Vec<(Arc<LimitCounters>, Tally)>,
}

// === impl RequestCounts ===

impl RequestCounts {
    /// Counts a decision.
    #[inline]
    pub fn decided(&mut self, code: Code) {
        let count = match code {
            Code::Ok => &mut self.ok,
            Code::OverLimit => &mut self.over_limit,
        };
        *count = count.saturating_add(1);
    }

    /// Counts the hits of one outcome for its limit.
    #[inline]
    pub fn add(&mut self, counters: &Arc<LimitCounters>, tally: &Tally) {
        let tally = tally.at_most(HITS_COUNTED_MAX);
        let mut newest = self.limits.iter_mut().rev().take(LIMITS_LOOKED_AT);
        if let Some((_, sum)) = newest.find(|(known, _)| Arc::ptr_eq(known, counters)) {
            *sum = sum.plus(&tally);
        } else if self.limits.len() < LIMITS_MAX {
            self.limits.push((Arc::clone(counters), tally));
        } else {
            counters.add(&tally);
        }
    }

    /// Adds all sums to the counters.
    pub fn flush(&mut self, metrics: &Metrics) {
        for (counter, count) in [
            (&metrics.requests.calls, &mut self.requests),
            (&metrics.requests.decisions_ok, &mut self.ok),
            (&metrics.requests.decisions_over_limit, &mut self.over_limit),
        ] {
            if *count > 0 {
                counter.inc_by(std::mem::take(count));
            }
        }
        for (counters, tally) in self.limits.drain(..) {
            counters.add(&tally);
        }
    }
}
