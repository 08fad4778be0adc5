//! The counters of one limit, and the series of limits that `/metrics` shows.
//!
//! Why own atomics in front of the library's counters: each of those is an allocation of its own,
//! and with ten thousand rules they are in no cache; a check waited for three or four of them. Here
//! the counts of a limit lie together, and are added to the library's counters when metrics are
//! read.
//!
//! Why a table in front of the library's: several label sets may be one series, since Prometheus
//! sees two levels of a limit and statsd all of them. The series stays until the last of them is
//! freed.
//!
//! What it deliberately does not do: bound how many there are (`label_sets`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::declaration::{Counter, CounterVec, MetricRegistry, metrics};
use super::label::{DOMAINS, LEVELS, Labels};
use super::reservations::{
    ReservationCount, ReservationMetrics, ReservationSeries, ReservationTotals,
};
use tollgate_limiter::Tally;

/// The counters of one limit.
#[derive(Debug)]
pub struct LimitCounters {
    /// Hits that are not published yet, in the order of [`STATSD_NAMES`].
    hits: [AtomicU64; 6],
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
            hits: Default::default(),
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
    #[inline]
    pub fn add(&self, tally: &Tally) {
        let add = |count: &AtomicU64, hits: u64| {
            if hits > 0 {
                count.fetch_add(hits, Ordering::Relaxed);
            }
        };
        let [total, over, near, within, shadow, refunded] = &self.hits;
        add(total, tally.total_hits);
        add(over, tally.over_limit);
        add(near, tally.near_limit);
        add(within, tally.within_limit);
        add(shadow, tally.shadow_mode);
        add(refunded, tally.negative_hits);
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
    #[inline]
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
        let counted = self.hits.iter().zip(&exported.series.hits);
        let kept = exported.unsent.iter().zip(&exported.published);
        let mut counts = [0; 6];
        for (((count, shown), (unsent, published)), sum) in counted.zip(kept).zip(&mut counts) {
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

/// The counters that readers see under one set of labels.
#[derive(Debug)]
struct Series {
    labels: Labels,
    /// In the order of [`STATSD_NAMES`].
    hits: [Counter; 6],
    /// Made for the first reservation.
    reservations: OnceLock<ReservationSeries>,
    reservation_metrics: Arc<ReservationMetrics>,
    /// Made for the first lost charge.
    lost_charges: OnceLock<Counter>,
    all_lost_charges: CounterVec,
}

metrics! {
    /// Metrics of hits, by limit.
    pub(super) struct HitMetrics {
        /// Hits requested.
        CounterVec "ratelimit_service_rate_limit_total_hits"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS]
            as "ratelimit.service.rate_limit.{limit}.total_hits" => total_hits;

        /// Hits over the limit.
        CounterVec "ratelimit_service_rate_limit_over_limit"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS]
            as "ratelimit.service.rate_limit.{limit}.over_limit" => over_limit;

        /// Hits over NEAR_LIMIT_RATIO of the limit and not over the limit.
        CounterVec "ratelimit_service_rate_limit_near_limit"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS]
            as "ratelimit.service.rate_limit.{limit}.near_limit" => near_limit;

        /// Hits of requests that passed.
        CounterVec "ratelimit_service_rate_limit_within_limit"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS]
            as "ratelimit.service.rate_limit.{limit}.within_limit" => within_limit;

        /// Hits over the limit of a rule in shadow mode.
        CounterVec "ratelimit_service_rate_limit_shadow_mode"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS]
            as "ratelimit.service.rate_limit.{limit}.shadow_mode" => shadow_mode;

        /// Hits refunded.
        CounterVec "ratelimit_service_rate_limit_total_negative_hits"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS]
            as "ratelimit.service.rate_limit.{limit}.total_negative_hits" => negative_hits;

        /// Hits that were refused and not counted, of a limit that is looked at first: charges
        /// after the work that are lost.
        CounterVec "tollgate_lost_charge_hits_total"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS] as "" => lost_charges;
    }
}

/// All series of limits.
#[derive(Debug)]
pub(super) struct SeriesTable {
    metrics: HitMetrics,
    reservations: Arc<ReservationMetrics>,
    known: Mutex<HashMap<Labels, Arc<Series>>>,
}

// === impl Series ===

impl Series {
    /// The domain, as its label has it.
    pub(super) fn domain(&self) -> &str {
        let [domain, ..] = &self.labels;
        domain
    }

    /// The counters of reservations.
    pub(super) fn reservations(&self) -> &ReservationSeries {
        let new = || self.reservation_metrics.series(&self.labels);
        self.reservations.get_or_init(new)
    }

    /// The counter of lost charges.
    pub(super) fn lost_charges(&self) -> &Counter {
        let new = || self.all_lost_charges.with_label_values(&self.labels);
        self.lost_charges.get_or_init(new)
    }

    /// The counters of reservations; none before the first reservation.
    pub(super) fn known_reservations(&self) -> Option<&ReservationSeries> {
        self.reservations.get()
    }
}

// === impl HitMetrics ===

impl HitMetrics {
    /// Those that count hits, in the order of [`STATSD_NAMES`].
    fn hits(&self) -> [&CounterVec; 6] {
        [
            &self.total_hits,
            &self.over_limit,
            &self.near_limit,
            &self.within_limit,
            &self.shadow_mode,
            &self.negative_hits,
        ]
    }
}

// === impl SeriesTable ===

impl SeriesTable {
    pub(super) fn new(registry: &mut MetricRegistry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            metrics: HitMetrics::new(registry)?,
            reservations: Arc::new(ReservationMetrics::new(registry)?),
            known: Mutex::default(),
        })
    }

    /// The series of these names, a domain and levels.
    fn of(&self, names: &[String]) -> Arc<Series> {
        let level = |at: usize| names.get(at).cloned().unwrap_or_default();
        let labels = [level(0), level(1), level(2)];
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = known.get(&labels) {
            return Arc::clone(series);
        }
        let hits = self.metrics.hits();
        let series = Arc::new(Series {
            hits: hits.map(|counters| counters.with_label_values(&labels)),
            reservations: OnceLock::new(),
            reservation_metrics: Arc::clone(&self.reservations),
            lost_charges: OnceLock::new(),
            all_lost_charges: self.metrics.lost_charges.clone(),
            labels: labels.clone(),
        });
        known.insert(labels, Arc::clone(&series));
        series
    }

    /// Frees the series that no label set has any more.
    pub(super) fn free_unused(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|labels, series| {
            // Another owner can only come from this table, which is locked.
            let is_used = Arc::strong_count(series) > 1;
            if !is_used {
                for counters in self
                    .metrics
                    .hits()
                    .into_iter()
                    .chain([&self.metrics.lost_charges])
                {
                    // It fails where there is no such series: then nothing is left to do.
                    let _ = counters.remove_label_values(labels);
                }
                if series.reservations.get().is_some() {
                    self.reservations.remove(labels);
                }
            }
            is_used
        });
        let len = known.len();
        known.shrink_to(len.saturating_mul(2));
    }
}
