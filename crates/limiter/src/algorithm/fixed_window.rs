//! Fixed window: count what comes in each aligned stretch of time, start again at the next.
//!
//! The idea is the oldest there is, and the only one Envoy's reference service has: the arithmetic below is its
//! arithmetic (straddling hits count whole, refused hits count, look-only passes at exactly the limit). With a calendar
//! the stretches are days, weeks, months or years as people know them.
//!
//! The promise: at most N in each aligned window; up to 2N across an edge. Unless told otherwise, refused hits are counted
//! until the window ends, so a caller that keeps hammering sees no more than one that waits.
//!
//! What it costs: an addition and a comparison; where it has a calendar, looking the window up, without memory.
//!
//! Registers: the count, and none. Its window is the one that holds `seen`.
//!
//! What it deliberately does not do: clip hits that straddle the limit, or take back what it refused.

use super::{
    Algorithm, AlgorithmOption, CountRefused, Hits, LeasePolicy, Limit, Operation, Outcome,
    REGISTER_MAX, State, Timestamp, debt, used_changed,
};

/// See the file's own words.
#[derive(Debug)]
pub struct FixedWindow;

// === impl FixedWindow ===

impl Algorithm for FixedWindow {
    fn name(&self) -> &'static str {
        "fixed_window"
    }

    fn promise(&self) -> &'static str {
        "at most N in each aligned window; up to 2N across an edge"
    }

    fn options(&self) -> &'static [AlgorithmOption] {
        &[AlgorithmOption::Calendar, AlgorithmOption::CountRefused]
    }

    fn default_count_refused(&self) -> CountRefused {
        CountRefused::Blocking
    }

    fn lease_policy(&self) -> LeasePolicy {
        LeasePolicy::UntilReset
    }

    fn decide(&self, limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
        let window = limit.window_at(now);
        let same_window = state.updated_at >= window.start;
        let before = if same_window { state.registers[0] } else { 0 };
        let (after, allowed) = match ask.hits {
            Hits::Take(hits) => {
                let after = before.saturating_add(hits).min(REGISTER_MAX);
                if after <= limit.requests() {
                    (after, true)
                } else {
                    (self.refused(limit, before, hits), false)
                }
            }
            Hits::Refund(hits) => (before.saturating_sub(hits), true),
            Hits::Undo { hits, taken_at } if taken_at >= window.start => {
                (before.saturating_sub(hits), true)
            }
            // The window it was taken from has turned.
            Hits::Undo { .. } => (before, true),
        };
        state.registers = [after, 0];

        let to_edge_us = match limit.calendar() {
            None => limit
                .window()
                .as_us()
                .saturating_sub(limit.window().elapsed_us(now)),
            // A calendar ends with time, and then nothing ever begins anew: never say "at once".
            Some(_) => window.end.since_us(now).max(1),
        };
        Outcome {
            bucket_time: now,
            allowed,
            used_before: before,
            remaining: limit.requests().saturating_sub(after),
            reset_us: to_edge_us,
            retry_us: if allowed {
                Some(0)
            } else {
                (ask.hits.requested() <= limit.requests()).then_some(to_edge_us)
            },
        }
    }

    fn changed(
        &self,
        _limit: &Limit,
        _was: (Timestamp, [u64; 2]),
        state: &State,
        _ask: Operation,
        outcome: &Outcome,
    ) -> bool {
        used_changed(state, outcome)
    }

    fn ttl_us(&self, limit: &Limit) -> u64 {
        limit.window().as_us()
    }
}

impl FixedWindow {
    /// The count after `hits` were refused.
    fn refused(&self, limit: &Limit, before: u64, hits: u64) -> u64 {
        let counted = match limit.count_refused() {
            // As the reference: all of them, without a bound on the debt, which ends with the window.
            None | Some(CountRefused::Blocking) => hits,
            Some(CountRefused::None | CountRefused::All) => debt(self, limit, before, hits),
        };
        before.saturating_add(counted).min(REGISTER_MAX)
    }
}
