//! A naive model of the sliding log: a list of every hit counted and its time, of which those
//! younger than a window count.
//!
//! How: retry and reset are found by trying instants. Law 2 moves every time in the list.
//!
//! What it deliberately does not do: keep a sum, or merge hits of one instant.

use tollgate_limiter::{Hits, Operation, Outcome};

use super::{Counter, Terms, first_instant, in_the_present, instant, owed, told};

#[derive(Clone, Default, PartialEq)]
pub(super) struct SlidingLog {
    newest: i128,
    /// Time and hits, oldest first.
    log: Vec<(i128, i128)>,
}

// === impl SlidingLog ===

impl SlidingLog {
    fn used(&self, terms: &Terms, time: i128) -> i128 {
        let young = self
            .log
            .iter()
            .filter(|(at, _)| time < at + terms.window_us);
        young.map(|(_, hits)| hits).sum()
    }

    fn give_back(&mut self, mut hits: i128, meant: impl Fn(i128) -> bool) {
        for (at, logged) in &mut self.log {
            if meant(*at) {
                let back = hits.min(*logged);
                *logged -= back;
                hits -= back;
            }
        }
    }
}

impl Counter for SlidingLog {
    /// A hit that is a window old never counts again, whatever the clock does.
    fn forget_expired(&mut self, terms: &Terms, now: i128) {
        self.log.retain(|(at, _)| now < at + terms.window_us);
    }

    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Outcome {
        let ahead = self.newest - asked_at;
        if ahead > terms.window_us {
            for (at, _) in &mut self.log {
                *at = (*at - ahead).max(0);
            }
            self.newest = asked_at;
        }
        let now = asked_at.max(self.newest);
        self.newest = now;
        self.forget_expired(terms, now);

        let hits = in_the_present(ask, now).hits;
        let before = self.used(terms, now);
        let fits = |model: &Self, time: i128, taken: u64| {
            model.used(terms, time) + i128::from(taken) <= terms.requests
        };
        let allowed = match hits {
            Hits::Take(taken) => {
                let allowed = fits(self, now, taken);
                let counted = if allowed {
                    taken.into()
                } else {
                    owed(terms, before, taken.into())
                };
                if counted > 0 {
                    self.log.push((now, counted));
                }
                allowed
            }
            Hits::Refund(refunded) => {
                self.give_back(refunded.into(), |_| true);
                true
            }
            Hits::Undo { hits, taken_at } => {
                self.give_back(hits.into(), |at| at == i128::from(taken_at.as_us()));
                true
            }
            Hits::Charge(_) | Hits::Reservation(_) => {
                unreachable!("these histories have no reservations")
            }
        };

        let after = self.used(terms, now);
        let first = |passes: &dyn Fn(i128) -> bool| {
            told(first_instant(now, now + terms.window_us, passes) - asked_at)
        };
        Outcome {
            reservation: tollgate_limiter::ReservationOutcome::None,
            bucket_time: instant(now),
            allowed,
            used_before: told(before),
            remaining: told((terms.requests - after).max(0)),
            reset_us: if after == 0 {
                0
            } else {
                first(&|time| self.used(terms, time) == 0)
            },
            retry_us: match hits {
                _ if allowed => Some(0),
                Hits::Take(taken) if i128::from(taken) <= terms.requests => {
                    Some(first(&|time| fits(self, time, taken)))
                }
                _ => None,
            },
        }
    }
}
