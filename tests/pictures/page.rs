//! Compares docs/algorithms.md and its table with the algorithms.
//!
//! Names, promises and options are compared with the algorithms' own. What the page says of all
//! algorithms is tested for all of them; what it says of one is tested by
//! `crates/limiter/tests/laws`, except for changed limits, which only this page describes.
//!
//! What it deliberately does not do: judge the recommendations.

use std::fs;
use std::num::{NonZeroU16, NonZeroU32};

use tollgate_limiter::algorithm::{MARKS_REQUESTS_MAX, SEGMENTS_MAX, from_name};
use tollgate_limiter::{
    ALGORITHMS, Algorithm, AlgorithmOption, ENDED_AT_ONCE_MAX, Expiry, Hits, Holder,
    ID_RECORDS_MAX, LEDGER_RECORDS_MAX, Ledger, Limit, OnExpiry, Operation, Otherwise, Outcome,
    ReservationOutcome, State, Step, Timestamp, Unit,
};

use crate::pictures::scene::Simulation;

const PAGE: &str = "docs/algorithms.md";

fn read(page: &str) -> String {
    fs::read_to_string(page).unwrap()
}

/// Sections of the page: an algorithm's name and its text.
fn sections() -> Vec<(String, String)> {
    let page = read(PAGE);
    let sections = page.split("\n## `").skip(1);
    sections
        .map(|section| {
            let (name, text) = section.split_once('`').unwrap();
            (name.to_owned(), text.to_owned())
        })
        .collect()
}

/// The fields of a rules file that are this choice.
fn fields(choice: AlgorithmOption) -> &'static [&'static str] {
    match choice {
        AlgorithmOption::Burst => &["burst"],
        AlgorithmOption::Segments => &["segments"],
        AlgorithmOption::Refill => &["refill"],
        AlgorithmOption::Calendar => &["calendar", "time_zone", "week_start"],
        AlgorithmOption::CountRefused => &["count_refused", "charged"],
        AlgorithmOption::Slots => &["holder_key", "slot_seconds"],
    }
}

#[test]
fn every_algorithm_has_a_section_with_picture_promise_and_fields() {
    let sections = sections();
    let names: Vec<_> = sections.iter().map(|(name, _)| name.as_str()).collect();
    let expected: Vec<_> = ALGORITHMS.iter().map(|one| one.name()).collect();
    assert_eq!(names, expected, "{PAGE}: a section `## NAME` for each");
    for (algorithm, (name, text)) in ALGORITHMS.iter().zip(&sections) {
        let promise = format!("\n> {}\n", algorithm.facts().promise);
        assert!(text.contains(&promise), "{PAGE}: {name}: wants{promise}");
        let picture = format!("](pictures/{name}.svg)\n");
        assert!(text.contains(&picture), "{PAGE}: {name}: wants its picture");
        for alias in algorithm.facts().aliases {
            assert!(
                text.contains(&format!("`{alias}`")),
                "{PAGE}: {name}: {alias}"
            );
        }

        let takes = text.split("- Takes: ").nth(1).expect(name);
        let takes = takes.split("\n- ").next().unwrap();
        for choice in AlgorithmOption::ALL {
            for field in fields(choice) {
                assert_eq!(
                    takes.contains(&format!("`{field}`")),
                    algorithm.facts().options.contains(&choice),
                    "{PAGE}: {name}: {field}"
                );
            }
        }
        for line in [
            "- Refused hits: ",
            "- A refund: ",
            "- A changed limit: ",
            "- Memory: ",
        ] {
            assert_eq!(text.matches(line).count(), 1, "{PAGE}: {name}: `{line}`");
        }
        assert_eq!(
            text.contains("N is at most 10,000"),
            algorithm.facts().requests_max == MARKS_REQUESTS_MAX,
            "{PAGE}: {name}: its bound"
        );
    }
    let requests = Simulation::of(ALGORITHMS[0]).arrivals.len();
    assert!(read(PAGE).contains(&format!("the same {requests} requests")));
    // The bounds as written on the page.
    assert_eq!((MARKS_REQUESTS_MAX, SEGMENTS_MAX), (10_000, 1_000));
}

#[test]
fn the_page_opens_with_the_overview_and_each_algorithms_promise() {
    let page = read(PAGE);
    assert!(page.contains("](pictures/algorithms.svg)"));
    let (_, table) = page
        .split_once("| algorithm | promise | use it for |")
        .unwrap();
    let rows: Vec<_> = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert_eq!(rows.len(), ALGORITHMS.len(), "a row for each");
    for (algorithm, row) in ALGORITHMS.iter().zip(rows) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let name = format!("`{}`", algorithm.name());
        assert!(cells[1].starts_with(&name), "{row}: wants {name}");
        assert_eq!(cells[2], algorithm.facts().promise);
    }
}

#[test]
fn the_page_of_rules_links_to_this_one() {
    assert!(read("docs/rules.md").contains("](algorithms.md)"));
}

// === what the page says of reservations ===

/// The row of this algorithm in the table of reservations: what goes back, and what is beyond.
fn reservation_row(algorithm: &'static dyn Algorithm) -> [String; 2] {
    let page = read(PAGE);
    let (_, table) = page.split_once("\n## Reservations\n").unwrap();
    let start = format!("| `{}` |", algorithm.name());
    let rows: Vec<_> = table
        .lines()
        .filter(|line| line.starts_with(&start))
        .collect();
    assert_eq!(rows.len(), 1, "{PAGE}: one row for {algorithm:?}");
    let cells: Vec<_> = rows[0].split('|').map(str::trim).collect();
    [cells[2].to_owned(), cells[3].to_owned()]
}

/// Of ten, four are taken and six are reserved at [`AT`]. The reservation is committed by so many
/// hits after so many seconds. The remaining hits then, and so many seconds after [`AT`].
fn left_after_commit(
    algorithm: &dyn Algorithm,
    (hits, seconds): (u64, u64),
    later: u64,
) -> (u64, u64) {
    let limit = limit(algorithm, 10);
    let mut state = used(algorithm, &limit, 4);
    let mut ask = |step, seconds: u64| {
        let operation = Operation {
            hits: Hits::Reservation(step),
            holder: Some(Holder::from_hash(1)),
        };
        let at = AT.plus_us(seconds * 1_000_000);
        state.apply(algorithm, &limit, operation, at)
    };
    let reserve = Step::Reserve {
        hits: 6,
        expiry: Expiry {
            after_ms: NonZeroU32::new(600_000).unwrap(),
            on_expiry: OnExpiry::Charge,
        },
        remember_refused: false,
    };
    assert_eq!(ask(reserve, 0).reservation, ReservationOutcome::Reserved);
    let commit = Step::Commit {
        hits,
        otherwise: Otherwise::Unknown,
    };
    let committed = ask(commit, seconds);
    assert_eq!(committed.reservation, ReservationOutcome::Settled);
    (committed.remaining, left(&state, algorithm, &limit, later))
}

#[test]
fn the_table_of_reservations_says_what_each_algorithm_does() {
    for algorithm in ALGORITHMS.iter().copied() {
        let row = reservation_row(algorithm);
        if !algorithm.facts().can_reserve {
            assert_eq!(row, ["no reservations"; 2], "{algorithm:?}");
            continue;
        }
        // All six go back at once; five of them in the next minute; 19 too many in the next
        // minute, seen 30, 80 and 120 seconds after the take.
        let at_once = left_after_commit(algorithm, (0, 0), 0).0;
        let in_the_next = left_after_commit(algorithm, (1, 20), 20).0;
        let beyond = [30, 80, 120].map(|later| left_after_commit(algorithm, (25, 20), later).1);
        let found = (at_once, in_the_next, beyond);
        let debt = "are owed in full";
        let in_full = "in full, until the bucket is full";
        let window = "count in the window of the commit";
        let (expected, texts) = match algorithm.name() {
            "fixed_window" => (
                // Nothing counts in the next minute but the 19, and nothing in the one after it.
                (6, 10, [0, 10, 10]),
                [
                    "to the window they were taken from; no effect once it has ended",
                    window,
                ],
            ),
            "sliding_window" => (
                // 10 - 5 = 5 of the minute before, weighted by 50 / 60, are 4.17. The 19 weigh
                // 3.17 when 10 seconds of the minute after theirs are left.
                (6, 5, [0, 0, 6]),
                [
                    "to the window they were taken from, while that or the next one lasts",
                    window,
                ],
            ),
            // 10 missing, 3.33 refilled, 5 back: 1.67 missing. Or 19 more: 25.67 missing after
            // 20 seconds, 9 missing only after 120.
            "token_bucket" | "leaky_bucket" => ((6, 8, [0, 0, 1]), [in_full, debt]),
            // The edge after 10 seconds brought 10: nothing is missing. Or 19 are; 9 after the
            // next edge, none after the one after it.
            "token_bucket_interval" => ((6, 10, [0, 1, 1]), [in_full, debt]),
            other => panic!("{other} is not in the table of the test"),
        };
        assert_eq!(found, expected, "{algorithm:?}");
        assert_eq!(row, texts, "{algorithm:?}");
    }
}

#[test]
fn the_page_has_the_bounds_of_reservations() {
    let page = read(PAGE);
    let records = [LEDGER_RECORDS_MAX, ID_RECORDS_MAX, ENDED_AT_ONCE_MAX].map(|bound| bound as u64);
    for bound in [Limit::REQUESTS_MAX].into_iter().chain(records) {
        let grouped = grouped(bound);
        assert!(page.contains(&grouped), "{PAGE}: wants {grouped}");
    }
    let first = grouped(Ledger::bytes_for_one_more() as u64);
    let bytes = format!("{first} bytes for the first");
    assert!(page.contains(&bytes), "{PAGE}: wants {bytes}");
}

/// Digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let place = |position: usize| digits.len() - position;
    let digits = digits.char_indices().map(|(position, digit)| {
        let starts = position > 0 && place(position) % 3 == 0;
        format!("{}{digit}", if starts { "," } else { "" })
    });
    digits.collect()
}

// === what the page says of limits that change ===

/// Long after 1970, and 50 seconds into a minute.
const AT: Timestamp = Timestamp::from_seconds(1_800_000_050);

/// A limit of that many per minute, with a full burst, or in flight.
fn limit(algorithm: &dyn Algorithm, requests: u64) -> Limit {
    if algorithm.facts().options.contains(&AlgorithmOption::Slots) {
        return in_flight(requests, 60);
    }
    let limit = Limit::per(requests, Unit::Minute, NonZeroU32::MIN);
    if algorithm
        .facts()
        .options
        .contains(&AlgorithmOption::Segments)
        && algorithm
            .facts()
            .variant_for(AlgorithmOption::Segments)
            .is_none()
    {
        return segmented(limit, 4);
    }
    limit
}

fn in_flight(requests: u64, slot_seconds: u32) -> Limit {
    Limit::in_flight(requests, NonZeroU32::new(slot_seconds).unwrap())
}

fn segmented(limit: Limit, segments: u16) -> Limit {
    limit.with_segments(NonZeroU16::new(segments).unwrap())
}

/// Remaining hits after `seconds`.
fn left(state: &State, algorithm: &dyn Algorithm, limit: &Limit, seconds: u64) -> u64 {
    look(state, algorithm, limit, seconds).remaining
}

fn look(state: &State, algorithm: &dyn Algorithm, limit: &Limit, seconds: u64) -> Outcome {
    let at = AT.plus_us(seconds * 1_000_000);
    state.clone().apply(algorithm, limit, Hits::PEEK, at)
}

/// A bucket of which `hits` were taken at [`AT`].
fn used(algorithm: &dyn Algorithm, limit: &Limit, hits: u64) -> State {
    let mut state = State::default();
    let outcome = state.apply(algorithm, limit, Hits::Take(hits), AT);
    assert!(outcome.allowed);
    state
}

#[test]
fn used_hits_stay_used_when_the_limit_changes() {
    for algorithm in ALGORITHMS {
        let state = used(*algorithm, &limit(*algorithm, 10), 6);
        for (requests, expected) in [(20, 14), (10, 4), (8, 2), (6, 0), (4, 0)] {
            let limit = limit(*algorithm, requests);
            let left = left(&state, *algorithm, &limit, 0);
            assert_eq!(left, expected, "{algorithm:?}, {requests} instead of 10");
        }
        // More than the new limit allows: refused, and drained after two windows at most.
        let smaller = limit(*algorithm, 4);
        let over = state.clone().apply(*algorithm, &smaller, Hits::Take(1), AT);
        assert!(!over.allowed, "{algorithm:?}");
        assert_eq!(left(&state, *algorithm, &smaller, 120), 4, "{algorithm:?}");
    }
}

#[test]
fn a_refund_frees_at_most_the_capacity() {
    for algorithm in ALGORITHMS {
        let limit = limit(*algorithm, 10);
        let mut state = used(*algorithm, &limit, 6);
        for (refund, expected) in [(2, 6), (100, 10)] {
            let outcome = state.apply(*algorithm, &limit, Hits::Refund(refund), AT);
            assert!(outcome.allowed, "{algorithm:?}");
            assert_eq!(outcome.remaining, expected, "{algorithm:?}");
        }
    }
}

#[test]
fn a_slot_is_held_for_the_new_time_from_when_it_was_taken() {
    let algorithm = from_name("concurrency").unwrap();
    let state = used(algorithm, &in_flight(10, 60), 6);
    assert_eq!(left(&state, algorithm, &in_flight(10, 20), 19), 4);
    assert_eq!(left(&state, algorithm, &in_flight(10, 20), 20), 10);
    assert_eq!(left(&state, algorithm, &in_flight(10, 90), 89), 4);
    assert_eq!(left(&state, algorithm, &in_flight(10, 90), 90), 10);
}

#[test]
fn a_marked_segment_counts_for_a_window_from_where_it_began_whatever_segments_become() {
    let algorithm = from_name("sliding_window_segments").unwrap();
    let limit = limit(algorithm, 10);
    // Taken at second 50, in the segment from 45 to 60.
    let state = used(algorithm, &segmented(limit, 4), 6);
    for segments in [1, 4, 12] {
        let limit = segmented(limit, segments);
        assert_eq!(left(&state, algorithm, &limit, 54), 4, "{segments}");
        assert_eq!(left(&state, algorithm, &limit, 55), 10, "{segments}");
    }
}
