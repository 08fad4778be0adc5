//! The state of a service: `GET /partitions`, and with everything else in `GET /events`.
//!
//! Of the server-sent events, `history` comes first, with the last minute; `state` comes at once
//! and then once a second, `decision` for each sampled decision, `skipped` at most once a second
//! with the number of decisions that matched and were not sent.

use serde::{Deserialize, Serialize};

use super::keys::Top;
use super::limits::{CandidateState, LimitState, Quotas, Rates};
use super::requests::ShadowedRule;

/// The data of a `state` event.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct StateEvent {
    /// The replica: its host name.
    pub instance: String,
    /// When this was read.
    pub at: String,
    /// The version of tollgate.
    pub version: String,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// Whether the service is ready.
    pub ready: bool,
    /// Whether the service is draining: a stop was requested.
    pub draining: bool,
    /// The rules.
    pub rules: RulesState,
    /// The rules with the most refused hits a second, at most 100, then those with the most hits.
    pub limits: Vec<LimitState>,
    /// How many rules are left out.
    pub limits_omitted: u64,
    /// Hits a second of all rules, those that are left out too. Of rules with `rlqs`, what proxies
    /// report.
    #[serde(default)]
    pub rates: Rates,
    /// The heaviest keys of the last minute by refused hits, at most 20.
    pub top_refused: Top,
    /// The heaviest keys of the last minute by hits asked for, at most 20.
    pub top_asked: Top,
    /// The store and its partitions.
    pub partitions: Partitions,
    /// Rules that `/shadow` keeps in shadow mode.
    pub shadowed: Vec<ShadowedRule>,
    /// The quotas with the largest demand, at most 20; absent where no rule has `rlqs: true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quotas: Option<Quotas>,
    /// The candidate; null if none is tried.
    #[serde(default)]
    pub candidate: Option<CandidateState>,
}

/// The rules in use, and what became of the last reload.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RulesState {
    /// The number of the generation; null before the first.
    pub generation: Option<u64>,
    /// The hash of the files, as `tollgate_rules_info` has it; null before the first.
    pub hash: Option<String>,
    /// When they were loaded; null before the first.
    pub loaded_at: Option<String>,
    /// How many rules there are.
    pub rules: u64,
    /// How many warnings they have.
    pub warnings: u64,
    /// Why the newest rules were refused; null if they are in use.
    pub error: Option<String>,
}

/// The data of a `history` event, the first of a stream with states: the last minute.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct HistoryEvent {
    /// Hits a second of all rules: a sample each second, at most 60, the newest last.
    pub samples: Vec<Rates>,
    /// The rules with the most refused hits of the samples, at most 64, then those with the most
    /// hits. Empty after a reload, until there are samples of the new rules.
    pub limits: Vec<LimitHistory>,
}

/// Hits a second of one rule, in the samples of a `history` event. A rule that was not among the 64
/// heaviest of a second has 0 in it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LimitHistory {
    /// The domain.
    pub domain: String,
    /// The full name of the rule.
    pub rule: String,
    /// What tells the limit from others of its rule.
    pub label: String,
    /// Hits that were asked for.
    pub total: Vec<f64>,
    /// Hits of requests that this limit refused.
    pub refused: Vec<f64>,
    /// Hits over the limit that it did not refuse.
    pub would_refuse: Vec<f64>,
}

/// The data of a `skipped` event.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct SkippedEvent {
    /// Decisions that matched since the last event of this kind and were not sent.
    pub skipped: u64,
    /// `state` events since then that were not sent, because the client reads too slowly.
    #[serde(default)]
    pub states: u64,
}

/// The response of `GET /partitions`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Partitions {
    /// The replica: its host name.
    pub instance: String,
    /// When this was read.
    pub at: String,
    /// The store.
    pub store: StoreState,
    /// The partitions of this process; empty where Redis or Valkey decides every check.
    pub partitions: Vec<PartitionState>,
}

/// The store that decides.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct StoreState {
    /// `memory`, or the name of the backend, such as `redis`.
    pub kind: String,
    /// `exact` or `leased`; null for the memory store.
    pub mode: Option<String>,
    /// Whether it decides.
    pub healthy: bool,
    /// Its state in words.
    pub message: String,
    /// Bytes that buckets may take; null where this process has none.
    pub memory_max_bytes: Option<u64>,
    /// Keys in the denial cache; null without a shared store.
    pub denied_keys: Option<u64>,
    /// Leases of this replica; null unless the mode is `leased`.
    pub leases: Option<LeaseState>,
    /// The servers of a shared store; empty for the memory store.
    pub nodes: Vec<NodeState>,
}

/// Leases of this replica.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct LeaseState {
    /// How many leases there are.
    pub leases: u64,
    /// Hits that they hold.
    pub hits_held: u64,
}

/// One server of a shared store.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct NodeState {
    /// Its address, without a password.
    pub address: String,
    /// Whether it answers.
    pub healthy: bool,
    /// Checks that wait for it.
    pub queue_checks: u64,
}

/// One partition.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct PartitionState {
    /// Its number, from 0.
    pub partition: u64,
    /// Buckets, or leases in leased mode.
    pub buckets: u64,
    /// Marks that its buckets have space for.
    pub marks: u64,
    /// Bytes that it uses.
    pub memory_bytes: u64,
    /// Checks in its queue.
    pub queue_checks: u64,
    /// Checks that were within their limit since the start.
    pub admitted: u64,
    /// Checks that were over their limit since the start, also those of limits that only count.
    pub refused: u64,
    /// Idle buckets that were freed since the start. A new bucket has the same state.
    pub freed: u64,
    /// Buckets that were forgotten since the start, for space, before they were idle.
    pub forgotten: u64,
}
