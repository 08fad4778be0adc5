//! Undone takes, worked out by hand: as far as they still weigh, and never better than no take.
//!
//! How: ten a minute. Rows identify the take that is undone by its time.
//!
//! What it deliberately does not do: use a store, the only caller of undo.

use std::num::NonZeroU32;

use tollgate_limiter::algorithm::{
    Concurrency, FixedWindow, SlidingLog, SlidingWindow, TokenBucket, TokenBucketInterval,
};
use tollgate_limiter::{ALGORITHMS, Algorithm, Hits, Holder, Limit, Operation, State, Unit};

use Hits::Take;
use tollgate_test_model::fixtures::{SECOND_US, at, per};

/// Undoes this many that were taken at that second.
fn undo(hits: u64, seconds: u64) -> Hits {
    let taken_at = at(seconds);
    Hits::Undo { hits, taken_at }
}

/// Seconds, hits, and then: remaining.
type Row = (u64, Hits, u64);

fn check(algorithm: &dyn Algorithm, rows: &[Row]) {
    let mut state = State::default();
    for (number, &(seconds, hits, remaining)) in rows.iter().enumerate() {
        let outcome = state.apply(algorithm, &per(10, Unit::Minute), hits, at(seconds));
        assert!(outcome.allowed, "row {number}, {hits:?}");
        assert_eq!(outcome.remaining, remaining, "row {number}, {hits:?}");
        assert_eq!(outcome.bucket_time, at(seconds), "row {number}, {hits:?}");
    }
}

#[test]
fn in_fixed_windows_until_the_window_turns() {
    check(
        &FixedWindow,
        &[
            (50, Take(4), 6),
            (55, Take(3), 3),
            (59, undo(4, 50), 7),
            // The three from 55 no longer count, and the six are another caller's.
            (60, Take(6), 4),
            (60, undo(3, 55), 4),
        ],
    );
}

#[test]
fn in_sliding_windows_where_it_was_taken() {
    check(
        &SlidingWindow,
        &[
            (59, Take(8), 2),
            (60, Take(2), 0),
            // Half-way the eight weigh four, beside the two.
            (90, Take(0), 4),
            (90, undo(8, 59), 8),
            // Of two windows ago, which weighs nothing.
            (120, undo(8, 59), 8),
        ],
    );
}

#[test]
fn in_logs_the_very_hits() {
    check(
        &SlidingLog,
        &[
            (0, Take(2), 8),
            (10, Take(3), 5),
            (20, undo(3, 10), 8),
            // So the two from 0 are still there, until 60.
            (59, Take(0), 8),
            (60, Take(0), 10),
        ],
    );
}

#[test]
fn undo_returns_less_after_a_bucket_has_refilled() {
    check(
        &TokenBucket,
        &[
            (0, Take(10), 0),
            // Five come in thirty seconds, and are taken: had the ten not been, there would be
            // five.
            (30, Take(5), 0),
            (30, undo(10, 0), 5),
            (60, undo(5, 30), 10), // all of it has come already: 5 + 5
            (60, Take(10), 0),
            (60, undo(5, 30), 0),
        ],
    );
    check(
        &TokenBucketInterval,
        &[
            (50, Take(10), 0),
            (59, undo(10, 50), 10),
            (59, Take(4), 6),
            // Ten come at 60, of which six overflow.
            (60, Take(10), 0),
            (60, undo(4, 59), 0),
        ],
    );
}

#[test]
fn of_slots_the_very_ones() {
    let limit = Limit::in_flight(10, NonZeroU32::new(60).unwrap());
    let mut state = State::default();
    let mut ask = |who, hits, clock| {
        let holder = Some(Holder::from_hash(who));
        let outcome = state.apply(&Concurrency, &limit, Operation { hits, holder }, at(clock));
        (outcome.remaining, outcome.reset_us / SECOND_US)
    };
    assert_eq!(ask(1, Take(1), 0), (9, 60));
    assert_eq!(ask(2, Take(1), 10), (8, 60));
    assert_eq!(ask(1, Take(2), 10), (6, 60));
    assert_eq!(ask(1, undo(2, 10), 20), (8, 50)); // not 2's of the same time
    assert_eq!(ask(2, undo(1, 10), 20), (9, 40)); // 1's from 0 is left
    assert_eq!(ask(1, undo(1, 10), 20), (9, 40)); // already undone
}

#[test]
fn hits_taken_before_a_backward_clock_step_stay_taken() {
    for algorithm in ALGORITHMS {
        let mut state = State::default();
        let mut ask = |hits, clock| {
            let outcome = state.apply(*algorithm, &per(10, Unit::Minute), hits, at(clock));
            (outcome.allowed, outcome.remaining, outcome.bucket_time)
        };
        assert_eq!(ask(Take(4), 1_234), (true, 6, at(1_234)), "{algorithm:?}");
        // Law 2: the four were taken at 100, when the clock says 100.
        assert_eq!(
            ask(undo(4, 1_234), 100),
            (true, 6, at(100)),
            "{algorithm:?}"
        );
        // Law 1: it is 100 at 90 as well.
        assert_eq!(ask(Take(2), 90), (true, 4, at(100)), "{algorithm:?}");
        assert_eq!(ask(undo(2, 100), 90), (true, 6, at(100)), "{algorithm:?}");
    }
}
