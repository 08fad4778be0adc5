//! A stepped clock: the two laws, worked out by hand.
//!
//! How: ten a minute, a bucket first asked at 1234 seconds (34 into the minute that began at 1200),
//! and then asked by a clock that shows another time.
//!
//! What it deliberately does not do: try all combinations (`histories` does).

use std::num::{NonZeroU16, NonZeroU32};

use tollgate_limiter::algorithm::{
    Concurrency, FixedWindow, LeakyBucket, SlidingLog, SlidingWindow, SlidingWindowSegments,
    TokenBucket, TokenBucketInterval,
};
use tollgate_limiter::{Algorithm, Hits, Limit, Outcome, State, Unit};

use tollgate_test_model::fixtures::{SECOND_US, at, per};

/// All ten taken at 1234, and then one more when the clock shows `clock`.
fn one_more_at(algorithm: &dyn Algorithm, clock: u64) -> Outcome {
    let limit = match algorithm.name() {
        "concurrency" => Limit::in_flight(10, NonZeroU32::new(60).unwrap()),
        _ => per(10, Unit::Minute).with_segments(NonZeroU16::new(6).unwrap()),
    };
    let mut state = State::default();
    assert!(
        state
            .apply(algorithm, &limit, Hits::Take(10), at(1_234))
            .allowed
    );
    state.apply(algorithm, &limit, Hits::Take(1), at(clock))
}

/// Clock, and then: allowed, retry in seconds.
type Row = (u64, bool, u64);

fn check(algorithm: &dyn Algorithm, rows: &[Row]) {
    for &(clock, allowed, retry) in rows {
        let outcome = one_more_at(algorithm, clock);
        let expected = (allowed, Some(retry * SECOND_US));
        assert_eq!(
            (outcome.allowed, outcome.retry_us),
            expected,
            "{} at {clock}",
            algorithm.name()
        );
    }
}

#[test]
fn fixed_windows() {
    check(
        &FixedWindow,
        &[
            (1_234, false, 26),
            // Law 1: it is still 1234 for the bucket, whose window ends at 1260, 30 seconds from
            // the caller's 1230.
            (1_230, false, 30),
            // So it is in the caller's previous window, 1260 − 1199,
            (1_199, false, 61),
            // and at exactly one window back, 1260 − 1174.
            (1_174, false, 86),
            // Law 2, a second further: all ten are now in the window from 1140 to 1200.
            (1_173, false, 27),
            (100, false, 20),
            // A clock that is ahead needs no law.
            (1_260, true, 0),
            (100_000, true, 0),
        ],
    );
}

#[test]
fn sliding_windows() {
    check(
        &SlidingWindow,
        &[
            // One fits when ten weigh nine, six seconds into the next window, at 1266.
            (1_234, false, 32),
            (1_230, false, 36),
            (1_174, false, 92),
            // Brought back to the window from 1140: six seconds after 1200.
            (1_173, false, 33),
            (1_265, false, 1),
            (1_266, true, 0),
        ],
    );
}

#[test]
fn token_buckets() {
    for algorithm in [&TokenBucket as &dyn Algorithm, &LeakyBucket] {
        check(
            algorithm,
            &[
                // One comes every six seconds, so at 1240.
                (1_234, false, 6),
                (1_230, false, 10),
                (1_174, false, 66),
                // Brought back: empty as of 1173.
                (1_173, false, 6),
                (1_239, false, 1),
                (1_240, true, 0),
            ],
        );
    }
}

#[test]
fn token_buckets_refilled_in_steps() {
    check(
        &TokenBucketInterval,
        &[
            // Ten come at 1260.
            (1_234, false, 26),
            (1_230, false, 30),
            (1_174, false, 86),
            // Brought back: empty as of 1173, and 1200 is the next edge.
            (1_173, false, 27),
            (1_259, false, 1),
            (1_260, true, 0),
        ],
    );
}

#[test]
fn marks_by_hand() {
    for algorithm in [&SlidingLog as &dyn Algorithm, &Concurrency] {
        check(
            algorithm,
            &[
                // A minute after 1234, at 1294.
                (1_234, false, 60),
                (1_230, false, 64),
                (1_174, false, 120),
                // Brought back: taken at 1173.
                (1_173, false, 60),
                (1_293, false, 1),
                (1_294, true, 0),
                // In the first minute there is: taken at 30.
                (30, false, 60),
            ],
        );
    }
}

#[test]
fn segments() {
    check(
        &SlidingWindowSegments,
        &[
            // In the ten seconds from 1230 on: a minute after that, at 1290.
            (1_234, false, 56),
            (1_230, false, 60),
            (1_174, false, 116),
            // Brought back by 61 seconds: from 1169 on, until 1229.
            (1_173, false, 56),
            (1_289, false, 1),
            (1_290, true, 0),
        ],
    );
}

#[test]
fn a_hit_at_the_edge_belongs_to_the_new_window() {
    let limit = per(10, Unit::Minute);
    let mut state = State::default();
    let mut ask = |clock| state.apply(&FixedWindow, &limit, Hits::Take(10), clock);
    assert!(ask(at(1_200).minus_us(1)).allowed);
    assert!(ask(at(1_200)).allowed);
    assert!(!ask(at(1_200)).allowed);
    assert!(!ask(at(1_260).minus_us(1)).allowed);
    assert!(ask(at(1_260)).allowed);
}

#[test]
fn hits_within_the_limit_pass_on_an_old_clock_too() {
    for algorithm in tollgate_limiter::ALGORITHMS {
        let limit = per(10, Unit::Minute);
        let mut state = State::default();
        for clock in [1_234, 1_200, 1_174, 500, 1_234] {
            let outcome = state.apply(*algorithm, &limit, Hits::Take(2), at(clock));
            assert!(outcome.allowed, "{algorithm:?} at {clock}");
            assert_eq!(outcome.retry_us, Some(0), "{algorithm:?} at {clock}");
        }
    }
}
