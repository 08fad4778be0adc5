//! Fixed window: counts hits in each aligned window, and starts again at the next.
//!
//! The idea: the only algorithm of Envoy's reference service. The arithmetic below is that of the
//! service: straddling hits count whole, refused hits count, a peek passes at exactly the limit.
//! With a calendar the windows are calendar days, weeks, months or years.
//!
//! The promise: at most N in each aligned window; up to 2N across an edge. By default refused hits
//! are counted until the window ends, so a caller that keeps retrying gets no more than one that
//! waits.
//!
//! Cost: an addition and a comparison. With a calendar, a look-up of the window without an
//! allocation.
//!
//! A raised limit: hits that only a lower limit refused no longer count, and as many more pass as
//! the limit was raised by. So stores agree that count a refused hit, and caches that hide it.
//!
//! Registers: the count, and how much of it was refused beyond a full window. Its window is the one
//! that contains `updated_at`.
//!
//! What it deliberately does not do: split hits that straddle the limit, or take back hits that it
//! refused.

use super::{
    Algorithm, AlgorithmOption, CountRefused, Facts, Hits, LeasePolicy, Limit, MostAdmitted,
    Operation, Outcome, REGISTER_MAX, ReservationOutcome, State, Timestamp, charged, debt,
};

/// The `fixed_window` algorithm.
#[derive(Debug)]
pub struct FixedWindow;

static FACTS: Facts = Facts {
    default_count_refused: CountRefused::Blocking,
    lease_policy: LeasePolicy::UntilReset,
    ..Facts::new(
        "fixed_window",
        "at most N in each aligned window; up to 2N across an edge",
        &[AlgorithmOption::Calendar, AlgorithmOption::CountRefused],
    )
};

// === impl FixedWindow ===

impl Algorithm for FixedWindow {
    fn facts(&self) -> &Facts {
        &FACTS
    }

    fn most_admitted(&self, limit: &Limit, span_us: u64) -> Option<MostAdmitted> {
        let windows = span_us.min(2);
        Some(MostAdmitted::constant(
            limit.requests().saturating_mul(windows),
        ))
    }

    fn decide(
        &self,
        limit: &Limit,
        state: &mut State,
        operation: Operation,
        now: Timestamp,
    ) -> Outcome {
        let window = limit.window_at(now);
        let same_window = state.updated_at >= window.start;
        let [mut before, beyond] = if same_window { state.registers } else { [0, 0] };
        // The count of the full window that refused hits.
        let mut full = (beyond > 0).then(|| before.saturating_sub(beyond));
        if let Some(raised) = full.take_if(|full| limit.requests() > *full) {
            before = raised;
        }
        let (after, allowed) = match operation.hits {
            Hits::Take(hits) => {
                let after = before.saturating_add(hits);
                if after <= limit.requests() {
                    (after, true)
                } else {
                    (self.refused(limit, before, hits), false)
                }
            }
            Hits::Charge(hits) => {
                let added = charged(self, before, hits);
                (before.saturating_add(added), true)
            }
            Hits::Reservation(_) => (before, false),
            Hits::Refund(hits) => (before.saturating_sub(hits), true),
            Hits::Undo { hits, taken_at } if taken_at >= window.start => {
                (before.saturating_sub(hits), true)
            }
            // The window they were taken from has ended.
            Hits::Undo { .. } => (before, true),
        };
        match operation.hits {
            Hits::Take(_) if !allowed && counts_blocked(limit) => {
                full = Some(full.unwrap_or(before).max(limit.requests()));
            }
            Hits::Charge(_) => {
                let charged = after.saturating_sub(before);
                full = full.map(|full| full.saturating_add(charged));
            }
            _ => {}
        }
        state.registers = [after, full.map_or(0, |full| after.saturating_sub(full))];

        let to_edge_us = match limit.calendar() {
            None => limit
                .window()
                .as_us()
                .saturating_sub(limit.window().elapsed_us(now)),
            // A calendar ends with the last timestamp, and no window follows. Never report 0.
            Some(_) => window.end.since_us(now).max(1),
        };
        Outcome {
            bucket_time: now,
            reservation: ReservationOutcome::None,
            blocked: false,
            allowed,
            used_before: before,
            remaining: limit.requests().saturating_sub(after),
            reset_us: to_edge_us,
            retry_us: if allowed {
                Some(0)
            } else {
                (operation.hits.requested() <= limit.requests()).then_some(to_edge_us)
            },
        }
    }
}

/// Whether refused hits count because they were refused, and say nothing of what was used.
fn counts_blocked(limit: &Limit) -> bool {
    matches!(limit.count_refused(), None | Some(CountRefused::Blocking))
}

impl FixedWindow {
    /// The count after `hits` were refused.
    fn refused(&self, limit: &Limit, before: u64, hits: u64) -> u64 {
        let counted = match limit.count_refused() {
            // Like the reference service: all of them, without a bound on the debt, which ends with
            // the window.
            None | Some(CountRefused::Blocking) => hits,
            Some(_) => debt(self, limit, before, hits),
        };
        before.saturating_add(counted).min(REGISTER_MAX)
    }
}
