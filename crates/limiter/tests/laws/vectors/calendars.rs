//! Fixed windows by a calendar, worked out by hand.
//!
//! How: a calendar of four windows: from 0, from 10, from 13 and from 20 seconds on, the last until
//! 25.
//!
//! What it deliberately does not do: know a zone (`rules` brings them).

use tollgate_limiter::algorithm::FixedWindow;
use tollgate_limiter::{Calendar, CountRefused, Hits, Limit, Span, State, Timestamp, Unit};

use Hits::{Refund, Take};
use tollgate_test_model::fixtures::{SECOND_US, at, per};

struct Four(&'static str);

static FOUR: Four = Four("four windows");

const EDGES: [u64; 5] = [0, 10, 13, 20, 25];

impl Calendar for Four {
    fn name(&self) -> &str {
        self.0
    }

    fn window_at(&self, now: Timestamp) -> Span {
        let next = EDGES.iter().position(|edge| now < at(*edge)).unwrap();
        Span {
            start: at(EDGES[next - 1]),
            end: at(EDGES[next]),
        }
    }

    fn window_max_us(&self) -> u64 {
        10 * SECOND_US
    }
}

fn ten() -> Limit {
    per(10, Unit::Month).with_calendar(&FOUR)
}

/// Seconds, hits, and then: allowed, remaining, seconds until reset.
type Row = (u64, Hits, bool, u64, u64);

fn check(limit: &Limit, rows: &[Row]) {
    let mut state = State::default();
    for (number, &(seconds, hits, allowed, remaining, reset)) in rows.iter().enumerate() {
        let outcome = state.apply(&FixedWindow, limit, hits, at(seconds));
        assert_eq!(
            (outcome.allowed, outcome.remaining, outcome.reset_us),
            (allowed, remaining, reset * SECOND_US),
            "row {number}, {hits:?}"
        );
        let retry_us = if allowed { 0 } else { outcome.reset_us };
        assert_eq!(outcome.retry_us, Some(retry_us), "row {number}, {hits:?}");
    }
}

#[test]
fn windows_follow_the_calendar() {
    check(
        &ten(),
        &[
            (9, Take(10), true, 0, 1),
            (9, Take(1), false, 0, 1),
            (10, Take(10), true, 0, 3),
            (12, Take(1), false, 0, 1),
            (13, Take(8), true, 2, 7),
            (19, Take(3), false, 0, 1),
            (19, Refund(6), true, 5, 1), // 11 − 6
            (20, Take(0), true, 10, 5),
        ],
    );
}

#[test]
fn refused_hits_are_counted_as_in_other_windows() {
    check(
        &ten().with_count_refused(CountRefused::None),
        &[
            (11, Take(8), true, 2, 2),
            (11, Take(5), false, 2, 2),
            (11, Take(2), true, 0, 2),
        ],
    );
}

#[test]
fn a_take_is_undone_in_its_own_window_only() {
    let taken_at = at(12);
    let undo = Hits::Undo { hits: 4, taken_at };
    check(
        &ten(),
        &[
            (12, Take(4), true, 6, 1),
            (12, undo, true, 10, 1),
            (12, Take(4), true, 6, 1),
            (13, Take(5), true, 5, 7),
            (13, undo, true, 5, 7),
        ],
    );
}

#[test]
fn a_clock_is_far_ahead_by_more_than_the_longest_window() {
    check(
        &ten(),
        &[
            (19, Take(10), true, 0, 1),
            // Ten seconds back: it is still 19 for the bucket, and 20 is eleven ahead.
            (9, Take(1), false, 0, 11),
            // Eleven back: the count moves into the window that ends at 10.
            (8, Take(1), false, 0, 2),
            (10, Take(10), true, 0, 3),
        ],
    );
}

#[test]
fn a_limit_knows_its_calendar_by_name() {
    static OTHER: Four = Four("four others");
    static TWIN: Four = Four("four windows");
    let limit = ten();
    assert_eq!(limit.window().as_us(), 10 * SECOND_US); // no window is longer
    assert_eq!(limit.describe_window(), "four windows");
    assert_eq!(limit, per(10, Unit::Month).with_calendar(&TWIN));
    assert_ne!(limit, per(10, Unit::Month).with_calendar(&OTHER));
    assert_ne!(limit, per(10, Unit::Month));
    let span = limit.window_at(at(14));
    assert_eq!((span.start, span.end), (at(13), at(20)));
}
