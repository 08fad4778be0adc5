//! Near, over, within, shadow: the reference service's arithmetic of its counters.
//!
//! The rules, with `near` the limit times the ratio, in 32-bit floats, rounded down:
//!
//! - passed: within += hits; and when after > near, near_limit += hits if before ≥ near, else after
//!   − near;
//! - refused: over += hits if before ≥ limit, else after − limit and near_limit += limit −
//!   max(near, before);
//! - a rule in shadow mode: shadow_mode += the same as over.
//!
//! What it deliberately does not do: ask a bucket. Each row states whether the hits passed.

use tollgate_limiter::algorithm::{FixedWindow, TokenBucket};
use tollgate_limiter::{Algorithm, Check, Hits, Key, Limit, Outcome, Tally, Unit};

use tollgate_test_model::fixtures::{at, per, with_burst};

fn tally(limit: Limit, ratio: f32, before: u64, hits: Hits, allowed: bool, shadow: bool) -> Tally {
    let algorithm: &'static dyn Algorithm = if limit.burst() == limit.requests() {
        &FixedWindow
    } else {
        &TokenBucket
    };
    let check = Check {
        key: Key(0),
        limit,
        algorithm,
        operation: hits.into(),
        fingerprint: 0,
        shared_bucket: false,
        may_fall_back: false,
        is_exact: false,
        bucket_name: None,
    };
    let outcome = Outcome {
        blocked: false,
        reservation: tollgate_limiter::ReservationOutcome::None,
        bucket_time: at(1_234),
        allowed,
        used_before: before,
        remaining: 0,
        reset_us: 1,
        retry_us: None,
    };
    Tally::of(&check, &outcome, shadow, ratio)
}

/// Of a limit: before, hits, and then near_limit and within_limit.
type Passed = (u64, f32, u64, u64, u64);

const PASSED: &[Passed] = &[
    // near = 10 × 0.8 = 8.
    (10, 0.8, 0, 1, 0),  // after 1
    (10, 0.8, 7, 1, 0),  // after 8, not beyond 8
    (10, 0.8, 8, 1, 1),  // after 9, all of it beyond
    (10, 0.8, 6, 4, 2),  // after 10: 10 − 8
    (10, 0.8, 9, 1, 1),  // after 10, exactly the limit
    (10, 0.8, 0, 10, 2), // after 10: 10 − 8
    (10, 0.8, 10, 0, 0), // a look is no hits, wherever it falls
    (10, 0.8, 3, 0, 0),
    // near = 15 × 0.8 = 12; in 64 bits 0.8f32 × 15 is 12.00000018, and 12 as well.
    (15, 0.8, 12, 1, 1),
    (15, 0.8, 11, 1, 0),
    // near = 3 × 0.8 = 2.4, so 2.
    (3, 0.8, 2, 1, 1),
    (3, 0.8, 1, 1, 0),
    // 0.7f32 is 0.699999988; times 10 that is 6.99999988, which 32 bits round to 7 and 64 would
    // not.
    (10, 0.7, 6, 1, 0), // after 7, not beyond 7; it would be beyond 6
    (10, 0.7, 7, 1, 1),
    // 2^32 − 1 becomes 2^32 in 32 bits, and 0.8f32 is 13421773 / 2^24: near = 13421773 × 2^8 =
    // 3435973888.
    (4_294_967_295, 0.8, 3_435_973_886, 2, 0), // after …888
    (4_294_967_295, 0.8, 3_435_973_887, 2, 1), // after …889: one beyond
    (4_294_967_295, 0.8, 3_435_973_888, 5, 5),
    // With a ratio of 1 near is 2^32, which no count that passed exceeds,
    (4_294_967_295, 1.0, 4_294_967_294, 1, 0),
    // and 2^24 + 1 becomes 2^24: its last hit is near.
    (16_777_217, 1.0, 16_777_216, 1, 1),
    (16_777_217, 1.0, 16_777_215, 1, 0),
    // A ratio of 0 makes every hit near.
    (10, 0.0, 0, 3, 3),
];

#[test]
fn hits_that_passed() {
    for &(limit, ratio, before, hits, near) in PASSED {
        let expected = Tally {
            total_hits: hits,
            near_limit: near,
            within_limit: hits,
            ..Tally::default()
        };
        for shadow in [false, true] {
            assert_eq!(
                tally(
                    per(limit, Unit::Minute),
                    ratio,
                    before,
                    Hits::Take(hits),
                    true,
                    shadow
                ),
                expected,
                "{before} + {hits} of {limit}"
            );
        }
    }
}

/// Of a limit: before, hits, and then over_limit and near_limit.
type Refused = (u64, f32, u64, u64, u64, u64);

const REFUSED: &[Refused] = &[
    // near = 10 × 0.8 = 8.
    (10, 0.8, 10, 1, 1, 0), // before is the limit: all over
    (10, 0.8, 13, 4, 4, 0), // and beyond it
    (10, 0.8, 8, 5, 3, 2),  // after 13: 13 − 10 over; 10 − max(8, 8) near
    (10, 0.8, 9, 5, 4, 1),  // after 14: 4 over; 10 − max(8, 9) near
    (10, 0.8, 5, 10, 5, 2), // after 15: 5 over; 10 − max(8, 5) near
    (10, 0.8, 0, 11, 1, 2), // after 11
    (10, 0.8, 11, 0, 0, 0), // a look at a bucket that is over
    // Nothing fits in a limit of 0: before ≥ limit.
    (0, 0.8, 0, 1, 1, 0),
    (0, 0.8, 7, 3, 3, 0),
    // The largest limit: near = 3435973888 (see above); after 2^32: 1 over; 4294967295 − 4294967294
    // near.
    (4_294_967_295, 0.8, 4_294_967_294, 2, 1, 1),
    // after 2^32 + 9: 10 over; 4294967295 − 3435973888 near.
    (4_294_967_295, 0.8, 10, 4_294_967_295, 10, 858_993_407),
    // With a ratio of 1, 2^32 − 1 less 2^32 is nothing.
    (4_294_967_295, 1.0, 4_294_967_294, 2, 1, 0),
    // 2^64 − 1 hits: after is at most 2^64 − 1 too.
    (10, 0.8, 0, u64::MAX, u64::MAX - 10, 2),
    (10, 0.8, 9, u64::MAX, u64::MAX - 10, 1),
    (10, 0.8, 10, u64::MAX, u64::MAX, 0),
];

#[test]
fn hits_that_were_refused() {
    for &(limit, ratio, before, hits, over, near) in REFUSED {
        for shadow in [false, true] {
            let expected = Tally {
                total_hits: hits,
                over_limit: over,
                near_limit: near,
                shadow_mode: if shadow { over } else { 0 },
                ..Tally::default()
            };
            assert_eq!(
                tally(
                    per(limit, Unit::Minute),
                    ratio,
                    before,
                    Hits::Take(hits),
                    false,
                    shadow
                ),
                expected,
                "{before} + {hits} of {limit}, shadow {shadow}"
            );
        }
    }
}

#[test]
fn refunds_are_counted_as_negative_hits() {
    let expected = Tally {
        negative_hits: 5,
        ..Tally::default()
    };
    for shadow in [false, true] {
        let limit = per(10, Unit::Minute);
        assert_eq!(
            tally(limit, 0.8, 9, Hits::Refund(5), true, shadow),
            expected
        );
    }
}

#[test]
fn with_a_burst_the_burst_is_the_limit() {
    // Five a minute, twenty at once: near = 20 × 0.8 = 16.
    let limit = with_burst(5, Unit::Minute, 20);
    let passed = tally(limit, 0.8, 14, Hits::Take(4), true, false);
    assert_eq!((passed.near_limit, passed.over_limit), (2, 0)); // after 18: 18 − 16
    let refused = tally(limit, 0.8, 18, Hits::Take(4), false, false);
    // A token bucket keeps nothing of what it refuses, so there is nothing to split: all four are
    // over.
    assert_eq!((refused.near_limit, refused.over_limit), (0, 4));
}

#[test]
fn a_ratio_that_is_no_number_counts_every_hit_as_near_and_ends_nothing() {
    for (ratio, near) in [(f32::NAN, 3), (-1.0, 3), (f32::INFINITY, 0)] {
        let said = tally(per(10, Unit::Minute), ratio, 0, Hits::Take(3), true, false);
        assert_eq!(said.near_limit, near, "{ratio}");
    }
}
