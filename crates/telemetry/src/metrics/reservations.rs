//! Metrics of reservations, by limit, with the labels of its other metrics.
//!
//! A limit without reservations has none of these series. They are made when it is first counted.

use prometheus::{Histogram, HistogramVec};
use tollgate_limiter::{Code, Outcome, ReservationOutcome, Step};

use super::declaration::{Counter, CounterVec, LabelValues, metrics};
use super::label::{DOMAINS, LEVELS, Labels};

/// What became of a step of a reservation in one limit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum ReservationResult {
    /// The hits are reserved.
    Reserved,
    /// The hits were refused, by this limit or by another one of the request.
    Refused,
    /// The bucket has as many open reservations as it can.
    TooMany,
    /// Settled by its true amount.
    Committed,
    /// Settled, and all hits went back.
    Released,
    /// The expiry has moved.
    Extended,
    /// The amount was charged in full, because no reservation was open.
    Charged,
    /// An end of a request that was refused: nothing was charged.
    Ignored,
    /// It was settled before: nothing changed.
    Repeated,
    /// The id is not known: nothing changed.
    Unknown,
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

/// The counters that readers see under one set of labels.
#[derive(Debug)]
pub(super) struct ReservationSeries {
    results: [Counter; RESULT_COUNT],
    returned: Counter,
    excess: Counter,
    used: Histogram,
}

/// Upper bounds of committed / reserved. 1 is exact; more is an excess.
const USED: &[f64] = &[
    0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0,
];

/// How many results there are.
const RESULT_COUNT: usize = 10;

const RESULTS: LabelValues = LabelValues::OneOf(&ReservationResult::NAMES);

metrics! {
    /// Metrics of reservations, by limit.
    pub(super) struct ReservationMetrics {
        /// Steps of reservations, by what became of them.
        CounterVec "tollgate_reservations_total"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS, result: RESULTS] as "" => results;

        /// Hits that were reserved and not used, and went back.
        CounterVec "tollgate_reservation_hits_returned_total"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS] as "" => returned;

        /// Hits that commits exceeded their reservations by, and were charged beyond them.
        CounterVec "tollgate_reservation_hits_excess_total"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS] as "" => excess;

        /// Committed hits divided by reserved hits of each commit: 1 is exact, more is an excess.
        HistogramVec "tollgate_reservation_used_ratio"
            [domain: DOMAINS, key1: LEVELS, key2: LEVELS] in USED as "" => used;
    }
}

// === impl ReservationResult ===

impl ReservationResult {
    /// Every variant.
    pub const ALL: [Self; RESULT_COUNT] = [
        Self::Reserved,
        Self::Refused,
        Self::TooMany,
        Self::Committed,
        Self::Released,
        Self::Extended,
        Self::Charged,
        Self::Ignored,
        Self::Repeated,
        Self::Unknown,
    ];

    /// The names, as labels have them, in the order of [`ReservationResult::ALL`].
    const NAMES: [&str; RESULT_COUNT] = [
        "reserved",
        "refused",
        "too_many",
        "committed",
        "released",
        "extended",
        "charged",
        "ignored",
        "repeated",
        "unknown",
    ];

    /// Whether a reservation is settled, now or before.
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Committed | Self::Released | Self::Repeated)
    }

    /// Its label.
    pub fn name(self) -> &'static str {
        Self::NAMES.get(self as usize).copied().unwrap_or_default()
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
    /// The counters under these labels.
    pub(super) fn series(&self, labels: &Labels) -> ReservationSeries {
        let [domain, key1, key2] = labels.each_ref().map(String::as_str);
        let of = |counters: &CounterVec| counters.with_label_values(&[domain, key1, key2]);
        ReservationSeries {
            results: ReservationResult::ALL.map(|result| {
                let labels = [domain, key1, key2, result.name()];
                self.results.with_label_values(&labels)
            }),
            returned: of(&self.returned),
            excess: of(&self.excess),
            used: self.used.with_label_values(&[domain, key1, key2]),
        }
    }

    /// Frees the series under these labels.
    pub(super) fn remove(&self, labels: &Labels) {
        let [domain, key1, key2] = labels.each_ref().map(String::as_str);
        // Each fails where there is no such series: then nothing is left to do.
        for result in ReservationResult::ALL {
            let labels = [domain, key1, key2, result.name()];
            let _ = self.results.remove_label_values(&labels);
        }
        for counters in [&self.returned, &self.excess] {
            let _ = counters.remove_label_values(&[domain, key1, key2]);
        }
        let _ = self.used.remove_label_values(&[domain, key1, key2]);
    }
}

// === impl ReservationSeries ===

impl ReservationSeries {
    pub(super) fn count(&self, count: &ReservationCount) {
        if let Some(counter) = self.results.get(count.result as usize) {
            counter.inc();
        }
        if let ReservationResult::Committed | ReservationResult::Released = count.result {
            let (reserved, committed) = (count.reserved, count.committed);
            for (counter, more, less) in [
                (&self.returned, reserved, committed),
                (&self.excess, committed, reserved),
            ] {
                if more > less {
                    counter.inc_by(more.saturating_sub(less));
                }
            }
        }
        if count.result == ReservationResult::Committed && count.reserved > 0 {
            #[allow(clippy::cast_precision_loss)] // a ratio
            self.used
                .observe(count.committed as f64 / count.reserved as f64);
        }
    }

    pub(super) fn totals(&self) -> ReservationTotals {
        ReservationTotals {
            results: self.results.each_ref().map(Counter::get),
            returned: self.returned.get(),
            excess: self.excess.get(),
        }
    }
}
