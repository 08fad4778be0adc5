//! What candidates would have answered: in `GET /limits` and in `state` events of `GET /events`.

use serde::{Deserialize, Serialize};

use super::limit_figures::LimitFigures;

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
