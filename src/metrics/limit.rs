//! The counters of one limit.
//!
//! Why own atomics in front of the library's counters: each of those is an allocation of its own,
//! and with ten thousand rules they are in no cache; a check waited for three or four of them. Here
//! the counts of a limit lie together, and are added to the library's counters when metrics are
//! read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::reservations::{ReservationCount, ReservationTotals};
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
    /// Looks that no lost charge was counted for, up to a bound.
    looks: AtomicU64,
    /// The number of the label set of the rule that these counters belong to, which may be this
    /// one; 0 for none.
    owner: AtomicU64,
    exported: Box<Exported>,
}

/// What readers of metrics see of a limit.
#[derive(Debug)]
struct Exported {
    series: Arc<Series>,
    /// Whether a charge was lost.
    lost_charges: AtomicBool,
    /// Domain and all levels, as the reference names the limit in statsd.
    stat_key: String,
    /// What was published and not yet sent to statsd, in the order of [`STATSD_NAMES`].
    unsent: [AtomicU64; 6],
    /// What was published since the start, in the same order. Several label sets may be one
    /// series, so its counters cannot tell.
    published: [AtomicU64; 6],
}

/// Hits of one limit since the start of the service.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct HitTotals {
    /// Hits that were asked for.
    pub total: u64,
    /// Hits over the limit.
    pub over: u64,
    /// Hits over the near mark and not over the limit.
    pub near: u64,
    /// Hits of requests that passed.
    pub within: u64,
    /// Hits over the limit of a rule in shadow mode.
    pub shadow: u64,
    /// Hits given back.
    pub refunded: u64,
}

/// How many looks are remembered.
const LOOKS_MAX: u64 = 1_000;

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
            looks: AtomicU64::new(0),
            owner: AtomicU64::new(owner),
            exported: Box::new(Exported {
                series: series.of(names),
                lost_charges: AtomicBool::new(false),
                stat_key: names.join("."),
                unsent: Default::default(),
                published: Default::default(),
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

    /// Counts a look at the limit.
    pub fn add_look(&self) {
        // At the bound nothing is written, so that the cache line stays shared by all cores.
        if self.looks.load(Ordering::Relaxed) < LOOKS_MAX {
            self.looks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts hits that were refused and not counted, if there was a look for them. Returns whether
    /// they are the first.
    pub fn add_lost_charge(&self, hits: u64) -> bool {
        let take_one = |looks: u64| looks.checked_sub(1);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.looks.fetch_update(set, get, take_one).is_err() {
            return false;
        }
        let exported = &*self.exported;
        exported.series.lost_charges().inc_by(hits);
        !exported.lost_charges.swap(true, Ordering::Relaxed)
    }

    /// Counts what became of a step of a reservation.
    pub fn count_reservation(&self, count: &ReservationCount) {
        self.exported.series.reservations().count(count);
    }

    /// What was counted of reservations since the start, under the labels that readers see; none
    /// before the first.
    pub fn reservation_totals(&self) -> Option<ReservationTotals> {
        let reservations = self.exported.series.known_reservations()?;
        Some(reservations.totals())
    }

    /// The value of the label `domain`.
    pub(super) fn domain(&self) -> &str {
        self.exported.series.domain()
    }

    /// Adds what was counted since the last call to the counters that readers see, and returns it.
    pub(super) fn publish(&self) -> HitTotals {
        let exported = &*self.exported;
        let counted = [
            (&self.total_hits, &exported.series.total_hits),
            (&self.over_limit, &exported.series.over_limit),
            (&self.near_limit, &exported.series.near_limit),
            (&self.within_limit, &exported.series.within_limit),
            (&self.shadow_mode, &exported.series.shadow_mode),
            (&self.negative_hits, &exported.series.negative_hits),
        ];
        let kept = exported.unsent.iter().zip(&exported.published);
        let mut counts = [0; 6];
        for (((count, shown), (unsent, published)), sum) in
            counted.into_iter().zip(kept).zip(&mut counts)
        {
            // Most limits are idle: a load leaves their cache line shared.
            if count.load(Ordering::Relaxed) > 0 {
                *sum = count.swap(0, Ordering::Relaxed);
                shown.inc_by(*sum);
                unsent.fetch_add(*sum, Ordering::Relaxed);
                published.fetch_add(*sum, Ordering::Relaxed);
            }
        }
        HitTotals::from(counts)
    }

    /// What was published since the start.
    pub(super) fn totals(&self) -> HitTotals {
        let published = &self.exported.published;
        HitTotals::from(
            published
                .each_ref()
                .map(|count| count.load(Ordering::Relaxed)),
        )
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

// === impl HitTotals ===

impl HitTotals {
    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            total: self.total.saturating_add(other.total),
            over: self.over.saturating_add(other.over),
            near: self.near.saturating_add(other.near),
            within: self.within.saturating_add(other.within),
            shadow: self.shadow.saturating_add(other.shadow),
            refunded: self.refunded.saturating_add(other.refunded),
        }
    }
}

/// In the order of [`STATSD_NAMES`].
impl From<[u64; 6]> for HitTotals {
    fn from([total, over, near, within, shadow, refunded]: [u64; 6]) -> Self {
        Self {
            total,
            over,
            near,
            within,
            shadow,
            refunded,
        }
    }
}
