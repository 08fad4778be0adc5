//! A naive bucket: the counter of an algorithm, and a list of what was reserved or refused that is
//! searched from its start at each step.
//!
//! How: an operation that leaves the same as a peek at the same instant leaves no trace, unless the
//! second clock law sets the bucket back, or the bucket has reservations. What a step changes in
//! the bucket is a take, a refund, an undo or a charge of the counter. A reservation that gives its
//! hits back when it expires does so at the instant of its expiry, not at that of the next
//! operation.
//!
//! What it deliberately does not do: bound the list as a whole, or order it by id or by time.

use std::any::Any;

use tollgate_limiter::algorithm::{REGISTER_MAX, Settled};
use tollgate_limiter::{
    CountRefused, Hits, Holder, ID_RECORDS_MAX, OnExpiry, Operation, Otherwise, Outcome,
    ReservationOutcome, Step, Timestamp,
};

use super::{Counter, Model, Terms, instant};

/// A bucket, with or without reservations.
#[derive(Clone, PartialEq)]
pub(super) struct Bucket<C> {
    counter: C,
    gives_back: GivesBack,
    written_at: Option<i128>,
    /// In the order of the requests.
    list: Vec<Reservation>,
}

/// What a bucket does with hits that come back.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum GivesBack {
    /// They count in the window that they were taken from.
    ToItsWindow,
    /// They fill the bucket, up to an unused one.
    InFull,
}

#[derive(Clone, PartialEq)]
struct Reservation {
    id: Holder,
    hits: u64,
    at: i128,
    until: i128,
    fate: Fate,
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Open(OnExpiry),
    /// By this amount.
    Settled(u64),
    Refused,
}

/// What a step does in the bucket, what became of it, and what was reserved and committed.
type Told = (Hits, ReservationOutcome, Option<(u64, u64)>);

/// The outcome tells what is left.
const NOTHING: Hits = Hits::Refund(0);

// === impl Bucket ===

impl<C: Counter> Bucket<C> {
    pub(super) fn new(gives_back: GivesBack) -> Self {
        Self {
            counter: C::default(),
            gives_back,
            written_at: None,
            list: Vec::new(),
        }
    }

    /// The same bucket after the operation, its outcome, and whether it must be written.
    fn after(&self, terms: &Terms, ask: Operation, asked_at: i128) -> (Self, Outcome, bool) {
        let mut after = self.clone();
        let ahead = self.written_at.map_or(0, |at| at - asked_at);
        let brought_back = ahead > terms.window_us;
        let now = if brought_back {
            for one in &mut after.list {
                one.at = (one.at - ahead).max(0);
                one.until = (one.until - ahead).max(0);
            }
            after.counter.ask(terms, Hits::PEEK.into(), asked_at);
            asked_at
        } else {
            asked_at + ahead.max(0)
        };
        let is_due = |one: &Reservation| one.until <= now && one.is_open(OnExpiry::Release);
        let Hits::Reservation(step) = ask.hits else {
            if after.list.iter().any(is_due) {
                after.end(terms, now);
                let outcome = after.counter.ask(terms, ask, asked_at);
                return (after, outcome, true);
            }
            let mut looked_at = after.counter.clone();
            looked_at.ask(terms, Hits::PEEK.into(), asked_at);
            let outcome = after.counter.ask(terms, ask, asked_at);
            let is_charge = matches!(ask.hits, Hits::Charge(hits) if hits > 0);
            let changed = brought_back || is_charge || after.counter != looked_at;
            return (after, outcome, changed);
        };
        let had_some = !after.list.is_empty();
        after.end(terms, now);
        let (outcome, charged) = after.step(terms, step, ask.holder, (asked_at, now));
        let is_written = brought_back || had_some || charged || !after.list.is_empty();
        (after, outcome, is_written)
    }

    /// Ends what is due at `now`, each at its time.
    fn end(&mut self, terms: &Terms, now: i128) {
        let mut due: Vec<_> = self.list.iter().filter(|one| one.until <= now).collect();
        due.sort_by_key(|one| one.until);
        for one in due {
            if one.is_open(OnExpiry::Release) {
                let back = self.gives_back.operation(one.hits, one.at);
                self.counter.ask(terms, back.into(), one.until);
            }
        }
        self.list.retain(|one| one.until > now);
    }

    /// The outcome of a step, and whether it charged hits without a reservation.
    fn step(
        &mut self,
        terms: &Terms,
        step: Step,
        id: Option<Holder>,
        (asked_at, now): (i128, i128),
    ) -> (Outcome, bool) {
        let mut ask = |terms, hits: Operation| self.counter.ask(terms, hits, asked_at);
        let Some(id) = id else {
            let (hits, became) = match step {
                Step::Commit { hits, otherwise } if otherwise != Otherwise::Unknown => {
                    (Hits::Charge(hits), ReservationOutcome::Charged)
                }
                _ => (NOTHING, ReservationOutcome::Unknown),
            };
            let mut outcome = ask(terms, hits.into());
            outcome.reservation = became;
            return (outcome, hits.can_fill());
        };
        if let Step::Reserve {
            hits,
            expiry,
            remember_refused,
        } = step
        {
            if !has_space_of(&mut self.list, id) {
                let mut outcome = ask(terms, NOTHING.into());
                outcome.allowed = false;
                let until = later(now, expiry.after_ms.get());
                outcome.retry_us = u64::try_from(until - asked_at).ok();
                outcome.reservation = ReservationOutcome::TooMany;
                return (outcome, false);
            }
            let uncounted = Terms {
                count_refused: Some(CountRefused::None),
                ..*terms
            };
            let mut outcome = ask(&uncounted, Hits::Take(hits).into());
            let fate = if outcome.allowed {
                outcome.reservation = ReservationOutcome::Reserved;
                Fate::Open(expiry.on_expiry)
            } else {
                outcome.reservation = ReservationOutcome::Refused;
                Fate::Refused
            };
            if outcome.allowed || remember_refused {
                self.list.push(Reservation {
                    id,
                    hits,
                    at: now,
                    until: later(now, expiry.after_ms.get()),
                    fate,
                });
            }
            return (outcome, false);
        }
        let (hits, became, settled) = match step {
            Step::Extend(ms) => self.extend(id, later(now, ms.get())),
            Step::Withdraw {
                taken_at,
                remember_refused,
            } => self.withdraw(id, taken_at, remember_refused),
            Step::Commit { hits, otherwise } => self.commit(id, hits, otherwise),
            Step::Release | Step::Reserve { .. } => self.commit(id, 0, Otherwise::Unknown),
        };
        let mut outcome = self.counter.ask(terms, hits.into(), asked_at);
        outcome.reservation = became;
        if let Some((reserved, committed)) = settled {
            outcome.set_settled(Settled {
                reserved,
                committed,
            });
        }
        (outcome, hits.can_fill())
    }

    fn extend(&mut self, id: Holder, until: i128) -> Told {
        let mut became = ReservationOutcome::Unknown;
        for one in self.list.iter_mut().filter(|one| one.is_open_of(id)) {
            one.until = until;
            became = ReservationOutcome::Extended;
        }
        (NOTHING, became, None)
    }

    fn withdraw(&mut self, id: Holder, taken_at: Timestamp, remember_refused: bool) -> Told {
        let taken = i128::from(taken_at.as_us());
        let that = |one: &Reservation| one.is_open_of(id) && one.at == taken;
        let Some(place) = self.list.iter().rposition(that) else {
            return (NOTHING, ReservationOutcome::Unknown, None);
        };
        let hits = self.list[place].hits;
        self.list[place].fate = Fate::Refused;
        if !remember_refused {
            self.list.remove(place);
        }
        let undo = Hits::Undo { hits, taken_at };
        (undo, ReservationOutcome::Withdrawn, None)
    }

    fn commit(&mut self, id: Holder, amount: u64, otherwise: Otherwise) -> Told {
        if let Some(one) = self.list.iter_mut().find(|one| one.is_open_of(id)) {
            let amount = amount.min(REGISTER_MAX);
            one.fate = Fate::Settled(amount);
            let hits = if amount > one.hits {
                Hits::Charge(amount - one.hits)
            } else {
                self.gives_back.operation(one.hits - amount, one.at)
            };
            return (hits, ReservationOutcome::Settled, Some((one.hits, amount)));
        }
        let charged = (Hits::Charge(amount), ReservationOutcome::Charged, None);
        let refused = |one: &Reservation| one.id == id && one.fate == Fate::Refused;
        let settled = self.last_settled(id);
        match otherwise {
            Otherwise::Charge => match self.list.iter().position(refused) {
                Some(place) => {
                    self.list.remove(place);
                    (NOTHING, ReservationOutcome::Ignored, None)
                }
                None => charged,
            },
            _ if settled.is_some() => (NOTHING, ReservationOutcome::SettledBefore, settled),
            Otherwise::ChargeOnce => charged,
            Otherwise::Unknown => (NOTHING, ReservationOutcome::Unknown, None),
        }
    }

    /// What was reserved and committed by the newest reservation of the id that is settled.
    fn last_settled(&self, id: Holder) -> Option<(u64, u64)> {
        let mut its = self.list.iter().rev().filter(|one| one.id == id);
        its.find_map(|one| match one.fate {
            Fate::Settled(amount) => Some((one.hits, amount)),
            Fate::Open(_) | Fate::Refused => None,
        })
    }
}

impl<C: Counter> Model for Bucket<C> {
    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Outcome {
        let (after, outcome, changed) = self.after(terms, ask, asked_at);
        if changed {
            *self = after;
            self.written_at = Some(outcome.bucket_time.as_us().into());
        }
        outcome
    }

    fn written_at(&self) -> Option<i128> {
        self.written_at
    }

    fn remembers_reservations_at(&self, time: i128) -> bool {
        self.list.iter().any(|one| time < one.until)
    }

    fn forget_expired(&mut self, terms: &Terms, now: i128) {
        self.counter.forget_expired(terms, now);
    }

    fn boxed(&self) -> Box<dyn Model> {
        Box::new(self.clone())
    }

    fn is_equal(&self, other: &dyn Model) -> bool {
        (other as &dyn Any).downcast_ref() == Some(self)
    }
}

// === impl GivesBack ===

impl GivesBack {
    fn operation(self, hits: u64, taken_at: i128) -> Hits {
        match self {
            Self::InFull => Hits::Refund(hits),
            Self::ToItsWindow => Hits::Undo {
                hits,
                taken_at: instant(taken_at),
            },
        }
    }
}

// === impl Reservation ===

impl Reservation {
    fn is_open_of(&self, id: Holder) -> bool {
        self.id == id && matches!(self.fate, Fate::Open(_))
    }

    fn is_open(&self, on_expiry: OnExpiry) -> bool {
        self.fate == Fate::Open(on_expiry)
    }
}

/// So many milliseconds after `now`, or the last timestamp if that is earlier.
fn later(now: i128, ms: u32) -> i128 {
    (now + i128::from(ms) * 1_000).min(Timestamp::MAX_US.into())
}

/// Whether one more of this id is kept, after the one that is remembered for the shortest time
/// has gone if need be.
fn has_space_of(list: &mut Vec<Reservation>, id: Holder) -> bool {
    if list.iter().filter(|one| one.id == id).count() < ID_RECORDS_MAX {
        return true;
    }
    let places = 0..list.len();
    let closed = places.filter(|place| {
        let one = &list[*place];
        one.id == id && !matches!(one.fate, Fate::Open(_))
    });
    let first = closed.min_by_key(|place| list[*place].until);
    first.map(|place| list.remove(place)).is_some()
}
