//! Reservations of the recount: a list that is searched at each step.
//!
//! How: a step is a take, a refund, an undo or a charge of the recounted bucket.
//!
//! What it deliberately does not do: bound the list.

use tollgate_limiter::{CountRefused, Hits, OnExpiry, Otherwise, ReservationOutcome, Step};

use super::{Became, CheckInput, Counted, Fate, PossibleState, Reservation};
use crate::scenario::Terms;

const NOTHING: Hits = Hits::Refund(0);

// === impl PossibleState ===

impl PossibleState {
    /// An operation on a bucket that has reservations, or a step of one.
    pub(super) fn ask_with_reservations(
        &mut self,
        terms: &Terms,
        asked: CheckInput,
        asked_at: i128,
    ) -> Counted {
        let was = self.clone();
        let window_us = i128::from(terms.window_us());
        let newest = self.newest.unwrap_or(asked_at);
        let brought_back = newest - asked_at > window_us;
        if brought_back {
            self.bring_back(window_us, asked_at);
        }
        let now = self.newest.unwrap_or(asked_at).max(asked_at);
        let had_some = !self.reservations.is_empty();
        let Hits::Reservation(step) = asked.hits else {
            let is_due =
                |one: &Reservation| one.until <= now && one.fate == Fate::Open(OnExpiry::Release);
            if self.reservations.iter().any(is_due) {
                self.end_due(terms, (asked_at, now));
                return self.used_at(terms, asked, asked_at);
            }
            if brought_back {
                return self.used_at(terms, asked, asked_at);
            }
            return self.ask_plainly(terms, asked, asked_at);
        };
        self.end_due(terms, (asked_at, now));
        let uncounted = Terms {
            count_refused: Some(CountRefused::None),
            ..*terms
        };
        let (hits, became) = match asked.holder {
            Some(id) => self.step(terms, step, id, now),
            None => unreachable!("every step has an id here"),
        };
        let input = CheckInput { hits, holder: None };
        let said = self.used_at(&uncounted, input, asked_at);
        self.became = became;
        if let (
            Step::Reserve {
                hits,
                expiry,
                remember_refused,
            },
            Some(id),
        ) = (step, asked.holder)
        {
            let (fate, became) = if said.allowed {
                (Fate::Open(expiry.on_expiry), ReservationOutcome::Reserved)
            } else {
                (Fate::Refused, ReservationOutcome::Refused)
            };
            self.became = (became, None);
            if said.allowed || remember_refused {
                self.reservations.push(Reservation {
                    id,
                    hits,
                    at: now,
                    until: now + i128::from(expiry.after_ms.get()) * 1_000,
                    fate,
                });
            }
        }
        let remembers = had_some || !self.reservations.is_empty();
        let is_written = brought_back || remembers || hits.can_fill() && said.allowed;
        if !is_written {
            *self = Self {
                requests: terms.requests.into(),
                became: self.became,
                ..was
            };
        }
        said
    }

    /// Ends what is due.
    fn end_due(&mut self, terms: &Terms, (asked_at, now): (i128, i128)) {
        for one in self.reservations.clone() {
            if one.until <= now && one.fate == Fate::Open(OnExpiry::Release) {
                let input = CheckInput {
                    hits: given_back(terms, one.hits, one.at),
                    holder: None,
                };
                self.used_at(terms, input, asked_at);
            }
        }
        self.reservations.retain(|one| one.until > now);
    }

    /// What a step does in the bucket, and what becomes of it.
    fn step(&mut self, terms: &Terms, step: Step, id: usize, now: i128) -> (Hits, Became) {
        use ReservationOutcome as To;
        let of = move |one: &Reservation| one.id == id;
        let open = move |one: &Reservation| of(one) && matches!(one.fate, Fate::Open(_));
        let refused = move |one: &Reservation| of(one) && one.fate == Fate::Refused;
        let first_open = self.reservations.iter().position(open);
        let settled = self.reservations.iter().rev().filter(|one| of(one));
        let settled = settled.into_iter().find_map(|one| match one.fate {
            Fate::Settled(amount) => Some((one.hits, amount)),
            Fate::Open(_) | Fate::Refused => None,
        });
        match (step, first_open) {
            (Step::Reserve { hits, .. }, _) => (Hits::Take(hits), (To::Reserved, None)),
            (Step::Commit { .. } | Step::Release, Some(place)) => {
                let amount = step.hits();
                let one = &mut self.reservations[place];
                one.fate = Fate::Settled(amount);
                let hits = match amount.checked_sub(one.hits) {
                    Some(excess) if excess > 0 => Hits::Charge(excess),
                    _ => given_back(terms, one.hits - amount, one.at),
                };
                (hits, (To::Settled, Some((one.hits, amount))))
            }
            (Step::Extend(ms), Some(_)) => {
                for one in self.reservations.iter_mut().filter(|one| open(one)) {
                    one.until = now + i128::from(ms.get()) * 1_000;
                }
                (NOTHING, (To::Extended, None))
            }
            (
                Step::Withdraw {
                    taken_at,
                    remember_refused,
                },
                Some(_),
            ) => {
                let taken = i128::from(taken_at.as_us());
                let that = |one: &Reservation| open(one) && one.at == taken;
                let Some(place) = self.reservations.iter().rposition(that) else {
                    return (NOTHING, (To::Unknown, None));
                };
                let hits = self.reservations[place].hits;
                self.reservations[place].fate = Fate::Refused;
                if !remember_refused {
                    self.reservations.remove(place);
                }
                (Hits::Undo { hits, taken_at }, (To::Withdrawn, None))
            }
            (Step::Commit { hits, otherwise }, None) => {
                let refused = self.reservations.iter().position(refused);
                match (otherwise, refused) {
                    (Otherwise::Charge, Some(place)) => {
                        self.reservations.remove(place);
                        (NOTHING, (To::Ignored, None))
                    }
                    (Otherwise::Unknown | Otherwise::ChargeOnce, _) if settled.is_some() => {
                        (NOTHING, (To::SettledBefore, settled))
                    }
                    (Otherwise::Unknown, _) => (NOTHING, (To::Unknown, None)),
                    _ => (Hits::Charge(hits), (To::Charged, None)),
                }
            }
            (Step::Release, None) if settled.is_some() => (NOTHING, (To::SettledBefore, settled)),
            (Step::Release | Step::Extend(_) | Step::Withdraw { .. }, None) => {
                (NOTHING, (To::Unknown, None))
            }
        }
    }
}

/// How hits of that time go back.
fn given_back(terms: &Terms, hits: u64, at: i128) -> Hits {
    match terms.algorithm {
        "fixed_window" | "sliding_window" => Hits::Undo {
            hits,
            taken_at: tollgate_limiter::Timestamp::from_us(u64::try_from(at).unwrap()),
        },
        _ => Hits::Refund(hits),
    }
}
