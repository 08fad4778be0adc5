//! Bugs put in on purpose: each must be found, or the harness is asleep.
//!
//! Why: a green property test says that no failing history was found, not that one would have been. How: each bug is
//! an algorithm, or a clock law, got wrong in one way that somebody might; it stands where the real one does and the
//! named properties are run on the same histories at every run. "laws" and "promise" next to "agreement" show that
//! the bug would be found without a model, too.
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
//! | **sliding window** | |
//! | weighs by what has gone instead of what is left | agreement, promise |
//! | rounds the weight down to whole hits | agreement, promise |
//! | forgets the previous window | agreement, promise |
//! | keeps it after a window with nothing in it | agreement, laws |
//! | counts what it refused | agreement, laws |
//! | gives back to the previous window first | agreement |
//! | reset at the next edge, whatever is in the present window | agreement, laws |
//! | retry a microsecond early | agreement, laws |
//! | **token bucket** | |
//! | refills whole hits only and forgets the rest (drift) | agreement, laws |
//! | rounds a part of a hit away in the caller's favour (drift) | agreement, laws, promise |
//! | counts time in whole milliseconds | agreement, laws |
//! | holds N whatever the burst | agreement, promise |
//! | counts what it refused | agreement, laws |
//! | retry a microsecond early | agreement, laws |
//! | reset a microsecond late | agreement, laws |
//! | is forgotten after a window, though the burst takes longer to fill | laws |
//! | **any algorithm** | |
//! | looking costs a hit | agreement, laws |
//! | keeps the low 32 bits of the hits | agreement, promise |
//! | forgets the bucket when the clock steps back | agreement, promise |
//! | takes an older `now` as it is (law 1 missing), and refills twice | agreement, promise |
//! | waits for the clock to return from a jump (law 2 missing) | agreement |
//! | brings back at exactly one window ahead, not only beyond | agreement |
//! | counts retry and reset from the bucket's time, not the caller's | agreement, laws |
//!
//! What it deliberately does not do: plant two bugs at once, or bugs that change no answer.

mod clock;
mod fixed_window;
mod sliding_window;
mod token_bucket;

use proptest::test_runner::TestError;
use tollgate::limiter::{ALGORITHMS, Algorithm, Hits, Limit, Outcome, State, Timestamp};

use crate::properties::{BROKEN, Candidate, Property, repeatable};

/// An algorithm with a bug in it.
struct Planted {
    /// Where everything but the bug comes from.
    base: &'static dyn Algorithm,
    decide: fn(&Limit, &mut State, Hits, Timestamp) -> Outcome,
    life_us: Option<fn(&Limit) -> u64>,
}

// === impl Planted ===

impl Algorithm for Planted {
    fn name(&self) -> &'static str {
        self.base.name()
    }

    fn promise(&self) -> &'static str {
        self.base.promise()
    }

    fn has_burst(&self) -> bool {
        self.base.has_burst()
    }

    fn decide(&self, limit: &Limit, state: &mut State, hits: Hits, now: Timestamp) -> Outcome {
        (self.decide)(limit, state, hits, now)
    }

    fn life_us(&self, limit: &Limit) -> u64 {
        self.life_us
            .map_or_else(|| self.base.life_us(limit), |life_us| life_us(limit))
    }
}

/// Each property named must find a history that the bug gets wrong.
fn must_be_found(candidate: &Candidate, by: &[Property]) {
    for property in by {
        match property.challenge(candidate, repeatable()) {
            Ok(()) => panic!("{property:?} is asleep"),
            Err(TestError::Fail(reason, _)) if reason.message().contains(BROKEN) => {}
            Err(other) => panic!("{property:?} stumbled: {other}"),
        }
    }
}

/// One test a bug: its name, how it decides, and who must find it.
macro_rules! planted_in {
    ($base:expr; $($bug:ident by $($property:ident)+;)+) => {$(
        #[test]
        fn $bug() {
            static PLANTED: super::Planted = super::Planted {
                base: &$base,
                decide: super::$bug,
                life_us: None,
            };
            crate::planted::must_be_found(
                &crate::properties::Candidate::honest(&PLANTED),
                &[$(crate::properties::Property::$property),+],
            );
        }
    )+};
}
use planted_in;

/// The same histories find nothing where nothing was planted.
#[test]
fn nothing_is_found_in_the_honest_ones() {
    for algorithm in ALGORITHMS {
        for property in Property::ALL {
            let verdict = property.challenge(&Candidate::honest(*algorithm), repeatable());
            assert!(verdict.is_ok(), "{algorithm:?}: {verdict:?}");
        }
    }
}
