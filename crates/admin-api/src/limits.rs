//! `GET /limits`: the rules in use, what they admitted and refused, their reservations, and what
//! candidates would have answered. `GET /quotas`: limits that the rate limit quota service (RLQS)
//! apportions, and their buckets.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_limiter::{Algorithm, Limit, ReserveAmount, ReserveRule};

use super::keys::{Entry, ValueMode};
use super::text::limit_text;

/// The response of `GET /limits`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Limits {
    /// The replica: its host name.
    pub instance: String,
    /// When this was read.
    pub at: String,
    /// The rules, in the order of the files.
    pub limits: Vec<LimitState>,
    /// How many rules are left out because of a bound.
    pub omitted: u64,
    /// The candidate; null if none is tried.
    #[serde(default)]
    pub candidate: Option<CandidateState>,
}

/// One rule, its limit and its counts.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LimitState {
    /// The domain.
    pub domain: String,
    /// The full name, as `/rlconfig` has it; with `name=NAME` appended for a rule with a name.
    pub rule: String,
    /// What tells the limit from others of its descriptor: its name, else its window. The label
    /// `limit` of the metric `tollgate_limit_hits_total`.
    pub label: String,
    /// The limit; null where the rule is unlimited, or has limits for the values of a file only.
    pub limit: Option<LimitFigures>,
    /// Whether the rule is unlimited.
    pub unlimited: bool,
    /// The file with limits of its values; absent where the rule has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits_from: Option<LimitsFrom>,
    /// The reservations; absent where the rule has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<ReserveFigures>,
    /// The price of a hit as an exact decimal; absent where it is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<String>,
    /// The budget that the rule shares with others; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// How many overrides take its place for their descriptors; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<u64>,
    /// Whether the rule is in shadow mode now, by its file or by `/shadow`.
    pub shadow_mode: bool,
    /// Until when `/shadow` keeps it in shadow mode; null if it does not.
    pub shadow_until: Option<String>,
    /// Where the rule was written: `FILE:LINE`, or the name of a resource of an xDS server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// `FILE:LINE` of the overlay's entry that matches the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlay: Option<String>,
    /// Whether the rule is a quota: a request is refused only if all its quotas are over the limit.
    pub quota_mode: bool,
    /// The figures of a rule with `rlqs: true`, which checks do not ask; absent elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rlqs: Option<QuotaFigures>,
    /// Hits since the start of the service.
    pub hits: Hits,
    /// What became of its reservations since the start; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservations: Option<ReservationCounts>,
    /// Hits a second, over the last `rates.seconds` seconds.
    pub rates: Rates,
    /// What is tried in its place; null if the candidate has no rule of this name.
    #[serde(default)]
    pub candidate: Option<CandidateLimit>,
}

/// A file with limits of values.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LimitsFrom {
    /// Its path.
    pub file: String,
    /// How many values have a limit there.
    pub limits: u64,
}

/// Hits at one limit. `total` is the sum of `admitted`, `refused`, `would_refuse`, `overruled` and
/// `charged`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Hits {
    /// Hits that were asked for.
    pub total: u64,
    /// Hits of requests that passed, within the limit.
    pub admitted: u64,
    /// Hits of requests that this limit refused.
    pub refused: u64,
    /// Hits over the limit that it did not refuse: in shadow mode, or as a quota beside one with
    /// hits left.
    pub would_refuse: u64,
    /// Hits within the limit, of requests that another limit refused.
    pub overruled: u64,
    /// Hits charged after the work, which no limit refuses.
    pub charged: u64,
    /// Hits over the near mark and not over the limit.
    pub near: u64,
}

// === impl Hits ===

impl Hits {
    /// Adds the hits of another replica.
    pub fn add(&mut self, more: &Self) {
        add(&mut self.total, more.total);
        add(&mut self.admitted, more.admitted);
        add(&mut self.refused, more.refused);
        add(&mut self.would_refuse, more.would_refuse);
        add(&mut self.overruled, more.overruled);
        add(&mut self.charged, more.charged);
        add(&mut self.near, more.near);
    }
}

fn add(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

/// Reservations of one rule since the start of the service. Rules with the same labels in metrics
/// share their counts.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct ReservationCounts {
    /// Reservations made.
    pub reserved: u64,
    /// Reservations refused.
    pub refused: u64,
    /// Reservations settled by their true amount.
    pub committed: u64,
    /// Reservations released.
    pub released: u64,
    /// Commits that were charged in full, because no reservation was open.
    pub charged: u64,
    /// Commits, releases and extensions of unknown ids.
    pub unknown: u64,
    /// Hits that went back.
    pub hits_returned: u64,
    /// Hits that commits exceeded their reservations by.
    pub hits_excess: u64,
}

// === impl ReservationCounts ===

impl ReservationCounts {
    /// Adds the counts of another replica.
    pub fn add(&mut self, more: &Self) {
        add(&mut self.reserved, more.reserved);
        add(&mut self.refused, more.refused);
        add(&mut self.committed, more.committed);
        add(&mut self.released, more.released);
        add(&mut self.charged, more.charged);
        add(&mut self.unknown, more.unknown);
        add(&mut self.hits_returned, more.hits_returned);
        add(&mut self.hits_excess, more.hits_excess);
    }
}

/// Hits a second.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Rates {
    /// How many seconds the rates cover; 0 before the first measurement.
    pub seconds: f64,
    /// Hits that were asked for.
    pub total: f64,
    /// Hits of requests that passed, within the limit.
    pub admitted: f64,
    /// Hits of requests that this limit refused.
    pub refused: f64,
    /// Hits over the limit that it did not refuse.
    pub would_refuse: f64,
    /// Hits within the limit, of requests that another limit refused.
    pub overruled: f64,
    /// Hits charged after the work.
    pub charged: f64,
    /// Hits over the near mark and not over the limit.
    pub near: f64,
}

// === impl Rates ===

impl Rates {
    /// Adds the rates of another replica. They cover the longer time.
    pub fn add(&mut self, more: &Self) {
        self.seconds = self.seconds.max(more.seconds);
        self.total += more.total;
        self.admitted += more.admitted;
        self.refused += more.refused;
        self.would_refuse += more.would_refuse;
        self.overruled += more.overruled;
        self.charged += more.charged;
        self.near += more.near;
    }
}

/// The figures of a limit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LimitFigures {
    /// Requests per unit.
    pub requests_per_unit: u64,
    /// The unit, in lower case; null for slots.
    pub unit: Option<String>,
    /// How many units a window has.
    pub unit_multiplier: u32,
    /// The algorithm.
    pub algorithm: String,
    /// The burst.
    pub burst: u64,
    /// The limit in words, such as `10 per minute`.
    pub text: String,
}

// === impl LimitFigures ===

impl LimitFigures {
    /// The figures of a limit with this algorithm.
    pub fn of(limit: &Limit, algorithm: &dyn Algorithm) -> Self {
        let window = limit.unit().map(|_| limit.describe_window());
        let text = limit_text(limit.requests(), window.as_deref());
        Self {
            requests_per_unit: limit.requests(),
            unit: limit.unit().map(|unit| unit.name().to_owned()),
            unit_multiplier: limit.unit_multiplier().get(),
            algorithm: algorithm.name().to_owned(),
            burst: limit.burst(),
            text,
        }
    }

    /// The limit in words, with its burst where that is another number.
    pub fn with_burst(&self) -> String {
        match self.burst {
            burst if burst == self.requests_per_unit => self.text.clone(),
            burst => format!("{}, burst {burst}", self.text),
        }
    }
}

/// The reservations of a rule.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ReserveFigures {
    /// The key of the entry that is the id; null where only the API reserves.
    pub key: Option<String>,
    /// The amount, such as `800` or `p95`; null where each request says it.
    pub amount: Option<String>,
    /// The least that a learnt amount reserves; null for another amount.
    pub floor: Option<u64>,
    /// The most that a learnt amount reserves; null for another amount.
    pub ceiling: Option<u64>,
    /// Whose commits a learnt amount is learnt from: `rule` or `key`; null for another amount.
    pub per: Option<String>,
    /// How long a reservation is open unless it is settled, in milliseconds.
    pub expires_ms: u32,
    /// What happens to the hits of one that expires: `charge` or `release`.
    pub on_expiry: String,
}

// === impl ReserveFigures ===

impl ReserveFigures {
    /// The reservations that a rule sets.
    pub fn of(rule: &ReserveRule) -> Self {
        let learnt = match rule.amount {
            Some(ReserveAmount::Learnt(learnt)) => Some(learnt),
            Some(ReserveAmount::Hits(_)) | None => None,
        };
        Self {
            key: rule.key.clone(),
            amount: rule.amount.map(|amount| amount.to_string()),
            floor: learnt.map(|learnt| learnt.floor),
            ceiling: learnt.map(|learnt| learnt.ceiling),
            per: learnt.map(|learnt| learnt.scope.name().to_owned()),
            expires_ms: rule.expiry.after_ms.get(),
            on_expiry: rule.expiry.on_expiry.name().to_owned(),
        }
    }

    /// How long a reservation is open, such as `5m`.
    pub fn expires(&self) -> String {
        let expires = Duration::from_millis(u64::from(self.expires_ms));
        humantime::format_duration(expires).to_string()
    }
}

impl fmt::Display for ReserveFigures {
    /// As a rules file has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (name, value) in [("key", &self.key), ("amount", &self.amount)] {
            if let Some(value) = value {
                write!(f, "{name}: {value}, ")?;
            }
        }
        for (name, value) in [("floor", self.floor), ("ceiling", self.ceiling)] {
            if let Some(value) = value {
                write!(f, "{name}: {value}, ")?;
            }
        }
        if let Some(per) = &self.per {
            write!(f, "per: {per}, ")?;
        }
        let expires = self.expires();
        write!(f, "expires: {expires}, on_expiry: {}}}", self.on_expiry)
    }
}

/// The candidate that is tried beside the rules in force.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CandidateState {
    /// Where it comes from.
    pub source: CandidateOrigin,
    /// The hash of its files, or of the rules that name it; null before the first.
    pub hash: Option<String>,
    /// Since when its limits are counted; null before the first.
    pub since: Option<String>,
    /// Why the newest candidate rules were refused; null if they are tried.
    pub error: Option<String>,
    /// Requests of all domains. With source `fields`, those that reached a rule with a candidate.
    pub counts: CandidateCounts,
    /// Requests that it did not decide, since the start of the service.
    pub skipped: u64,
    /// Bytes that its buckets use.
    pub memory_bytes: u64,
    /// Bytes that its buckets may use.
    pub memory_max_bytes: u64,
    /// Its rules that the rules in force do not have, in the order of the files, at most 1,000.
    pub new_rules: Vec<CandidateRule>,
}

/// Where a candidate comes from.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CandidateOrigin {
    /// A rule set of its own: `--candidate`.
    Files,
    /// Limits that rules name: `rate_limit.candidate`.
    Fields,
}

/// The candidate of one rule.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CandidateLimit {
    /// The limit; null where the candidate is unlimited.
    pub limit: Option<LimitFigures>,
    /// Requests that the rule decided.
    pub counts: CandidateCounts,
}

/// A rule that only the candidate has.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CandidateRule {
    /// The domain.
    pub domain: String,
    /// The full name.
    pub rule: String,
    /// The limit; null where the rule is unlimited.
    pub limit: Option<LimitFigures>,
    /// Requests that the rule decided.
    pub counts: CandidateCounts,
}

/// Requests by the verdicts of a candidate and of the rules in force.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct CandidateCounts {
    /// Requests that the candidate would have admitted.
    pub admitted: u64,
    /// Requests that the candidate would have refused.
    pub refused: u64,
    /// Those of the refused that were admitted.
    pub newly_refused: u64,
    /// Those of the admitted that were refused.
    pub newly_admitted: u64,
    /// How many of 100 requests the candidate would have refused.
    pub refused_percent: f64,
    /// How many of 100 requests were refused.
    pub live_refused_percent: f64,
}

// === impl CandidateCounts ===

impl CandidateCounts {
    /// Counts of these requests.
    pub fn new(admitted: u64, refused: u64, newly_refused: u64, newly_admitted: u64) -> Self {
        let all = admitted.saturating_add(refused);
        let live = refused
            .saturating_sub(newly_refused)
            .saturating_add(newly_admitted);
        Self {
            admitted,
            refused,
            newly_refused,
            newly_admitted,
            refused_percent: percent(refused, all),
            live_refused_percent: percent(live, all),
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self::new(
            self.admitted.saturating_add(other.admitted),
            self.refused.saturating_add(other.refused),
            self.newly_refused.saturating_add(other.newly_refused),
            self.newly_admitted.saturating_add(other.newly_admitted),
        )
    }

    /// How many requests there are.
    pub fn requests(&self) -> u64 {
        self.admitted.saturating_add(self.refused)
    }

    /// `would refuse 3.1 % instead of 0.4 %`.
    pub fn text(&self) -> String {
        format!(
            "would refuse {:.1} % instead of {:.1} %",
            self.refused_percent, self.live_refused_percent
        )
    }
}

/// A part of 100, to thousandths.
#[allow(clippy::cast_precision_loss)] // a percentage is shown with a few digits
fn percent(part: u64, all: u64) -> f64 {
    if all == 0 {
        return 0.0;
    }
    (part as f64 / all as f64 * 100_000.0).round() / 1_000.0
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_compares_what_the_candidate_and_the_rules_refuse() {
        // 1,000 requests: 31 refused by the candidate, of which 30 newly; 4 refused by the rules.
        let counts = CandidateCounts::new(969, 31, 30, 3);
        assert_eq!(counts.text(), "would refuse 3.1 % instead of 0.4 %");
        let twice = counts.plus(&counts);
        assert_eq!((twice.requests(), twice.text()), (2_000, counts.text()));
        let none = CandidateCounts::default();
        assert_eq!(none.text(), "would refuse 0.0 % instead of 0.0 %");
    }
}
