//! The counters of one limit.
//!
//! Why own atomics in front of the library's counters: each of those is an allocation of its own,
//! and with ten thousand rules they are in no cache; a check waited for three or four of them. Here
//! the counts of a limit lie together, and are added to the library's counters when metrics are
//! read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::series::{Series, SeriesTable};
use tollgate_limiter::Tally;

/// The counters of one limit.
#[derive(Debug)]
pub struct LimitCounters {
    total_hits: AtomicU64,
    over_limit: AtomicU64,
    near_limit: AtomicU64,
    within_limit: AtomicU64,
    shadow_mode: AtomicU64,
    negative_hits: AtomicU64,
    /// The number of the label set of the rule that these counters belong to, which may be this
    /// one; 0 for none.
    owner: AtomicU64,
    exported: Box<Exported>,
}

/// What readers of metrics see of a limit.
#[derive(Debug)]
struct Exported {
    series: Arc<Series>,
    /// Domain and all levels, as the reference names the limit in statsd.
    stat_key: String,
    /// What was published and not yet sent to statsd, in the order of [`STATSD_NAMES`].
    unsent: [AtomicU64; 6],
}

/// The names in statsd of the six counters, with `{limit}` for the domain and levels.
pub(super) const STATSD_NAMES: [&str; 6] = [
    "ratelimit.service.rate_limit.{limit}.total_hits",
    "ratelimit.service.rate_limit.{limit}.over_limit",
    "ratelimit.service.rate_limit.{limit}.near_limit",
    "ratelimit.service.rate_limit.{limit}.within_limit",
    "ratelimit.service.rate_limit.{limit}.shadow_mode",
    "ratelimit.service.rate_limit.{limit}.total_negative_hits",
];

// === impl LimitCounters ===

impl LimitCounters {
    /// Counters under these names, a domain and levels.
    pub(super) fn new(names: &[String], series: &SeriesTable, owner: u64) -> Self {
        Self {
            total_hits: AtomicU64::new(0),
            over_limit: AtomicU64::new(0),
            near_limit: AtomicU64::new(0),
            within_limit: AtomicU64::new(0),
            shadow_mode: AtomicU64::new(0),
            negative_hits: AtomicU64::new(0),
            owner: AtomicU64::new(owner),
            exported: Box::new(Exported {
                series: series.of(names),
                stat_key: names.join("."),
                unsent: Default::default(),
            }),
        }
    }

    /// Adds the hits of outcomes.
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

    /// The number of the label set of the rule that these counters belong to; 0 for none.
    pub(super) fn owner(&self) -> u64 {
        self.owner.load(Ordering::Relaxed)
    }

    /// Sets the rule that these counters belong to.
    pub(super) fn set_owner(&self, owner: u64) {
        // It rarely changes; without the write the cache line stays shared by all cores.
        if self.owner() != owner {
            self.owner.store(owner, Ordering::Relaxed);
        }
    }

    /// The value of the label `domain`.
    pub(super) fn domain(&self) -> &str {
        self.exported.series.domain()
    }

    /// Adds what was counted since the last call to the counters that readers see.
    pub(super) fn publish(&self) {
        let exported = &*self.exported.series;
        let counted = [
            (&self.total_hits, &exported.total_hits),
            (&self.over_limit, &exported.over_limit),
            (&self.near_limit, &exported.near_limit),
            (&self.within_limit, &exported.within_limit),
            (&self.shadow_mode, &exported.shadow_mode),
            (&self.negative_hits, &exported.negative_hits),
        ];
        for ((count, exported), unsent) in counted.into_iter().zip(&self.exported.unsent) {
            let count = count.swap(0, Ordering::Relaxed);
            if count > 0 {
                exported.inc_by(count);
                unsent.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// Hands out what was published and not yet sent, while `see` accepts it. True if it accepted
    /// all.
    pub(super) fn deltas(&self, see: &mut impl FnMut(&str, &'static str, u64) -> bool) -> bool {
        let exported = &*self.exported;
        STATSD_NAMES
            .iter()
            .zip(&exported.unsent)
            .all(|(name, unsent)| {
                let count = unsent.swap(0, Ordering::Relaxed);
                if count == 0 || see(&exported.stat_key, name, count) {
                    return true;
                }
                unsent.fetch_add(count, Ordering::Relaxed);
                false
            })
    }
}
