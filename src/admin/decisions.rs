//! `GET /decisions`: the last decisions, and the filter that `GET /events` shares with it.

use ::http::StatusCode;
use axum::extract::{RawQuery, State};
use axum::response::Response;

use super::AdminState;
use super::failure::{ApiFailure, json_response};
use super::query::Query;
use crate::admin_api::{Entry, Reason, Verdict};
use crate::decisions::{CandidateFilter, DecisionFilter, RECENT_MAX, RecentQuery};

/// How many decisions a response has if the query does not say.
const COUNT_DEFAULT: u64 = 100;

const VERDICTS: [(&str, Verdict); 3] = [
    ("OK", Verdict::Ok),
    ("OVER_LIMIT", Verdict::OverLimit),
    ("ERROR", Verdict::Error),
];

const REASONS: [(&str, Reason); 19] = [
    ("within_limit", Reason::WithinLimit),
    ("over_limit", Reason::OverLimit),
    ("unknown_domain", Reason::UnknownDomain),
    ("no_rule", Reason::NoRule),
    ("no_limit", Reason::NoLimit),
    ("replaced", Reason::Replaced),
    ("unlimited", Reason::Unlimited),
    ("shadow_mode", Reason::ShadowMode),
    ("global_shadow_mode", Reason::GlobalShadowMode),
    ("quota", Reason::Quota),
    ("over_limit_cache", Reason::OverLimitCache),
    ("store_failure_allowed", Reason::StoreFailureAllowed),
    ("store_failure_denied", Reason::StoreFailureDenied),
    ("store_failure_local", Reason::StoreFailureLocal),
    ("overload_allowed", Reason::OverloadAllowed),
    ("overload_denied", Reason::OverloadDenied),
    ("excess_allowed", Reason::ExcessAllowed),
    ("excess_denied", Reason::ExcessDenied),
    ("error", Reason::Error),
];

pub(super) async fn decisions(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiFailure> {
    let allowed = &["domain", "rule", "key", "verdict", "reason", "n"];
    let query = Query::parse(query.as_deref(), allowed)?;
    let count = query.number("n", RECENT_MAX as u64)?;
    let query = RecentQuery {
        filter: filter(&query)?,
        count: usize::try_from(count.unwrap_or(COUNT_DEFAULT)).unwrap_or(RECENT_MAX),
    };
    let decisions = state.api.decisions.clone();
    // It reads thousands of decisions.
    let recent = tokio::task::spawn_blocking(move || decisions.recent(&query)).await;
    let recent = recent
        .map_err(|error| ApiFailure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    Ok(json_response(StatusCode::OK, &recent))
}

/// The decisions that a query asks for.
pub(super) fn filter(query: &Query) -> Result<DecisionFilter, ApiFailure> {
    let entries = query.entries("key")?.unwrap_or_default().into_iter();
    Ok(DecisionFilter {
        domain: query.text("domain").map(str::to_owned),
        rule: query.text("rule").map(str::to_owned),
        entries: entries.map(|(key, value)| Entry { key, value }).collect(),
        verdict: query.choice("verdict", &VERDICTS)?,
        reason: query.choice("reason", &REASONS)?,
        // Kept decisions are answers.
        candidates: CandidateFilter::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_json() {
        for (name, verdict) in VERDICTS {
            assert_eq!(serde_json::to_value(verdict).unwrap(), name);
        }
        for (name, reason) in REASONS {
            assert_eq!(serde_json::to_value(reason).unwrap(), name);
        }
    }
}
