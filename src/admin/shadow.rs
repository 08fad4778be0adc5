//! `POST /shadow`: keeps one rule in shadow mode until a time.

use std::sync::Arc;

use ::http::StatusCode;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;

use super::AdminState;
use super::audit::Change;
use super::changes::read_json;
use super::failure::{ApiFailure, json_response};
use super::http::Client;
use crate::admin_api::{ShadowRequest, ShadowResponse, ShadowedRule, parse_time, time_text};
use crate::pipeline::{SHADOW_SECONDS_MAX, Shadow, ShadowError};
use tollgate_limiter::Timestamp;

const FORM: &str =
    r#"{"domain":"DOMAIN","rule":"RULE","for_seconds":SECONDS}, or "until":"2030-01-01T00:00:00Z""#;

/// The list as the API shows it.
pub(super) fn shadowed_rules(shadows: Vec<Shadow>) -> Vec<ShadowedRule> {
    let shadows = shadows.into_iter().map(|shadow| ShadowedRule {
        domain: shadow.domain,
        rule: shadow.rule,
        until: time_text(shadow.until),
    });
    shadows.collect()
}

pub(super) async fn shadow(
    State(state): State<AdminState>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, ApiFailure> {
    let mut change = Change {
        name: "shadow",
        client: &client,
        what: String::new(),
    };
    let outcome = match read_json::<ShadowRequest>(&state, body, FORM).await {
        Err(failure) => Err(failure),
        Ok(request) => {
            change.what = format!("{}: {}", request.domain, request.rule);
            set_shadow(&state, request).await
        }
    };
    change.record(&state, &outcome, |(until, _)| match until {
        Some(until) => format!("in shadow mode until {}", time_text(*until)),
        None => "no longer in shadow mode by POST /shadow".to_owned(),
    });
    let (_, shadows) = outcome?;
    let response = ShadowResponse {
        instance: state.api.instance.to_string(),
        at: time_text(state.api.clock.now()),
        shadowed: shadowed_rules(shadows),
    };
    Ok(json_response(StatusCode::OK, &response))
}

/// Changes the list; returns the end that was asked for, and the list.
async fn set_shadow(
    state: &AdminState,
    request: ShadowRequest,
) -> Result<(Option<Timestamp>, Vec<Shadow>), ApiFailure> {
    let until = end_of(&request, state.api.clock.now())?;
    let _permit = state.api.changes.acquire().await;
    let generations = Arc::clone(&state.generations);
    // It copies the rules.
    let set = tokio::task::spawn_blocking(move || {
        generations.set_shadow(&request.domain, &request.rule, until)
    });
    let set = set
        .await
        .map_err(|error| ApiFailure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    match set {
        Ok(shadows) => Ok((until, shadows)),
        Err(error) => {
            let status = match error {
                ShadowError::NoRules => StatusCode::SERVICE_UNAVAILABLE,
                ShadowError::UnknownRule => StatusCode::NOT_FOUND,
                ShadowError::TooMany => StatusCode::BAD_REQUEST,
            };
            Err(ApiFailure::new(status, error.to_string()))
        }
    }
}

/// When the shadow mode ends; none for now.
fn end_of(request: &ShadowRequest, now: Timestamp) -> Result<Option<Timestamp>, ApiFailure> {
    if request.domain.is_empty() || request.rule.is_empty() {
        let why = format!("the domain or the rule is empty; send {FORM}");
        return Err(ApiFailure::invalid(why));
    }
    let latest = now.plus_us(SHADOW_SECONDS_MAX.saturating_mul(1_000_000));
    let until = match (&request.until, request.for_seconds) {
        (None, Some(0)) => return Ok(None),
        (None, Some(seconds)) => now.plus_us(seconds.saturating_mul(1_000_000)),
        (Some(until), None) => parse_time(until).ok_or_else(|| {
            ApiFailure::invalid(format!(
                "until {until:?} is invalid; use RFC 3339 in UTC, such as 2030-01-01T00:00:00Z"
            ))
        })?,
        _ => {
            let why = format!("exactly one of until and for_seconds must be set; send {FORM}");
            return Err(ApiFailure::invalid(why));
        }
    };
    if until <= now {
        let why = "until is not in the future; set \"for_seconds\": 0 to end a shadow mode";
        return Err(ApiFailure::invalid(why));
    }
    if until > latest {
        let why = format!(
            "the end is more than {SHADOW_SECONDS_MAX} seconds from now, which is 7 days; choose an earlier one"
        );
        return Err(ApiFailure::invalid(why));
    }
    Ok(Some(until))
}
