//! `POST /reset` forgets the buckets of one descriptor, `POST /shadow` keeps one rule in shadow
//! mode until a time.
//!
//! `overrides` has more. Their bodies are bounded in size, number and time, and parsed strictly.
//! Each request for a change is one log line of the audit and one count.

use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::response::Response;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::AdminState;
use super::http::{Client, ClientConnection};
use super::query::{ApiFailure, blocking, json_response};
use crate::admin_api::{
    Entry, ResetBucket, ResetRequest, ResetResponse, ShadowRequest, ShadowResponse, ShadowedRule,
    ValueMode, parse_time, time_text,
};
use crate::metrics::AUDIT_LOG;
use crate::pipeline::{ResetError, SHADOW_SECONDS_MAX, Shadow, ShadowError};
use crate::visible_text::beginning;
use tollgate_limiter::Timestamp;

/// Largest body, in bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

/// How long a body may take to arrive.
const BODY_WAIT_MAX: Duration = Duration::from_secs(10);

/// Requests for a change whose body is being read.
pub(super) const BODIES_MAX: usize = 256;

/// Changes in progress.
pub(super) const CHANGES_MAX: usize = 16;

const RESET_FORM: &str = r#"{"domain":"DOMAIN","descriptor":[{"key":"KEY","value":"VALUE"}]}"#;

const SHADOW_FORM: &str =
    r#"{"domain":"DOMAIN","rule":"RULE","for_seconds":SECONDS}, or "until":"2030-01-01T00:00:00Z""#;

/// Longest text of a field that a client sent, in bytes.
const FIELD_BYTES_MAX: usize = 1_024;

/// A request for a change.
pub(super) struct Change<'a> {
    /// `reset`, `shadow`, `override` or `record`.
    pub(super) name: &'static str,
    /// The client.
    pub(super) client: &'a ClientConnection,
    /// What was asked for, in words.
    pub(super) what: String,
}

pub(super) async fn reset(
    State(state): State<AdminState>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, ApiFailure> {
    let what = |asked: &ResetRequest| descriptor_words(&state, &asked.domain, &asked.descriptor);
    let done = |resets: &Vec<ResetBucket>| {
        let existed = resets.iter().filter(|reset| reset.existed).count();
        format!("{existed} of {} buckets existed", resets.len())
    };
    let change = Change::new("reset", &client);
    let reset = change.carry_out(&state, (body, RESET_FORM), what, reset_buckets, done);
    let reset = reset.await?;
    let response = ResetResponse {
        instance: state.instance.to_string(),
        at: time_text(state.parts.engine.clock.now()),
        reset,
    };
    Ok(json_response(StatusCode::OK, &response))
}

async fn reset_buckets(
    state: AdminState,
    request: ResetRequest,
) -> Result<Vec<ResetBucket>, ApiFailure> {
    if request.domain.is_empty() || request.descriptor.is_empty() {
        let why = format!("the domain or the descriptor is empty; send {RESET_FORM}");
        return Err(ApiFailure::invalid(why));
    }
    let entries = request.descriptor.into_iter();
    let entries: Vec<_> = entries.map(|entry| (entry.key, entry.value)).collect();
    let _permit = state.changes.acquire().await;
    let reset = state.parts.pipeline.reset(&request.domain, &entries).await;
    reset.map_err(|error| {
        let status = match &error {
            ResetError::NoRules | ResetError::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
            ResetError::UnknownDomain(_) | ResetError::NoLimit => StatusCode::NOT_FOUND,
            ResetError::Excess(_) => StatusCode::BAD_REQUEST,
        };
        ApiFailure::new(status, error.to_string())
    })
}

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
    let what = |asked: &ShadowRequest| format!("{}: {}", asked.domain, asked.rule);
    let done = |(until, _): &(Option<Timestamp>, _)| match until {
        Some(until) => format!("in shadow mode until {}", time_text(*until)),
        None => "no longer in shadow mode by POST /shadow".to_owned(),
    };
    let change = Change::new("shadow", &client);
    let set = change.carry_out(&state, (body, SHADOW_FORM), what, set_shadow, done);
    let (_, shadows) = set.await?;
    let response = ShadowResponse {
        instance: state.instance.to_string(),
        at: time_text(state.parts.engine.clock.now()),
        shadowed: shadowed_rules(shadows),
    };
    Ok(json_response(StatusCode::OK, &response))
}

/// Changes the list; returns the end that was asked for, and the list.
async fn set_shadow(
    state: AdminState,
    request: ShadowRequest,
) -> Result<(Option<Timestamp>, Vec<Shadow>), ApiFailure> {
    let until = end_of(&request, state.parts.engine.clock.now())?;
    let _permit = state.changes.acquire().await;
    let generations = Arc::clone(&state.parts.engine.generations);
    // It copies the rules.
    let set = blocking(move || generations.set_shadow(&request.domain, &request.rule, until));
    let shadows = set.await?.map_err(|error| {
        let status = match error {
            ShadowError::NoRules => StatusCode::SERVICE_UNAVAILABLE,
            ShadowError::UnknownRule => StatusCode::NOT_FOUND,
            ShadowError::TooMany => StatusCode::BAD_REQUEST,
        };
        ApiFailure::new(status, error.to_string())
    })?;
    Ok((until, shadows))
}

/// When the shadow mode ends; none for now.
fn end_of(request: &ShadowRequest, now: Timestamp) -> Result<Option<Timestamp>, ApiFailure> {
    if request.domain.is_empty() || request.rule.is_empty() {
        let why = format!("the domain or the rule is empty; send {SHADOW_FORM}");
        return Err(ApiFailure::invalid(why));
    }
    if let (None, Some(0)) = (&request.until, request.for_seconds) {
        return Ok(None);
    }
    let until = (request.until.as_deref(), request.for_seconds);
    let to_end = "set \"for_seconds\": 0 to end a shadow mode";
    end_between(until, now, SHADOW_SECONDS_MAX, (SHADOW_FORM, to_end)).map(Some)
}

/// The end of a change that is given as a time or in seconds from now: in the future, and at most
/// so many seconds from now. Errors have the form of the body, and how to end the change.
pub(super) fn end_between(
    until: (Option<&str>, Option<u64>),
    now: Timestamp,
    seconds_max: u64,
    (form, to_end): (&str, &str),
) -> Result<Timestamp, ApiFailure> {
    let until = match until {
        (None, Some(seconds)) => now.plus_us(seconds.saturating_mul(1_000_000)),
        (Some(until), None) => parse_time(until).ok_or_else(|| {
            ApiFailure::invalid(format!(
                "until {until:?} is invalid; use RFC 3339 in UTC, such as 2030-01-01T00:00:00Z"
            ))
        })?,
        _ => {
            let why = format!("exactly one of until and for_seconds must be set; send {form}");
            return Err(ApiFailure::invalid(why));
        }
    };
    if until <= now {
        let why = format!("until is not in the future; {to_end}");
        return Err(ApiFailure::invalid(why));
    }
    if until > now.plus_us(seconds_max.saturating_mul(1_000_000)) {
        let days = seconds_max / 86_400;
        let why = format!("the end is more than {days} days from now; choose an earlier one");
        return Err(ApiFailure::invalid(why));
    }
    Ok(until)
}

/// Reads and parses a body; `form` is an example of a good one.
async fn read_json<T: DeserializeOwned>(
    state: &AdminState,
    body: Body,
    form: &str,
) -> Result<T, ApiFailure> {
    let Ok(_permit) = state.bodies.try_acquire() else {
        let why = "too many requests for a change are in progress; try again later";
        return Err(ApiFailure::unavailable(why));
    };
    let read = timeout(BODY_WAIT_MAX, to_bytes(body, BODY_BYTES_MAX)).await;
    let Ok(read) = read else {
        let seconds = BODY_WAIT_MAX.as_secs();
        return Err(ApiFailure::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the body did not arrive within {seconds} seconds; send it at once"),
        ));
    };
    let body = read.map_err(|_| {
        ApiFailure::invalid(format!(
            "the body is incomplete or larger than {BODY_BYTES_MAX} bytes; send {form}"
        ))
    })?;
    serde_json::from_slice(&body)
        .map_err(|error| ApiFailure::invalid(format!("the body is invalid: {error}; send {form}")))
}

/// A descriptor as it may be logged: values are hashed, except where they are shown as sent.
pub(super) fn descriptor_words(state: &AdminState, domain: &str, entries: &[Entry]) -> String {
    let values = &state.values;
    let entries = entries.iter().map(|entry| {
        let value = match values.mode() {
            ValueMode::Plain => entry.value.clone(),
            ValueMode::Hashed | ValueMode::Off => values.hashed(entry.value.as_bytes()),
        };
        format!("{}={value}", entry.key)
    });
    let entries: Vec<_> = entries.collect();
    format!("{domain}: {}", entries.join(","))
}

// === impl Change ===

impl<'a> Change<'a> {
    /// A change whose body was not read yet.
    pub(super) fn new(name: &'static str, client: &'a ClientConnection) -> Self {
        Self {
            name,
            client,
            what: String::new(),
        }
    }

    /// Carries out what the body asks for, and records it: `what` says what that is, in words.
    pub(super) async fn carry_out<B: DeserializeOwned, T, F>(
        mut self,
        state: &AdminState,
        (body, form): (Body, &str),
        what: impl FnOnce(&B) -> String,
        carry_out: impl FnOnce(AdminState, B) -> F,
        done: impl FnOnce(&T) -> String,
    ) -> Result<T, ApiFailure>
    where
        F: Future<Output = Result<T, ApiFailure>>,
    {
        let outcome = match read_json(state, body, form).await {
            Err(failure) => Err(failure),
            Ok(asked) => {
                self.what = what(&asked);
                carry_out(Arc::clone(state), asked).await
            }
        };
        self.record(state, &outcome, done);
        outcome
    }

    /// Logs and counts the result of a change; `done` says what it was, in words.
    pub(super) fn record<T>(
        &self,
        state: &AdminState,
        outcome: &Result<T, ApiFailure>,
        done: impl FnOnce(&T) -> String,
    ) {
        let (result, details) = match outcome {
            Ok(value) => ("done", done(value)),
            Err(failure) => {
                let result = match failure.status {
                    StatusCode::NOT_FOUND => "not_found",
                    status if status.is_server_error() => "failed",
                    _ => "invalid",
                };
                // The reader's words may quote what the body has, such as a value.
                let details = if self.what.is_empty() {
                    "the body is not what this endpoint reads".to_owned()
                } else {
                    failure.message.clone()
                };
                (result, details)
            }
        };
        let at = time_text(state.parts.engine.clock.now());
        let who = state.who(self.client);
        let peer = self.client.peer.map(tracing::field::display);
        let (change, what) = (self.name, beginning(&self.what, FIELD_BYTES_MAX));
        let details = beginning(&details, FIELD_BYTES_MAX);
        tracing::info!(
            target: AUDIT_LOG,
            who, peer, at, change, what, result, details,
            "admin change"
        );
        state.parts.engine.metrics.admin.changed(self.name, result);
    }
}
