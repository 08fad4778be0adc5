//! The counters of one limit, and the series that `/metrics` shows of them.
//!
//! Hits are counted by limit, and by what became of them ([`HitOutcome`]). The reference service
//! has one limit a descriptor and counts by level. Its series are sums of the limits that answered
//! their descriptor, so hits at the other limits are counted aside.
//!
//! Why own atomics and not the library's counters: each of those is an allocation of its own, and
//! with ten thousand rules they are in no cache; a check waited for three or four of them. Here the
//! counts of a limit lie together. They are read where they are when somebody reads metrics.
//!
//! A series is a sum: several label sets may be one series, since Prometheus sees two levels of a
//! limit and statsd all of them. The series stays until the last of them is freed, and keeps the
//! hits of those that were freed before, so it never decreases.
//!
//! What it deliberately does not do: bound how many there are (`label_sets`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use prometheus::HistogramVec;
use prometheus::proto::MetricFamily;
use tollgate_limiter::Tally;

use super::counts::{Counts, minus, plus};
use super::declaration::{LabelValues, MetricRegistry, STATSD_LIMIT, metrics};
use super::gauges::CollectedCounters;
use super::label::{DOMAINS, LEVELS, Labels};
use super::reservations::{
    ReservationCount, ReservationCounts, ReservationMetrics, ReservationTotals,
};
use tollgate_system::per_thread::lock;

/// Hits by kind, in the order of [`HitMetrics::by_kind`].
type LevelHits = [u64; LEVEL_KINDS];

const LEVEL_KINDS: usize = 6;

/// Hits by [`HitOutcome`], then those over the limit, near it, and over it in shadow mode, as the
/// reference counts them.
pub(super) type Hits = [u64; HIT_KINDS];

pub(super) const HIT_KINDS: usize = HitOutcome::NAMES.len() + 3;

tollgate_limiter::named! {
    /// What became of hits at a limit.
    pub enum HitOutcome {
        /// The limit let them pass, and so did the others of the request.
        Admitted = "admitted",
        /// The limit refused them, and with them the request.
        Refused = "refused",
        /// They were over the limit, which did not refuse them: it is in shadow mode, or a quota
        /// beside one with hits left.
        WouldRefuse = "would_refuse",
        /// The limit let them pass, and the request was refused or had no answer.
        Overruled = "overruled",
        /// They were charged after the work, when no limit refuses.
        Charged = "charged",
        /// They were given back.
        Returned = "returned",
    }
}

/// Hits at one limit since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LimitHits {
    /// By [`HitOutcome`].
    by_outcome: [u64; HitOutcome::NAMES.len()],
    /// Those over the near mark and not over the limit.
    pub near: u64,
}

/// The counters of one limit.
#[derive(Debug)]
pub struct LimitCounters {
    /// Hits of descriptors that this limit answered, since the start.
    pub(super) answered: Counts<HIT_KINDS>,
    /// Hits of other descriptors: another limit answered them, or the reference's series have
    /// labels of the request.
    pub(super) aside: Counts<HIT_KINDS>,
    /// Looks that no lost charge was counted for, up to a bound.
    looks: AtomicU64,
    /// The number of the label set of the rule that these counters belong to, which may be this
    /// one; 0 for none.
    owner: AtomicU64,
    read: Box<ReadState>,
}

/// What readers need of a limit, apart from what requests write.
#[derive(Debug)]
struct ReadState {
    /// None for the limits that came with requests: each has counters with its own labels.
    series: Option<Arc<Series>>,
    /// Whether a charge was lost.
    lost_charges: AtomicBool,
    /// Domain and all levels, as the reference names the limit in statsd.
    stat_key: String,
    /// The hits that statsd has.
    sent: Counts<LEVEL_KINDS>,
}

/// What readers see under one set of labels.
#[derive(Debug)]
pub(super) struct Series {
    labels: Labels,
    /// Hits of label sets that were freed.
    freed: Counts<LEVEL_KINDS>,
    /// None before the first lost charge.
    lost_charges: OnceLock<AtomicU64>,
    /// None before the first reservation.
    reservations: OnceLock<ReservationCounts>,
    /// The histograms of all series.
    used_ratio: HistogramVec,
}

const RULES: LabelValues = LabelValues::Bounded("domain and path; 10,000 rules, and `overflow`");

const LIMITS: LabelValues = LabelValues::Bounded("its name, else its window");

const OUTCOMES: LabelValues = LabelValues::OneOf(&HitOutcome::NAMES);

/// How many looks are remembered.
const LOOKS_MAX: u64 = 1_000;

metrics! {
    /// Metrics of hits, by limit and, as the reference has them, by level.
    struct HitMetrics {
        /// Hits by limit, by what became of them: admitted; refused by this limit; would_refuse,
        /// over a limit in shadow mode or a quota beside one with hits left; overruled, within this
        /// limit where the request was refused or had no answer; charged after the work; returned.
        CollectedCounters "tollgate_limit_hits_total"
            [domain: DOMAINS, rule: RULES, limit: LIMITS, outcome: OUTCOMES] as "" => by_limit;

        /// Hits requested.
        CollectedCounters "ratelimit_service_rate_limit_total_hits"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS]
            as "ratelimit.service.rate_limit.{limit}.total_hits" => total_hits;

        /// Hits over the limit.
        CollectedCounters "ratelimit_service_rate_limit_over_limit"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS]
            as "ratelimit.service.rate_limit.{limit}.over_limit" => over_limit;

        /// Hits over NEAR_LIMIT_RATIO of the limit and not over the limit.
        CollectedCounters "ratelimit_service_rate_limit_near_limit"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS]
            as "ratelimit.service.rate_limit.{limit}.near_limit" => near_limit;

        /// Hits of requests that passed.
        CollectedCounters "ratelimit_service_rate_limit_within_limit"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS]
            as "ratelimit.service.rate_limit.{limit}.within_limit" => within_limit;

        /// Hits over the limit of a rule in shadow mode.
        CollectedCounters "ratelimit_service_rate_limit_shadow_mode"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS]
            as "ratelimit.service.rate_limit.{limit}.shadow_mode" => shadow_mode;

        /// Hits refunded.
        CollectedCounters "ratelimit_service_rate_limit_total_negative_hits"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS]
            as "ratelimit.service.rate_limit.{limit}.total_negative_hits" => negative_hits;

        /// Hits that were refused and not counted, of a limit that is looked at first: charges
        /// after the work that are lost.
        CollectedCounters "tollgate_lost_charge_hits_total"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS] as "" => lost_charges;
    }
}

/// All series of limits.
#[derive(Debug)]
pub(super) struct SeriesTable {
    metrics: HitMetrics,
    reservations: ReservationMetrics,
    known: Mutex<HashMap<Labels, Arc<Series>>>,
}

/// The hits of each series.
#[derive(Default)]
pub(super) struct SeriesSums(HashMap<*const Series, (Arc<Series>, LevelHits)>);

/// A limit by its labels, and its hits.
pub(super) type HitsByLimit<'l> = ([&'l str; 3], LimitHits);

// === impl LimitCounters ===

impl LimitCounters {
    /// Counters under these names, a domain and levels.
    pub(super) fn new(names: &[String], series: &SeriesTable, owner: u64) -> Self {
        Self::with(Some(series.of(names)), names.join("."), owner)
    }

    /// Counters without series of the reference.
    pub(super) fn without_series(owner: u64) -> Self {
        Self::with(None, String::new(), owner)
    }

    fn with(series: Option<Arc<Series>>, stat_key: String, owner: u64) -> Self {
        Self {
            answered: Counts::default(),
            aside: Counts::default(),
            looks: AtomicU64::new(0),
            owner: AtomicU64::new(owner),
            read: Box::new(ReadState {
                series,
                lost_charges: AtomicBool::new(false),
                stat_key,
                sent: Counts::default(),
            }),
        }
    }

    /// Adds the hits of a descriptor that this limit answered.
    pub fn add(&self, outcome: HitOutcome, tally: &Tally) {
        self.answered.add(hits_of(outcome, tally));
    }

    /// Whether its series of the reference has these names.
    pub(super) fn has_names(&self, names: &[String]) -> bool {
        let series = self.read.series.as_ref();
        series.is_some_and(|series| series.labels == labels_of(names))
            && self.read.stat_key == names.join(".")
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
        let Some(series) = &self.read.series else {
            return false;
        };
        let lost = series.lost_charges.get_or_init(AtomicU64::default);
        lost.fetch_add(hits, Ordering::Relaxed);
        !self.read.lost_charges.swap(true, Ordering::Relaxed)
    }

    /// Counts what became of a step of a reservation.
    pub fn count_reservation(&self, count: &ReservationCount) {
        let Some(series) = &self.read.series else {
            return;
        };
        let counts = series.reservations.get_or_init(|| {
            let used = series.used_ratio.with_label_values(&series.labels);
            ReservationCounts::new(used)
        });
        counts.add(count);
    }

    /// What was counted of reservations since the start, under the labels that readers see; none
    /// before the first.
    pub fn reservation_totals(&self) -> Option<ReservationTotals> {
        let counts = self.read.series.as_ref()?.reservations.get()?;
        Some(counts.totals())
    }

    /// The value of the label `domain` of its series.
    pub(super) fn domain(&self) -> &str {
        let series = self.read.series.as_ref();
        series.map_or("", |series| {
            let [domain, ..] = &series.labels;
            domain
        })
    }

    /// The hits of descriptors that it answered, since the start.
    pub(super) fn answered(&self) -> Hits {
        self.answered.get()
    }

    /// All hits at the limit since the start.
    pub(super) fn hits(&self) -> LimitHits {
        let [by_outcome @ .., _, near, _] = plus(self.answered.get(), self.aside.get());
        LimitHits { by_outcome, near }
    }

    /// The hits of descriptors that it answered, as the reference counts them.
    fn by_level(&self) -> LevelHits {
        let [
            admitted,
            refused,
            would_refuse,
            overruled,
            charged,
            returned,
            over,
            near,
            shadow,
        ] = self.answered.get();
        // Each only grows, and so does a sum. A client can make counters wrap.
        let within = admitted.wrapping_add(overruled).wrapping_add(charged);
        let total = within.wrapping_add(refused).wrapping_add(would_refuse);
        [total, over, near, within, shadow, returned]
    }

    /// Shows the hits that statsd does not have, each with its name there, while `see` accepts
    /// them. True if it accepted all. `patterns` are the names of the kinds.
    pub(super) fn deltas(
        &self,
        patterns: [&str; LEVEL_KINDS],
        see: &mut impl FnMut(&str, u64) -> bool,
    ) -> bool {
        if self.read.series.is_none() {
            return true;
        }
        let sent = &self.read.sent;
        let unsent = minus(self.by_level(), sent.get());
        for (kind, (pattern, hits)) in patterns.iter().zip(unsent).enumerate() {
            if hits == 0 {
                continue;
            }
            if !see(&pattern.replace(STATSD_LIMIT, &self.read.stat_key), hits) {
                return false;
            }
            let mut seen = LevelHits::default();
            if let Some(seen) = seen.get_mut(kind) {
                *seen = hits;
            }
            sent.add(seen);
        }
        true
    }
}

impl Drop for LimitCounters {
    fn drop(&mut self) {
        if let Some(series) = &self.read.series {
            series.freed.add(self.by_level());
        }
    }
}

/// The hits of a tally by kind.
#[inline]
pub(super) fn hits_of(outcome: HitOutcome, tally: &Tally) -> Hits {
    let (over, near, shadow) = (tally.over_limit, tally.near_limit, tally.shadow_mode);
    let mut hits = [0, 0, 0, 0, 0, tally.negative_hits, over, near, shadow];
    if let Some(of_outcome) = hits.get_mut(outcome as usize) {
        *of_outcome = of_outcome.saturating_add(tally.total_hits);
    }
    hits
}

// === impl LimitHits ===

impl LimitHits {
    /// The hits with this outcome.
    pub fn of(&self, outcome: HitOutcome) -> u64 {
        let hits = self.by_outcome.get(outcome as usize);
        hits.copied().unwrap_or_default()
    }

    /// All hits that were asked for.
    pub fn total(&self) -> u64 {
        let [asked @ .., _] = self.by_outcome;
        asked.into_iter().fold(0, u64::wrapping_add)
    }
}

// === impl HitMetrics ===

impl HitMetrics {
    /// Those of hits, in the order in which counters hold them.
    fn by_kind(&self) -> [&CollectedCounters; LEVEL_KINDS] {
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

/// The labels of the series of these names.
fn labels_of(names: &[String]) -> Labels {
    [0, 1, 2].map(|at| names.get(at).cloned().unwrap_or_default())
}

// === impl Series ===

impl Series {
    fn label_values(&self) -> [&str; 3] {
        self.labels.each_ref().map(String::as_str)
    }
}

// === impl SeriesTable ===

impl SeriesTable {
    pub(super) fn new(registry: &mut MetricRegistry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            metrics: HitMetrics::new(registry)?,
            reservations: ReservationMetrics::new(registry)?,
            known: Mutex::default(),
        })
    }

    /// The series of these names, a domain and levels.
    fn of(&self, names: &[String]) -> Arc<Series> {
        let labels = labels_of(names);
        let mut known = lock(&self.known);
        let series = known.entry(labels).or_insert_with_key(|labels| {
            Arc::new(Series {
                labels: labels.clone(),
                freed: Counts::default(),
                lost_charges: OnceLock::new(),
                reservations: OnceLock::new(),
                used_ratio: self.reservations.used.clone(),
            })
        });
        Arc::clone(series)
    }

    /// Frees the series that no label set has any more.
    pub(super) fn free_unused(&self) {
        let mut known = lock(&self.known);
        known.retain(|labels, series| {
            // Another owner can only come from this table, which is locked.
            let is_used = Arc::strong_count(series) > 1;
            if !is_used && series.reservations.get().is_some() {
                // It fails where there is no such series: then nothing is left to do.
                let _ = self.reservations.used.remove_label_values(labels);
            }
            is_used
        });
        let len = known.len();
        known.shrink_to(len.saturating_mul(2));
    }

    /// The names of the kinds of hits in statsd, with `{limit}` for the domain and levels.
    pub(super) fn statsd_patterns(&self) -> [&'static str; LEVEL_KINDS] {
        let patterns = self
            .metrics
            .by_kind()
            .map(|counters| counters.0.declaration.statsd);
        patterns.map(Option::unwrap_or_default)
    }

    /// The family of the hits by limit. Hits that were admitted or refused are always shown, others
    /// once there are some.
    pub(super) fn by_limit<'l>(
        &self,
        limits: impl Iterator<Item = HitsByLimit<'l>>,
    ) -> MetricFamily {
        let series = limits.flat_map(|([domain, rule, limit], hits)| {
            HitOutcome::ALL.into_iter().filter_map(move |outcome| {
                let count = hits.of(outcome);
                let is_shown = matches!(outcome, HitOutcome::Admitted | HitOutcome::Refused);
                (is_shown || count > 0).then(|| ([domain, rule, limit, outcome.name()], count))
            })
        });
        self.metrics.by_limit.0.of(series)
    }

    /// The families of all series.
    pub(super) fn families(&self, sums: &SeriesSums) -> Vec<MetricFamily> {
        let sums: Vec<_> = sums.0.values().collect();
        let kinds = self.metrics.by_kind().into_iter().enumerate();
        let families = kinds.map(|(kind, counters)| {
            counters.0.of(sums
                .iter()
                .filter_map(|(series, hits)| Some((series.label_values(), *hits.get(kind)?))))
        });
        let mut families: Vec<_> = families.collect();
        families.push(
            self.metrics
                .lost_charges
                .0
                .of(sums.iter().filter_map(|(series, _)| {
                    let lost = series.lost_charges.get()?.load(Ordering::Relaxed);
                    Some((series.label_values(), lost))
                })),
        );
        let reservations = sums.iter().filter_map(|(series, _)| {
            let totals = series.reservations.get()?.totals();
            Some((series.label_values(), totals))
        });
        families.extend(
            self.reservations
                .families(&reservations.collect::<Vec<_>>()),
        );
        families
    }
}

// === impl SeriesSums ===

impl SeriesSums {
    /// Adds the hits of a label set to its series.
    pub(super) fn add(&mut self, counters: &LimitCounters) {
        let Some(series) = &counters.read.series else {
            return;
        };
        let sum_of = self.0.entry(Arc::as_ptr(series));
        let (_, hits) = sum_of.or_insert_with(|| (Arc::clone(series), series.freed.get()));
        *hits = plus(*hits, counters.by_level());
    }
}
