//! `GET /quotas`: limits that the rate limit quota service (RLQS) apportions, and their buckets.

use serde::{Deserialize, Serialize};

use super::top::{Entry, ValueMode};

/// The response of `GET /quotas`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Quotas {
    /// The replica: its host name.
    pub instance: String,
    /// When this was read.
    pub at: String,
    /// How values are shown.
    pub values: ValueMode,
    /// Seconds until this process assigns anything after its start; 0 afterwards.
    pub learning_seconds: f64,
    /// Sums of the rules that have buckets.
    pub rules: Vec<QuotaRule>,
    /// The buckets, the one with the largest demand first.
    pub buckets: Vec<QuotaBucket>,
    /// How many buckets are left out.
    pub omitted: u64,
}

/// One rule with `rlqs: true`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct QuotaRule {
    /// The domain.
    pub domain: String,
    /// The full name, as `/limits` has it.
    pub rule: String,
    /// Sums of its buckets.
    pub figures: QuotaFigures,
}

/// One bucket.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct QuotaBucket {
    /// The domain.
    pub domain: String,
    /// The full name of the rule, as `/limits` has it.
    pub rule: String,
    /// The id, sorted by key, as the first stream reported it.
    pub id: Vec<Entry>,
    /// Whether everything passes: the rule is in shadow mode.
    pub shadow_mode: bool,
    /// Its figures.
    pub figures: QuotaFigures,
    /// Its streams, at most 1,000 in one response; null unless the query has `id`.
    pub streams: Option<Vec<QuotaStream>>,
}

/// Figures of one bucket, or sums of the buckets of a rule. Rates are requests a second.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct QuotaFigures {
    /// How many buckets.
    pub buckets: u64,
    /// Open streams that report a bucket, added up over the buckets.
    pub streams: u64,
    /// The limit.
    pub limit: f64,
    /// What proxies reported, allowed and denied, smoothed.
    pub demand: f64,
    /// What proxies let pass.
    pub allowed: f64,
    /// What proxies denied.
    pub denied: f64,
    /// What this replica may assign: the limit, or its lease of it where replicas share one.
    pub usable: f64,
    /// What is assigned to open streams.
    pub assigned: f64,
    /// All assignments that have not expired: never more than the limit.
    pub in_force: f64,
    /// Tokens that can pass at once.
    pub burst: u64,
    /// Buckets in which an assignment differs from its fair share.
    pub converging: u64,
    /// How long the longest of them has differed, in seconds; null if none does.
    pub converging_seconds: Option<f64>,
    /// How long the last convergence took, in seconds; null before the first.
    pub converged_in_seconds: Option<f64>,
}

/// One stream's part of a bucket. Rates are requests a second.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct QuotaStream {
    /// The number of the stream since the start of the service.
    pub stream: u64,
    /// The weight.
    pub weight: u32,
    /// What its proxy reported, allowed and denied, smoothed.
    pub demand: f64,
    /// What its proxy let pass.
    pub allowed: f64,
    /// What its proxy denied.
    pub denied: f64,
    /// What is assigned.
    pub assigned: f64,
    /// Its fair share by the demands known now.
    pub fair_share: f64,
    /// When the assignment expires, in seconds; null without an assignment.
    pub expires_in_seconds: Option<f64>,
    /// How long ago its last report was, in seconds.
    pub reported_seconds_ago: f64,
}
