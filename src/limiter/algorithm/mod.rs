//! The algorithms: what each promises, and the one step that all of them are.
//!
//! Why a table: an algorithm is one file and one line in [`ALGORITHMS`]; its name in rules files, its errors, its
//! labels, the law suite and the benches derive from that line. `sliding_log`, `leaky_bucket` and `concurrency` will
//! stand here too.
//!
//! How a decision is made: a store hands a bucket's [`State`] to [`State::step`] with the limit, the hits and the time,
//! and keeps what comes back. One step, no get and set, so nothing can come between. The two clock laws are applied
//! there, once for all algorithms:
//!
//! 1. an older `now` counts as the newest that bucket has seen;
//! 2. a stored time more than one window ahead of `now` (the clock jumped and came back) is brought back to the
//!    present window with its count kept.
//!
//! Both are possible without knowing the algorithm because a state holds exactly one time, the newest it has seen,
//! from which an algorithm derives its own (the window it counts in, the instant its level was right).
//!
//! What this deliberately does not do: find the bucket, free it, know rules or keys.

mod fixed_window;
mod sliding_window;
mod token_bucket;

use std::fmt;

use super::descriptor::Hits;
use super::limit::Limit;
use super::timestamp::Timestamp;

pub use fixed_window::FixedWindow;
pub use sliding_window::SlidingWindow;
pub use token_bucket::TokenBucket;

/// Every algorithm there is. The first is the default.
pub static ALGORITHMS: &[&dyn Algorithm] = &[&FixedWindow, &SlidingWindow, &TokenBucket];

/// The largest number a register holds: what a double holds exactly, so that a script can keep the same registers.
pub const REGISTER_MAX: u64 = Timestamp::MAX_US;

/// One way to limit.
pub trait Algorithm: Sync {
    /// Its name in rules files and labels.
    fn name(&self) -> &'static str;

    /// Other names that rules files may use.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// What it promises, in one sentence.
    fn promise(&self) -> &'static str;

    /// Whether `burst:` means something to it.
    fn has_burst(&self) -> bool {
        false
    }

    /// Whether refused hits stay in the bucket.
    fn counts_refused(&self) -> bool {
        false
    }

    /// Decides `hits` at `now` and updates `state`. `now` is never before `state.seen`, and the caller moves `seen`.
    fn decide(&self, limit: &Limit, state: &mut State, hits: Hits, now: Timestamp) -> Outcome;

    /// How long after it was last seen a bucket is surely as good as new, in microseconds: at least one window.
    fn life_us(&self, limit: &Limit) -> u64;
}

/// A bucket's memory: the newest time it has seen and two registers, each at most [`REGISTER_MAX`]. All zeros is a
/// bucket never used.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct State {
    /// The newest time this bucket has seen.
    pub seen: Timestamp,
    /// What the algorithm makes of them.
    pub registers: [u64; 2],
}

/// The answer to one question. All counts are hits, saturating.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// Whether the hits may pass. A refund always may.
    pub allowed: bool,
    /// What was used of the limit before this question, a begun hit counted whole.
    pub used_before: u64,
    /// What is left of the limit after it.
    pub remaining: u64,
    /// Until the bucket is as good as new, if nobody asks again.
    pub reset_us: u64,
    /// Until the same hits would first pass, if nobody else asks: 0 when they did, none when they never will.
    pub retry_us: Option<u64>,
}

/// The algorithm of that name or alias.
pub fn named(name: &str) -> Option<&'static dyn Algorithm> {
    ALGORITHMS
        .iter()
        .copied()
        .find(|algorithm| algorithm.name() == name || algorithm.aliases().contains(&name))
}

// === impl State ===

impl State {
    /// One decision. The only way a bucket changes.
    pub fn step(
        &mut self,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        hits: Hits,
        now: Timestamp,
    ) -> Outcome {
        if self.seen.since_us(now) > limit.window().as_us() {
            self.seen = now;
        }
        let asked_at = now;
        let now = now.max(self.seen);
        let mut outcome = algorithm.decide(limit, self, hits, now);
        self.seen = now;
        // The caller counts from its own present, which law 1 may have moved.
        let behind_us = now.since_us(asked_at);
        outcome.reset_us = match outcome.reset_us {
            0 => 0,
            reset_us => reset_us.saturating_add(behind_us),
        };
        outcome.retry_us = match outcome.retry_us {
            Some(retry_us) if retry_us > 0 => Some(retry_us.saturating_add(behind_us)),
            other => other,
        };
        outcome
    }
}

// === impl dyn Algorithm ===

impl fmt::Debug for dyn Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PartialEq for dyn Algorithm {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Algorithm {}
