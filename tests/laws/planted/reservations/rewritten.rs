//! The steps of reservations again, with one mistake or none.

use tollgate_limiter::algorithm::{REGISTER_MAX, Settled};
use tollgate_limiter::{
    Algorithm, CountRefused, Expiry, Hits, Holder, Limit, OnExpiry, Operation, Otherwise, Outcome,
    ReservationOutcome, State, Step, Timestamp,
};

use crate::properties::reservations::Bucket;

/// One mistake.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Bug {
    None,
    CommittedTwiceGivesBackTwice,
    RepeatTellsTheNewAmount,
    SettledIsForgottenAtOnce,
    ReleasedAfterExpiryGivesBack,
    ExpiredIsStillOpen,
    ExpiryGivesNothingBack,
    ExpiryComesAMicrosecondLate,
    ReleaseGivesNothingBack,
    ExcessIsBoundedByOneBurst,
    ExcessIsTakenOnlyIfItFits,
    ExcessIsTheWholeAmount,
    GivesBackToALaterWindow,
    RefillHasComeBackAlready,
    ExtendsWhatIsSettled,
    ExtendsTheOldestOnly,
    FullLedgerDropsAnOpenRecord,
    SecondReserveTakesNothing,
    SettlesTheNewest,
    WithdrawsTheOldest,
    IgnoredRefusalIsCharged,
    RefusalIsNeverUsedUp,
    RefusedCounts,
    UnknownIsNotCharged,
    ClockTakesTheRecordsNotAlong,
}

/// How many records fit when a full ledger drops an open one.
const FULL: usize = 2;

/// A bucket whose steps have a mistake.
pub(super) struct Rewritten {
    bug: Bug,
    state: State,
    list: Vec<Record>,
}

#[derive(Clone, Copy)]
struct Record {
    id: Option<Holder>,
    hits: u64,
    at: Timestamp,
    until: Timestamp,
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Open(OnExpiry),
    Settled(u64),
    Refused,
}

/// A limit and its algorithm, and the caller's time.
#[derive(Clone, Copy)]
struct Terms<'a> {
    algorithm: &'a dyn Algorithm,
    limit: &'a Limit,
    asked_at: Timestamp,
    /// The bucket's time.
    now: Timestamp,
}

const NOTHING: Hits = Hits::Refund(0);

// === impl Rewritten ===

impl Bucket for Rewritten {
    fn ask(
        &mut self,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        ask: Operation,
        asked_at: Timestamp,
    ) -> Outcome {
        let ahead_us = self.state.updated_at.since_us(asked_at);
        let brought_back = ahead_us > limit.window().as_us();
        if brought_back {
            self.state.rewind(asked_at);
            if self.bug != Bug::ClockTakesTheRecordsNotAlong {
                for record in &mut self.list {
                    record.at = record.at.minus_us(ahead_us);
                    record.until = record.until.minus_us(ahead_us);
                }
            }
        }
        let terms = Terms {
            algorithm,
            limit,
            asked_at,
            now: asked_at.max(self.state.updated_at),
        };
        let had_some = !self.list.is_empty();
        let Hits::Reservation(step) = ask.hits else {
            let is_due =
                |one: &Record| one.until <= terms.now && one.fate == Fate::Open(OnExpiry::Release);
            let ends = self.list.iter().any(is_due);
            if ends {
                self.end(&terms);
            }
            if ends || brought_back {
                self.write(&terms);
            }
            return self.apply(&terms, ask.hits);
        };
        self.end(&terms);
        let outcome = self.step(&terms, step, ask.holder);
        if had_some || brought_back || !self.list.is_empty() {
            self.write(&terms);
        }
        outcome
    }
}

impl Rewritten {
    pub(super) fn new(bug: Bug) -> Self {
        Self {
            bug,
            state: State::default(),
            list: Vec::new(),
        }
    }

    fn apply(&mut self, terms: &Terms<'_>, hits: Hits) -> Outcome {
        self.state
            .apply(terms.algorithm, terms.limit, hits, terms.asked_at)
    }

    /// The bucket is written, whatever changed.
    fn write(&mut self, terms: &Terms<'_>) {
        let Terms {
            algorithm,
            limit,
            now,
            ..
        } = *terms;
        algorithm.decide(limit, &mut self.state, Hits::PEEK.into(), now);
        self.state.updated_at = now;
    }

    fn end(&mut self, terms: &Terms<'_>) {
        let late_us = u64::from(self.bug == Bug::ExpiryComesAMicrosecondLate);
        let is_due = |record: &Record| record.until.plus_us(late_us) <= terms.now;
        for record in self.list.clone() {
            if is_due(&record)
                && record.fate == Fate::Open(OnExpiry::Release)
                && self.bug != Bug::ExpiryGivesNothingBack
            {
                self.give_back(terms, record.hits, record.at);
            }
        }
        let stays = matches!(
            self.bug,
            Bug::ExpiredIsStillOpen | Bug::ReleasedAfterExpiryGivesBack
        );
        self.list.retain(|record| {
            !is_due(record) || stays && record.fate == Fate::Open(OnExpiry::Charge)
        });
    }

    fn step(&mut self, terms: &Terms<'_>, step: Step, id: Option<Holder>) -> Outcome {
        let (mut outcome, became) = match step {
            Step::Reserve {
                hits,
                expiry,
                remember_refused,
            } if id.is_some() => self.reserve(terms, id, (hits, expiry, remember_refused)),
            Step::Commit { hits, otherwise } => self.commit(terms, id, hits, Some(otherwise)),
            Step::Release => self.commit(terms, id, 0, None),
            Step::Extend(ms) => self.extend(terms, id, Expiry::after(terms.now, ms)),
            Step::Withdraw {
                taken_at,
                remember_refused,
            } => self.withdraw(terms, id, taken_at, remember_refused),
            Step::Reserve { .. } => (self.apply(terms, NOTHING), ReservationOutcome::Unknown),
        };
        outcome.reservation = became;
        outcome
    }

    fn reserve(
        &mut self,
        terms: &Terms<'_>,
        id: Option<Holder>,
        (hits, expiry, remember_refused): (u64, Expiry, bool),
    ) -> (Outcome, ReservationOutcome) {
        if self.bug == Bug::FullLedgerDropsAnOpenRecord && self.list.len() >= FULL {
            self.list.remove(0);
        }
        let open = |record: &Record| record.is_open_of(id);
        if self.bug == Bug::SecondReserveTakesNothing && self.list.iter().any(open) {
            return (self.apply(terms, NOTHING), ReservationOutcome::Reserved);
        }
        let uncounted = terms.limit.with_count_refused(CountRefused::None);
        let limit = match self.bug {
            Bug::RefusedCounts => terms.limit,
            _ => &uncounted,
        };
        let outcome = self.apply(&Terms { limit, ..*terms }, Hits::Take(hits));
        let (fate, became) = if outcome.allowed {
            (Fate::Open(expiry.on_expiry), ReservationOutcome::Reserved)
        } else {
            (Fate::Refused, ReservationOutcome::Refused)
        };
        if outcome.allowed || remember_refused {
            self.list.push(Record {
                id,
                hits,
                at: terms.now,
                until: expiry.from(terms.now),
                fate,
            });
        }
        (outcome, became)
    }

    /// A commit, or a release, which says nothing of ids that are not open.
    fn commit(
        &mut self,
        terms: &Terms<'_>,
        id: Option<Holder>,
        hits: u64,
        otherwise: Option<Otherwise>,
    ) -> (Outcome, ReservationOutcome) {
        let hits = hits.min(REGISTER_MAX);
        let expired_counts = self.bug == Bug::ExpiredIsStillOpen
            || self.bug == Bug::ReleasedAfterExpiryGivesBack && otherwise.is_none();
        let open = |record: &Record| {
            record.is_open_of(id) && (expired_counts || record.until > terms.now || self.is_late())
        };
        let place = match self.bug {
            Bug::SettlesTheNewest => self.list.iter().rposition(open),
            _ => self.list.iter().position(open),
        };
        if let Some(place) = place {
            return self.settle(terms, place, hits, otherwise.is_none());
        }
        let of = |fate: fn(&Fate) -> bool| {
            move |record: &Record| id.is_some() && record.id == id && fate(&record.fate)
        };
        if otherwise == Some(Otherwise::Charge)
            && let Some(place) = self.list.iter().position(of(|fate| *fate == Fate::Refused))
        {
            if self.bug != Bug::RefusalIsNeverUsedUp {
                self.list.remove(place);
            }
            let charged = match self.bug {
                Bug::IgnoredRefusalIsCharged => Hits::Charge(hits),
                _ => NOTHING,
            };
            return (self.apply(terms, charged), ReservationOutcome::Ignored);
        }
        let settled = of(|fate| matches!(fate, Fate::Settled(_)));
        let settled = self.list.iter().rposition(settled);
        match (settled, otherwise) {
            (Some(place), None | Some(Otherwise::Unknown | Otherwise::ChargeOnce))
                if self.bug != Bug::SettledIsForgottenAtOnce =>
            {
                self.repeat(terms, place, hits)
            }
            (_, None | Some(Otherwise::Unknown)) => {
                (self.apply(terms, NOTHING), ReservationOutcome::Unknown)
            }
            (_, Some(Otherwise::Charge | Otherwise::ChargeOnce)) => {
                let charged = match self.bug {
                    Bug::UnknownIsNotCharged => NOTHING,
                    _ => Hits::Charge(hits),
                };
                (self.apply(terms, charged), ReservationOutcome::Charged)
            }
        }
    }

    fn settle(
        &mut self,
        terms: &Terms<'_>,
        place: usize,
        hits: u64,
        is_release: bool,
    ) -> (Outcome, ReservationOutcome) {
        let Record {
            hits: reserved, at, ..
        } = self.list[place];
        self.list[place].fate = Fate::Settled(hits);
        let mut outcome = if hits > reserved {
            let excess = hits - reserved;
            let looked = self.apply(terms, NOTHING);
            let most = terms.limit.burst().saturating_mul(2);
            let excess = match self.bug {
                Bug::ExcessIsBoundedByOneBurst => {
                    Hits::Charge(excess.min(most.saturating_sub(looked.used_before)))
                }
                Bug::ExcessIsTakenOnlyIfItFits => Hits::Take(excess),
                Bug::ExcessIsTheWholeAmount => Hits::Charge(hits),
                _ => Hits::Charge(excess),
            };
            self.apply(terms, excess)
        } else if is_release && self.bug == Bug::ReleaseGivesNothingBack {
            self.apply(terms, NOTHING)
        } else {
            self.give_back(terms, reserved - hits, at)
        };
        outcome.set_settled(Settled {
            reserved,
            committed: hits,
        });
        (outcome, ReservationOutcome::Settled)
    }

    /// A step for an id that was settled before.
    fn repeat(
        &mut self,
        terms: &Terms<'_>,
        place: usize,
        hits: u64,
    ) -> (Outcome, ReservationOutcome) {
        let Record {
            hits: reserved,
            at,
            fate,
            ..
        } = self.list[place];
        let Fate::Settled(mut committed) = fate else {
            unreachable!("it is settled")
        };
        let mut outcome = match self.bug {
            Bug::CommittedTwiceGivesBackTwice => {
                self.give_back(terms, reserved.saturating_sub(committed), at)
            }
            _ => self.apply(terms, NOTHING),
        };
        if self.bug == Bug::RepeatTellsTheNewAmount {
            committed = hits;
        }
        outcome.set_settled(Settled {
            reserved,
            committed,
        });
        (outcome, ReservationOutcome::SettledBefore)
    }

    fn extend(
        &mut self,
        terms: &Terms<'_>,
        id: Option<Holder>,
        until: Timestamp,
    ) -> (Outcome, ReservationOutcome) {
        let bug = self.bug;
        let moves = |record: &&mut Record| {
            let is_settled = matches!(record.fate, Fate::Settled(_)) && record.id == id;
            let is_open = record.is_open_of(id)
                && (record.until > terms.now || bug != Bug::ReleasedAfterExpiryGivesBack);
            is_open || is_settled && bug == Bug::ExtendsWhatIsSettled
        };
        let most = match self.bug {
            Bug::ExtendsTheOldestOnly => 1,
            _ => usize::MAX,
        };
        let mut became = ReservationOutcome::Unknown;
        for record in self.list.iter_mut().filter(moves).take(most) {
            record.until = until;
            became = ReservationOutcome::Extended;
        }
        (self.apply(terms, NOTHING), became)
    }

    fn withdraw(
        &mut self,
        terms: &Terms<'_>,
        id: Option<Holder>,
        taken_at: Timestamp,
        remember_refused: bool,
    ) -> (Outcome, ReservationOutcome) {
        let any_time = self.bug == Bug::WithdrawsTheOldest;
        let that = |record: &Record| record.is_open_of(id) && (any_time || record.at == taken_at);
        let place = match self.bug {
            Bug::WithdrawsTheOldest => self.list.iter().position(that),
            _ => self.list.iter().rposition(that),
        };
        let Some(place) = place else {
            return (self.apply(terms, NOTHING), ReservationOutcome::Unknown);
        };
        let Record { hits, at, .. } = self.list[place];
        self.list[place].fate = Fate::Refused;
        if !remember_refused {
            self.list.remove(place);
        }
        let undo = Hits::Undo { hits, taken_at: at };
        (self.apply(terms, undo), ReservationOutcome::Withdrawn)
    }

    fn give_back(&mut self, terms: &Terms<'_>, hits: u64, taken_at: Timestamp) -> Outcome {
        let in_full = match self.bug {
            Bug::GivesBackToALaterWindow => true,
            Bug::RefillHasComeBackAlready => false,
            _ => terms.algorithm.refills(),
        };
        self.apply(
            terms,
            if in_full {
                Hits::Refund(hits)
            } else {
                Hits::Undo { hits, taken_at }
            },
        )
    }

    fn is_late(&self) -> bool {
        self.bug == Bug::ExpiryComesAMicrosecondLate
    }
}

// === impl Record ===

impl Record {
    fn is_open_of(&self, id: Option<Holder>) -> bool {
        id.is_some() && self.id == id && matches!(self.fate, Fate::Open(_))
    }
}
