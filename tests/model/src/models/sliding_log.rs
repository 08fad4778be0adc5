//! A naive model of the sliding log, and of the sliding window in segments: a list of every hit
//! counted and the time from which it counts for a window.
//!
//! How: in a log that is the time of the hit; in segments the start of its segment. Segments are
//! numbered from 1970. The number of an instant is the instant times n over the window, rounded
//! down. A segment begins with the first instant that has its number, found by trying.
//!
//! Why the start is kept and not the number: a reload to another n renumbers segments, and earlier
//! hits still leave with the segment they came in.
//!
//! What it deliberately does not do: keep a sum, or merge hits of one instant.

use tollgate_limiter::{Hits, Operation, Outcome};

use super::{Counter, Operated, Terms, first_instant, in_the_present, owed};

/// With or without segments.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Log<const SEGMENTS: bool> {
    newest: i128,
    /// Time and hits, oldest first.
    log: Vec<(i128, i128)>,
}

pub(super) type SlidingLog = Log<false>;

pub(super) type SlidingWindowSegments = Log<true>;

// === impl Log ===

impl<const SEGMENTS: bool> Log<SEGMENTS> {
    /// The time from which a hit of `time` counts.
    fn begin(terms: &Terms, time: i128) -> i128 {
        if !SEGMENTS {
            return time;
        }
        let number = |time: i128| (time * terms.segments).div_euclid(terms.window_us);
        first_instant(time - terms.window_us, time, |earlier| {
            number(earlier) == number(time)
        })
    }

    fn used(&self, terms: &Terms, time: i128) -> i128 {
        let young = |at: i128| time < at + terms.window_us;
        let young = self.log.iter().filter(|(at, _)| young(*at));
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

impl<const SEGMENTS: bool> Counter for Log<SEGMENTS> {
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
        let allowed = match hits {
            Hits::Take(taken) => {
                let allowed = before + i128::from(taken) <= terms.requests;
                let counted = if allowed {
                    taken.into()
                } else {
                    owed(terms, before, taken.into())
                };
                // After law 2 a stored time can be in the present segment, later than its start.
                let begin = Self::begin(terms, now);
                let older = self.log.iter().filter(|(at, _)| *at <= begin).count();
                if counted > 0 {
                    // Deep in debt they count from the newest hit.
                    match self.log.iter_mut().rfind(|(_, logged)| *logged > 0) {
                        Some((_, newest)) if before >= 2 * terms.burst => *newest += counted,
                        _ => self.log.insert(older, (begin, counted)),
                    }
                }
                allowed
            }
            Hits::Refund(refunded) => {
                self.give_back(refunded.into(), |_| true);
                true
            }
            Hits::Undo { hits, taken_at } => {
                let begin = Self::begin(terms, taken_at.as_us().into());
                self.give_back(hits.into(), |at| at == begin);
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
        .outcome(terms, 1, |time| self.used(terms, time))
    }
}
