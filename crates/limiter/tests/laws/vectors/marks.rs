//! Marks, worked out by hand: logged hits, segments, held slots.
//!
//! What it deliberately does not do: step the clock back (`clock` does), or undo a take (`undo`
//! does).

use std::num::{NonZeroU16, NonZeroU32};

use tollgate_limiter::algorithm::{Concurrency, SlidingLog, SlidingWindowSegments};
use tollgate_limiter::{Algorithm, Hits, Holder, Limit, Operation, State, Unit};

use super::smooth::ask;
use Hits::{Refund, Take};
use tollgate_test_model::fixtures::{SECOND_US, at, per};

const S: u64 = SECOND_US;

/// A limit with a window that slides in so many steps.
fn in_segments(requests: u64, unit: Unit, segments: u16) -> Limit {
    per(requests, unit).with_segments(NonZeroU16::new(segments).unwrap())
}

#[test]
fn sliding_logs_know_every_hit() {
    ask(
        &SlidingLog,
        &per(10, Unit::Minute),
        &[
            (0, Take(4), true, 6, Some(0), 60 * S),
            (20 * S, Take(6), true, 0, Some(0), 60 * S),
            // The first four go at 60, the last six at 80.
            (59 * S, Take(1), false, 0, Some(S), 21 * S),
            (60 * S - 1, Take(4), false, 0, Some(1), 20 * S + 1),
            // Four have gone; a fifth fits when the six do.
            (60 * S, Take(5), false, 4, Some(20 * S), 20 * S),
            (60 * S, Take(4), true, 0, Some(0), 60 * S),
            (60 * S, Take(11), false, 0, None, 60 * S),
            (80 * S, Take(0), true, 6, Some(0), 40 * S),
            // Three of the four from 60 back: one is left until 120.
            (80 * S, Refund(3), true, 9, Some(0), 40 * S),
            (120 * S, Take(10), true, 0, Some(0), 60 * S),
        ],
    );
}

#[test]
fn sliding_logs_refund_the_oldest() {
    ask(
        &SlidingLog,
        &per(10, Unit::Minute),
        &[
            (0, Take(4), true, 6, Some(0), 60 * S),
            (20 * S, Take(6), true, 0, Some(0), 60 * S),
            // The four from 0 and one from 20: five go at 80, and none at 60.
            (30 * S, Refund(5), true, 5, Some(0), 50 * S),
            (60 * S, Take(6), false, 5, Some(20 * S), 20 * S),
        ],
    );
}

#[test]
fn segments_leave_one_at_a_time() {
    // Of 15 seconds each.
    ask(
        &SlidingWindowSegments,
        &in_segments(10, Unit::Minute, 4),
        &[
            // In the one from 0 to 15, which leaves at 60, whenever in it.
            (14 * S, Take(4), true, 6, Some(0), 46 * S),
            // In the one from 15 to 30, which leaves at 75.
            (15 * S, Take(6), true, 0, Some(0), 60 * S),
            (59 * S, Take(1), false, 0, Some(S), 16 * S),
            (60 * S - 1, Take(4), false, 0, Some(1), 15 * S + 1),
            // All four leave at once, for the one from 60 to 75, which leaves at 120.
            (60 * S, Take(4), true, 0, Some(0), 60 * S),
            (74 * S, Take(1), false, 0, Some(S), 46 * S),
            (75 * S, Take(6), true, 0, Some(0), 60 * S),
            (75 * S, Take(11), false, 0, None, 60 * S),
        ],
    );
}

#[test]
fn segments_begin_with_the_first_whole_microsecond() {
    // A third of a second is 333,333.3… µs: the second segment begins at 333,334.
    ask(
        &SlidingWindowSegments,
        &in_segments(1, Unit::Second, 3),
        &[
            (333_333, Take(1), true, 0, Some(0), 666_667),
            (S - 1, Take(1), false, 0, Some(1), 1),
            (S, Take(1), true, 0, Some(0), S),
        ],
    );
    ask(
        &SlidingWindowSegments,
        &in_segments(1, Unit::Second, 3),
        &[
            (333_334, Take(1), true, 0, Some(0), S),
            (1_333_333, Take(1), false, 0, Some(1), 1),
            (1_333_334, Take(1), true, 0, Some(0), S),
        ],
    );
}

#[test]
fn one_segment_is_a_fixed_window_that_counts_nothing_it_refused() {
    ask(
        &SlidingWindowSegments,
        &in_segments(10, Unit::Minute, 1),
        &[
            (34 * S, Take(9), true, 1, Some(0), 26 * S),
            (34 * S, Take(5), false, 1, Some(26 * S), 26 * S),
            (34 * S, Take(1), true, 0, Some(0), 26 * S),
            (60 * S, Take(10), true, 0, Some(0), 60 * S),
        ],
    );
}

// === slots ===

/// Seconds, holder (0 for none), hits, and then: allowed, remaining, retry and reset in seconds.
type Row = (u64, u64, Hits, bool, u64, Option<u64>, u64);

/// Three in flight, for a minute each.
fn held(rows: &[Row]) {
    let limit = Limit::in_flight(3, NonZeroU32::new(60).unwrap());
    let mut state = State::default();
    for (number, &(seconds, who, hits, allowed, remaining, retry, reset)) in rows.iter().enumerate()
    {
        let holder = (who > 0).then(|| Holder::from_hash(who));
        let outcome = state.apply(
            &Concurrency,
            &limit,
            Operation { hits, holder },
            at(seconds),
        );
        assert_eq!(
            (
                outcome.allowed,
                outcome.remaining,
                outcome.retry_us,
                outcome.reset_us
            ),
            (allowed, remaining, retry.map(|s| s * S), reset * S),
            "row {number}, {hits:?}"
        );
    }
}

#[test]
fn a_slot_is_held_until_its_holder_frees_it_or_its_time_is_over() {
    held(&[
        (0, 1, Take(1), true, 2, Some(0), 60),
        (10, 2, Take(2), true, 0, Some(0), 60),
        // The first slot is over at 60, the others at 70.
        (10, 3, Take(1), false, 0, Some(50), 60),
        // Envoy gives back what was refused, too: 3 holds nothing.
        (10, 3, Refund(1), true, 0, Some(0), 60),
        (20, 1, Refund(1), true, 1, Some(0), 50),
        // The second refund frees nothing,
        (20, 1, Refund(1), true, 1, Some(0), 50),
        // and neither does one without a holder.
        (20, 0, Refund(1), true, 1, Some(0), 50),
        (59, 3, Take(2), false, 1, Some(11), 11),
        (69, 0, Take(2), false, 1, Some(1), 1),
        (70, 0, Take(3), true, 0, Some(0), 60),
        (70, 4, Take(4), false, 0, None, 60),
    ]);
}

#[test]
fn a_look_of_its_holder_renews_a_slot() {
    held(&[
        (0, 1, Take(1), true, 2, Some(0), 60),
        (0, 2, Take(2), true, 0, Some(0), 60),
        // Both of 2's until 90; that of 1 stays until 60.
        (30, 2, Take(0), true, 0, Some(0), 60),
        (30, 0, Take(1), false, 0, Some(30), 60),
        (60, 0, Take(1), true, 0, Some(0), 60),
        // A peek without a holder renews nothing: the slot of 60 expires at 120.
        (70, 0, Take(0), true, 0, Some(0), 50),
        (89, 3, Take(2), false, 0, Some(1), 31),
        // An expired slot cannot be renewed.
        (90, 2, Take(0), true, 2, Some(0), 30),
    ]);
}

#[test]
fn an_id_sent_twice_holds_two_slots() {
    held(&[
        (0, 1, Take(1), true, 2, Some(0), 60),
        (10, 1, Take(1), true, 1, Some(0), 60),
        // The older is freed first, the other expires at 70.
        (20, 1, Refund(1), true, 2, Some(0), 50),
        (20, 1, Refund(9), true, 3, Some(0), 0),
    ]);
}

#[test]
fn anonymous_refunds_free_anonymous_slots() {
    held(&[
        (0, 0, Take(2), true, 1, Some(0), 60),
        (0, 1, Take(1), true, 0, Some(0), 60),
        (1, 0, Refund(1), true, 1, Some(0), 59),
        (1, 0, Refund(5), true, 2, Some(0), 59), // 1's stays
    ]);
}

// === capacity of marks ===

#[test]
fn memory_of_expired_marks_is_released() {
    let limit = per(10_000, Unit::Second);
    let fill = || {
        let mut state = State::default();
        for us in 0..10_000 {
            let outcome = state.apply(&SlidingLog, &limit, Take(1), at(5).plus_us(us));
            assert!(outcome.allowed);
        }
        assert_eq!(state.marks.len(), 10_000);
        assert!(
            state.marks.capacity() <= 20_000,
            "{}",
            state.marks.capacity()
        );
        state
    };
    // Expired, given back, and all but a few.
    for (clock, hits, left) in [
        (at(60), Take(1), 1),
        (at(5).plus_us(10_000), Refund(10_000), 0),
        (at(5).plus_us(10_000), Refund(9_900), 100),
        (at(6).plus_us(8_999), Take(1), 1_001),
        // A peek changes nothing.
        (at(60), Hits::PEEK, 10_000),
    ] {
        let mut state = fill();
        state.apply(&SlidingLog, &limit, hits, clock);
        assert_eq!(state.marks.len(), left);
        let capacity_max = (4 * left).max(32);
        assert!(
            state.marks.capacity() <= capacity_max,
            "{}",
            state.marks.capacity()
        );
    }
}

#[test]
fn an_unused_bucket_allocates_no_marks() {
    let limit = per(10, Unit::Minute);
    for algorithm in [
        &SlidingLog as &dyn Algorithm,
        &SlidingWindowSegments,
        &Concurrency,
    ] {
        let mut state = State::default();
        for hits in [Hits::PEEK, Refund(3), Take(11)] {
            state.apply(algorithm, &limit, hits, at(1_234));
            assert_eq!(state.marks.capacity(), 0, "{algorithm:?}, {hits:?}");
        }
    }
}
