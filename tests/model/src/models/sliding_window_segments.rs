//! A naive model of the sliding window in segments: a list of every hit counted and the start of
//! its segment.
//!
//! How: segments are numbered from 1970. The number of an instant is the instant times n over the
//! window, rounded down. A segment begins with the first instant that has its number, found by
//! trying. Hits of a segment count for less than a window after its start.
//!
//! Why the start is kept and not the number: a reload to another n renumbers segments, and earlier
//! hits still leave with the segment they came in.
//!
//! What it deliberately does not do: keep a count for each segment.

use tollgate_limiter::{Hits, Operation, Outcome};

use super::{Counter, Terms, first_instant, in_the_present, instant, owed, told};

#[derive(Clone, Default, PartialEq)]
pub(super) struct SlidingWindowSegments {
    newest: i128,
    /// Start of the segment and hits; oldest first.
    counted: Vec<(i128, i128)>,
}

fn begin_of_segment(terms: &Terms, time: i128) -> i128 {
    let number = |time: i128| (time * terms.segments).div_euclid(terms.window_us);
    first_instant(time - terms.window_us, time, |earlier| {
        number(earlier) == number(time)
    })
}

// === impl SlidingWindowSegments ===

impl SlidingWindowSegments {
    fn used(&self, terms: &Terms, time: i128) -> i128 {
        let inside = |begin: i128| time < begin + terms.window_us;
        let counted = self.counted.iter().filter(|(begin, _)| inside(*begin));
        counted.map(|(_, hits)| hits).sum()
    }

    fn give_back(&mut self, mut hits: i128, meant: impl Fn(i128) -> bool) {
        for (begin, counted) in &mut self.counted {
            if meant(*begin) {
                let back = hits.min(*counted);
                *counted -= back;
                hits -= back;
            }
        }
    }
}

impl Counter for SlidingWindowSegments {
    fn forget_expired(&mut self, terms: &Terms, now: i128) {
        self.counted
            .retain(|(begin, _)| now < begin + terms.window_us);
    }

    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Outcome {
        let ahead = self.newest - asked_at;
        if ahead > terms.window_us {
            for (begin, _) in &mut self.counted {
                *begin = (*begin - ahead).max(0);
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
                // After law 2 a stored time can be in the present segment, later than its start.
                let begin = begin_of_segment(terms, now);
                let older = self.counted.iter().filter(|(other, _)| *other <= begin);
                let place = older.count();
                if counted > 0 {
                    self.counted.insert(place, (begin, counted));
                }
                allowed
            }
            Hits::Refund(refunded) => {
                self.give_back(refunded.into(), |_| true);
                true
            }
            Hits::Undo { hits, taken_at } => {
                let meant = begin_of_segment(terms, taken_at.as_us().into());
                self.give_back(hits.into(), |begin| begin == meant);
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
