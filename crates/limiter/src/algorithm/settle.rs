//! How a bucket decides the steps of reservations, by its ledger and its algorithm.

use super::ledger::{ENDED_AT_ONCE_MAX, Ledger, Record, RecordKind, RecordState};
use super::{
    Algorithm, CountRefused, Expiry, Hits, Holder, Limit, Operation, Otherwise, Outcome,
    REGISTER_MAX, ReservationOutcome, Settled, State, Step, Timestamp,
};

/// A bucket, its limit, and the time of the operation, which is never before the bucket's own.
pub(super) struct Settling<'s> {
    pub(super) algorithm: &'s dyn Algorithm,
    pub(super) limit: &'s Limit,
    pub(super) state: &'s mut State,
    pub(super) now: Timestamp,
    /// Whether the bucket must be written.
    pub(super) changed: bool,
}

/// Gives back nothing: the outcome tells what is left.
const NOTHING: Hits = Hits::Refund(0);

// === impl Settling ===

impl Settling<'_> {
    /// Ends records that are due: a bounded number, and all of this id.
    pub(super) fn expire(&mut self, ledger: &mut Ledger, id: Option<Holder>) {
        ledger.forget_due(self.now);
        for _ in 0..ENDED_AT_ONCE_MAX {
            let Some(record) = ledger.pop_release(self.now) else {
                break;
            };
            self.changed = true;
            self.give_back(record.hits, record.taken_at);
        }
        for record in id.map_or_else(Vec::new, |id| ledger.take_due_of(id, self.now)) {
            self.changed = true;
            self.give_back(record.hits, record.taken_at);
        }
    }

    /// Decides one step. `ledger` has no record of its id that is due.
    pub(super) fn decide(
        &mut self,
        ledger: &mut Ledger,
        id: Option<Holder>,
        step: Step,
    ) -> Outcome {
        let (mut outcome, reservation) = match (step, id) {
            (
                Step::Reserve {
                    hits,
                    expiry,
                    remember_refused,
                },
                Some(id),
            ) => self.reserve(ledger, id, (hits, expiry, remember_refused)),
            (Step::Commit { hits, otherwise }, Some(id)) => {
                self.commit(ledger, id, hits, otherwise)
            }
            (Step::Commit { hits, otherwise }, None) => match otherwise {
                Otherwise::Unknown => self.unknown(),
                Otherwise::Charge | Otherwise::ChargeOnce => self.charge(hits),
            },
            (Step::Release, Some(id)) => self.commit(ledger, id, 0, Otherwise::Unknown),
            (Step::Extend(ms), Some(id)) => self.extend(ledger, id, Expiry::after(self.now, ms)),
            (
                Step::Withdraw {
                    taken_at,
                    remember_refused,
                },
                Some(id),
            ) => self.withdraw(ledger, id, taken_at, remember_refused),
            (_, None) => self.unknown(),
        };
        outcome.reservation = reservation;
        outcome
    }

    fn reserve(
        &mut self,
        ledger: &mut Ledger,
        id: Holder,
        (hits, expiry, remember_refused): (u64, Expiry, bool),
    ) -> (Outcome, ReservationOutcome) {
        let (taken_at, until) = (self.now, expiry.from(self.now));
        if !ledger.make_space(id) {
            let mut outcome = self.apply(NOTHING);
            outcome.allowed = false;
            outcome.retry_us = until.since_us(self.now).into();
            return (outcome, ReservationOutcome::TooMany);
        }
        // Nothing is taken when it is refused, whatever the limit says of refused hits.
        let limit = self.limit.with_count_refused(CountRefused::None);
        let outcome = self.apply_to(&limit, Hits::Take(hits));
        let record = |state| Record {
            state,
            hits,
            taken_at,
            until,
        };
        if outcome.allowed {
            self.changed = true;
            ledger.add(id, record(RecordState::Open(expiry.on_expiry)));
            return (outcome, ReservationOutcome::Reserved);
        }
        if remember_refused {
            self.changed = true;
            ledger.add(id, record(RecordState::Refused));
        }
        (outcome, ReservationOutcome::Refused)
    }

    fn commit(
        &mut self,
        ledger: &mut Ledger,
        id: Holder,
        committed: u64,
        otherwise: Otherwise,
    ) -> (Outcome, ReservationOutcome) {
        let committed = committed.min(REGISTER_MAX);
        if let Some((key, record)) = ledger.oldest(id, RecordKind::Open) {
            self.changed = true;
            let settled = Record {
                state: RecordState::Settled(committed),
                ..record
            };
            ledger.replace(key, Some(settled));
            let reserved = record.hits;
            let mut outcome = if committed > reserved {
                self.apply(Hits::Charge(committed.saturating_sub(reserved)))
            } else {
                self.give_back(reserved.saturating_sub(committed), record.taken_at)
            };
            outcome.set_settled(Settled {
                reserved,
                committed,
            });
            return (outcome, ReservationOutcome::Settled);
        }
        if otherwise == Otherwise::Charge {
            let Some((key, _)) = ledger.oldest(id, RecordKind::Refused) else {
                return self.charge(committed);
            };
            self.changed = true;
            ledger.replace(key, None);
            return (self.apply(NOTHING), ReservationOutcome::Ignored);
        }
        let last = ledger.of(id, RecordKind::Settled).next_back();
        let settled = last.and_then(|(_, record)| match record.state {
            RecordState::Settled(committed) => Some((record.hits, committed)),
            RecordState::Open(_) | RecordState::Refused => None,
        });
        match (settled, otherwise) {
            (Some((reserved, committed)), _) => {
                let mut outcome = self.apply(NOTHING);
                outcome.set_settled(Settled {
                    reserved,
                    committed,
                });
                (outcome, ReservationOutcome::SettledBefore)
            }
            (None, Otherwise::Unknown) => self.unknown(),
            (None, Otherwise::Charge | Otherwise::ChargeOnce) => self.charge(committed),
        }
    }

    fn extend(
        &mut self,
        ledger: &mut Ledger,
        id: Holder,
        until: Timestamp,
    ) -> (Outcome, ReservationOutcome) {
        let open: Vec<_> = ledger.of(id, RecordKind::Open).collect();
        if open.is_empty() {
            return self.unknown();
        }
        self.changed = true;
        for (key, record) in open {
            ledger.replace(key, Some(Record { until, ..record }));
        }
        (self.apply(NOTHING), ReservationOutcome::Extended)
    }

    fn withdraw(
        &mut self,
        ledger: &mut Ledger,
        id: Holder,
        taken_at: Timestamp,
        remember_refused: bool,
    ) -> (Outcome, ReservationOutcome) {
        let that = ledger
            .of(id, RecordKind::Open)
            .rev()
            .find(|(_, record)| record.taken_at == taken_at);
        let Some((key, record)) = that else {
            return self.unknown();
        };
        self.changed = true;
        let refused = Record {
            state: RecordState::Refused,
            ..record
        };
        ledger.replace(key, remember_refused.then_some(refused));
        let undo = Hits::Undo {
            hits: record.hits,
            taken_at,
        };
        (self.apply(undo), ReservationOutcome::Withdrawn)
    }

    fn charge(&mut self, hits: u64) -> (Outcome, ReservationOutcome) {
        self.changed |= hits > 0;
        (self.apply(Hits::Charge(hits)), ReservationOutcome::Charged)
    }

    fn unknown(&mut self) -> (Outcome, ReservationOutcome) {
        (self.apply(NOTHING), ReservationOutcome::Unknown)
    }

    /// Gives back hits of a reservation that was made at `taken_at`.
    fn give_back(&mut self, hits: u64, taken_at: Timestamp) -> Outcome {
        if hits == 0 {
            return self.apply(NOTHING);
        }
        self.apply(if self.algorithm.facts().refills {
            Hits::Refund(hits)
        } else {
            Hits::Undo { hits, taken_at }
        })
    }

    /// One operation of the algorithm. The bucket's time moves along, so that the next one counts
    /// from there.
    fn apply(&mut self, hits: Hits) -> Outcome {
        self.apply_to(self.limit, hits)
    }

    fn apply_to(&mut self, limit: &Limit, hits: Hits) -> Outcome {
        let outcome = self
            .algorithm
            .decide(limit, self.state, Operation::from(hits), self.now);
        self.state.updated_at = self.now;
        outcome
    }
}
