//! Planted bugs: each must be found, or the harness does not work.
//!
//! Why: a green property test shows only that no failing history was found, not that a failing one
//! would be. How: each bug is an algorithm or a clock law with one plausible mistake. It replaces
//! the real one, and the listed properties run on the same histories in every run. A property
//! listed beside "agreement" finds the bug without a model, too.
//!
//! | bug | found by |
//! | --- | --- |
//! | **fixed window** | |
//! | refuses at exactly the limit (`<` for `<=`) | agreement, laws |
//! | never starts again at an edge | agreement, laws |
//! | counts windows from the first hit, not from 1970 | agreement, promise |
//! | lets straddling hits pass when any of them fits | agreement, promise |
//! | clips the count of straddling hits to the limit | agreement |
//! | does not count what it refused | agreement |
//! | count wraps at 2^64 | agreement, promise |
//! | refund wraps below zero | agreement, laws |
//! | reset a microsecond early; a microsecond late | agreement, laws |
//! | gives hopeless hits a retry time | agreement, laws |
//! | undoes a take of a window that has turned | agreement, undo |
//! | `count_refused: all` without a bound on the debt | agreement, laws |
//! | bounds the debt although the limit does not ask for it | agreement, laws |
//! | counts windows from 1970 whatever its calendar | agreement, promise |
//! | takes every window of a calendar to be as long as the longest | agreement, laws |
//! | **sliding window** | |
//! | weighs by what has gone instead of what is left | agreement, promise |
//! | rounds the weight down to whole hits | agreement, promise |
//! | forgets the previous window | agreement, promise |
//! | keeps it after a window with nothing in it | agreement, laws |
//! | counts what it refused | agreement, laws |
//! | gives back to the previous window first | agreement |
//! | reset at the next edge, whatever is in the present window | agreement, laws |
//! | retry a microsecond early | agreement, laws |
//! | undoes in the present window what was taken before it | agreement, undo |
//! | debt without a bound | agreement, laws |
//! | **sliding window in segments** | |
//! | segments as long as the window over n, rounded down | agreement, laws |
//! | segments begin half-way between their edges | agreement, promise |
//! | the oldest segment leaves one too late | agreement |
//! | the oldest segment leaves one too early | agreement, promise |
//! | the oldest segment leaves gradually (interpolated) | agreement, promise |
//! | only the present segment counts | agreement, promise |
//! | slides smoothly | agreement, laws |
//! | undoes what was to leave first | agreement, undo |
//! | waits for each hit to be a window old, with a mark each | agreement, laws |
//! | **sliding log** | |
//! | a hit still counts at exactly t + window | agreement, laws |
//! | forgets a hit a microsecond early | agreement, promise |
//! | refunds the newest first | agreement |
//! | counts time in whole milliseconds | agreement, promise |
//! | counts what it refused | agreement, laws |
//! | undoes the oldest hits, not those taken | agreement, undo, promise |
//! | never throws away what has run out | laws |
//! | retry when the oldest hit leaves, however many are needed | agreement, laws |
//! | reset when the oldest hit leaves | agreement, laws |
//! | **token bucket** | |
//! | refills whole hits only and forgets the rest (drift) | agreement, laws |
//! | rounds a part of a hit away in the caller's favour (drift) | agreement, laws, promise |
//! | counts time in whole milliseconds | agreement, laws |
//! | holds N whatever the burst | agreement, promise |
//! | counts what it refused | agreement, laws |
//! | retry a microsecond early | agreement, laws |
//! | reset a microsecond late | agreement, laws |
//! | is forgotten after a window, though the burst takes longer to fill | laws |
//! | undoes what has come back already | agreement, undo |
//! | debt without a bound | agreement, laws |
//! | debt of nothing: refused hits empty the bucket and no more | agreement, laws |
//! | takes `count_refused: blocking` for `none` | agreement, laws |
//! | **token bucket refilled in steps** | |
//! | counts windows gone since it was seen, not edges crossed | agreement, laws |
//! | fills between the edges | agreement, promise |
//! | counts edges from the first hit, not from 1970 | agreement, promise |
//! | is full at every edge, however much was missing | agreement, laws, promise |
//! | one edge fills, however many were crossed | agreement, laws |
//! | retry at the next edge, however many are needed | agreement, laws |
//! | undoes what has come back already | agreement, undo |
//! | **leaky bucket** | |
//! | holds N whatever the burst | agreement, promise |
//! | leaks whole hits only and forgets the rest | agreement, laws |
//! | leaks at the edges of windows | agreement, promise |
//! | undoes what has leaked already | agreement, undo |
//! | **concurrency** | |
//! | a refund frees the oldest slot of any holder | agreement, promise |
//! | a second refund of an id, or one of what was refused, frees another's slot | agreement, promise |
//! | a refund without an id frees a slot that has one | agreement, promise |
//! | a refund with an id frees only slots without | agreement |
//! | an id that is sent twice holds one slot | agreement |
//! | a peek renews the slots of all holders | agreement, laws |
//! | a peek renews no slots | agreement, laws, promise |
//! | a take renews what its id holds already | agreement, laws |
//! | a slot still counts at exactly t + its time | agreement, laws |
//! | slots never run out | agreement, laws |
//! | undoes the oldest take of an id, not the one meant | agreement, undo, promise |
//! | refused hits take a slot | agreement, laws |
//! | **any algorithm** | |
//! | a peek costs a hit | agreement, laws |
//! | keeps the low 32 bits of the hits | agreement, promise |
//! | forgets the bucket when the clock steps back | agreement, promise |
//! | takes an older `now` as it is (law 1 missing), and refills twice | agreement, promise |
//! | waits for the clock to return from a jump (law 2 missing) | agreement |
//! | brings back at exactly one window ahead, not only beyond | agreement |
//! | counts retry and reset from the bucket's time, not the caller's | agreement, laws |
//! | leaves marks in a future that did not come (law 2 forgets them) | agreement, laws |
//! | undoes a take of a future that did not come | agreement, undo |
//! | does not undo at all | agreement, undo |
//! | **reservations, any algorithm that has them** | |
//! | a commit that is repeated gives back again | agreement, promise |
//! | a commit that is repeated tells its own amount, not the first | agreement |
//! | a settled id is forgotten at once | agreement |
//! | a release after the expiry gives back what stays charged | agreement, promise |
//! | an expired reservation is still open | agreement |
//! | an expiry gives nothing back | agreement |
//! | an expiry comes a microsecond late | agreement |
//! | a release gives nothing back | agreement |
//! | an excess is bounded by one burst | agreement, promise |
//! | an excess is charged only if it fits | agreement, promise |
//! | an excess is the whole amount | agreement |
//! | hits go back to a later window than the one taken from | agreement, promise |
//! | a bucket that refills gives back only what has not come back already | agreement |
//! | a settled id is extended | agreement |
//! | only the oldest reservation of an id is extended | agreement |
//! | a full ledger drops an open record | agreement |
//! | a second reserve under an open id takes nothing | agreement, promise |
//! | a commit settles the newest reservation of an id | agreement |
//! | a withdrawal takes the oldest reservation of an id | agreement |
//! | an ignored refusal is charged | agreement |
//! | a remembered refusal is never used up | agreement |
//! | a refused reservation counts as refused hits do | agreement |
//! | an unknown id is not charged | agreement, promise |
//! | records stay where they are when the clock comes back (law 2) | agreement |
//!
//! What it deliberately does not do: plant two bugs at once, or bugs that change no answer.

mod clock;
mod concurrency;
mod fixed_window;
mod leaky_bucket;
mod reservations;
mod rule_tests;
mod sliding_log;
mod sliding_window;
mod sliding_window_segments;
mod token_bucket;
mod token_bucket_interval;

use proptest::test_runner::TestError;
use tollgate_limiter::{
    Algorithm, AlgorithmOption, CountRefused, Hits, Limit, Operation, Outcome, State, Timestamp,
};

use crate::properties::{BROKEN, Candidate, Property, every_algorithm, repeatable};

/// An algorithm with a bug in it.
struct Planted {
    /// The source of everything except the bug.
    base: &'static dyn Algorithm,
    decide: fn(&Limit, &mut State, Operation, Timestamp) -> Outcome,
    life_us: Option<fn(&Limit) -> u64>,
    usual_burst: Option<fn(u32) -> u32>,
}

/// Decides at a time other than the bucket's, and reports relative to the bucket's.
fn decide_at(
    then: Timestamp,
    algorithm: &dyn Algorithm,
    limit: &Limit,
    state: &mut State,
    ask: Operation,
    now: Timestamp,
) -> Outcome {
    let said = algorithm.decide(limit, state, ask, then);
    let later = |us: u64| us.saturating_sub(now.since_us(then));
    Outcome {
        bucket_time: now,
        reset_us: later(said.reset_us),
        retry_us: said.retry_us.map(later),
        ..said
    }
}

/// The same operation with an undo replaced by a refund.
fn undoing_as_refund(ask: Operation) -> Operation {
    let hits = match ask.hits {
        Hits::Undo { hits, .. } => Hits::Refund(hits),
        hits => hits,
    };
    Operation { hits, ..ask }
}

/// Whether refused hits count.
fn counts_refused(limit: &Limit) -> bool {
    !matches!(limit.count_refused(), None | Some(CountRefused::None))
}

// === impl Planted ===

impl Algorithm for Planted {
    fn name(&self) -> &'static str {
        self.base.name()
    }

    fn promise(&self) -> &'static str {
        self.base.promise()
    }

    fn options(&self) -> &'static [AlgorithmOption] {
        self.base.options()
    }

    fn requests_max(&self) -> u32 {
        self.base.requests_max()
    }

    fn has_marks(&self) -> bool {
        self.base.has_marks()
    }

    fn window_max_us(&self) -> u64 {
        self.base.window_max_us()
    }

    fn default_burst(&self, requests_per_unit: u32) -> u32 {
        self.usual_burst.map_or_else(
            || self.base.default_burst(requests_per_unit),
            |usual_burst| usual_burst(requests_per_unit),
        )
    }

    fn default_count_refused(&self) -> CountRefused {
        self.base.default_count_refused()
    }

    fn decide(&self, limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
        (self.decide)(limit, state, ask, now)
    }

    /// What the bug adds to registers is written, too.
    fn changed(
        &self,
        limit: &Limit,
        was: (Timestamp, [u64; 2]),
        state: &State,
        ask: Operation,
        outcome: &Outcome,
    ) -> bool {
        if self.base.changed(limit, was, state, ask, outcome) || self.base.has_marks() {
            return self.base.changed(limit, was, state, ask, outcome);
        }
        let mut looked_at = State {
            updated_at: was.0,
            registers: was.1,
            ..State::default()
        };
        self.base.decide(
            limit,
            &mut looked_at,
            Hits::PEEK.into(),
            outcome.bucket_time,
        );
        looked_at.registers != state.registers
    }

    fn ttl_us(&self, limit: &Limit) -> u64 {
        self.life_us
            .map_or_else(|| self.base.ttl_us(limit), |life_us| life_us(limit))
    }
}

/// Each property named must find a history that the bug gets wrong.
fn must_be_found(candidate: &Candidate, by: &[Property]) {
    for property in by {
        match property.challenge(candidate, repeatable()) {
            Ok(()) => panic!("{property:?} did not find the bug"),
            Err(TestError::Fail(reason, _)) if reason.message().contains(BROKEN) => {}
            Err(other) => panic!("{property:?} stumbled: {other}"),
        }
    }
}

/// One test per bug: its name, its decision, and the properties that must find it.
macro_rules! planted_in {
    ($base:expr; $($bug:ident by $($property:ident)+;)+) => {
        /// The bugs and their names.
        pub(in crate::planted) static BUGS: &[(&str, super::Planted)] = &[$(
            (stringify!($bug), super::Planted {
                base: &$base,
                decide: super::$bug,
                life_us: None,
                usual_burst: None,
            })
        ),+];

        $(
            #[test]
            fn $bug() {
                let bug = BUGS.iter().find(|(name, _)| *name == stringify!($bug));
                crate::planted::must_be_found(
                    &crate::properties::Candidate::honest(&bug.unwrap().1),
                    &[$(crate::properties::Property::$property),+],
                );
            }
        )+
    };
}
use planted_in;

/// The same histories find nothing in the real algorithms.
#[test]
fn nothing_is_found_in_the_honest_ones() {
    let verdict = every_algorithm(&Property::ALL, repeatable());
    assert!(verdict.is_ok(), "{verdict:?}");
}
