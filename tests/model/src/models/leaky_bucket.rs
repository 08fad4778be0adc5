//! A naive model of the leaky bucket: the list of all hits added or removed, replayed at each
//! operation.
//!
//! How: water is counted in 1/window of a hit. A microsecond lets `requests` of them leak, down to
//! an empty bucket. Each entry of the list holds the leak rate up to it, since a reload can have
//! changed it. Law 2 moves every time in the list, so that nothing leaks because of it.
//!
//! What it deliberately does not do: keep a level.

use tollgate_limiter::{Hits, Operation, Outcome};

use super::{
    Counter, Terms, charged, first_instant, greatest_divisor, in_the_present, instant, owed,
    rounded_up, told,
};

#[derive(Clone, Default, PartialEq)]
pub(super) struct LeakyBucket {
    /// Oldest first; one for each operation.
    poured: Vec<Poured>,
}

#[derive(Clone, PartialEq)]
struct Poured {
    at: i128,
    /// What leaks each microsecond before it.
    requests: i128,
    /// A rate counts in steps of the greatest common divisor of its sides. After a reload the water
    /// can be between two steps, and is rounded so that nothing is given away.
    step: i128,
    /// The water added; negative when removed.
    water: i128,
}

// === impl LeakyBucket ===

impl LeakyBucket {
    /// The level after the last entry.
    fn level(&self) -> i128 {
        let mut level = 0;
        let mut since = self.poured.first().map_or(0, |poured| poured.at);
        for poured in &self.poured {
            level = rounded_up(level, poured.step) * poured.step;
            level = (level - poured.requests * (poured.at - since)).max(0);
            level = (level + poured.water).max(0);
            since = poured.at;
        }
        level
    }
}

impl Counter for LeakyBucket {
    fn ask(&mut self, terms: &Terms, ask: Operation, asked_at: i128) -> Outcome {
        let newest = self.poured.last().map_or(0, |poured| poured.at);
        let ahead = newest - asked_at;
        if ahead > terms.window_us {
            for poured in &mut self.poured {
                poured.at -= ahead;
            }
        }
        let newest = self.poured.last().map_or(0, |poured| poured.at);
        let now = asked_at.max(newest);
        self.poured.push(Poured {
            at: now,
            requests: terms.requests,
            step: greatest_divisor(terms.requests, terms.window_us),
            water: 0,
        });

        let hits = in_the_present(ask, now).hits;
        let brim = terms.burst * terms.window_us;
        let before = self.level();
        let used = rounded_up(before, terms.window_us);
        let asked = i128::from(hits.requested()) * terms.window_us;
        let mut allowed = true;
        let water = match hits {
            Hits::Take(_) if before + asked <= brim => asked,
            Hits::Take(taken) => {
                allowed = false;
                owed(terms, used, taken.into()) * terms.window_us
            }
            Hits::Refund(refunded) => -i128::from(refunded) * terms.window_us,
            Hits::Undo { hits, taken_at } => {
                // What could have leaked since counts as gone.
                let gone = terms.requests * (now - i128::from(taken_at.as_us()));
                -(i128::from(hits) * terms.window_us - gone).max(0)
            }
            Hits::Charge(hits) => {
                charged(before.div_euclid(terms.window_us), hits.into()) * terms.window_us
            }
            Hits::Reservation(_) => unreachable!("`Bucket` decides steps"),
        };
        self.poured.last_mut().unwrap().water = water;

        let after = self.level();
        // No more is removed than there was.
        self.poured.last_mut().unwrap().water = after - before;
        let behind_us = now - asked_at;
        // With a rate of at least 1 a step leaks each microsecond.
        let first = |passes: &dyn Fn(i128) -> bool| {
            let level = |us: i128| (after - terms.requests * us).max(0);
            match first_instant(0, after, |us| passes(level(us))) {
                0 => 0,
                us => told(us + behind_us),
            }
        };
        Outcome {
            reservation: tollgate_limiter::ReservationOutcome::None,
            bucket_time: instant(now),
            allowed,
            used_before: told(used),
            remaining: told((brim - after).max(0).div_euclid(terms.window_us)),
            reset_us: if terms.requests == 0 {
                told(terms.window_us + behind_us) // it never empties, and says a window
            } else {
                first(&|level| level == 0)
            },
            retry_us: if allowed {
                Some(0)
            } else if asked <= brim && terms.requests > 0 {
                Some(first(&|level| level + asked <= brim))
            } else {
                None
            },
        }
    }
}
