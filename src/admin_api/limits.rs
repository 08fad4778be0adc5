//! `GET /limits`: the rules in use and what they admitted and refused.

use serde::{Deserialize, Serialize};

use super::candidate::{CandidateLimit, CandidateState};
use super::limit_figures::LimitFigures;
use super::quotas::QuotaFigures;
use super::reserve::ReserveFigures;

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

/// Hits of one rule. Limits of one descriptor without names share their counts.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Hits {
    /// Hits that were asked for.
    pub total: u64,
    /// Hits of requests that passed.
    pub admitted: u64,
    /// Hits over the limit.
    pub over: u64,
    /// Hits over the near mark and not over the limit.
    pub near: u64,
    /// Hits over the limit of a rule in shadow mode.
    pub shadow: u64,
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
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.reserved, other.reserved),
            (&mut self.refused, other.refused),
            (&mut self.committed, other.committed),
            (&mut self.released, other.released),
            (&mut self.charged, other.charged),
            (&mut self.unknown, other.unknown),
            (&mut self.hits_returned, other.hits_returned),
            (&mut self.hits_excess, other.hits_excess),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Hits a second.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Rates {
    /// How many seconds the rates cover; 0 before the first measurement.
    pub seconds: f64,
    /// Hits that were asked for.
    pub total: f64,
    /// Hits of requests that passed.
    pub admitted: f64,
    /// Hits over the limit.
    pub over: f64,
    /// Hits over the near mark and not over the limit.
    pub near: f64,
    /// Hits over the limit of a rule in shadow mode.
    pub shadow: f64,
}
