//! A naive model of the token bucket that refills once per window: what is missing, and the edges
//! between two operations.
//!
//! How: an edge is a multiple of the window. N hits come at each. Retry and reset are found by
//! trying instants.
//!
//! What it deliberately does not do: solve for the number of edges.

use tollgate_limiter::{Hits, Operation, Outcome};

use super::{Counter, Terms, charged, first_instant, in_the_present, instant, owed, told};

#[derive(Clone, Default, PartialEq)]
pub(super) struct TokenBucketInterval {
    newest: i128,
    /// Missing from a full bucket, in hits.
    missing: i128,
}

/// The hits that come after `from`, up to and including `until`.
fn come(terms: &Terms, from: i128, until: i128) -> i128 {
    terms.requests * (terms.number_of(until) - terms.number_of(from))
}

impl Counter for TokenBucketInterval {
    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Outcome {
        if self.newest - asked_at > terms.window_us {
            self.newest = asked_at; // law 2: what is missing stays missing
        }
        let now = asked_at.max(self.newest);
        self.missing = (self.missing - come(terms, self.newest, now)).max(0);
        self.newest = now;

        let hits = in_the_present(ask, now).hits;
        let before = self.missing;
        let allowed = match hits {
            Hits::Take(taken) => {
                let taken = i128::from(taken);
                let allowed = before + taken <= terms.burst;
                self.missing += if allowed {
                    taken
                } else {
                    owed(terms, before, taken)
                };
                allowed
            }
            Hits::Refund(refunded) => {
                self.missing = (before - i128::from(refunded)).max(0);
                true
            }
            Hits::Undo { hits, taken_at } => {
                // The refill since then would have been lost without the take: a full bucket holds
                // no more.
                let still = i128::from(hits) - come(terms, taken_at.as_us().into(), now);
                self.missing = (before - still.max(0)).max(0);
                true
            }
            Hits::Charge(hits) => {
                self.missing += charged(terms, before, hits.into());
                true
            }
            Hits::Reservation(_) => unreachable!("`Bucket` decides steps"),
        };

        let missing_at = |time: i128| (self.missing - come(terms, now, time)).max(0);
        let first = |passes: &dyn Fn(i128) -> bool| {
            let surely = now + (self.missing + 1) * terms.window_us;
            told(first_instant(now, surely, passes) - asked_at)
        };
        let asked = i128::from(hits.requested());
        Outcome {
            blocked: false,
            reservation: tollgate_limiter::ReservationOutcome::None,
            bucket_time: instant(now),
            allowed,
            used_before: told(before),
            remaining: told((terms.burst - self.missing).max(0)),
            reset_us: if self.missing == 0 {
                0
            } else if terms.requests == 0 {
                told(terms.window_us + now - asked_at) // it never fills, and says a window
            } else {
                first(&|time| missing_at(time) == 0)
            },
            retry_us: if allowed {
                Some(0)
            } else if asked <= terms.burst && terms.requests > 0 {
                Some(first(&|time| missing_at(time) + asked <= terms.burst))
            } else {
                None
            },
        }
    }
}
