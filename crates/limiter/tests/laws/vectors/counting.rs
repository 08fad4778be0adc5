//! What every algorithm counts, and what fixed windows count as the reference service does:
//! straddling hits whole, refused hits too, and a peek that passes at exactly the limit.
//!
//! How: a row is an operation on one bucket, and the rows of a table follow each other.
//!
//! What it deliberately does not do: move the clock (`smooth` and `clock` do).

use tollgate_limiter::algorithm::{FixedWindow, REGISTER_MAX};
use tollgate_limiter::{ALGORITHMS, Hits, State, Unit};

use tollgate_test_model::fixtures::{at, per};

/// Hits, and then: allowed, used before, remaining, the count kept.
type Row = (Hits, bool, u64, u64, u64);

/// Asks a fixed window of one minute, at 1234 seconds, one row after the other.
fn fixed(limit: u64, rows: &[Row]) {
    let mut state = State::default();
    for (number, &(hits, allowed, used_before, remaining, kept)) in rows.iter().enumerate() {
        let outcome = state.apply(&FixedWindow, &per(limit, Unit::Minute), hits, at(1_234));
        assert_eq!(
            (outcome.allowed, outcome.used_before, outcome.remaining),
            (allowed, used_before, remaining),
            "row {number}, {hits:?}"
        );
        assert_eq!(state.registers[0], kept, "row {number}, {hits:?}");
    }
}

use Hits::{Refund, Take};

#[test]
fn straddling_hits_count_whole() {
    fixed(
        10,
        &[
            (Take(8), true, 0, 2, 8),
            // 8 + 5 = 13 > 10: refused whole, counted whole.
            (Take(5), false, 8, 0, 13),
            // Only 8 passed, but 13 + 1 = 14 > 10.
            (Take(1), false, 13, 0, 14),
        ],
    );
}

#[test]
fn hits_that_reach_exactly_the_limit_pass() {
    fixed(
        10,
        &[
            (Take(9), true, 0, 1, 9),
            (Take(1), true, 9, 0, 10),
            (Take(1), false, 10, 0, 11),
        ],
    );
}

#[test]
fn looking_passes_at_exactly_the_limit_and_not_beyond() {
    fixed(
        10,
        &[
            (Take(0), true, 0, 10, 0),
            (Take(10), true, 0, 0, 10),
            // 10 + 0 = 10, not > 10, although one more would be refused.
            (Take(0), true, 10, 0, 10),
            (Take(1), false, 10, 0, 11),
            // 11 + 0 > 10.
            (Take(0), false, 11, 0, 11),
        ],
    );
}

#[test]
fn refunds_stop_at_zero_and_apply_at_once() {
    fixed(
        10,
        &[
            (Refund(5), true, 0, 10, 0),
            // Had the refund left −5, 11 would pass here.
            (Take(11), false, 0, 0, 11),
            (Refund(1), true, 11, 0, 10),
            (Take(0), true, 10, 0, 10),
            (Refund(3), true, 10, 3, 7),
            (Take(3), true, 7, 0, 10),
            (Refund(u64::MAX), true, 10, 10, 0),
            (Take(10), true, 0, 0, 10),
        ],
    );
}

#[test]
fn a_limit_of_zero_passes_looks_only() {
    fixed(
        0,
        &[
            (Take(0), true, 0, 0, 0),
            (Take(1), false, 0, 0, 1),
            (Take(0), false, 1, 0, 1),
        ],
    );
}

#[test]
fn the_largest_hits_never_wrap() {
    let most = REGISTER_MAX;
    fixed(
        10,
        &[
            (Take(1), true, 0, 9, 1),
            // 1 + (2^64 − 1) would be 0; a register holds 2^53 − 1 at most.
            (Take(u64::MAX), false, 1, 0, most),
            (Take(u64::MAX), false, most, 0, most),
            (Take(1), false, most, 0, most),
        ],
    );
    // With the largest limit, 2^32 − 1: one too many by the smallest margin.
    let largest = u64::from(u32::MAX);
    fixed(
        u32::MAX.into(),
        &[
            (Take(largest), true, 0, 0, largest),
            (Take(1), false, largest, 0, largest + 1),
        ],
    );
}

#[test]
fn fixed_windows_tell_hopeless_hits_nothing() {
    let mut state = State::default();
    let mut retry = |limit, hits| {
        let limit = per(limit, Unit::Minute);
        let outcome = state.apply(&FixedWindow, &limit, Take(hits), at(1_234));
        outcome.retry_us
    };
    assert_eq!(retry(10, 10), Some(0));
    assert_eq!(retry(10, 10), Some(26_000_000)); // 1260 − 1234
    assert_eq!(retry(10, 11), None); // more than any window allows
    assert_eq!(retry(0, 1), None);
}

// === what holds for all of them ===

/// Runs `test` for every algorithm with a fresh bucket that allows 10 a minute, at 1234 seconds.
fn every(test: impl Fn(&str, &mut dyn FnMut(Hits) -> (bool, u64))) {
    for algorithm in ALGORITHMS {
        let mut state = State::default();
        test(algorithm.name(), &mut |hits| {
            let outcome = state.apply(*algorithm, &per(10, Unit::Minute), hits, at(1_234));
            (outcome.allowed, outcome.remaining)
        });
    }
}

#[test]
fn every_algorithm_counts_to_its_limit() {
    every(|name, ask| {
        assert_eq!(ask(Take(4)), (true, 6), "{name}");
        assert_eq!(ask(Take(6)), (true, 0), "{name}");
        assert_eq!(ask(Take(0)), (true, 0), "{name}");
        assert!(!ask(Take(1)).0, "{name}");
    });
}

#[test]
fn every_algorithm_applies_a_refund_at_once_and_never_exceeds_the_limit() {
    every(|name, ask| {
        assert_eq!(ask(Take(10)), (true, 0), "{name}");
        assert_eq!(ask(Refund(4)), (true, 4), "{name}");
        assert_eq!(ask(Take(4)), (true, 0), "{name}");
        assert_eq!(ask(Refund(u64::MAX)), (true, 10), "{name}");
        assert_eq!(ask(Take(10)), (true, 0), "{name}");
    });
}

#[test]
fn no_algorithm_wraps() {
    every(|name, ask| {
        assert!(ask(Take(1)).0, "{name}");
        for _ in 0..3 {
            assert!(!ask(Take(u64::MAX)).0, "{name}");
        }
    });
}

#[test]
fn only_fixed_windows_count_refused_hits() {
    every(|name, ask| {
        assert!(!ask(Take(11)).0, "{name}");
        assert_eq!(ask(Take(1)).0, name != "fixed_window", "{name}");
    });
}

#[test]
fn every_algorithm_refuses_everything_at_a_limit_of_zero() {
    let none = per(0, Unit::Minute);
    for algorithm in ALGORITHMS {
        let ask = |hits: u64| State::default().apply(*algorithm, &none, Take(hits), at(1_234));
        assert!(ask(0).allowed, "{algorithm:?}");
        for hits in [1, 2, u64::MAX] {
            let outcome = ask(hits);
            assert!(!outcome.allowed, "{algorithm:?}");
            assert_eq!(outcome.remaining, 0, "{algorithm:?}");
            assert_eq!(outcome.retry_us, None, "{algorithm:?}");
        }
    }
}
