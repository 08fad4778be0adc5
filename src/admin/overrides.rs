//! `/overrides`: `PUT` sets the limit of one descriptor for a time, `DELETE` ends it, `GET` lists.
//!
//! Their bodies and their audit are those of `changes`.

use std::sync::Arc;

use ::http::StatusCode;
use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};

use super::AdminState;
use super::changes::{Change, descriptor_words, end_between, read_json};
use super::http::{Client, in_pieces};
use super::query::{ApiFailure, JSON_HEADERS, Query, json_bytes, json_response};
use crate::admin_api::{
    Entry, Override as Kept, OverrideKey, OverrideRequest, OverrideResponse, OverrideState,
    Overrides, time_text,
};
use crate::pipeline::{Generations, OVERRIDE_SECONDS_MAX, Override, OverrideError};
use crate::store::StoreFault;
use tollgate_limiter::WithoutEffect;

const PUT_FORM: &str = r#"{"domain":"DOMAIN","descriptor":[{"key":"KEY","value":"VALUE"}],"plan":"PLAN","for_seconds":SECONDS}, or "limit":{…}, "unlimited":true, "blocked":true; or "until":"2030-01-01T00:00:00Z""#;

const DELETE_FORM: &str = r#"{"domain":"DOMAIN","descriptor":[{"key":"KEY","value":"VALUE"}]}"#;

pub(super) async fn put(
    State(state): State<AdminState>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, ApiFailure> {
    let mut change = Change {
        name: "override",
        client: &client,
        what: String::new(),
    };
    let outcome = match read_json::<OverrideRequest>(&state, body, PUT_FORM).await {
        Err(failure) => Err(failure),
        Ok(request) => {
            change.what = descriptor_words(&state, &request.domain, &request.descriptor);
            let who = match request.who.as_str() {
                "" => state.api.who(&client),
                who => who.to_owned(),
            };
            set(&state, request, who).await
        }
    };
    change.record(&state, &outcome, |set| {
        let of = &set.of;
        let what = match (&of.plan, of.unlimited, of.blocked) {
            (Some(plan), ..) => format!("plan {plan}"),
            (None, true, _) => "unlimited".to_owned(),
            (None, false, true) => "blocked".to_owned(),
            (None, false, false) => "limit".to_owned(),
        };
        format!("{what} until {} for {}: {}", of.until, of.who, of.reason)
    });
    let response = response(&state, Some(outcome?));
    Ok(json_response(StatusCode::OK, &response))
}

async fn set(
    state: &AdminState,
    request: OverrideRequest,
    who: String,
) -> Result<OverrideState, ApiFailure> {
    let now = state.api.clock.now();
    let until = (request.until.as_deref(), request.for_seconds);
    let forms = (PUT_FORM, "DELETE /overrides ends an override");
    let until = end_between(until, now, OVERRIDE_SECONDS_MAX, forms)?;
    let one = Override::new(Kept {
        domain: request.domain,
        descriptor: request.descriptor,
        plan: request.plan,
        limit: request.limit,
        unlimited: request.unlimited,
        blocked: request.blocked,
        until: time_text(until),
        reason: request.reason,
        who,
        set_at: time_text(now),
    });
    let one = one.map_err(|error| failure(&error))?;
    state
        .generations
        .check_override(&one)
        .map_err(|error| failure(&error))?;
    if let Some(records) = state.api.store.shared_records() {
        let name = name_of(&one.kept().domain, &one.kept().descriptor)?;
        let record = json(one.kept())?;
        let max = state.generations.overrides_max();
        let is_set = records.set(name, record, max).await;
        if !is_set.map_err(unavailable)? {
            state.metrics.rules.overrides_refused.inc();
            return Err(failure(&OverrideError::TooMany(max)));
        }
    }
    let set = with_rules(state, move |generations| generations.set_override(one)).await?;
    set.map_err(|error| failure(&error))
}

pub(super) async fn delete(
    State(state): State<AdminState>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, ApiFailure> {
    let mut change = Change {
        name: "override",
        client: &client,
        what: String::new(),
    };
    let outcome = match read_json::<OverrideKey>(&state, body, DELETE_FORM).await {
        Err(failure) => Err(failure),
        Ok(OverrideKey { domain, descriptor }) => {
            change.what = descriptor_words(&state, &domain, &descriptor);
            remove(&state, domain, descriptor).await
        }
    };
    change.record(&state, &outcome, |()| "ended".to_owned());
    outcome?;
    Ok(json_response(StatusCode::OK, &response(&state, None)))
}

async fn remove(
    state: &AdminState,
    domain: String,
    descriptor: Vec<Entry>,
) -> Result<(), ApiFailure> {
    let is_shared = match state.api.store.shared_records() {
        None => false,
        Some(records) => {
            let removed = records.remove(name_of(&domain, &descriptor)?, None).await;
            removed.map_err(unavailable)?
        }
    };
    let remove = move |generations: &Generations| generations.remove_override(&domain, &descriptor);
    if with_rules(state, remove).await? || is_shared {
        return Ok(());
    }
    let why = "there is no override of this descriptor; GET /overrides lists them";
    Err(ApiFailure::new(StatusCode::NOT_FOUND, why))
}

/// The name of an override among the records that replicas share.
fn name_of(domain: &str, descriptor: &[Entry]) -> Result<Vec<u8>, ApiFailure> {
    json(&OverrideKey {
        domain: domain.to_owned(),
        descriptor: descriptor.to_vec(),
    })
}

fn json(value: &impl serde::Serialize) -> Result<Vec<u8>, ApiFailure> {
    let internal = |error: serde_json::Error| {
        ApiFailure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    };
    serde_json::to_vec(value).map_err(internal)
}

fn unavailable(fault: StoreFault) -> ApiFailure {
    ApiFailure::unavailable(format!(
        "the shared store failed, or its result is unknown: {fault}; try again"
    ))
}

pub(super) async fn get(
    State(state): State<AdminState>,
    Extension(client): Extension<Client>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiFailure> {
    let query = Query::parse(query.as_deref(), &["domain"])?;
    let permit = state.api.long_response()?;
    // On a blocking thread: the text may be megabytes, and the threads here also decide.
    let written = tokio::task::spawn_blocking(move || {
        let (mut overrides, overrides_max) = state.generations.overrides();
        if let Some(domain) = query.text("domain") {
            overrides.retain(|one| one.of.domain == domain);
        }
        json_bytes(&Overrides {
            instance: state.api.instance.to_string(),
            at: time_text(state.api.clock.now()),
            overrides,
            overrides_max: overrides_max as u64,
        })
    });
    let written = written.await.unwrap_or_else(|error| Err(error.to_string()));
    let body =
        written.map_err(|error| ApiFailure::new(StatusCode::INTERNAL_SERVER_ERROR, error))?;
    let body = in_pieces(body.into(), client, permit);
    Ok((StatusCode::OK, JSON_HEADERS, body).into_response())
}

fn response(state: &AdminState, of: Option<OverrideState>) -> OverrideResponse {
    OverrideResponse {
        instance: state.api.instance.to_string(),
        at: time_text(state.api.clock.now()),
        of,
    }
}

/// Changes the rules on a thread that may block: it copies them.
async fn with_rules<T: Send + 'static>(
    state: &AdminState,
    change: impl FnOnce(&Generations) -> T + Send + 'static,
) -> Result<T, ApiFailure> {
    let _permit = state.api.changes.acquire().await;
    let generations = Arc::clone(&state.generations);
    let changed = tokio::task::spawn_blocking(move || change(&generations)).await;
    changed.map_err(|error| ApiFailure::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn failure(error: &OverrideError) -> ApiFailure {
    let status = match error {
        OverrideError::NoRules => StatusCode::SERVICE_UNAVAILABLE,
        OverrideError::TooMany(_) => StatusCode::CONFLICT,
        OverrideError::WithoutEffect(WithoutEffect::UnknownDomain | WithoutEffect::NoRule) => {
            StatusCode::NOT_FOUND
        }
        OverrideError::WithoutEffect(_) | OverrideError::Invalid(_) => StatusCode::BAD_REQUEST,
    };
    ApiFailure::new(status, error.to_string())
}
