//! The counters of one limit.
//!
//! Why numbers of our own in front of the library's: each of its counters is a piece of memory by itself, and a service of
//! ten thousand rules has them in no cache: every check waited for three or four of them. How: what is counted of a limit
//! lies together, and is told to the library's counters whenever metrics are read.
//!
//! What it deliberately does not do: know its labels (`mod`).

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus::IntCounter;

use crate::limiter::Tally;

/// See the file's own words.
#[derive(Debug)]
pub struct LimitCounters {
    total_hits: AtomicU64,
    over_limit: AtomicU64,
    near_limit: AtomicU64,
    within_limit: AtomicU64,
    shadow_mode: AtomicU64,
    negative_hits: AtomicU64,
    told: Box<Told>,
}

/// What readers of metrics see.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) total_hits: IntCounter,
    pub(super) over_limit: IntCounter,
    pub(super) near_limit: IntCounter,
    pub(super) within_limit: IntCounter,
    pub(super) shadow_mode: IntCounter,
    pub(super) negative_hits: IntCounter,
}

// === impl LimitCounters ===

impl LimitCounters {
    pub(super) fn new(told: Told) -> Self {
        Self {
            total_hits: AtomicU64::new(0),
            over_limit: AtomicU64::new(0),
            near_limit: AtomicU64::new(0),
            within_limit: AtomicU64::new(0),
            shadow_mode: AtomicU64::new(0),
            negative_hits: AtomicU64::new(0),
            told: Box::new(told),
        }
    }

    /// Adds what outcomes came to.
    pub fn add(&self, tally: &Tally) {
        let add = |count: &AtomicU64, hits: u64| {
            if hits > 0 {
                count.fetch_add(hits, Ordering::Relaxed);
            }
        };
        add(&self.total_hits, tally.total_hits);
        add(&self.over_limit, tally.over_limit);
        add(&self.near_limit, tally.near_limit);
        add(&self.within_limit, tally.within_limit);
        add(&self.shadow_mode, tally.shadow_mode);
        add(&self.negative_hits, tally.negative_hits);
    }

    /// Tells readers what was counted since they were last told.
    pub(super) fn tell(&self) {
        let told = &*self.told;
        for (count, told) in [
            (&self.total_hits, &told.total_hits),
            (&self.over_limit, &told.over_limit),
            (&self.near_limit, &told.near_limit),
            (&self.within_limit, &told.within_limit),
            (&self.shadow_mode, &told.shadow_mode),
            (&self.negative_hits, &told.negative_hits),
        ] {
            told.inc_by(count.swap(0, Ordering::Relaxed));
        }
    }
}
