//! Metrics of reservations, by limit, with the labels of its other metrics.
//!
//! A limit without reservations has none of these series. They are made when it is first counted.

use prometheus::proto::MetricFamily;
use prometheus::{Histogram, HistogramVec};
use tollgate_limiter::{Code, Outcome, ReservationOutcome, Step};

use super::counts::Counts;
use super::declaration::{LabelValues, metrics};
use super::gauges::CollectedCounters;
use super::label::{DOMAINS, LEVELS};

tollgate_limiter::named! {
    /// What became of a step of a reservation in one limit.
    pub enum ReservationResult {
        /// The hits are reserved.
        Reserved = "reserved",
        /// The hits were refused, by this limit or by another one of the request.
        Refused = "refused",
        /// The bucket has as many open reservations as it can.
        TooMany = "too_many",
        /// Settled by its true amount.
        Committed = "committed",
        /// Settled, and all hits went back.
        Released = "released",
        /// The expiry has moved.
        Extended = "extended",
        /// The amount was charged in full, because no reservation was open.
        Charged = "charged",
        /// An end of a request that was refused: nothing was charged.
        Ignored = "ignored",
        /// It was settled before: nothing changed.
        Repeated = "repeated",
        /// The id is not known: nothing changed.
        Unknown = "unknown",
    }
}

/// A step of a reservation that ended, in the units of the limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReservationCount {
    /// What became of it.
    pub result: ReservationResult,
    /// What was asked to be reserved, or what was reserved when it was settled.
    pub reserved: u64,
    /// The true amount, when it was settled or charged.
    pub committed: u64,
}

/// What a limit counted of reservations since the start.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReservationTotals {
    /// Steps by result, in the order of [`ReservationResult::ALL`].
    results: [u64; RESULT_COUNT],
    /// Hits that went back.
    pub returned: u64,
    /// Hits that commits exceeded their reservations by.
    pub excess: u64,
}

/// What is counted of reservations under one set of labels.
#[derive(Debug)]
pub(super) struct ReservationCounts {
    /// Steps by result, in the order of [`ReservationResult::ALL`].
    results: Counts<RESULT_COUNT>,
    /// Hits returned, and hits in excess.
    hits: Counts<2>,
    used: Histogram,
}

/// Upper bounds of committed / reserved. 1 is exact; more is an excess.
const USED: &[f64] = &[
    0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0,
];

/// How many results there are.
const RESULT_COUNT: usize = ReservationResult::ALL.len();

const RESULTS: LabelValues = LabelValues::OneOf(&ReservationResult::NAMES);

metrics! {
    /// Metrics of reservations, by limit.
    pub(super) struct ReservationMetrics {
        /// Steps of reservations, by what became of them.
        CollectedCounters "tollgate_reservations_total"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS, result: RESULTS] as "" => results;

        /// Hits that were reserved and not used, and went back.
        CollectedCounters "tollgate_reservation_hits_returned_total"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS] as "" => returned;

        /// Hits that commits exceeded their reservations by, and were charged beyond them.
        CollectedCounters "tollgate_reservation_hits_excess_total"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS] as "" => excess;

        /// Committed hits divided by reserved hits of each commit: 1 is exact, more is an excess.
        HistogramVec "tollgate_reservation_used_ratio"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS] in USED as "" => pub(super) used;
    }
}

// === impl ReservationResult ===

impl ReservationResult {
    /// Whether a reservation is settled, now or before.
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Committed | Self::Released | Self::Repeated)
    }
}

// === impl ReservationCount ===

impl ReservationCount {
    /// What became of a step by its outcome and the code of its request; none where it changed
    /// nothing that is counted.
    pub fn of(step: Step, outcome: &Outcome, code: Code) -> Option<Self> {
        use ReservationOutcome as O;
        use ReservationResult as R;
        let result = match (outcome.reservation, step) {
            // Another limit refused the request, so the hits went back.
            (O::Reserved, _) if code == Code::OverLimit => R::Refused,
            (O::Reserved, _) => R::Reserved,
            (O::Refused, _) => R::Refused,
            (O::TooMany, _) => R::TooMany,
            (O::Settled, Step::Release) => R::Released,
            (O::Settled, _) => R::Committed,
            (O::SettledBefore, _) => R::Repeated,
            (O::Charged, _) => R::Charged,
            (O::Ignored, _) => R::Ignored,
            (O::Extended, _) => R::Extended,
            (O::Unknown, _) => R::Unknown,
            (O::None | O::Withdrawn, _) => return None,
        };
        let (reserved, committed) = match (outcome.settled(), step) {
            (Some(settled), _) => (settled.reserved, settled.committed),
            (None, Step::Reserve { hits, .. }) => (hits, 0),
            (None, step) => (0, step.hits()),
        };
        Some(Self {
            result,
            reserved,
            committed,
        })
    }
}

// === impl ReservationTotals ===

impl ReservationTotals {
    /// How many steps had this result.
    pub fn of(&self, result: ReservationResult) -> u64 {
        self.results
            .get(result as usize)
            .copied()
            .unwrap_or_default()
    }
}

// === impl ReservationMetrics ===

impl ReservationMetrics {
    /// The families of these totals, each with the values of its other labels.
    pub(super) fn families(&self, totals: &[([&str; 3], ReservationTotals)]) -> [MetricFamily; 3] {
        let results = totals.iter().flat_map(|([domain, key1, key2], totals)| {
            let results = ReservationResult::NAMES.into_iter().zip(totals.results);
            results.map(|(result, count)| ([*domain, *key1, *key2, result], count))
        });
        [
            self.results.0.of(results),
            self.returned.0.of(totals
                .iter()
                .map(|(labels, totals)| (*labels, totals.returned))),
            self.excess.0.of(totals
                .iter()
                .map(|(labels, totals)| (*labels, totals.excess))),
        ]
    }
}

// === impl ReservationCounts ===

impl ReservationCounts {
    pub(super) fn new(used: Histogram) -> Self {
        Self {
            results: Counts::default(),
            hits: Counts::default(),
            used,
        }
    }

    pub(super) fn add(&self, count: &ReservationCount) {
        let ReservationCount {
            result,
            reserved,
            committed,
        } = *count;
        let mut one = [0; RESULT_COUNT];
        if let Some(steps) = one.get_mut(result as usize) {
            *steps = 1;
        }
        self.results.add(one);
        if let ReservationResult::Committed | ReservationResult::Released = result {
            let returned = reserved.saturating_sub(committed);
            self.hits
                .add([returned, committed.saturating_sub(reserved)]);
        }
        if result == ReservationResult::Committed && reserved > 0 {
            #[allow(clippy::cast_precision_loss)] // a ratio
            self.used.observe(committed as f64 / reserved as f64);
        }
    }

    pub(super) fn totals(&self) -> ReservationTotals {
        let [returned, excess] = self.hits.get();
        ReservationTotals {
            results: self.results.get(),
            returned,
            excess,
        }
    }
}
