//! A naive model of the sliding window: a list of every hit counted and its time, summed at each
//! operation.
//!
//! How: the hits used at an instant are computed in 1/window of a hit, from the list. They only
//! fall without further operations, so retry and reset are the first instants at which they have
//! fallen far enough, found by trying.
//!
//! What it deliberately does not do: keep a count.

use tollgate_limiter::{Hits, Operation, Outcome};

use super::{Counter, Operated, Terms, charged, in_the_present, owed, rounded_up};

#[derive(Clone, Default, PartialEq)]
pub(super) struct SlidingWindow {
    newest: i128,
    /// Time and hits, oldest first.
    counted: Vec<(i128, i128)>,
}

// === impl SlidingWindow ===

impl SlidingWindow {
    /// The count of the window with this number.
    fn count(&self, terms: &Terms, number: i128) -> i128 {
        self.counted
            .iter()
            .filter(|(time, _)| time.div_euclid(terms.window_us) == number)
            .map(|(_, hits)| hits)
            .sum()
    }

    /// The hits that count at `time`, in 1/window of a hit.
    fn used(&self, terms: &Terms, time: i128) -> i128 {
        let number = time.div_euclid(terms.window_us);
        let left_us = terms.window_us - time.rem_euclid(terms.window_us);
        self.count(terms, number - 1) * left_us + self.count(terms, number) * terms.window_us
    }

    /// Law 2: this window's hits move to `present`, and the last one's to a window before it.
    fn bring_back(&mut self, terms: &Terms, present: i128) {
        let number = self.newest.div_euclid(terms.window_us);
        for (time, hits) in &mut self.counted {
            let ago = number - time.div_euclid(terms.window_us);
            *time = present - ago * terms.window_us;
            if ago > 1 {
                *hits = 0; // long gone, and must not come back with the clock
            }
        }
        self.newest = present;
    }

    /// Gives hits back, newest first, that were taken in any of the given windows.
    fn give_back(&mut self, terms: &Terms, mut hits: i128, meant: impl Fn(i128) -> bool) {
        for (time, counted) in self.counted.iter_mut().rev() {
            if meant(time.div_euclid(terms.window_us)) {
                let back = hits.min(*counted);
                *counted -= back;
                hits -= back;
            }
        }
    }
}

impl Counter for SlidingWindow {
    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Outcome {
        if self.newest - asked_at > terms.window_us {
            self.bring_back(terms, asked_at);
        }
        let now = asked_at.max(self.newest);
        self.newest = now;

        let hits = in_the_present(ask, now).hits;
        let most = terms.requests * terms.window_us;
        let before = self.used(terms, now);
        let allowed = match hits {
            Hits::Take(taken) => {
                let allowed = before + i128::from(taken) * terms.window_us <= most;
                let counted = if allowed {
                    taken.into()
                } else {
                    owed(terms, rounded_up(before, terms.window_us), taken.into())
                };
                if counted > 0 {
                    self.counted.push((now, counted));
                }
                allowed
            }
            Hits::Refund(refunded) => {
                self.give_back(terms, refunded.into(), |_| true);
                true
            }
            Hits::Undo { hits, taken_at } => {
                let number = i128::from(taken_at.as_us()).div_euclid(terms.window_us);
                self.give_back(terms, hits.into(), |other| other == number);
                true
            }
            Hits::Charge(hits) => {
                let present = self.count(terms, now.div_euclid(terms.window_us));
                let counted = charged(terms, present, hits.into());
                if counted > 0 {
                    self.counted.push((now, counted));
                }
                true
            }
            Hits::Reservation(_) => unreachable!("`Bucket` decides steps"),
        };

        // Hits that have slid out no longer count, whatever is given back.
        let previous = now.div_euclid(terms.window_us) - 1;
        self.counted
            .retain(|(time, _)| time.div_euclid(terms.window_us) >= previous);
        Operated {
            hits,
            allowed,
            before,
            asked_at,
            now,
            gone: now + 2 * terms.window_us,
        }
        .outcome(terms, terms.window_us, |time| self.used(terms, time))
    }
}
