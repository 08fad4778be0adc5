//! Bugs planted in the script: each must be found, or the twin tests do not work. A few, so that
//! each kind of comparison is shown to find one.
//!
//! How: a bug replaces one piece of the script. The test fails if the piece is missing, so a change
//! of the script cannot silently disable a bug. (In the text that is sent, names of numbers are
//! replaced by the numbers.)

use proptest::test_runner::TestError;
use tollgate::store_redis::script;
use tollgate_limiter::{Algorithm, algorithm};

use super::agreement::{challenge, repeatable};
use super::{next_window, penalties, reservations, resets};

/// Whether a comparison in this algorithm finds a difference.
type Finds = fn(&str, &'static dyn Algorithm) -> bool;

fn by_histories(text: &str, algorithm: &'static dyn Algorithm) -> bool {
    match challenge(text, algorithm, repeatable()) {
        Ok(()) => false,
        Err(TestError::Fail(..)) => true,
        Err(other) => panic!("{other}"),
    }
}

fn by_resets(text: &str, algorithm: &'static dyn Algorithm) -> bool {
    resets::compare(text, algorithm).is_err()
}

fn by_reservations(text: &str, algorithm: &'static dyn Algorithm) -> bool {
    reservations::compare(text, algorithm, 300).is_err()
}

fn by_penalties(text: &str, algorithm: &'static dyn Algorithm) -> bool {
    penalties::compare(text, algorithm, 300).is_err()
}

fn at_bounds(text: &str, algorithm: &'static dyn Algorithm) -> bool {
    reservations::compare_at_bounds(text, algorithm.name()).is_err()
}

fn by_next_windows(text: &str, _: &'static dyn Algorithm) -> bool {
    next_window::compare(text).is_err()
}

#[test]
fn planted_bugs_are_found() {
    let bugs: [(Finds, &str, &str, &str); 12] = [
        // A quotient is not corrected after the first guess.
        (
            by_histories,
            "sliding_window",
            "if rest >= 0 and rest < c then break end",
            "do break end",
        ),
        // The short way of takes lets one more pass.
        (
            by_histories,
            "fixed_window",
            "if count <= requests and",
            "if count <= requests + 1 and",
        ),
        // A time before the bucket's is not brought forward.
        (
            by_histories,
            "token_bucket",
            "if seen > at then at = seen end",
            "",
        ),
        (
            by_resets,
            "fixed_window",
            "taken_at <= reset_at",
            "taken_at < reset_at",
        ),
        // The rest of a reservation does not go back.
        (
            by_reservations,
            "fixed_window",
            "ops.give_back(reserved - hits, taken_at)",
            "ops.nothing()",
        ),
        // A block counts from the first refusal.
        (
            by_penalties,
            "fixed_window",
            "it.since, it.till, it.refusals = it.at, it.at + length, 0",
            "it.till, it.since, it.refusals = it.since + length, it.at, 0",
        ),
        // A refusal of a blocked key counts.
        (
            by_penalties,
            "token_bucket",
            "if is_punished and not blocked and not allowed",
            "if is_punished and not allowed",
        ),
        // What a penalty remembers ends with the bucket.
        (
            by_penalties,
            "sliding_log",
            "if penalty and (had_penalty or penalty.changed) then",
            "if penalty and penalty.changed then",
        ),
        // Hits of the next window are forgotten when it begins.
        (
            by_next_windows,
            "fixed_window",
            "= next_start, next_count, 0, nil",
            "= next_start, 0, 0, nil",
        ),
        (
            by_next_windows,
            "fixed_window",
            "(remaining - remaining % AHEAD_SHARE) / AHEAD_SHARE",
            "remaining",
        ),
        // They go back after a reset.
        (
            by_next_windows,
            "fixed_window",
            "taken_at, next_start or at, 0",
            "taken_at, at, 0",
        ),
        (
            at_bounds,
            "fixed_window",
            "#records >= ID_RECORDS_MAX",
            "#records > ID_RECORDS_MAX",
        ),
    ];
    for (finds, name, piece, otherwise) in bugs {
        let (piece, otherwise) = (script::with_numbers(piece), script::with_numbers(otherwise));
        assert!(script::text().contains(&piece), "{piece}");
        let text = script::text().replace(&piece, &otherwise);
        let algorithm = algorithm::from_name(name).unwrap();
        assert!(finds(&text, algorithm), "not found: {piece} {otherwise}");
    }
}
