//! `GET /top`: the heaviest keys.

use serde::{Deserialize, Serialize};

/// One entry of a descriptor. Bytes that are not UTF-8 are escaped as Rust escapes bytes.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
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
    /// Hits of those that were over a limit.
    pub refused: u64,
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
    /// Hits that were over the limit, at least; at most `error` more.
    pub refused: u64,
    /// By how much a count can be too small.
    pub error: u64,
    /// When the first hit over the limit in this window was; null if there is none.
    pub refused_since: Option<String>,
    /// When the last hit over the limit was; null if there is none.
    pub refused_last: Option<String>,
}

/// What keys are sorted by.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RankBy {
    /// Hits over the limit.
    #[default]
    Refused,
    /// Hits asked for.
    Asked,
}

/// The length of time that counts cover.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub enum Window {
    /// The last minute.
    #[default]
    #[serde(rename = "1m")]
    Minute,
    /// The last hour.
    #[serde(rename = "1h")]
    Hour,
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
