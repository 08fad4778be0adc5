//! A naive model of concurrency: a list of holders, slots and times.
//!
//! How: a slot counts until it expires. A peek with an id renews all slots of that id. Slots of one
//! id are freed oldest first. Law 2 moves every time in the list.
//!
//! What it deliberately does not do: keep a sum, or sort the list.

use tollgate_limiter::{Hits, Holder, Operation, Outcome};

use super::{Counter, Operated, Terms, in_the_present};

#[derive(Clone, Default, PartialEq)]
pub(super) struct Concurrency {
    newest: i128,
    held: Vec<Held>,
    /// How many slots were ever renewed.
    renewed: i128,
}

#[derive(Clone, PartialEq)]
struct Held {
    by: Option<Holder>,
    since: i128,
    slots: i128,
}

// === impl Concurrency ===

impl Concurrency {
    fn in_flight(&self, terms: &Terms, time: i128) -> i128 {
        let live = self
            .held
            .iter()
            .filter(|held| time < held.since + terms.window_us);
        live.map(|held| held.slots).sum()
    }

    fn free(&mut self, mut slots: i128, meant: impl Fn(&Held) -> bool) {
        while slots > 0 {
            let meant = self
                .held
                .iter_mut()
                .filter(|held| held.slots > 0 && meant(held));
            let Some(oldest) = meant.min_by_key(|held| held.since) else {
                break;
            };
            let freed = slots.min(oldest.slots);
            oldest.slots -= freed;
            slots -= freed;
        }
    }
}

impl Counter for Concurrency {
    /// An expired slot stays free, also when a reload makes slots last longer.
    fn forget_expired(&mut self, terms: &Terms, now: i128) {
        self.held
            .retain(|held| held.slots > 0 && now < held.since + terms.window_us);
    }

    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Outcome {
        let ahead = self.newest - asked_at;
        if ahead > terms.window_us {
            for held in &mut self.held {
                held.since = (held.since - ahead).max(0);
            }
            self.newest = asked_at;
        }
        let now = asked_at.max(self.newest);
        self.newest = now;
        self.forget_expired(terms, now);

        let Operation { hits, holder } = in_the_present(ask, now);
        let before = self.in_flight(terms, now);
        let allowed = match hits {
            Hits::Take(0) => {
                for held in &mut self.held {
                    if held.by == holder && holder.is_some() {
                        held.since = now;
                        self.renewed += held.slots;
                    }
                }
                before <= terms.requests
            }
            Hits::Take(taken) => {
                let allowed = before + i128::from(taken) <= terms.requests;
                if allowed {
                    self.held.push(Held {
                        by: holder,
                        since: now,
                        slots: taken.into(),
                    });
                }
                allowed
            }
            Hits::Refund(freed) => {
                self.free(freed.into(), |held| held.by == holder);
                true
            }
            Hits::Undo { hits, taken_at } => {
                let taken_at = i128::from(taken_at.as_us());
                self.free(hits.into(), |held| {
                    held.by == holder && held.since == taken_at
                });
                true
            }
            Hits::Charge(_) | Hits::Reservation(_) => {
                unreachable!("these histories have no reservations")
            }
        };
        Operated {
            hits,
            allowed,
            before,
            asked_at,
            now,
            gone: now + terms.window_us,
        }
        .outcome(terms, 1, |time| self.in_flight(terms, time))
    }
}
