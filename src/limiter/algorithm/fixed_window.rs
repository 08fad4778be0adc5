//! Fixed window: count what comes in each aligned stretch of time, start again at the next.
//!
//! The idea is the oldest there is, and the only one Envoy's reference service has: the arithmetic below is its
//! arithmetic (straddling hits count whole, refused hits count, look-only passes at exactly the limit).
//!
//! The promise: at most N in each aligned window; up to 2N across an edge. Refused hits are counted until the window
//! ends, so a caller that keeps hammering sees no more than one that waits.
//!
//! Registers: the count, and none. Its window is the one that holds `seen`. Costs one addition and one comparison.
//!
//! What it deliberately does not do: clip hits that straddle the limit, or take back what it refused.

use super::{Algorithm, Outcome, REGISTER_MAX, State};
use super::{Hits, Limit, Timestamp};

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

    fn counts_refused(&self) -> bool {
        true
    }

    fn decide(&self, limit: &Limit, state: &mut State, hits: Hits, now: Timestamp) -> Outcome {
        let window = limit.window();
        let same_window = state.seen >= window.start_of(now);
        let before = if same_window { state.registers[0] } else { 0 };
        let (after, allowed) = match hits {
            Hits::Take(hits) => {
                let after = before.saturating_add(hits).min(REGISTER_MAX);
                (after, after <= limit.requests())
            }
            Hits::Refund(hits) => (before.saturating_sub(hits), true),
        };
        state.registers = [after, 0];

        let to_edge_us = window.as_us().saturating_sub(window.elapsed_us(now));
        Outcome {
            allowed,
            used_before: before,
            remaining: limit.requests().saturating_sub(after),
            reset_us: to_edge_us,
            retry_us: if allowed {
                Some(0)
            } else {
                (hits.taken() <= limit.requests()).then_some(to_edge_us)
            },
        }
    }

    fn life_us(&self, limit: &Limit) -> u64 {
        limit.window().as_us()
    }
}
