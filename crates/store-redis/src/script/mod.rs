//! The atomic step in Redis: every algorithm in Lua, many checks per call.
//!
//! A script, because a decision reads a bucket, computes and writes it, and only the server can do
//! that without another client in between. One script for all algorithms, because the checks that
//! wait at the same moment share one call.
//!
//! [`text`] is built from the algorithms' scripts in `algorithms/`, the arithmetic that they share,
//! and the loop around them. A call is `EVALSHA sha1 n key… time order argument…`, with one key per
//! check, each different [`argument`] once ([`CallArguments`]) and at most [`CHECKS_MAX`] checks by
//! [`weight`]. The keys of markers follow ([`has_marker`]), then those of reservations
//! ([`has_ledger`]). The reply is one string, which [`outcomes`] reads. A call that fails has
//! written nothing: Redis rejects the first write or none.
//!
//! | file | what |
//! | --- | --- |
//! | `words.lua` | the layout of call, reply and bucket; names |
//! | `numbers.lua` | exact arithmetic above 2^53 |
//! | `marks.lua` | what a bucket remembers hit by hit |
//! | `ledger.lua` | the reservations of a bucket |
//! | `penalty.lua` | what a penalty remembers before a bucket |
//! | `decide.lua` | the loop: read, apply the clock laws, decide, write |
//! | `argument.rs` | packs a check; which checks of a call share buckets |
//! | `outcome.rs` | reads outcomes |
//!
//! A counter of Envoy's reference service ([`Check::reference_key`]) stays a decimal number,
//! because that service adds to it as well. It is decided as every fixed window is, by the caller's
//! time.
//!
//! The script decides as [`State::step`](tollgate_limiter::State::step) does. `tests/twin` compares
//! the two, including what is not written.
//!
//! In a cluster all keys of a call must be in one slot; the caller sees to that. Or the call has no
//! keys, and each different bucket ([`CallBuckets`]) is among its arguments: then they may be in
//! any slots of the node, and the script passes over those that are not there ([`can_spread`]).

mod argument;
mod outcome;

use std::fmt::Write as _;
use std::sync::LazyLock;

use tollgate_limiter::algorithm::MARKED_MAX;
use tollgate_limiter::{
    ALGORITHMS, AlgorithmOption, Check, ENDED_AT_ONCE_MAX, Hits, ID_RECORDS_MAX,
    LEDGER_RECORDS_MAX, Timestamp,
};
use tollgate_store::Purpose;
use tollgate_store::lease::AHEAD_SHARE;
use tollgate_store::refund_queue::REFUND_LATE_MAX_US;

pub use argument::{CallArguments, CallBuckets, argument, time_argument};
pub use outcome::{CheckTerms, ScriptResult, is_one_record, outcomes};

/// How many checks a call may have, each counted by its [`weight`]. Redis does nothing else during
/// a call: at three microseconds per check, that is less than a millisecond.
pub const CHECKS_MAX: usize = 256;

/// How many marks take as long as a check without marks, at least. A bucket's marks are one string
/// that is copied in and out; a log of 10,000 takes Redis 0.3 to 1.3 ms.
const MARKS_A_CHECK: u64 = 32;

/// Whether the call of this check has the key of its bucket's marker, which a reset leaves.
pub fn has_marker(check: &Check, purpose: Purpose) -> bool {
    purpose == Purpose::Reset || matches!(check.operation.hits, Hits::Undo { .. })
}

/// Whether the call of this check has the keys of its bucket's reservations. A reset has them in
/// any case, and so has a check that an earlier call left for want of them.
pub fn has_ledger(check: &Check) -> bool {
    matches!(check.operation.hits, Hits::Reservation(_))
}

/// Whether this check may be in a call of many slots: it has one key, which its digest names.
pub fn can_spread(check: &Check, purpose: Purpose) -> bool {
    !has_marker(check, purpose) && !has_ledger(check) && check.bucket_name.is_none()
}

/// How many of [`CHECKS_MAX`] this check counts for: one, or more where a bucket may hold many
/// marks.
pub fn weight(check: &Check) -> usize {
    if !check.algorithm.facts().has_marks {
        return 1;
    }
    let limit = &check.limit;
    let marks = limit
        .segments()
        .map_or(limit.requests(), |segments| u64::from(segments.get()));
    let weight = (marks / MARKS_A_CHECK).saturating_add(1);
    usize::try_from(weight)
        .unwrap_or(usize::MAX)
        .min(CHECKS_MAX)
}

/// Names for numbers in the script. They are replaced before the script is sent: Lua would look up
/// a name at every use and keep a cell for each at every call.
const NUMBERS: &[(&str, u64)] = &[
    ("FIXED_WINDOW", argument::FIXED_WINDOW as u64),
    ("TAKE", argument::TAKE as u64),
    ("REFUND", argument::REFUND as u64),
    ("GIVE_BACK", argument::GIVE_BACK as u64),
    ("RESET", argument::RESET as u64),
    ("CHARGE", argument::CHARGE as u64),
    ("TAKE_AHEAD", argument::TAKE_AHEAD as u64),
    ("TAKE_UP_TO", argument::TAKE_UP_TO as u64),
    ("AHEAD_SHARE", AHEAD_SHARE),
    ("RESERVE", argument::RESERVE as u64),
    ("COMMIT", argument::COMMIT as u64),
    ("EXTEND", argument::EXTEND as u64),
    ("WITHDRAW", argument::WITHDRAW as u64),
    ("MARKED_MAX", MARKED_MAX),
    ("LIFE_MAX", argument::LIFE_MAX_US),
    ("ID_RECORDS_MAX", ID_RECORDS_MAX as u64),
    ("ENDED_AT_ONCE_MAX", ENDED_AT_ONCE_MAX as u64),
    ("RECORDS_MAX", LEDGER_RECORDS_MAX as u64),
    ("RECORD", RECORD_LEN),
    ("WITH_LEDGER", WITH_LEDGER),
    ("WITH_PENALTY", WITH_PENALTY),
    ("WITH_NEXT", WITH_NEXT),
    ("NEXT", NEXT_LEN),
    ("PENALTY", PENALTY_LEN),
    ("PUNISHES", argument::PUNISHES as u64),
    ("BLOCKED", outcome::BLOCKED as u64),
    ("RESET_KEPT", REFUND_LATE_MAX_US),
    ("REFERENCE_SKEW", REFERENCE_SKEW_US),
    ("NOT_COUNTED", argument::NOT_COUNTED as u64),
    ("BLOCKING", argument::BLOCKING as u64),
    ("IN_FULL", argument::IN_FULL as u64),
    ("HOLDER", argument::HOLDER as u64),
    ("EDGES", argument::EDGES as u64),
    ("REFERENCE", argument::REFERENCE as u64),
    ("FULL", outcome::FULL as u64),
    ("VERSION", VERSION),
    ("HEAD", HEAD_LEN),
    ("MARK", MARK_LEN),
    ("HELD_MARK", HELD_MARK_LEN),
    ("TWO_13", 1 << 13),
    ("SPLITTER", (1 << 27) + 1),
    ("TWO_40", 1 << 40),
    ("TWO_53", 1 << 53),
    ("MAX", Timestamp::MAX_US),
];

/// By how much the clocks of replicas may differ for a reset of a counter of Envoy's reference
/// service: its times are the replicas' own. What was taken within this time after the reset is not
/// given back either.
const REFERENCE_SKEW_US: u64 = 2_000_000;

/// The version of the bucket layout. Buckets of another version are not read.
const VERSION: u64 = 1;

/// The version of a bucket that has reservations: the time at which the first that gives hits back
/// is due follows.
const WITH_LEDGER: u64 = 2;

/// The first byte of what a penalty remembers, before the bucket itself.
const WITH_PENALTY: u64 = 3;

/// The first byte of what was taken from the next window, before the bucket itself.
const WITH_NEXT: u64 = 4;

/// Length of what was taken from the next window.
const NEXT_LEN: u64 = 15;

/// Length of what a penalty remembers.
const PENALTY_LEN: u64 = 18;

/// Length of a record of a reservation.
const RECORD_LEN: u64 = 36;

/// Length of a bucket without marks, in bytes.
const HEAD_LEN: u64 = 29;

/// Length of a mark.
const MARK_LEN: u64 = 12;

/// The same for marks with a holder.
const HELD_MARK_LEN: u64 = 20;

/// The whole script.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut text = include_str!("words.lua").to_owned();
        let _ = write!(
            text,
            "\nlocal function define(number)\n{}",
            include_str!("numbers.lua")
        );
        for (place, algorithm) in ALGORITHMS.iter().enumerate() {
            let name = algorithm.name();
            let number = place.saturating_add(1);
            let (before, width, after) = match (
                algorithm.facts().has_marks,
                algorithm.facts().options.contains(&AlgorithmOption::Slots),
            ) {
                (false, _) => ("", 0, "nil"),
                (true, false) => (include_str!("marks.lua"), MARK_LEN, BROUGHT_BACK),
                (true, true) => (include_str!("marks.lua"), HELD_MARK_LEN, BROUGHT_BACK),
            };
            let script = algorithm_script(name);
            let refills = algorithm.facts().refills;
            let _ = write!(
                text,
                "\nif number == {number} then\n{before}\n{script}\nreturn {name}, {width}, {after}, {refills}\nend\n"
            );
        }
        let _ = write!(
            text,
            "\nif number == 0 then\n{}\nend\nif number == PUNISHES then\n{}\nend\nend\n\n{}",
            include_str!("ledger.lua"),
            include_str!("penalty.lua"),
            include_str!("decide.lua")
        );
        with_numbers(&text)
    });
    &TEXT
}

/// The scripts of the algorithms, by name. `build.rs` lists the files of `algorithms/`.
static ALGORITHM_SCRIPTS: &[(&str, &str)] =
    include!(concat!(env!("OUT_DIR"), "/algorithm_scripts.rs"));

/// The script of one algorithm: `local function <name>(…)`, which decides as `Algorithm::decide`
/// does, with the same registers and marks. Empty where there is none; a test fails then.
fn algorithm_script(name: &str) -> &'static str {
    let script = ALGORITHM_SCRIPTS.iter().find(|(known, _)| *known == name);
    script.map_or("", |(_, text)| text)
}

/// What the script of an algorithm with marks returns in addition.
const BROUGHT_BACK: &str = "marks_brought_back";

/// The text with names replaced by numbers.
pub fn with_numbers(text: &str) -> String {
    let mut with = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        let (before, from) = rest.split_at(start);
        let other = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let (word, after) = from.split_at(from.find(other).unwrap_or(from.len()));
        with.push_str(before);
        match NUMBERS.iter().find(|(name, _)| *name == word) {
            Some((_, number)) => with.push_str(&number.to_string()),
            None => with.push_str(word),
        }
        rest = after;
    }
    with.push_str(rest);
    with
}

/// The SHA-1 of the text in hexadecimal, by which Redis knows the script.
pub fn sha1() -> &'static str {
    static SHA1: LazyLock<String> = LazyLock::new(|| sha1_of(text()));
    &SHA1
}

/// The same for another script.
pub(super) fn sha1_of(text: &str) -> String {
    sha1_smol::Sha1::from(text).digest().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_has_a_script() {
        for algorithm in ALGORITHMS {
            let name = algorithm.name();
            let script = algorithm_script(name);
            let defined = script.contains(&format!("local function {name}("))
                || script.contains(&format!("local {name} ="));
            assert!(
                defined,
                "src/script/algorithms/{name}.lua is missing or does not define `{name}`"
            );
        }
    }
}
