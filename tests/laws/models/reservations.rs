//! A naive model of reservations: a list of what was reserved or refused, searched from its start
//! at each step, beside the naive model of the algorithm.
//!
//! How: what a step changes in the bucket is a take, a refund, an undo or a charge of the
//! algorithm's model. A reservation that gives its hits back when it expires does so at the instant
//! of its expiry, not at that of the next operation.
//!
//! What it deliberately does not do: bound the list, or order it by id or by time.

use tollgate_limiter::algorithm::{REGISTER_MAX, Settled};
use tollgate_limiter::{
    CountRefused, Hits, Holder, OnExpiry, Operation, Otherwise, Outcome, ReservationOutcome, Step,
    Timestamp,
};

use super::{Model, Terms, instant};

/// A bucket with reservations.
#[derive(Clone)]
pub(super) struct Reservations<M> {
    counter: M,
    gives_back: GivesBack,
    written_at: i128,
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

#[derive(Clone)]
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

// === impl Reservations ===

impl<M: Model + Default + Clone + PartialEq> Reservations<M> {
    pub(super) fn new(gives_back: GivesBack) -> Self {
        Self {
            counter: M::default(),
            gives_back,
            written_at: 0,
            list: Vec::new(),
        }
    }

    /// The same bucket after the operation, its outcome, and whether it must be written.
    fn after(&self, terms: &Terms, ask: Operation, asked_at: i128) -> (Self, Outcome, bool) {
        let mut after = self.clone();
        let ahead = self.written_at - asked_at;
        let brought_back = ahead > terms.window_us;
        let now = if brought_back {
            for one in &mut after.list {
                one.at = (one.at - ahead).max(0);
                one.until = (one.until - ahead).max(0);
            }
            after.counter.ask(terms, Hits::PEEK.into(), asked_at);
            asked_at
        } else {
            asked_at.max(self.written_at)
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
        let changed = brought_back || had_some || charged || !after.list.is_empty();
        (after, outcome, changed)
    }

    /// Ends what is due at `now`, each at its time.
    fn end(&mut self, terms: &Terms, now: i128) {
        let mut due: Vec<_> = self.list.iter().filter(|one| one.until <= now).collect();
        due.sort_by_key(|one| one.until);
        for one in due {
            if one.is_open(OnExpiry::Release) {
                let back = self.gives_back.operation(one.hits, one.at);
                self.counter.ask(terms, back, one.until);
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
        use ReservationOutcome as Became;
        let mut hits = Hits::Refund(0).into();
        let mut settled = None;
        let mut charged = false;
        let mut terms = *terms;
        let place = |list: &[Reservation], meant: &dyn Fn(&Reservation) -> bool| {
            let its = |one: &Reservation| Some(one.id) == id && meant(one);
            list.iter().position(its)
        };
        let open = |one: &Reservation| matches!(one.fate, Fate::Open(_));
        let first_open = place(&self.list, &open);
        let became = match (step, id) {
            (Step::Reserve { hits: wanted, .. }, Some(_)) => {
                terms.count_refused = Some(CountRefused::None);
                hits = Hits::Take(wanted).into();
                Became::Reserved
            }
            (Step::Commit { .. } | Step::Release, Some(_)) if first_open.is_some() => {
                let one = &mut self.list[first_open.unwrap()];
                let amount = step.hits().min(REGISTER_MAX);
                hits = match amount.checked_sub(one.hits) {
                    Some(excess) if excess > 0 => Hits::Charge(excess).into(),
                    _ => self.gives_back.operation(one.hits - amount, one.at),
                };
                one.fate = Fate::Settled(amount);
                settled = Some((one.hits, amount));
                Became::Settled
            }
            (Step::Extend(ms), Some(_)) if first_open.is_some() => {
                for one in &mut self.list {
                    if Some(one.id) == id && open(one) {
                        one.until = later(now, ms.get());
                    }
                }
                Became::Extended
            }
            (
                Step::Withdraw {
                    taken_at,
                    remember_refused,
                },
                Some(_),
            ) => {
                let taken = i128::from(taken_at.as_us());
                let that = |one: &Reservation| Some(one.id) == id && open(one) && one.at == taken;
                match self.list.iter().rposition(that) {
                    None => Became::Unknown,
                    Some(place) => {
                        let taken = self.list[place].hits;
                        hits = Hits::Undo {
                            hits: taken,
                            taken_at,
                        }
                        .into();
                        self.list[place].fate = Fate::Refused;
                        if !remember_refused {
                            self.list.remove(place);
                        }
                        Became::Withdrawn
                    }
                }
            }
            (
                Step::Commit {
                    hits: amount,
                    otherwise,
                },
                _,
            ) => {
                let refused = place(&self.list, &|one| one.fate == Fate::Refused);
                settled = self.last_settled(id);
                match (otherwise, refused) {
                    (Otherwise::Charge, Some(refused)) => {
                        self.list.remove(refused);
                        Became::Ignored
                    }
                    (Otherwise::Unknown | Otherwise::ChargeOnce, _) if settled.is_some() => {
                        Became::SettledBefore
                    }
                    (Otherwise::Unknown, _) => Became::Unknown,
                    (Otherwise::Charge | Otherwise::ChargeOnce, _) => {
                        hits = Hits::Charge(amount).into();
                        charged = amount > 0;
                        Became::Charged
                    }
                }
            }
            (Step::Release, Some(_)) => {
                settled = self.last_settled(id);
                match settled {
                    Some(_) => Became::SettledBefore,
                    None => Became::Unknown,
                }
            }
            _ => Became::Unknown,
        };
        let mut outcome = self.counter.ask(&terms, hits, asked_at);
        outcome.reservation = became;
        if let (
            Step::Reserve {
                hits,
                expiry,
                remember_refused,
            },
            Some(id),
        ) = (step, id)
        {
            let fate = if outcome.allowed {
                Fate::Open(expiry.on_expiry)
            } else {
                outcome.reservation = Became::Refused;
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
        }
        if let (Became::Settled | Became::SettledBefore, Some((reserved, committed))) =
            (became, settled)
        {
            outcome.set_settled(Settled {
                reserved,
                committed,
            });
        }
        (outcome, charged)
    }

    /// What was reserved and committed by the newest reservation of the id that is settled.
    fn last_settled(&self, id: Option<Holder>) -> Option<(u64, u64)> {
        let mut its = self.list.iter().rev().filter(|one| Some(one.id) == id);
        its.find_map(|one| match one.fate {
            Fate::Settled(amount) => Some((one.hits, amount)),
            Fate::Open(_) | Fate::Refused => None,
        })
    }
}

impl<M: Model + Default + Clone + PartialEq> Model for Reservations<M> {
    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Outcome {
        let (after, outcome, changed) = self.after(terms, ask, asked_at);
        if changed {
            *self = after;
            self.written_at = outcome.bucket_time.as_us().into();
        }
        outcome
    }
}

// === impl GivesBack ===

impl GivesBack {
    fn operation(self, hits: u64, taken_at: i128) -> Operation {
        match self {
            Self::InFull => Hits::Refund(hits),
            Self::ToItsWindow => Hits::Undo {
                hits,
                taken_at: instant(taken_at),
            },
        }
        .into()
    }
}

// === impl Reservation ===

impl Reservation {
    fn is_open(&self, on_expiry: OnExpiry) -> bool {
        self.fate == Fate::Open(on_expiry)
    }
}

/// So many milliseconds after `now`, or the last timestamp if that is earlier.
fn later(now: i128, ms: u32) -> i128 {
    (now + i128::from(ms) * 1_000).min(Timestamp::MAX_US.into())
}
