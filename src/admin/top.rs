//! `GET /top`: the heaviest keys.

use ::http::StatusCode;
use axum::extract::{RawQuery, State};
use axum::response::Response;

use super::AdminState;
use super::failure::{ApiFailure, json_response};
use super::query::Query;
use crate::admin_api::{Entry, RankBy, Top, Window};
use crate::top_keys::{KEYS_MAX, TopQuery};

/// How many keys a response has if the query does not say, and a `state` event.
const KEYS_DEFAULT: usize = 20;

const RANKS: [(&str, RankBy); 2] = [("refused", RankBy::Refused), ("asked", RankBy::Asked)];

const WINDOWS: [(&str, Window); 2] = [("1m", Window::Minute), ("1h", Window::Hour)];

pub(super) async fn top(
    State(state): State<AdminState>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiFailure> {
    let allowed = &["by", "window", "n", "domain", "rule", "descriptor"];
    let query = Query::parse(query.as_deref(), allowed)?;
    let count = query.number("n", KEYS_MAX as u64)?;
    let count = count.and_then(|count| usize::try_from(count).ok());
    let entries = query.entries("descriptor")?.unwrap_or_default().into_iter();
    let query = TopQuery {
        by: query.choice("by", &RANKS)?.unwrap_or_default(),
        window: query.choice("window", &WINDOWS)?.unwrap_or_default(),
        n: count.unwrap_or(KEYS_DEFAULT),
        domain: query.text("domain").map(str::to_owned),
        rule: query.text("rule").map(str::to_owned),
        descriptor: entries.map(|(key, value)| Entry { key, value }).collect(),
    };
    Ok(json_response(
        StatusCode::OK,
        &top_keys(&state, &query).await,
    ))
}

/// The heaviest keys of the last minute, for `state` events.
pub(super) async fn top_for_state(state: &AdminState, by: RankBy) -> Top {
    let query = TopQuery {
        by,
        n: KEYS_DEFAULT,
        ..TopQuery::default()
    };
    top_keys(state, &query).await
}

async fn top_keys(state: &AdminState, query: &TopQuery) -> Top {
    let generation = state.generations.current();
    let rules = generation.as_ref().map(|generation| &generation.rules);
    state.api.top_keys.query(query, rules).await
}
