//! `GET /limits`: every rule, its limit, its hits and their rates.

use std::collections::HashMap;
use std::sync::Arc;

use ::http::StatusCode;
use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};

use super::AdminState;
use super::candidate::{CandidateLimits, candidate_state};
use super::failure::{ApiFailure, JSON_HEADERS, json_bytes};
use super::http::Client;
use super::query::Query;
use super::quotas::RuleSums;
use super::rates::LimitCounts;
use super::streamed::in_pieces;
use crate::admin_api::{
    LimitFigures, LimitState, Limits, LimitsFrom, ReserveFigures, rule_name, time_text,
};
use crate::pipeline::Shadow;
use tollgate_limiter::{Allowance, Cost, LimitTable, Rule, Timestamp};

/// How many rules one response has.
const LIMITS_MAX: usize = 10_000;

/// Until when rules are in shadow mode, by domain and name.
pub(super) struct ShadowEnds(HashMap<(String, String), Timestamp>);

// === impl ShadowEnds ===

impl ShadowEnds {
    pub(super) fn new(shadows: Vec<Shadow>) -> Self {
        let ends = shadows
            .into_iter()
            .map(|shadow| ((shadow.domain, shadow.rule), shadow.until));
        Self(ends.collect())
    }

    /// When the shadow mode of a rule ends, if an operator set it.
    pub(super) fn of(&self, domain: &str, rule: &str) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let until = self.0.get(&(domain.to_owned(), rule.to_owned()))?;
        Some(time_text(*until))
    }
}

pub(super) async fn limits(
    State(state): State<AdminState>,
    Extension(client): Extension<Client>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiFailure> {
    let query = Query::parse(query.as_deref(), &["domain", "rule"])?;
    state.api.rates.look();
    let Ok(permit) = Arc::clone(&state.api.responses).try_acquire_owned() else {
        let why = "too many long responses are in progress; try again later";
        return Err(ApiFailure::unavailable(why));
    };
    // On a blocking thread: the text may be megabytes, and the threads here also decide.
    let written = tokio::task::spawn_blocking(move || json_bytes(&limits_of(&state, &query)));
    let written = written.await.unwrap_or_else(|error| Err(error.to_string()));
    let body =
        written.map_err(|error| ApiFailure::new(StatusCode::INTERNAL_SERVER_ERROR, error))?;
    let body = in_pieces(body.into(), client, permit);
    Ok((StatusCode::OK, JSON_HEADERS, body).into_response())
}

/// The rules that the query asks for.
fn limits_of(state: &AdminState, query: &Query) -> Limits {
    let api = &state.api;
    let mut limits = Limits {
        instance: api.instance.to_string(),
        at: time_text(api.clock.now()),
        limits: Vec::new(),
        omitted: 0,
        candidate: None,
    };
    let generation = state.generations.current();
    limits.candidate = candidate_state(state, generation.as_ref());
    let Some(generation) = generation else {
        return limits;
    };
    let candidates = CandidateLimits::new(&generation);
    let ends = ShadowEnds::new(state.generations.shadowed());
    let quotas = RuleSums::new(state);
    let counts = api.rates.counts(&generation);
    let (domain, name) = (query.text("domain"), query.text("rule"));
    for (rule, table) in generation.rules.written_rules() {
        if domain.is_some_and(|domain| *rule.domain != *domain)
            || name.is_some_and(|name| rule_name(rule) != name)
        {
            continue;
        }
        if limits.limits.len() < LIMITS_MAX {
            let mut state = limit_state((rule, table), &counts, &ends, candidates.as_ref());
            state.rlqs = quotas.of(rule);
            if let Some(origin) = generation.origins.of(rule.index) {
                (state.source, state.overlay) = (Some(origin.rule), origin.overlay);
            }
            limits.limits.push(state);
        } else {
            limits.omitted = limits.omitted.saturating_add(1);
        }
    }
    limits
}

/// One rule, and its table.
pub(super) fn limit_state(
    (rule, table): (&Rule, Option<&Arc<LimitTable>>),
    counts: &LimitCounts<'_>,
    ends: &ShadowEnds,
    candidates: Option<&CandidateLimits<'_>>,
) -> LimitState {
    let name = rule_name(rule);
    LimitState {
        limit: match &rule.allowance {
            Allowance::Unlimited => None,
            // Each value has its own.
            Allowance::Limited { .. } if rule.lines.is_some() => None,
            Allowance::Limited { limit, algorithm } => Some(LimitFigures::of(limit, *algorithm)),
        },
        unlimited: matches!(rule.allowance, Allowance::Unlimited) && rule.lines.is_none(),
        limits_from: table.map(|table| LimitsFrom {
            file: table.source().to_string(),
            limits: table.len() as u64,
        }),
        reserve: rule.reserve.as_deref().map(ReserveFigures::of),
        cost: (rule.cost != Cost::default()).then(|| rule.cost.to_string()),
        budget: rule.budget.as_deref().map(str::to_owned),
        shadow_mode: rule.shadow_mode,
        shadow_until: ends.of(&rule.domain, &name),
        source: None,
        overlay: None,
        quota_mode: rule.quota_mode,
        rlqs: None,
        hits: counts.hits(rule.index),
        reservations: counts.reservations(rule),
        rates: counts.rates(rule.index),
        candidate: candidates.and_then(|candidates| candidates.of(&rule.domain, &name)),
        domain: rule.domain.to_string(),
        rule: name,
    }
}
