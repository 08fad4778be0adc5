//! `/overrides`: `PUT` sets the limit of one descriptor for a time, `DELETE` ends it, `GET` lists.
//!
//! Their bodies and their audit are those of `changes`.

use std::sync::Arc;

use ::http::StatusCode;
use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::Response;

use super::AdminState;
use super::changes::{Change, descriptor_words, end_between};
use super::http::Client;
use super::query::{ApiFailure, Query, blocking, json_response, long_json};
use crate::admin_api::{
    Override as Kept, OverrideKey, OverrideRequest, OverrideResponse, OverrideState, Overrides,
    time_text,
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
    let by = state.who(&client);
    let what = |asked: &OverrideRequest| descriptor_words(&state, &asked.domain, &asked.descriptor);
    let set = |state, mut asked: OverrideRequest| {
        if asked.who.is_empty() {
            asked.who = by;
        }
        set(state, asked)
    };
    let done = |set: &OverrideState| {
        let of = &set.of;
        let what = match (&of.plan, of.unlimited, of.blocked) {
            (Some(plan), ..) => format!("plan {plan}"),
            (None, true, _) => "unlimited".to_owned(),
            (None, false, true) => "blocked".to_owned(),
            (None, false, false) => "limit".to_owned(),
        };
        format!("{what} until {} for {}: {}", of.until, of.who, of.reason)
    };
    let change = Change::new("override", &client);
    let set = change.carry_out(&state, (body, PUT_FORM), what, set, done);
    let response = response(&state, Some(set.await?));
    Ok(json_response(StatusCode::OK, &response))
}

async fn set(state: AdminState, request: OverrideRequest) -> Result<OverrideState, ApiFailure> {
    let now = state.parts.engine.clock.now();
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
        who: request.who,
        set_at: time_text(now),
    });
    let one = one.map_err(|error| failure(&error))?;
    let generations = &state.parts.engine.generations;
    generations
        .check_override(&one)
        .map_err(|error| failure(&error))?;
    if let Some(records) = state.parts.engine.store.shared_records() {
        // Its name among the records that replicas share.
        let name = json(&OverrideKey {
            domain: one.kept.domain.clone(),
            descriptor: one.kept.descriptor.clone(),
        })?;
        let record = json(&one.kept)?;
        let max = state.parts.engine.generations.overrides_max();
        let is_set = records.set(name, record, max).await;
        if !is_set.map_err(unavailable)? {
            state.parts.engine.metrics.rules.overrides_refused.inc();
            return Err(failure(&OverrideError::TooMany(max)));
        }
    }
    let set = with_rules(&state, move |generations| generations.set_override(one)).await?;
    set.map_err(|error| failure(&error))
}

pub(super) async fn delete(
    State(state): State<AdminState>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, ApiFailure> {
    let what = |asked: &OverrideKey| descriptor_words(&state, &asked.domain, &asked.descriptor);
    let change = Change::new("override", &client);
    let done = |(): &()| "ended".to_owned();
    let removed = change.carry_out(&state, (body, DELETE_FORM), what, remove, done);
    removed.await?;
    Ok(json_response(StatusCode::OK, &response(&state, None)))
}

async fn remove(state: AdminState, key: OverrideKey) -> Result<(), ApiFailure> {
    let is_shared = match state.parts.engine.store.shared_records() {
        None => false,
        Some(records) => {
            let removed = records.remove(json(&key)?, None).await;
            removed.map_err(unavailable)?
        }
    };
    let remove =
        move |generations: &Generations| generations.remove_override(&key.domain, &key.descriptor);
    if with_rules(&state, remove).await? || is_shared {
        return Ok(());
    }
    let why = "there is no override of this descriptor; GET /overrides lists them";
    Err(ApiFailure::new(StatusCode::NOT_FOUND, why))
}

fn json(value: &impl serde::Serialize) -> Result<Vec<u8>, ApiFailure> {
    serde_json::to_vec(value).map_err(|error| ApiFailure::internal(&error))
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
    long_json(state, client, move |state| {
        let (mut overrides, overrides_max) = state.parts.engine.generations.overrides();
        if let Some(domain) = query.text("domain") {
            overrides.retain(|one| one.of.domain == domain);
        }
        Overrides {
            instance: state.instance.to_string(),
            at: time_text(state.parts.engine.clock.now()),
            overrides,
            overrides_max: overrides_max as u64,
        }
    })
    .await
}

fn response(state: &AdminState, of: Option<OverrideState>) -> OverrideResponse {
    OverrideResponse {
        instance: state.instance.to_string(),
        at: time_text(state.parts.engine.clock.now()),
        of,
    }
}

/// Changes the rules on a thread that may block: it copies them.
async fn with_rules<T: Send + 'static>(
    state: &AdminState,
    change: impl FnOnce(&Generations) -> T + Send + 'static,
) -> Result<T, ApiFailure> {
    let _permit = state.changes.acquire().await;
    let generations = Arc::clone(&state.parts.engine.generations);
    blocking(move || change(&generations)).await
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
