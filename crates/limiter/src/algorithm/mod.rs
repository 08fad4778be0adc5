//! The algorithms: the trait, the table, and the one step that all of them share.
//!
//! Why a table: an algorithm is one file and one line in [`ALGORITHMS`]. Its name in rules files,
//! its options there, its errors, its labels, the law suite, its picture and the benches derive
//! from that line.
//!
//! How a decision is made: a store passes the limit, the operation and the time to [`State::apply`]
//! of a bucket, and keeps the new state. It is one step, not a get and a set, so no other request
//! can come between. The two clock laws are applied there, once for all algorithms:
//!
//! 1. An older `now` counts as the newest time that the bucket has seen.
//! 2. A stored time more than one window ahead of `now` (the clock jumped and came back) is set
//!    back to the present window, and its count is kept. (With a calendar: more than the upper
//!    bound of its windows, which can be many hours more than the present one: 76 h for a day.)
//!
//! An operation that takes nothing and gives nothing back is not written: the bucket stays as its
//! last change left it, `updated_at` included. So all stores agree, also those where a write is
//! expensive (Redis), whatever the clock does, and whenever a reload changes the limit. Law 2 is
//! the exception: a bucket that was set back is written, or a bucket that refills would restart
//! at every operation.
//!
//! Both laws are possible without knowing the algorithm because a state holds exactly one time, the
//! newest it has seen. An algorithm derives its own times from it (the window it counts in, the
//! instant its level was right). The times of its marks move along.
//!
//! Refused hits ([`CountRefused`]) mean the same in every algorithm: where they count, they take a
//! bucket into debt of at most one burst, or of any depth where the limit is charged afterwards.
//! The fixed window by its own default counts them without that bound too, as the reference service
//! does.
//!
//! What this deliberately does not do: find the bucket, free it, know rules or keys.

mod concurrency;
mod fixed_window;
mod leaky_bucket;
mod ledger;
mod marks;
mod most_admitted;
mod settle;
mod sliding_log;
mod sliding_window;
mod sliding_window_segments;
mod token_bucket;
mod token_bucket_interval;

use std::fmt;

use super::descriptor::{Hits, Holder, Operation};
use super::limit::{CountRefused, Limit};
use super::reservation::{Expiry, OnExpiry, Otherwise, ReservationOutcome, Step};
use super::time::Timestamp;
use settle::Settling;

pub use concurrency::Concurrency;
pub use fixed_window::FixedWindow;
pub use leaky_bucket::LeakyBucket;
pub use ledger::{ENDED_AT_ONCE_MAX, ID_RECORDS_MAX, LEDGER_RECORDS_MAX, Ledger, SavedRecord};
pub use marks::{Mark, Marks};
pub use most_admitted::{MostAdmitted, can_admit_more};
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;
pub use sliding_window_segments::SlidingWindowSegments;
pub use token_bucket::TokenBucket;
pub use token_bucket_interval::TokenBucketInterval;

/// All algorithms. The first is the default.
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

/// The largest number in a register: what a double holds exactly, so that a script can keep the
/// same registers.
pub const REGISTER_MAX: u64 = Timestamp::MAX_US;

/// The largest limit of an algorithm that keeps a mark for each hit or holder. At 24 bytes a mark,
/// and with a capacity of up to twice the marks, a bucket takes at most 480 kB (twice that where
/// refused hits count).
pub const MARKS_REQUESTS_MAX: u64 = 10_000;

/// The most hits that all marks of a bucket hold together: a script keeps those of a mark in 40
/// bits.
pub const MARKED_MAX: u64 = (1 << 40) - 1;

/// The largest number of segments of a window.
pub const SEGMENTS_MAX: u16 = 1_000;

/// What is fixed about an algorithm.
#[derive(Clone, Copy)]
pub struct Facts {
    /// The name in rules files and labels.
    pub name: &'static str,
    /// Other names in rules files.
    pub aliases: &'static [&'static str],
    /// The promise, in one sentence.
    pub promise: &'static str,
    /// The options it accepts in a rules file.
    pub options: &'static [AlgorithmOption],
    /// The algorithms that it becomes with an option.
    pub variants: &'static [(AlgorithmOption, &'static dyn Algorithm)],
    /// The largest limit.
    pub requests_max: u64,
    /// The longest window, in microseconds.
    pub window_max_us: u64,
    /// The largest default burst. A default burst is the limit, where that is smaller.
    pub default_burst_max: u64,
    /// The default rule for refused hits.
    pub default_count_refused: CountRefused,
    /// Whether hits can be taken from its buckets in advance.
    pub lease_policy: LeasePolicy,
    /// Whether its buckets keep marks.
    pub has_marks: bool,
    /// Whether its buckets can have reservations.
    pub can_reserve: bool,
    /// Whether its buckets refill, and have no windows that end.
    pub refills: bool,
}

/// One way to count hits against a limit.
pub trait Algorithm: Sync {
    /// What is fixed about it.
    fn facts(&self) -> &Facts;

    /// The name in rules files and labels.
    fn name(&self) -> &'static str {
        self.facts().name
    }

    /// Decides the operation at `now` and updates `state`. `now` is never before
    /// `state.updated_at`, nor before the time in a [`Hits::Undo`]. The caller sets `updated_at`.
    fn decide(
        &self,
        limit: &Limit,
        state: &mut State,
        operation: Operation,
        now: Timestamp,
    ) -> Outcome;

    /// Whether the operation changed more than time alone does: it took hits, counted refused hits,
    /// gave hits back or renewed a slot. `was` is the time and the registers before it. Not called
    /// for hits that passed, which always change the bucket. The default is right where the first
    /// register is what is used.
    fn changed(
        &self,
        limit: &Limit,
        was: (Timestamp, [u64; 2]),
        state: &State,
        operation: Operation,
        outcome: &Outcome,
    ) -> bool {
        let _ = (limit, was, operation);
        used_changed(state, outcome)
    }

    /// The most hits that any interval of `span_us` can admit, over all requests: a bound that some
    /// requests reach. `span_us` is from 1 to the window, in microseconds. None when there is no
    /// such bound, which is the default.
    fn most_admitted(&self, _limit: &Limit, _span_us: u64) -> Option<MostAdmitted> {
        None
    }

    /// The time after its last change at which a bucket is surely unused again, in microseconds: at
    /// least one window, which is the default.
    fn ttl_us(&self, limit: &Limit) -> u64 {
        limit.window().as_us()
    }
}

/// An option of some algorithms in a rules file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AlgorithmOption {
    /// How many hits can come at once.
    Burst,
    /// The number of steps in which a window slides.
    Segments,
    /// Whether a bucket refills continuously or once per window.
    Refill,
    /// Windows that follow a calendar.
    Calendar,
    /// Which limits count refused hits.
    CountRefused,
    /// The holder of a slot, and the time it is held.
    Slots,
}

/// How long hits that were taken in advance stay valid.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LeasePolicy {
    /// They cannot be taken in advance: the promise depends on when each hit comes.
    Never,
    /// Until the bucket's reset. The promise does not change.
    UntilReset,
    /// Any age. The promise then holds over a span longer by that age.
    AnyAge,
}

/// The memory of a bucket: the time of its last change, two registers, each at most
/// [`REGISTER_MAX`], and marks. All zeros is an unused bucket.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct State {
    /// The newest time at which this bucket was changed.
    pub updated_at: Timestamp,
    /// Two numbers. Each algorithm defines their meaning.
    pub registers: [u64; 2],
    /// For algorithms that need more than two numbers.
    pub marks: Marks,
}

/// The outcome of one operation. All counts are hits, saturating.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Outcome {
    /// Whether the hits pass. Hits that are given back always do.
    pub allowed: bool,
    /// The hits used of the limit before this operation. A part of a hit counts as one. What was
    /// reserved, when a reservation was settled.
    pub used_before: u64,
    /// The hits left of the limit after it: this many would pass now, and not one more.
    pub remaining: u64,
    /// The time until the bucket is unused again, without further operations.
    pub reset_us: u64,
    /// The time until the same hits would first pass, without other operations: 0 when they passed,
    /// none when they never will. The true amount, when a reservation was settled
    /// ([`Outcome::settled`]).
    pub retry_us: Option<u64>,
    /// The bucket's own time, which [`Hits::Undo`] refers to.
    pub bucket_time: Timestamp,
    /// What became of a step of a reservation.
    pub reservation: ReservationOutcome,
    /// Whether the limit's penalty refuses the key for a time, or begins to.
    pub blocked: bool,
}

/// The amounts of a reservation that is settled.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Settled {
    /// The hits that were reserved.
    pub reserved: u64,
    /// The true amount; 0 for a release.
    pub committed: u64,
}

// === impl Facts ===

impl Facts {
    /// What most algorithms have, with a name, a promise and options.
    pub const fn new(
        name: &'static str,
        promise: &'static str,
        options: &'static [AlgorithmOption],
    ) -> Self {
        Self {
            name,
            aliases: &[],
            promise,
            options,
            variants: &[],
            requests_max: Limit::REQUESTS_MAX,
            window_max_us: Timestamp::MAX_US,
            default_burst_max: u64::MAX,
            default_count_refused: CountRefused::None,
            lease_policy: LeasePolicy::Never,
            has_marks: false,
            can_reserve: true,
            refills: false,
        }
    }

    /// The algorithm that it becomes with this option; none when it stays the same.
    pub fn variant_for(&self, option: AlgorithmOption) -> Option<&'static dyn Algorithm> {
        let (_, variant) = self.variants.iter().find(|(with, _)| *with == option)?;
        Some(*variant)
    }

    /// The default burst of a limit.
    pub fn default_burst(&self, requests_per_unit: u64) -> u64 {
        requests_per_unit.min(self.default_burst_max)
    }
}

/// The algorithm with that name or alias.
#[inline]
pub fn from_name(name: &str) -> Option<&'static dyn Algorithm> {
    ALGORITHMS
        .iter()
        .copied()
        .find(|algorithm| algorithm.name() == name || algorithm.facts().aliases.contains(&name))
}

/// The rule for refused hits under this limit.
#[inline]
pub fn count_refused(algorithm: &dyn Algorithm, limit: &Limit) -> CountRefused {
    limit
        .count_refused()
        .unwrap_or_else(|| algorithm.facts().default_count_refused)
}

/// The most hits that debt and charges can bring a bucket to.
fn used_max(algorithm: &dyn Algorithm) -> u64 {
    if algorithm.facts().has_marks {
        MARKED_MAX
    } else {
        REGISTER_MAX
    }
}

/// Whether the first register differs from what was used before.
fn used_changed(state: &State, outcome: &Outcome) -> bool {
    let [used, _] = state.registers;
    used != outcome.used_before
}

/// How many of the refused `hits` stay in a bucket with this much used: none where they do not
/// count, and no more than the debt allows.
fn debt(algorithm: &dyn Algorithm, limit: &Limit, used: u64, hits: u64) -> u64 {
    match count_refused(algorithm, limit) {
        CountRefused::None => 0,
        CountRefused::Blocking | CountRefused::All => {
            let most = limit.burst().saturating_mul(2).min(used_max(algorithm));
            hits.min(most.saturating_sub(used))
        }
        CountRefused::InFull => charged(algorithm, used, hits),
    }
}

/// How many of the charged `hits` are added to a bucket with this much used.
fn charged(algorithm: &dyn Algorithm, used: u64, hits: u64) -> u64 {
    hits.min(used_max(algorithm).saturating_sub(used))
}

/// The same, with the default of the fixed window, which counts all of them.
pub(super) fn counted_of_refused(
    algorithm: &dyn Algorithm,
    limit: &Limit,
    used: u64,
    hits: u64,
) -> u64 {
    let default = limit.count_refused().is_none();
    if default && algorithm.facts().default_count_refused == CountRefused::Blocking {
        return hits;
    }
    debt(algorithm, limit, used, hits)
}

/// The most hits that a token bucket can miss: its burst, and one burst of debt more where refused
/// hits count. Debt without a bound is not in it: a store keeps such a bucket until its reset.
fn missing_max(algorithm: &dyn Algorithm, limit: &Limit) -> u64 {
    match count_refused(algorithm, limit) {
        CountRefused::None | CountRefused::InFull => limit.burst(),
        CountRefused::Blocking | CountRefused::All => limit.burst().saturating_mul(2),
    }
}

// === impl AlgorithmOption ===

impl AlgorithmOption {
    /// Every option.
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
    /// Applies one operation. The only way a bucket changes. An operation that takes and gives back
    /// nothing leaves it as it was.
    pub fn apply(
        &mut self,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        operation: impl Into<Operation>,
        now: Timestamp,
    ) -> Outcome {
        let mut operation = operation.into();
        let mut must_write = self.updated_at.since_us(now) > limit.window().as_us();
        if must_write {
            self.rewind(now);
        }
        let asked_at = now;
        let now = now.max(self.updated_at);
        if self.marks.has_ledger() || matches!(operation.hits, Hits::Reservation(_)) {
            match self.apply_to_ledger((algorithm, limit), operation, now, must_write) {
                Ok(outcome) => {
                    let settled = outcome.settled();
                    let mut outcome = outcome.counted_from(asked_at, now);
                    if let Some(settled) = settled {
                        outcome.set_settled(settled);
                    }
                    return outcome;
                }
                Err(expired) => must_write = expired,
            }
        }
        if let Hits::Undo { taken_at, .. } = operation.hits
            && taken_at > now
        {
            // The clock was set back in between. What the take still counts for is unknown, so it
            // stays.
            operation.hits = Hits::Refund(0);
        }
        let was = (self.updated_at, self.registers);
        let outcome = algorithm.decide(limit, self, operation, now);
        // A step of a reservation was decided above, unless the algorithm has none.
        let fills = matches!(operation.hits, Hits::Take(hits) | Hits::Charge(hits) if hits > 0);
        let took = outcome.allowed && fills;
        if took || must_write || algorithm.changed(limit, was, self, operation, &outcome) {
            self.updated_at = now;
            self.marks.remove_expired();
        } else {
            (self.updated_at, self.registers) = was;
            self.marks.restore_expired();
        }
        outcome.counted_from(asked_at, now)
    }

    /// Ends the reservations that are due, and decides a step of a reservation. An operation that
    /// is none is left to the caller: the error says whether the bucket must be written.
    #[cold]
    #[inline(never)]
    fn apply_to_ledger(
        &mut self,
        (algorithm, limit): (&dyn Algorithm, &Limit),
        operation: Operation,
        now: Timestamp,
        must_write: bool,
    ) -> Result<Outcome, bool> {
        let is_step =
            matches!(operation.hits, Hits::Reservation(_)) && algorithm.facts().can_reserve;
        let is_due = |ledger: &Ledger| ledger.has_release_due(now);
        if !is_step && !self.marks.ledger().is_some_and(is_due) {
            return Err(must_write);
        }
        let mut ledger = self.marks.take_ledger();
        let was = (self.updated_at, self.registers);
        let mut settling = Settling {
            algorithm,
            limit,
            state: self,
            now,
            // What a step forgets stays forgotten only if the bucket's time moves along.
            changed: must_write || !ledger.is_empty(),
        };
        settling.expire(&mut ledger, operation.holder.filter(|_| is_step));
        let decided = match operation.hits {
            Hits::Reservation(step) if algorithm.facts().can_reserve => {
                Ok(settling.decide(&mut ledger, operation.holder, step))
            }
            _ => Err(settling.changed),
        };
        if !settling.changed {
            (self.updated_at, self.registers) = was;
        }
        self.marks.put_ledger(ledger);
        decided
    }
}

// === impl Outcome ===

impl Outcome {
    /// The amounts of a reservation that is settled, now or before.
    ///
    /// They take the places of two numbers that mean nothing then: an outcome is copied on the hot
    /// path, where a larger one costs.
    #[inline]
    pub fn settled(&self) -> Option<Settled> {
        matches!(
            self.reservation,
            ReservationOutcome::Settled | ReservationOutcome::SettledBefore
        )
        .then(|| Settled {
            reserved: self.used_before,
            committed: self.retry_us.unwrap_or_default(),
        })
    }

    /// Sets what [`Outcome::settled`] returns.
    #[inline]
    pub fn set_settled(&mut self, settled: Settled) {
        self.used_before = settled.reserved;
        self.retry_us = Some(settled.committed);
    }

    /// The same for a caller whose time is `asked_at`, and the bucket's `now`.
    #[inline]
    fn counted_from(mut self, asked_at: Timestamp, now: Timestamp) -> Self {
        // The caller counts from its own time, which law 1 can have moved.
        let behind_us = now.since_us(asked_at);
        for us in [Some(&mut self.reset_us), self.retry_us.as_mut()] {
            if let Some(us) = us
                && *us > 0
            {
                *us = us.saturating_add(behind_us);
            }
        }
        self
    }
}

impl State {
    /// Removes expired marks, which decisions only skip. For buckets of algorithms with marks.
    #[inline]
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

    /// Applies the second clock law: a time ahead of `now` becomes `now`.
    #[inline]
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
