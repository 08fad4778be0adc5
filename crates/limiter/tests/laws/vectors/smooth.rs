//! Sliding windows, token buckets and leaky buckets, worked out by hand: weights, refills, and the
//! first instant that passes.
//!
//! What it deliberately does not do: step the clock back (`clock` does).

use tollgate_limiter::algorithm::{LeakyBucket, SlidingWindow, TokenBucket, TokenBucketInterval};
use tollgate_limiter::{Algorithm, Hits, Limit, Outcome, State, Unit};

use Hits::{Refund, Take};
use tollgate_test_model::fixtures::{SECOND_US, at, per, with_burst};

/// Microseconds, hits, and then: allowed, remaining, retry, reset.
pub(super) type Row = (u64, Hits, bool, u64, Option<u64>, u64);

pub(super) fn ask(algorithm: &dyn Algorithm, limit: &Limit, rows: &[Row]) {
    let mut state = State::default();
    for (number, &(us, hits, allowed, remaining, retry_us, reset_us)) in rows.iter().enumerate() {
        let outcome = state.apply(algorithm, limit, hits, at(0).plus_us(us));
        let expected = Outcome {
            allowed,
            remaining,
            retry_us,
            reset_us,
            ..outcome
        };
        assert_eq!(outcome, expected, "row {number}, {hits:?}");
    }
}

const S: u64 = SECOND_US;

#[test]
fn sliding_windows_weigh_the_previous_window_by_its_remaining_part() {
    ask(
        &SlidingWindow,
        &per(10, Unit::Minute),
        &[
            // Gone when the window after this one ends: 120 − 59.
            (59 * S, Take(10), true, 0, Some(0), 61 * S),
            // At 60 all ten still weigh; one fits when 10 × (60 − e) / 60 ≤ 9: e = 6.
            (60 * S, Take(1), false, 0, Some(6 * S), 60 * S),
            // A microsecond before that ten weigh a little more than nine.
            (66 * S - 1, Take(1), false, 0, Some(1), 54 * S + 1),
            (66 * S, Take(1), true, 0, Some(0), 54 * S + 60 * S),
            // Half-way ten weigh 5, with the one that is 6, and 4 are left.
            (90 * S, Take(0), true, 4, Some(0), 90 * S),
            // 5 fit beside the one when ten weigh 4: 60 − e = 24, so e = 36, at 96.
            (90 * S, Take(5), false, 4, Some(6 * S), 90 * S),
            (96 * S, Take(5), true, 0, Some(0), 84 * S),
            // Ten hits need all of it: six in this window weigh until it and the next are over, at
            // 180.
            (96 * S, Take(10), false, 0, Some(84 * S), 84 * S),
            // Eleven never fit.
            (96 * S, Take(11), false, 0, None, 84 * S),
        ],
    );
}

#[test]
fn sliding_windows_forget_after_a_window_with_nothing_in_it() {
    ask(
        &SlidingWindow,
        &per(10, Unit::Minute),
        &[
            (0, Take(10), true, 0, Some(0), 120 * S),
            // 10 × 1 µs / 60 s is still something: nine are left whole, and ten do not fit yet.
            (120 * S - 1, Take(10), false, 9, Some(1), 1),
            (120 * S, Take(10), true, 0, Some(0), 120 * S),
        ],
    );
}

#[test]
fn sliding_windows_give_back_to_the_present_window_first() {
    ask(
        &SlidingWindow,
        &per(10, Unit::Minute),
        &[
            (0, Take(8), true, 2, Some(0), 120 * S),
            // Half-way into the next: 8 weigh 4, with 4 more 8 are used.
            (90 * S, Take(4), true, 2, Some(0), 90 * S),
            // Five back: the four of this window, and one of the eight. 7 weigh 3.5, so 6.5 are
            // left.
            (90 * S, Refund(5), true, 6, Some(0), 30 * S),
            // Seven fit when 7 × (60 − e) / 60 ≤ 3, rounded up to a microsecond: e = 60 − 180/7 =
            // 34.285714…
            (90 * S, Take(7), false, 6, Some(4_285_715), 30 * S),
        ],
    );
}

#[test]
fn token_buckets_refill_a_part_of_a_hit_at_a_time() {
    ask(
        &TokenBucket,
        &per(10, Unit::Minute),
        &[
            // One hit comes every 60 / 10 = 6 seconds.
            (0, Take(10), true, 0, Some(0), 60 * S),
            (0, Take(1), false, 0, Some(6 * S), 60 * S),
            (6 * S - 1, Take(1), false, 0, Some(1), 54 * S + 1),
            (6 * S, Take(1), true, 0, Some(0), 60 * S),
            // Fifteen seconds bring 2.5.
            (21 * S, Take(0), true, 2, Some(0), 45 * S),
            (21 * S, Take(3), false, 2, Some(3 * S), 45 * S),
            (21 * S, Take(11), false, 2, None, 45 * S),
            // 7.5 are missing and 5 come back: 2.5 missing, 7.5 there, full in 2.5 × 6 = 15.
            (21 * S, Refund(5), true, 7, Some(0), 15 * S),
            (81 * S, Take(10), true, 0, Some(0), 60 * S),
        ],
    );
}

#[test]
fn token_buckets_do_not_drift() {
    // Seven a second: a hit every 142857.142857… µs, so the k-th at k × 10^6 / 7, rounded up; the
    // seventh is exact.
    let instants = [142_858, 285_715, 428_572, 571_429, 714_286, 857_143, S];
    let limit = per(7, Unit::Second);
    let mut state = State::default();
    assert!(state.apply(&TokenBucket, &limit, Take(7), at(0)).allowed);
    for us in instants {
        let mut ask = |us| state.apply(&TokenBucket, &limit, Take(1), at(0).plus_us(us));
        assert!(!ask(us - 1).allowed, "{us}");
        assert!(ask(us).allowed, "{us}");
    }
}

#[test]
fn token_buckets_count_faster_than_microseconds() {
    // 3 × 10^9 a second are 3,000 a microsecond.
    let limit = per(3_000_000_000, Unit::Second);
    ask(
        &TokenBucket,
        &limit,
        &[
            (0, Take(3_000_000_000), true, 0, Some(0), S),
            (1, Take(3_001), false, 3_000, Some(1), S - 1),
            (1, Take(3_000), true, 0, Some(0), S),
        ],
    );
}

#[test]
fn a_burst_is_the_largest_request_that_passes() {
    // Ten a minute, three at once.
    ask(
        &TokenBucket,
        &with_burst(10, Unit::Minute, 3),
        &[
            (0, Take(4), false, 3, None, 0),
            (0, Take(3), true, 0, Some(0), 18 * S),
            (6 * S, Take(2), false, 1, Some(6 * S), 12 * S),
            (3_600 * S, Take(4), false, 3, None, 0),
        ],
    );
    // Ten a minute, twenty at once.
    ask(
        &TokenBucket,
        &with_burst(10, Unit::Minute, 20),
        &[
            (0, Take(20), true, 0, Some(0), 120 * S),
            (60 * S, Take(11), false, 10, Some(6 * S), 60 * S),
        ],
    );
}

#[test]
fn a_bucket_refilled_in_steps_gets_all_of_it_at_the_edge() {
    // Ten at 60, 120, 180 and so on, up to 25.
    ask(
        &TokenBucketInterval,
        &with_burst(10, Unit::Minute, 25),
        &[
            // 25 are missing: 10 + 10 + 5, at 60, 120 and 180.
            (50 * S, Take(25), true, 0, Some(0), 130 * S),
            (60 * S - 1, Take(1), false, 0, Some(1), 120 * S + 1),
            (60 * S, Take(10), true, 0, Some(0), 180 * S),
            // Eleven take two edges, 120 and 180.
            (60 * S, Take(11), false, 0, Some(120 * S), 180 * S),
            (60 * S, Take(26), false, 0, None, 180 * S),
            // 19 are missing: 120 and 180.
            (60 * S, Refund(6), true, 6, Some(0), 120 * S),
            (179 * S, Take(0), true, 16, Some(0), S),
            (180 * S, Take(25), true, 0, Some(0), 180 * S),
            // Only 25 are held, however long the bucket is idle.
            (3_600 * S, Take(26), false, 25, None, 0),
        ],
    );
}

#[test]
fn a_leaky_bucket_lets_one_through_at_a_time() {
    assert_eq!(LeakyBucket.facts().default_burst(10), 1);
    assert_eq!(LeakyBucket.facts().default_burst(0), 0);
    assert_eq!(TokenBucket.facts().default_burst(10), 10);
    ask(
        &LeakyBucket,
        &with_burst(10, Unit::Minute, 1),
        &[
            // One leaks out in 60 / 10 = 6 seconds.
            (0, Take(1), true, 0, Some(0), 6 * S),
            (0, Take(1), false, 0, Some(6 * S), 6 * S),
            (6 * S - 1, Take(1), false, 0, Some(1), 1),
            (6 * S, Take(1), true, 0, Some(0), 6 * S),
            (6 * S, Take(2), false, 0, None, 6 * S),
            (3_600 * S, Take(2), false, 1, None, 0),
        ],
    );
    // With a burst of three, three requests pass at once, and then one at a time.
    ask(
        &LeakyBucket,
        &with_burst(10, Unit::Minute, 3),
        &[
            (0, Take(3), true, 0, Some(0), 18 * S),
            (9 * S, Take(2), false, 1, Some(3 * S), 9 * S),
            (9 * S, Take(1), true, 0, Some(0), 15 * S),
        ],
    );
}

#[test]
fn a_reload_keeps_what_was_consumed() {
    let mut state = State::default();
    let mut ask = |limit: Limit, hits| {
        let outcome = state.apply(&TokenBucket, &limit, hits, at(0));
        (outcome.allowed, outcome.used_before, outcome.remaining)
    };
    assert_eq!(ask(per(10, Unit::Minute), Take(8)), (true, 0, 2));
    // Of 5, 8 are used: not even a peek passes.
    assert_eq!(ask(per(5, Unit::Minute), Take(0)), (false, 8, 0));
    assert_eq!(ask(per(100, Unit::Minute), Take(0)), (true, 8, 92));
    assert_eq!(ask(per(10, Unit::Minute), Take(2)), (true, 8, 0));
}

/// Operations that change nothing do not matter: neither a refusal nor a peek makes the old rate
/// count.
#[test]
fn a_reload_fills_at_the_new_rate_from_the_last_change() {
    for algorithm in [
        &TokenBucket as &dyn Algorithm,
        &LeakyBucket,
        &TokenBucketInterval,
    ] {
        let (slow, fast) = (
            with_burst(10, Unit::Minute, 100),
            with_burst(60, Unit::Minute, 100),
        );
        let mut state = State::default();
        let mut ask = |limit: &Limit, hits, seconds| {
            let outcome = state.apply(algorithm, limit, hits, at(seconds));
            (outcome.allowed, outcome.used_before)
        };
        assert_eq!(ask(&slow, Take(100), 1_200), (true, 0));
        assert_eq!(
            ask(&slow, Take(100), 1_259),
            (
                false,
                if algorithm.name() == "token_bucket_interval" {
                    100
                } else {
                    91
                }
            )
        );
        assert!(ask(&slow, Take(0), 1_259).0);
        // One minute of the new rate.
        assert_eq!(ask(&fast, Take(0), 1_260), (true, 40), "{algorithm:?}");
        assert_eq!(ask(&fast, Take(60), 1_260), (true, 40), "{algorithm:?}");
        // From there on the old one again.
        assert_eq!(ask(&slow, Take(0), 1_320), (true, 90), "{algorithm:?}");
    }
}
