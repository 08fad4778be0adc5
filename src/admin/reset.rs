//! `POST /reset`: forgets the buckets of one descriptor.

use ::http::StatusCode;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;

use super::AdminState;
use super::audit::{Change, descriptor_words};
use super::changes::read_json;
use super::failure::{ApiFailure, json_response};
use super::http::Client;
use crate::admin_api::{ResetBucket, ResetRequest, ResetResponse, time_text};
use crate::pipeline::{BucketReset, ResetError};

const FORM: &str = r#"{"domain":"DOMAIN","descriptor":[{"key":"KEY","value":"VALUE"}]}"#;

pub(super) async fn reset(
    State(state): State<AdminState>,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, ApiFailure> {
    let mut change = Change {
        name: "reset",
        client: &client,
        what: String::new(),
    };
    let outcome = match read_json::<ResetRequest>(&state, body, FORM).await {
        Err(failure) => Err(failure),
        Ok(request) => {
            change.what = descriptor_words(&state, &request.domain, &request.descriptor);
            reset_buckets(&state, request).await
        }
    };
    change.record(&state, &outcome, |resets| {
        let existed = resets.iter().filter(|reset| reset.existed).count();
        format!("{existed} of {} buckets existed", resets.len())
    });
    let buckets = outcome?.into_iter().map(|reset| ResetBucket {
        rule: reset.rule,
        existed: reset.existed,
    });
    let response = ResetResponse {
        instance: state.api.instance.to_string(),
        at: time_text(state.api.clock.now()),
        reset: buckets.collect(),
    };
    Ok(json_response(StatusCode::OK, &response))
}

async fn reset_buckets(
    state: &AdminState,
    request: ResetRequest,
) -> Result<Vec<BucketReset>, ApiFailure> {
    if request.domain.is_empty() || request.descriptor.is_empty() {
        let why = format!("the domain or the descriptor is empty; send {FORM}");
        return Err(ApiFailure::invalid(why));
    }
    let entries = request.descriptor.into_iter();
    let entries: Vec<_> = entries.map(|entry| (entry.key, entry.value)).collect();
    let _permit = state.api.changes.acquire().await;
    let reset = state.api.pipeline.reset(&request.domain, &entries).await;
    reset.map_err(|error| {
        let status = match &error {
            ResetError::NoRules | ResetError::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
            ResetError::UnknownDomain(_) | ResetError::NoLimit => StatusCode::NOT_FOUND,
            ResetError::Excess(_) => StatusCode::BAD_REQUEST,
        };
        ApiFailure::new(status, error.to_string())
    })
}
