//! The naive models of buckets, asked in the order in which checks were decided.
//!
//! Why a bucket has several possible states: a sweep may free a bucket that equals an unused one,
//! or set back one seen in a lost future, and while the clock only grows this has no visible
//! effect. After the clock jumps, an outcome shows whether the sweep had run. The partition chooses
//! when, so the recount allows for both at every clock reading that a worker could have had. An
//! outcome keeps the states that explain it; if none is left, the outcome is wrong.
//!
//! What it deliberately does not do: retry and reset times (the limiter's laws), or require a sweep
//! at a given time.

use tollgate_limiter::algorithm::{Settled, from_name};
use tollgate_limiter::{CountRefused, Hits, Operation, Outcome, ReservationOutcome};
use tollgate_test_model::bucket_histories::Terms;
use tollgate_test_model::{Model, model_of};

/// The part of an outcome that is recounted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Counted {
    pub(crate) allowed: bool,
    pub(crate) remaining: u64,
    /// The bucket's own time.
    pub(crate) at: u64,
}

/// All possible states of a bucket.
pub(crate) struct Account {
    unused: PossibleState,
    has_marks: bool,
    pasts: Vec<PossibleState>,
    /// How many clock readings of the workers are already processed.
    readings_seen: usize,
    /// How many there were when the bucket could last have been absent.
    absent_at: usize,
}

/// One possible state. Absent: never used, or freed.
struct PossibleState {
    model: Box<dyn Model>,
    /// The limit at the last operation.
    terms: Option<Terms>,
    /// The first time at which it equals an unused bucket, if nothing happens until then.
    unused_at: i128,
    /// What became of the last step of a reservation.
    became: Became,
}

/// What became of a step, and what was reserved and committed.
pub(crate) type Became = (ReservationOutcome, Option<Settled>);

// === impl Counted ===

impl From<&Outcome> for Counted {
    fn from(outcome: &Outcome) -> Self {
        Self {
            allowed: outcome.allowed,
            remaining: outcome.remaining,
            at: outcome.bucket_time.as_us(),
        }
    }
}

// === impl Account ===

impl Account {
    /// An unused bucket of the algorithm with that name.
    pub(crate) fn new(algorithm: &str) -> Self {
        let unused = PossibleState {
            model: model_of(algorithm),
            terms: None,
            unused_at: 0,
            became: Became::default(),
        };
        Self {
            has_marks: from_name(algorithm).unwrap().facts().has_marks,
            pasts: vec![unused.clone()],
            unused,
            readings_seen: 0,
            absent_at: 0,
        }
    }

    /// Whether the bucket can have been absent at some time after the first `since` readings.
    pub(crate) fn may_have_been_absent(&mut self, readings: &[u64], since: usize) -> bool {
        self.sweep(readings);
        self.absent_at >= since
    }

    /// A check was decided at `now`, after workers had read the clock as in `readings`, by a table
    /// that `may_be_full`, with this outcome. Returns the right outcome if no possible state
    /// explains it.
    pub(crate) fn decided(
        &mut self,
        terms: &Terms,
        ask: Operation,
        now: u64,
        readings: &[u64],
        counted: Counted,
        may_be_full: bool,
    ) -> Result<(), Vec<Counted>> {
        self.sweep(readings);
        let now = i128::from(now);
        let mut right = Vec::new();
        let mut ways = vec![*terms];
        let was_absent = self.pasts.iter().any(PossibleState::is_absent);
        if may_be_full && self.has_marks {
            if !counted.allowed {
                // A denial needs no memory: its hits are not stored.
                ways.push(Terms {
                    count_refused: Some(CountRefused::None),
                    ..*terms
                });
            }
            // Expired marks are dropped for new ones.
            for mut past in self.pasts.clone() {
                let newest = past.model.written_at().unwrap_or(now);
                past.model.forget_expired(terms, newest.max(now));
                self.may_be(past);
            }
        }
        let each = self.pasts.drain(..).flat_map(|past| {
            ways.iter().map(move |terms| {
                let mut past = past.clone();
                let said = past.ask(terms, ask, now);
                (past, said)
            })
        });
        let (explain, other): (Vec<_>, Vec<_>) = each.partition(|(_, said)| *said == counted);
        let found = !explain.is_empty();
        for (past, said) in if found { explain } else { other } {
            self.may_be(past);
            right.push(said);
        }
        if found && may_be_full {
            let exhausted = !counted.allowed || counted.remaining == 0;
            if !exhausted || was_absent && !counted.allowed {
                // A bucket that is not exhausted may be evicted from now on, and one that never
                // passes is not stored.
                self.may_be(self.unused.clone());
                self.absent_at = readings.len();
            }
        }
        if found { Ok(()) } else { Err(right) }
    }

    /// What may have become of the last step of a reservation.
    pub(crate) fn became(&self) -> Vec<Became> {
        self.pasts.iter().map(|past| past.became).collect()
    }

    /// The bucket was removed.
    pub(crate) fn reset(&mut self, readings: &[u64]) {
        self.pasts = vec![self.unused.clone()];
        self.readings_seen = readings.len();
        self.absent_at = readings.len();
    }

    /// Adds the states that sweeps may have produced by now.
    fn sweep(&mut self, readings: &[u64]) {
        for reading in &readings[self.readings_seen..] {
            let swept: Vec<_> = self
                .pasts
                .iter()
                .filter_map(|past| past.swept(&self.unused, i128::from(*reading)))
                .collect();
            for past in swept {
                self.may_be(past);
            }
        }
        self.readings_seen = readings.len();
        if self.pasts.iter().any(PossibleState::is_absent) {
            self.absent_at = readings.len();
        }
    }

    fn may_be(&mut self, past: PossibleState) {
        if !self.pasts.contains(&past) {
            self.pasts.push(past);
        }
    }
}

// === impl PossibleState ===

impl Clone for PossibleState {
    fn clone(&self) -> Self {
        Self {
            model: self.model.boxed(),
            ..*self
        }
    }
}

impl PartialEq for PossibleState {
    fn eq(&self, other: &Self) -> bool {
        (self.unused_at, self.became) == (other.unused_at, other.became)
            && self.model.is_equal(&*other.model)
    }
}

impl PossibleState {
    fn is_absent(&self) -> bool {
        self.model.written_at().is_none()
    }

    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Counted {
        let outcome = self.model.ask(terms, ask, asked_at);
        self.became = (outcome.reservation, outcome.settled());
        self.terms = Some(*terms);
        if let Some(newest) = self.model.written_at() {
            let looked_at = self.model.boxed().ask(terms, Hits::PEEK.into(), newest);
            self.unused_at = newest + i128::from(looked_at.reset_us);
        }
        Counted::from(&outcome)
    }

    /// The state after a sweep at this clock reading, if the sweep changes it.
    fn swept(&self, unused: &Self, reading: i128) -> Option<Self> {
        let (newest, terms) = (self.model.written_at()?, self.terms?);
        if newest - reading > terms.window_us {
            let mut past = self.clone();
            past.ask(&terms, Hits::PEEK.into(), reading);
            past.became = self.became;
            return Some(past);
        }
        let is_unused = self.unused_at <= reading;
        (is_unused && !self.model.remembers_reservations_at(reading)).then(|| unused.clone())
    }
}
