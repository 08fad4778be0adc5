//! A naive model of the token bucket: the level as an exact fraction, refilled from event to event.
//!
//! How: the level is counted in 1/window of a hit, unreduced: a microsecond fills `requests` of
//! them and a hit costs `window` of them. The model keeps what is missing from a full bucket,
//! because a reload can change the size and must not change what was consumed.
//!
//! What it deliberately does not do: reduce the fraction, or solve for an instant.

use tollgate_limiter::{Hits, Operation, Outcome};

use super::{
    Counter, Terms, charged, first_instant, greatest_divisor, in_the_present, instant, owed,
    rounded_up, told,
};

#[derive(Clone, Default, PartialEq)]
pub(super) struct TokenBucket {
    newest: i128,
    /// Missing from a full bucket, in 1/window of a hit.
    missing: i128,
}

// === impl TokenBucket ===

impl TokenBucket {
    fn missing_after(&self, terms: &Terms, us: i128) -> i128 {
        self.missing
            .saturating_sub(terms.requests.saturating_mul(us))
            .max(0)
    }
}

impl Counter for TokenBucket {
    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Outcome {
        if self.newest - asked_at > terms.window_us {
            self.newest = asked_at; // law 2: what is missing stays missing
        }
        let now = asked_at.max(self.newest);
        // A rate counts in steps of the greatest common divisor of its sides. After a reload what
        // is missing can be between two steps, and is rounded so that nothing is given away.
        let step = greatest_divisor(terms.requests, terms.window_us);
        self.missing = rounded_up(self.missing, step) * step;
        self.missing = self.missing_after(terms, now - self.newest);
        self.newest = now;

        let hits = in_the_present(ask, now).hits;
        let full = terms.burst * terms.window_us;
        let before = self.missing;
        let mut asked = 0;
        let allowed = match hits {
            Hits::Take(taken) => {
                asked = i128::from(taken) * terms.window_us;
                let allowed = before + asked <= full;
                self.missing += if allowed {
                    asked
                } else {
                    let used = rounded_up(before, terms.window_us);
                    owed(terms, used, taken.into()) * terms.window_us
                };
                allowed
            }
            Hits::Refund(refunded) => {
                self.missing = (before - i128::from(refunded) * terms.window_us).max(0);
                true
            }
            Hits::Undo { hits, taken_at } => {
                // The refill since then would have been lost without the take: a full bucket holds
                // no more.
                let come = terms.requests * (now - i128::from(taken_at.as_us()));
                let still = (i128::from(hits) * terms.window_us - come).max(0);
                self.missing = (before - still).max(0);
                true
            }
            Hits::Charge(hits) => {
                let used = rounded_up(before, terms.window_us);
                self.missing += charged(terms, used, hits.into()) * terms.window_us;
                true
            }
            Hits::Reservation(_) => unreachable!("`Bucket` decides steps"),
        };

        let behind_us = now - asked_at;
        // With a rate of at least 1 a step fills each microsecond.
        let first = |passes: &dyn Fn(i128) -> bool| {
            let us = first_instant(0, self.missing, passes);
            told(if us == 0 {
                0
            } else {
                i128::from(told(us)) + behind_us
            })
        };
        Outcome {
            blocked: false,
            reservation: tollgate_limiter::ReservationOutcome::None,
            bucket_time: instant(now),
            allowed,
            used_before: told(rounded_up(before, terms.window_us)),
            remaining: told((full - self.missing).max(0).div_euclid(terms.window_us)),
            reset_us: if terms.requests == 0 {
                told(terms.window_us + behind_us) // it never fills, and says a window
            } else {
                first(&|us| self.missing_after(terms, us) == 0)
            },
            retry_us: if allowed {
                Some(0)
            } else if asked <= full && terms.requests > 0 {
                Some(first(&|us| self.missing_after(terms, us) + asked <= full))
            } else {
                None
            },
        }
    }
}
