//! `GET /top`: the heaviest keys; and the answers of several replicas as one, as `tollgate top
//! --once --format json` prints them.

use std::collections::BTreeMap;
use std::collections::btree_map;

use serde::{Deserialize, Serialize};

/// One entry of a descriptor. Bytes that are not UTF-8 are escaped as Rust escapes bytes.
#[derive(Clone, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value; `#` and 16 hexadecimal digits where values are hashed.
    pub value: String,
}

/// The response of `GET /top`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Top {
    /// The replica: its host name.
    pub instance: String,
    /// When this was read.
    pub at: String,
    /// What the keys are sorted by.
    pub by: RankBy,
    /// The length of time that the counts cover.
    pub window: Window,
    /// How much of the window this replica has counted, in seconds.
    pub covered_seconds: u64,
    /// How values are shown.
    pub values: ValueMode,
    /// Hits that were asked for in the window, of all keys that match the query's domain and rule.
    pub asked: u64,
    /// Hits of those that a limit refused.
    pub refused: u64,
    /// Hits of those over a limit that did not refuse them: in shadow mode, or as a quota beside
    /// one with hits left.
    pub would_refuse: u64,
    /// The heaviest keys, heaviest first.
    pub keys: Vec<TopKey>,
}

/// One key: a bucket of one rule.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TopKey {
    /// The domain.
    pub domain: String,
    /// The full name of the rule, as `/limits` has it; `(override)` for a limit that came with the
    /// request.
    pub rule: String,
    /// The descriptor. Empty if its text was not kept because of a bound.
    pub descriptor: Vec<Entry>,
    /// Hits that were asked for, at least; at most `error` more.
    pub asked: u64,
    /// Hits that the limit refused, at least; at most `error` more.
    pub refused: u64,
    /// Hits over the limit that it did not refuse, at least; at most `error` more.
    pub would_refuse: u64,
    /// By how much a count can be too small.
    pub error: u64,
    /// When the first hit that was refused in this window was; null if there is none.
    pub refused_since: Option<String>,
    /// When the last hit that was refused was; null if there is none.
    pub refused_last: Option<String>,
}

tollgate_limiter::named! {
    /// What keys are sorted by.
    #[derive(Default, Deserialize, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum RankBy {
        /// Hits that were refused.
        #[default]
        Refused = "refused",
        /// Hits asked for.
        Asked = "asked",
    }
}

tollgate_limiter::named! {
    /// The length of time that counts cover.
    #[derive(Default, Deserialize, Serialize)]
    pub enum Window {
        /// The last minute.
        #[default]
        #[serde(rename = "1m")]
        Minute = "1m",
        /// The last hour.
        #[serde(rename = "1h")]
        Hour = "1h",
    }
}

/// How values are shown.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueMode {
    /// Keys are not counted.
    Off,
    /// As `#` and 16 hexadecimal digits of a keyed hash.
    #[default]
    Hashed,
    /// As sent.
    Plain,
}

/// The answers of `/top` of several replicas, added up.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct MergedTop {
    /// The replicas that answered: the URL of each.
    pub instances: Vec<String>,
    /// The replicas that did not answer.
    pub failed: Vec<FailedReplica>,
    /// When the last of them was read; null without an answer.
    pub at: Option<String>,
    /// What the keys are sorted by.
    pub by: RankBy,
    /// The length of time that the counts cover.
    pub window: Window,
    /// How much of the window every replica has counted, in seconds.
    pub covered_seconds: u64,
    /// How values are shown: `hashed` if any replica hashes them.
    pub values: ValueMode,
    /// Hits that were asked for in the window, of all keys that match the query's domain and rule.
    pub asked: u64,
    /// Hits of those that a limit refused.
    pub refused: u64,
    /// Hits of those over a limit that did not refuse them.
    pub would_refuse: u64,
    /// The heaviest keys, heaviest first. A key of several replicas appears once, with its counts
    /// and errors added.
    pub keys: Vec<TopKey>,
}

/// A replica without an answer.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct FailedReplica {
    /// Its URL.
    pub admin: String,
    /// Why, and what to do.
    pub error: String,
}

/// What tells a key from others.
type Identity = (String, String, Vec<Entry>);

// === impl MergedTop ===

impl MergedTop {
    /// Adds up the answers of replicas, given with the URL of each. At most `keys_max` keys stay.
    pub fn of(tops: Vec<(String, Top)>, by: RankBy, window: Window, keys_max: usize) -> Self {
        let covered = tops.iter().map(|(_, it)| it.covered_seconds);
        let mut merged = Self {
            by,
            window,
            covered_seconds: covered.min().unwrap_or_default(),
            values: ValueMode::Off,
            ..Self::default()
        };
        let mut keys = BTreeMap::new();
        for (name, top) in tops {
            merged.instances.push(name);
            merged.at = merged.at.max(Some(top.at));
            merged.values = stricter(merged.values, top.values);
            merged.asked = merged.asked.saturating_add(top.asked);
            merged.refused = merged.refused.saturating_add(top.refused);
            merged.would_refuse = merged.would_refuse.saturating_add(top.would_refuse);
            for key in top.keys {
                add_key(&mut keys, key);
            }
        }
        merged.keys = keys.into_values().collect();
        merged.keys.sort_by_key(|key| {
            let (first, second) = match by {
                RankBy::Refused => (key.refused, key.asked),
                RankBy::Asked => (key.asked, key.refused),
            };
            std::cmp::Reverse((first, second))
        });
        merged.keys.truncate(keys_max);
        merged
    }
}

/// Adds a key of one replica. A key without text is another key on each replica.
fn add_key(keys: &mut BTreeMap<(Identity, usize), TopKey>, key: TopKey) {
    let identity = (key.domain.clone(), key.rule.clone(), key.descriptor.clone());
    let number = if key.descriptor.is_empty() {
        keys.len()
    } else {
        0
    };
    match keys.entry((identity, number)) {
        btree_map::Entry::Vacant(entry) => {
            entry.insert(key);
        }
        btree_map::Entry::Occupied(mut entry) => {
            let sum = entry.get_mut();
            sum.asked = sum.asked.saturating_add(key.asked);
            sum.refused = sum.refused.saturating_add(key.refused);
            sum.would_refuse = sum.would_refuse.saturating_add(key.would_refuse);
            sum.error = sum.error.saturating_add(key.error);
            sum.refused_since = match (sum.refused_since.take(), key.refused_since) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            sum.refused_last = sum.refused_last.take().max(key.refused_last);
        }
    }
}

/// How the values of two replicas together are shown.
fn stricter(one: ValueMode, other: ValueMode) -> ValueMode {
    match (one, other) {
        (ValueMode::Hashed, _) | (_, ValueMode::Hashed) => ValueMode::Hashed,
        (ValueMode::Plain, _) | (_, ValueMode::Plain) => ValueMode::Plain,
        (ValueMode::Off, ValueMode::Off) => ValueMode::Off,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(value: &str, asked: u64, refused: u64, since: Option<&str>) -> TopKey {
        let descriptor = match value {
            "" => Vec::new(),
            value => vec![Entry {
                key: "user".to_owned(),
                value: value.to_owned(),
            }],
        };
        TopKey {
            domain: "edge".to_owned(),
            rule: "edge.user".to_owned(),
            descriptor,
            asked,
            refused,
            would_refuse: refused / 2,
            error: 1,
            refused_since: since.map(|at| format!("2026-11-22T20:{at}.000Z")),
            refused_last: since.map(|at| format!("2026-11-22T21:{at}.000Z")),
        }
    }

    fn top(at: &str, values: ValueMode, covered_seconds: u64, keys: Vec<TopKey>) -> Top {
        Top {
            instance: "one".to_owned(),
            at: at.to_owned(),
            by: RankBy::Refused,
            window: Window::Minute,
            covered_seconds,
            values,
            asked: 10,
            refused: 5,
            would_refuse: 2,
            keys,
        }
    }

    #[test]
    fn counts_of_one_key_are_added_and_sorted_anew() {
        let one = vec![key("a", 9, 3, Some("00:02")), key("b", 5, 2, None)];
        let other = vec![key("b", 7, 4, Some("00:01")), key("a", 1, 1, Some("00:01"))];
        let tops = vec![
            ("x".to_owned(), top("2", ValueMode::Plain, 60, one)),
            ("y".to_owned(), top("1", ValueMode::Hashed, 30, other)),
        ];
        let merged = MergedTop::of(tops.clone(), RankBy::Refused, Window::Minute, 10);
        assert_eq!(merged.instances, ["x", "y"]);
        let all = (merged.asked, merged.refused, merged.would_refuse);
        assert_eq!(all, (20, 10, 4));
        assert_eq!(
            (merged.at.as_deref(), merged.covered_seconds),
            (Some("2"), 30)
        );
        assert_eq!(merged.values, ValueMode::Hashed);
        let mut sum = key("b", 12, 6, Some("00:01"));
        sum.error = 2;
        assert_eq!(merged.keys[0], sum);
        assert_eq!((merged.keys[1].asked, merged.keys[1].refused), (10, 4));
        assert!(merged.keys[1].refused_since < key("a", 1, 1, Some("00:02")).refused_since);
        assert_eq!(
            merged.keys[1].refused_last,
            key("a", 1, 1, Some("00:02")).refused_last
        );
        let merged = MergedTop::of(tops, RankBy::Asked, Window::Minute, 1);
        assert_eq!(merged.keys.len(), 1);
        assert_eq!(merged.keys[0].asked, 12);
    }

    #[test]
    fn keys_without_text_stay_apart() {
        let keys = || vec![key("", 4, 4, None)];
        let tops = vec![
            ("x".to_owned(), top("1", ValueMode::Plain, 60, keys())),
            ("y".to_owned(), top("1", ValueMode::Plain, 60, keys())),
        ];
        let merged = MergedTop::of(tops, RankBy::Refused, Window::Minute, 10);
        assert_eq!(merged.keys.len(), 2);
    }
}
