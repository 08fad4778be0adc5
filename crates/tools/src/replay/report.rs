//! What a replay found, as data. The JSON of `tollgate replay --format json` is this; the text and
//! the page are made of it.
//!
//! Every list is bounded, and what is left out is counted beside it.

use serde::Serialize;
use tollgate_admin_api::{Entry, counted, duration_text};

/// The result of a replay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReplayReport {
    /// What was replayed.
    pub recording: RecordingFacts,
    /// The result under the rules of `--rules`.
    #[serde(flatten)]
    pub base: SideReport,
    /// Admitted and refused over the time of the recording.
    pub over_time: Vec<Point>,
    /// How many seconds a point of `over_time` is long.
    pub point_seconds: u64,
    /// What the rules of `--against` change.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub changes: Option<Changes>,
    /// How the answers of `--rules` compare with the recorded ones. None for logs without verdicts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
    /// Limits about which the recording says nothing.
    pub undecidable: Vec<Undecidable>,
    /// How fast the replay was.
    pub speed: Speed,
}

/// What other rules change.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Changes {
    /// The result under the rules of `--against`.
    pub against: SideReport,
    /// Requests that `--rules` admits and `--against` refuses.
    pub newly_refused: u64,
    /// Requests that `--rules` refuses and `--against` admits.
    pub newly_admitted: u64,
    /// The keys of newly refused requests, the most requests first.
    pub keys_newly_refused: Vec<KeyCount>,
    /// How many more keys are newly refused.
    pub keys_newly_refused_omitted: u64,
    /// The keys of newly admitted requests, the most requests first.
    pub keys_newly_admitted: Vec<KeyCount>,
    /// How many more keys are newly admitted.
    pub keys_newly_admitted_omitted: u64,
}

/// A recording.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecordingFacts {
    /// The path as it was given.
    pub file: String,
    /// `recording`, `access log` or `csv`.
    pub format: String,
    /// The time of the first request, RFC 3339.
    pub began: String,
    /// The time of the last request.
    pub ended: String,
    /// Seconds between them.
    pub seconds: f64,
    /// How many requests it has.
    pub requests: u64,
    /// Whether it has its end. A file that was cut off has not.
    pub complete: bool,
    /// Why the recording ended: `time`, `count`, `size`, `stopped`, `drained`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// How many generations of rules decided its requests.
    pub generations: u64,
    /// Where buckets lived: `memory` or `redis`; empty for a log.
    pub store: String,
    /// Whether values are keyed hashes.
    pub hashed: bool,
    /// The entry that requests were sampled by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled_by: Option<String>,
    /// One in so many values of that entry was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled_one_in: Option<u32>,
    /// Requests that were not recorded.
    pub skipped: u64,
}

/// Rules that requests were decided by.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RulesFacts {
    /// The path as it was given.
    pub path: String,
    /// Their hash, as `/readyz` shows it.
    pub hash: String,
    /// How many limits they have.
    pub limits: usize,
}

/// The result under one set of rules.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SideReport {
    /// The rules.
    pub rules: RulesFacts,
    /// Requests that they admit.
    pub admitted: u64,
    /// Requests that they refuse.
    pub refused: u64,
    /// Requests that have no answer.
    pub errors: u64,
    /// Requests to which no limit applies. They are admitted.
    pub without_limit: u64,
    /// Checks that were not decided, because there was no memory for a bucket (`--memory-max`).
    pub checks_without_memory: u64,
    /// The limits that decided, the most refused first.
    pub by_rule: Vec<RuleReport>,
    /// The minutes in which they refused the most requests.
    pub worst_minutes: Vec<Minute>,
}

/// What one limit did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RuleReport {
    /// The domain.
    pub domain: String,
    /// The rule's name, as `tollgate explain` shows it.
    pub rule: String,
    /// The limit in words: `100 per minute, token_bucket`.
    pub limit: String,
    /// The limit's number: requests a window, or what a bucket holds.
    pub limit_hits: u64,
    /// Whether it only counts (`shadow_mode`).
    pub shadow_mode: bool,
    /// How often a descriptor was within the limit, and its request passed.
    pub admitted: u64,
    /// How often it refused one.
    pub refused: u64,
    /// How often one was over the limit, which did not refuse it: in shadow mode, or as a quota
    /// beside one with hits left.
    pub would_refuse: u64,
    /// How often one was within the limit, and another limit refused the request.
    pub overruled: u64,
    /// How many different keys were over the limit, up to a bound.
    pub keys_refused: u64,
    /// The most hits that were in use at a time, of one key.
    pub peak_hits: u64,
    /// When that was, RFC 3339; empty if never.
    pub peak_at: String,
    /// The key it was, as `key=value` pairs.
    pub peak_key: String,
    /// Seconds of a window of the limit. None for limits of requests in flight and by value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_seconds: Option<u64>,
    /// How often the recording has it over the limit, in requests that these rules decided.
    pub recorded_over: u64,
    /// The smallest number that refuses nothing of the recording, from empty buckets, with the
    /// other limits as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smallest_limit: Option<u64>,
    /// The limit with that number in words, with its burst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smallest_limit_text: Option<String>,
    /// Why `smallest_limit` is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub smallest_limit_unknown: Option<String>,
    /// Whether the recording says nothing about it: see `undecidable`.
    pub undecidable: bool,
    /// What its reservations did. None if no request had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservations: Option<ReservationFigures>,
}

// === impl RuleReport ===

impl RuleReport {
    /// How often a descriptor was over the limit.
    pub fn over(&self) -> u64 {
        self.refused.saturating_add(self.would_refuse)
    }

    /// What the recording says of the limit, in sentences. A recording that is shorter than the
    /// window says nothing of a whole window.
    pub fn finding(&self, recording: &RecordingFacts) -> String {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // seconds for people
        let seconds = recording.seconds.ceil() as u64;
        let (length, over) = (duration_text(seconds), self.over());
        let keys = counted(self.keys_refused, "key", "keys");
        let mut sentences = vec![match (over, self.refused) {
            (0, _) => "Refuses nothing in this replay.".to_owned(),
            (_, 0) => format!("Would refuse {keys}."),
            _ => format!("Refuses {keys}."),
        }];
        if self.recorded_over != over && self.recorded_over > 0 {
            let times = counted(self.recorded_over, "time", "times");
            sentences.push(format!("In the recording it was over {times}."));
        }
        let smallest = "the smallest that refuses nothing";
        sentences.extend(
            match (&self.smallest_limit_text, &self.smallest_limit_unknown) {
                (Some(limit), _) => Some(format!("{limit} is {smallest}.")),
                (None, Some(why)) => Some(format!("It is not known which is {smallest}: {why}.")),
                (None, None) => None,
            },
        );
        if let Some(window) = self.window_seconds.filter(|window| *window > seconds) {
            let window = duration_text(window);
            sentences.push(format!(
                "The recording ({length}) is shorter than a window ({window}), and begins with \
                 empty buckets: it says nothing of a whole window."
            ));
        }
        sentences.join(" ")
    }
}

/// What the reservations of one limit did.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ReservationFigures {
    /// Reservations made.
    pub reserved: u64,
    /// Reservations that this limit or another one of the request refused.
    pub refused: u64,
    /// Reservations committed or released.
    pub settled: u64,
    /// Ends that were charged in full, because no reservation was open.
    pub charged: u64,
    /// Hits that were reserved and not used.
    pub hits_returned: u64,
    /// Hits that were used beyond what was reserved.
    pub hits_excess: u64,
}

/// One minute.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Minute {
    /// When it begins, RFC 3339.
    pub start: String,
    /// Requests admitted.
    pub admitted: u64,
    /// Requests refused.
    pub refused: u64,
}

/// A part of the recording's time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Point {
    /// When it begins, RFC 3339.
    pub start: String,
    /// Requests that `--rules` admits.
    pub admitted: u64,
    /// Requests that `--rules` refuses.
    pub refused: u64,
    /// Requests that `--against` admits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against_admitted: Option<u64>,
    /// Requests that `--against` refuses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against_refused: Option<u64>,
}

/// A key, and how many requests it is about.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct KeyCount {
    /// The domain.
    pub domain: String,
    /// The rule that refuses it.
    pub rule: String,
    /// The entries of its descriptor, in order.
    pub entries: Vec<Entry>,
    /// How many requests.
    pub count: u64,
}

/// The comparison with the recorded verdicts.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Recorded {
    /// Requests with the recorded verdict.
    pub same: u64,
    /// Requests with another verdict.
    pub different: u64,
    /// Requests that the service did not decide by their buckets; they are in neither number.
    pub not_compared: u64,
    /// The first requests with another verdict.
    pub first_differences: Vec<Difference>,
    /// Why verdicts may differ. Empty when they should not.
    pub why_they_may_differ: Vec<String>,
}

/// Requests of one descriptor with another verdict than the recorded one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Difference {
    /// How many there are.
    pub count: u64,
    /// When the first was decided, RFC 3339.
    pub at: String,
    /// The domain.
    pub domain: String,
    /// The entries of its first descriptor.
    pub entries: Vec<Entry>,
    /// The recorded verdict.
    pub recorded: String,
    /// The verdict of the replay.
    pub replayed: String,
}

/// A limit about which the recording says nothing.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Undecidable {
    /// `rules` or `against`.
    pub side: String,
    /// The domain.
    pub domain: String,
    /// The rule's name.
    pub rule: String,
    /// Why, in a sentence.
    pub why: String,
}

/// How fast a replay was.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Speed {
    /// Requests decided, under both rules.
    pub decisions: u64,
    /// Seconds that this took.
    pub seconds: f64,
    /// Their ratio.
    pub decisions_per_second: f64,
}
