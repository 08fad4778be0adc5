//! The counters of one limit.
//!
//! Why numbers of our own in front of the library's: each of its counters is a piece of memory by itself, and a service of
//! ten thousand rules has them in no cache: every check waited for three or four of them. How: what is counted of a limit
//! lies together, and is told to the library's counters whenever metrics are read.
//!
//! What it deliberately does not do: know its labels (`mod`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::series::{Series, SeriesTable};
use tollgate_limiter::Tally;

/// See the file's own words.
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
    told: Box<Told>,
}

/// What readers of metrics see.
#[derive(Debug)]
struct Told {
    series: Arc<Series>,
    /// What statsd calls it: the reference's own name for a limit, to the last level.
    stat_key: String,
    /// What was told and is no news yet, in the order of [`STATSD_NAMES`].
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
            told: Box::new(Told {
                series: series.of(names),
                stat_key: names.join("."),
                unsent: Default::default(),
            }),
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

    /// The number of the label set of the rule that these counters belong to; 0 for none.
    pub(super) fn owner(&self) -> u64 {
        self.owner.load(Ordering::Relaxed)
    }

    /// Says which rule's they are from now on.
    pub(super) fn belong_to(&self, owner: u64) {
        // Most requests find it as it is: then the line of memory stays in every core's cache.
        if self.owner() != owner {
            self.owner.store(owner, Ordering::Relaxed);
        }
    }

    /// The domain, as its label has it.
    pub(super) fn domain(&self) -> &str {
        self.told.series.domain()
    }

    /// Tells readers what was counted since they were last told.
    pub(super) fn tell(&self) {
        let told = &*self.told.series;
        let counted = [
            (&self.total_hits, &told.total_hits),
            (&self.over_limit, &told.over_limit),
            (&self.near_limit, &told.near_limit),
            (&self.within_limit, &told.within_limit),
            (&self.shadow_mode, &told.shadow_mode),
            (&self.negative_hits, &told.negative_hits),
        ];
        for ((count, told), unsent) in counted.into_iter().zip(&self.told.unsent) {
            let count = count.swap(0, Ordering::Relaxed);
            if count > 0 {
                told.inc_by(count);
                unsent.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// Gives away what was told since this was last asked, as long as `see` takes it. Says whether it took all.
    pub(super) fn news(&self, see: &mut impl FnMut(&str, &'static str, u64) -> bool) -> bool {
        let told = &*self.told;
        STATSD_NAMES.iter().zip(&told.unsent).all(|(name, unsent)| {
            let count = unsent.swap(0, Ordering::Relaxed);
            if count == 0 || see(&told.stat_key, name, count) {
                return true;
            }
            unsent.fetch_add(count, Ordering::Relaxed);
            false
        })
    }
}
