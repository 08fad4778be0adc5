//! The series of limits that `/metrics` shows, by their labels.
//!
//! Why a table in front of the library's: several label sets may be one series, since Prometheus
//! sees two levels of a limit and statsd all of them. The series stays until the last of them is
//! freed.
//!
//! What it deliberately does not do: bound how many there are (`rule_sets`, `request_sets`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::declaration::{Counter, CounterVec, MetricRegistry, metrics};
use super::label::{DOMAINS, LEVELS, Labels};
use super::reservations::{ReservationMetrics, ReservationSeries};

/// The counters that readers see under one set of labels.
#[derive(Debug)]
pub(super) struct Series {
    labels: Labels,
    pub(super) total_hits: Counter,
    pub(super) over_limit: Counter,
    pub(super) near_limit: Counter,
    pub(super) within_limit: Counter,
    pub(super) shadow_mode: Counter,
    pub(super) negative_hits: Counter,
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
    pub(super) fn of(&self, names: &[String]) -> Arc<Series> {
        let level = |at: usize| names.get(at).cloned().unwrap_or_default();
        let labels = [level(0), level(1), level(2)];
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = known.get(&labels) {
            return Arc::clone(series);
        }
        let of = |counters: &CounterVec| counters.with_label_values(&labels);
        let series = Arc::new(Series {
            total_hits: of(&self.metrics.total_hits),
            over_limit: of(&self.metrics.over_limit),
            near_limit: of(&self.metrics.near_limit),
            within_limit: of(&self.metrics.within_limit),
            shadow_mode: of(&self.metrics.shadow_mode),
            negative_hits: of(&self.metrics.negative_hits),
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
                for counters in self.counters() {
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

    fn counters(&self) -> [&CounterVec; 7] {
        [
            &self.metrics.total_hits,
            &self.metrics.over_limit,
            &self.metrics.near_limit,
            &self.metrics.within_limit,
            &self.metrics.shadow_mode,
            &self.metrics.negative_hits,
            &self.metrics.lost_charges,
        ]
    }
}
