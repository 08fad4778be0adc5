//! Sliding window: the present window's count, plus the previous one's, weighted by its overlap.
//!
//! The idea: a fixed window lets nine in at second 59 and ten more at second 61. Weighing the
//! previous window's count by the part that the last window length still covers smooths the edge,
//! for two numbers a bucket.
//!
//! The promise: the previous window's count, weighted by what is left of it, plus this one's, at
//! most N. It estimates "any window": it assumes that the previous window's hits came evenly.
//!
//! The arithmetic, exact in whole numbers: with W the window and e the time elapsed in it, hits
//! pass when previous × (W − e) + (present + hits) × W ≤ N × W. Each product is below 2^118.
//! Refused hits are not counted by default.
//!
//! Cost: a division or two of 128 bits, and two registers.
//!
//! Registers: the present window's count, the previous one's. The present window is the one that
//! contains `updated_at`.
//!
//! What it deliberately does not do: know when in a window a hit came (`sliding_window_segments`
//! knows it roughly, `sliding_log` exactly).

use super::{
    Algorithm, AlgorithmOption, Facts, Hits, LeasePolicy, Limit, MostAdmitted, Operation, Outcome,
    REGISTER_MAX, ReservationOutcome, SlidingWindowSegments, State, Timestamp, charged, debt,
};

/// The `sliding_window` algorithm.
#[derive(Debug)]
pub struct SlidingWindow;

/// Two adjoining windows at one instant.
struct Counts {
    /// Hits in the window before the present one.
    previous: u64,
    /// Hits in the present window.
    present: u64,
    /// The length of the window.
    window_us: u64,
    /// The time elapsed in the present window: less than its length.
    elapsed_us: u64,
}

// === impl Counts ===

impl Counts {
    fn at(limit: &Limit, (seen, registers): (Timestamp, [u64; 2]), now: Timestamp) -> Self {
        let window = limit.window();
        let start = window.start_of(now);
        let [present, previous] = registers;
        let (previous, present) = if seen >= start {
            (previous, present)
        } else if seen.plus_us(window.as_us()) >= start {
            (present, 0)
        } else {
            (0, 0)
        };
        Self {
            previous,
            present,
            window_us: window.as_us(),
            elapsed_us: window.elapsed_us(now),
        }
    }

    /// The hits that count now, in 1/window of a hit.
    fn used(&self) -> u128 {
        let left_us = self.window_us.saturating_sub(self.elapsed_us);
        u128::from(self.previous)
            .saturating_mul(u128::from(left_us))
            .saturating_add(self.scaled(self.present))
    }

    /// Hits in 1/window of a hit.
    fn scaled(&self, hits: u64) -> u128 {
        u128::from(hits).saturating_mul(u128::from(self.window_us))
    }

    /// Gives hits back, first those of the present window, which weigh most.
    fn refund(&mut self, hits: u64) {
        let from_previous = hits.saturating_sub(self.present);
        self.present = self.present.saturating_sub(hits);
        self.previous = self.previous.saturating_sub(from_previous);
    }

    /// Gives hits back to the window they were taken from, while it counts.
    fn undo(&mut self, hits: u64, taken_at: Timestamp, now: Timestamp) {
        let ago_us = now.since_us(taken_at);
        if ago_us <= self.elapsed_us {
            self.present = self.present.saturating_sub(hits);
        } else if ago_us <= self.elapsed_us.saturating_add(self.window_us) {
            self.previous = self.previous.saturating_sub(hits);
        }
    }

    /// The time until the bucket is unused again: until the last window with a hit has slid out.
    fn reset_us(&self) -> u64 {
        let to_edge_us = self.window_us.saturating_sub(self.elapsed_us);
        match (self.present, self.previous) {
            (0, 0) => 0,
            (0, _) => to_edge_us,
            _ => to_edge_us.saturating_add(self.window_us),
        }
    }

    /// The time until refused `hits` would first pass; none when they exceed the limit.
    fn retry_us(&self, requests: u64, hits: u64) -> Option<u64> {
        let headroom = requests.checked_sub(hits)?;
        // In the present window, the previous one's weight must fall until it fits beside the
        // present count.
        if let Some(headroom) = headroom.checked_sub(self.present) {
            let at_us = self.weight_fits_at_us(self.previous, headroom);
            if at_us < self.window_us {
                return Some(at_us.saturating_sub(self.elapsed_us));
            }
        }
        // In the next one, the present count's weight must fall until it fits.
        let to_edge_us = self.window_us.saturating_sub(self.elapsed_us);
        Some(to_edge_us.saturating_add(self.weight_fits_at_us(self.present, headroom)))
    }

    /// The time in a window at which a count of the window before weighs no more than `headroom`
    /// hits.
    fn weight_fits_at_us(&self, count: u64, headroom: u64) -> u64 {
        // count × (W − e) ≤ headroom × W, so W − e ≤ headroom × W / count. A count of 0 fits at
        // once.
        let left_us = match self.scaled(headroom).checked_div(u128::from(count)) {
            None => self.window_us,
            Some(left_us) => u64::try_from(left_us).unwrap_or(u64::MAX),
        };
        self.window_us.saturating_sub(left_us)
    }
}

static FACTS: Facts = Facts {
    variants: &[(AlgorithmOption::Segments, &SlidingWindowSegments)],
    window_max_us: Timestamp::MAX_US / 2,
    lease_policy: LeasePolicy::AnyAge,
    ..Facts::new(
        "sliding_window",
        "the previous window's count, weighted by what is left of it, plus this one's, at most N",
        &[AlgorithmOption::Segments, AlgorithmOption::CountRefused],
    )
};

// === impl SlidingWindow ===

impl Algorithm for SlidingWindow {
    fn facts(&self) -> &Facts {
        &FACTS
    }

    fn most_admitted(&self, limit: &Limit, span_us: u64) -> Option<MostAdmitted> {
        let us = span_us.saturating_sub(2);
        Some(match span_us {
            1 => MostAdmitted::constant(limit.requests()),
            _ => MostAdmitted::growing(limit.requests(), limit, us),
        })
    }

    fn decide(
        &self,
        limit: &Limit,
        state: &mut State,
        operation: Operation,
        now: Timestamp,
    ) -> Outcome {
        let mut counts = Counts::at(limit, (state.updated_at, state.registers), now);
        let window_us = u128::from(counts.window_us);
        let before = counts.used();
        let used_before = u64::try_from(before.div_ceil(window_us))
            .unwrap_or(REGISTER_MAX)
            .min(REGISTER_MAX);
        let most = counts.scaled(limit.requests());
        let allowed = match operation.hits {
            Hits::Take(hits) => {
                let allowed = before.saturating_add(counts.scaled(hits)) <= most;
                let counted = if allowed {
                    hits
                } else {
                    debt(self, limit, used_before, hits)
                };
                counts.present = counts.present.saturating_add(counted).min(REGISTER_MAX);
                allowed
            }
            Hits::Charge(hits) => {
                counts.present = counts
                    .present
                    .saturating_add(charged(self, counts.present, hits));
                true
            }
            Hits::Reservation(_) => false,
            Hits::Refund(hits) => {
                counts.refund(hits);
                true
            }
            Hits::Undo { hits, taken_at } => {
                counts.undo(hits, taken_at, now);
                true
            }
        };
        state.registers = [counts.present, counts.previous];

        let remaining = most
            .saturating_sub(counts.used())
            .checked_div(window_us)
            .unwrap_or(0);
        Outcome {
            bucket_time: now,
            reservation: ReservationOutcome::None,
            blocked: false,
            allowed,
            used_before,
            remaining: u64::try_from(remaining).unwrap_or(u64::MAX),
            reset_us: counts.reset_us(),
            retry_us: if allowed {
                Some(0)
            } else {
                counts.retry_us(limit.requests(), operation.hits.requested())
            },
        }
    }

    fn changed(
        &self,
        limit: &Limit,
        was: (Timestamp, [u64; 2]),
        state: &State,
        _ask: Operation,
        outcome: &Outcome,
    ) -> bool {
        let was = Counts::at(limit, was, outcome.bucket_time);
        state.registers != [was.present, was.previous]
    }

    fn ttl_us(&self, limit: &Limit) -> u64 {
        limit.window().as_us().saturating_mul(2)
    }
}
