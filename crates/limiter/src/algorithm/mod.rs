//! The algorithms: what each promises, and the one step that all of them are.
//!
//! Why a table: an algorithm is one file and one line in [`ALGORITHMS`]; its name in rules files, what may stand beside it
//! there, its errors, its labels, the law suite, its picture and the benches derive from that line.
//!
//! How a decision is made: a store hands a bucket's [`State`] to [`State::step`] with the limit, the question and the time,
//! and keeps what comes back. One step, no get and set, so nothing can come between. The two clock laws are applied
//! there, once for all algorithms:
//!
//! 1. an older `now` counts as the newest that bucket has seen;
//! 2. a stored time more than one window ahead of `now` (the clock jumped and came back) is brought back to the
//!    present window with its count kept. (Of a calendar, more than the longest that such a window can ever be, which
//!    may be many hours more than the one at hand: 76 h for a day.)
//!
//! A question that takes nothing and gives nothing back is not written: the bucket stays as its last change left it, and has
//! not seen that question's time. Stores then agree, also those that would have to pay for a write (Redis), whatever the
//! clock does, and whenever a reload changes the limit. Law 2 is the exception: a bucket brought back is written, or a bucket
//! that refills would begin anew at every question.
//!
//! Both are possible without knowing the algorithm because a state holds exactly one time, the newest it has seen,
//! from which an algorithm derives its own (the window it counts in, the instant its level was right); the times of
//! its marks move along with it.
//!
//! What refused hits do ([`CountRefused`]) is the same everywhere: where they count, they take a bucket into debt of at
//! most one burst; only the fixed window by its own default counts them without that bound, as the reference does.
//!
//! What this deliberately does not do: find the bucket, free it, know rules or keys.

mod concurrency;
mod fixed_window;
mod leaky_bucket;
mod marks;
mod sliding_log;
mod sliding_window;
mod sliding_window_segments;
mod token_bucket;
mod token_bucket_interval;

use std::fmt;

use super::descriptor::{Hits, Holder, Operation};
use super::limit::{CountRefused, Limit};
use super::timestamp::Timestamp;

pub use concurrency::Concurrency;
pub use fixed_window::FixedWindow;
pub use leaky_bucket::LeakyBucket;
pub use marks::{Mark, Marks};
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;
pub use sliding_window_segments::SlidingWindowSegments;
pub use token_bucket::TokenBucket;
pub use token_bucket_interval::TokenBucketInterval;

/// Every algorithm there is. The first is the default.
pub static ALGORITHMS: &[&dyn Algorithm] = &[
    &FixedWindow,
    &SlidingWindow,
    &SlidingWindowSegments,
    &SlidingLog,
    &TokenBucket,
    &TokenBucketInterval,
    &LeakyBucket,
    &Concurrency,
];

/// The largest number a register holds: what a double holds exactly, so that a script can keep the same registers.
pub const REGISTER_MAX: u64 = Timestamp::MAX_US;

/// How large a limit may be whose algorithm remembers every hit or holder on its own. At 24 bytes a mark, of which there may
/// be room for twice as many as there are, a bucket then takes at most 480 kB (twice that where refused hits count).
pub const MARKS_REQUESTS_MAX: u32 = 10_000;

/// In how many parts a window may slide.
pub const SEGMENTS_MAX: u16 = 1_000;

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

    /// What may stand beside it in a rules file.
    fn options(&self) -> &'static [AlgorithmOption];

    /// What it becomes when this stands beside it; none when it stays what it is.
    fn variant_for(&self, _choice: AlgorithmOption) -> Option<&'static dyn Algorithm> {
        None
    }

    /// How large a limit may be.
    fn requests_max(&self) -> u32 {
        u32::MAX
    }

    /// Whether its buckets keep marks.
    fn has_marks(&self) -> bool {
        false
    }

    /// Whether hits may be taken from its buckets in advance.
    fn lease_policy(&self) -> LeasePolicy {
        LeasePolicy::Never
    }

    /// How long a window may be, in microseconds.
    fn window_max_us(&self) -> u64 {
        Timestamp::MAX_US
    }

    /// The burst of a limit that does not say.
    fn default_burst(&self, requests_per_unit: u32) -> u32 {
        requests_per_unit
    }

    /// What becomes of refused hits where the limit does not say.
    fn default_count_refused(&self) -> CountRefused {
        CountRefused::None
    }

    /// Decides what is asked at `now` and updates `state`. `now` is never before `state.seen`, nor before the time that a
    /// [`Hits::Undo`] names; the caller moves `seen`.
    fn decide(&self, limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome;

    /// Whether that question changed more than time alone does: it took something, counted refused hits, gave something back
    /// or renewed a slot. `was` is the time and the registers before it. Hits that passed always do, and are not asked about.
    fn changed(
        &self,
        limit: &Limit,
        was: (Timestamp, [u64; 2]),
        state: &State,
        ask: Operation,
        outcome: &Outcome,
    ) -> bool;

    /// How long after it was last seen a bucket is surely as good as new, in microseconds: at least one window.
    fn ttl_us(&self, limit: &Limit) -> u64;
}

/// What may stand beside an algorithm in a rules file, and mean nothing to others.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AlgorithmOption {
    /// How many may come at once.
    Burst,
    /// In how many parts a window slides.
    Segments,
    /// Whether a bucket is refilled by and by or in steps.
    Refill,
    /// Windows that begin when people think they do.
    Calendar,
    /// What becomes of refused hits.
    CountRefused,
    /// Who holds a slot, and for how long.
    Slots,
}

/// For how long hits that were taken in advance, and not yet used, may be used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LeasePolicy {
    /// Not at all: what it promises depends on when each hit comes.
    Never,
    /// Until the bucket's reset, and the promise is as it was.
    UntilReset,
    /// For any age, and the promise then holds over a span longer by that age.
    AnyAge,
}

/// A bucket's memory: the newest time it was changed at, two registers, each at most [`REGISTER_MAX`], and marks. All zeros is
/// a bucket never used.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct State {
    /// The newest time at which this bucket was changed.
    pub updated_at: Timestamp,
    /// What the algorithm makes of them.
    pub registers: [u64; 2],
    /// Where two numbers are not enough.
    pub marks: Marks,
}

/// The answer to one question. All counts are hits, saturating.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// Whether the hits may pass. What is given back always may.
    pub allowed: bool,
    /// What was used of the limit before this question, a begun hit counted whole.
    pub used_before: u64,
    /// What is left of the limit after it: so many would pass now, and not one more.
    pub remaining: u64,
    /// Until the bucket is as good as new, if nobody asks again.
    pub reset_us: u64,
    /// Until the same hits would first pass, if nobody else asks: 0 when they did, none when they never will.
    pub retry_us: Option<u64>,
    /// The bucket's own time: what [`Hits::Undo`] names.
    pub bucket_time: Timestamp,
}

/// The algorithm of that name or alias.
pub fn from_name(name: &str) -> Option<&'static dyn Algorithm> {
    ALGORITHMS
        .iter()
        .copied()
        .find(|algorithm| algorithm.name() == name || algorithm.aliases().contains(&name))
}

/// What becomes of refused hits under this limit.
pub fn count_refused(algorithm: &dyn Algorithm, limit: &Limit) -> CountRefused {
    limit
        .count_refused()
        .unwrap_or_else(|| algorithm.default_count_refused())
}

/// [`Algorithm::changed`] where the first register is what is used.
fn used_changed(state: &State, outcome: &Outcome) -> bool {
    let [used, _] = state.registers;
    used != outcome.used_before
}

/// How many of `hits` that were refused stay in a bucket that has used so much: none where they do not count, and no more
/// than debt has room for.
fn debt(algorithm: &dyn Algorithm, limit: &Limit, used: u64, hits: u64) -> u64 {
    match count_refused(algorithm, limit) {
        CountRefused::None => 0,
        CountRefused::Blocking | CountRefused::All => {
            hits.min(limit.burst().saturating_mul(2).saturating_sub(used))
        }
    }
}

/// How many hits a bucket that holds a burst may miss at most: where refused hits count, one burst of debt more.
fn missing_max(algorithm: &dyn Algorithm, limit: &Limit) -> u64 {
    match count_refused(algorithm, limit) {
        CountRefused::None => limit.burst(),
        CountRefused::Blocking | CountRefused::All => limit.burst().saturating_mul(2),
    }
}

// === impl Choice ===

impl AlgorithmOption {
    /// Every choice.
    pub const ALL: [Self; 6] = [
        Self::Burst,
        Self::Segments,
        Self::Refill,
        Self::Calendar,
        Self::CountRefused,
        Self::Slots,
    ];
}

// === impl State ===

impl State {
    /// One decision. The only way a bucket changes; a question that takes and gives back nothing leaves it as it was.
    pub fn apply(
        &mut self,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        ask: impl Into<Operation>,
        now: Timestamp,
    ) -> Outcome {
        let mut ask = ask.into();
        let brought_back = self.updated_at.since_us(now) > limit.window().as_us();
        if brought_back {
            self.rewind(now);
        }
        let asked_at = now;
        let now = now.max(self.updated_at);
        if let Hits::Undo { taken_at, .. } = ask.hits
            && taken_at > now
        {
            // The clock was brought back meanwhile: what the take weighs now cannot be said, so it stays.
            ask.hits = Hits::Refund(0);
        }
        let was = (self.updated_at, self.registers);
        let mut outcome = algorithm.decide(limit, self, ask, now);
        let took = outcome.allowed && ask.hits.requested() > 0;
        if took || brought_back || algorithm.changed(limit, was, self, ask, &outcome) {
            self.updated_at = now;
            self.marks.remove_expired();
        } else {
            (self.updated_at, self.registers) = was;
            self.marks.restore_expired();
        }
        // The caller counts from its own present, which law 1 may have moved.
        let behind_us = now.since_us(asked_at);
        for us in [Some(&mut outcome.reset_us), outcome.retry_us.as_mut()] {
            if let Some(us) = us
                && *us > 0
            {
                *us = us.saturating_add(behind_us);
            }
        }
        outcome
    }
}

impl State {
    /// Forgets marks that have expired, which an answer would only pass over. For a bucket whose algorithm keeps marks.
    pub fn remove_expired(&mut self, limit: &Limit, now: Timestamp) {
        let window_us = limit.window().as_us();
        let now = now.max(self.updated_at);
        if now.as_us() >= window_us {
            let [used, other] = self.registers;
            let dropped = self.marks.expire_until(now.minus_us(window_us));
            self.marks.remove_expired();
            self.registers = [used.saturating_sub(dropped), other];
        }
    }

    /// The second clock law: what was seen in a future that did not come was seen now.
    pub fn rewind(&mut self, now: Timestamp) {
        let ahead_us = self.updated_at.since_us(now);
        self.marks.rewind(ahead_us);
        self.updated_at = self.updated_at.min(now);
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
