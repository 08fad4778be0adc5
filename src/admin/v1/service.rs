//! Carries out calls, one or many.

use std::sync::Arc;

use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tollgate_limiter::{Code, Request};

use super::answers::{BatchAnswer, CallAnswer, OneAnswer, TaggedAnswer};
use super::calls::{CallKind, SentCall};
use super::failure::{CallFailure, ErrorCode};
use super::fields::Fields;
use super::strict_json::parse;
use crate::admin::failure::json_response;
use crate::pipeline::{API_CALLS_MAX, ApiRequest, Pipeline, new_reservation_id};
use crate::rules::file::nearest;
use crate::store::Deadline;
use crate::tracing::TraceParent;

/// The name of the path that takes many calls.
const BATCH: &str = "batch";

/// Carries out calls through the pipeline.
pub(super) struct CallService {
    pipeline: Arc<Pipeline>,
}

/// A path below `/v1`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Endpoint {
    One(CallKind),
    Batch,
}

/// What a request gets.
pub(super) enum Answered {
    One(StatusCode, CallAnswer, Vec<(String, String)>),
    Batch(BatchAnswer),
}

/// The path with that name.
pub(super) fn endpoint(name: &str) -> Option<Endpoint> {
    if name == BATCH {
        return Some(Endpoint::Batch);
    }
    let kind = CallKind::ALL.into_iter().find(|kind| kind.name() == name)?;
    Some(Endpoint::One(kind))
}

/// The error of a path that there is not.
pub(super) fn unknown_endpoint(name: &str) -> CallFailure {
    let names = || CallKind::ALL.into_iter().map(CallKind::name).chain([BATCH]);
    let why = if let Some(near) = nearest(name, names()) {
        format!("there is no such path; did you mean /v1/{near}?")
    } else {
        let names: Vec<_> = names().collect();
        format!("there is no such path; below /v1/ are {}", names.join(", "))
    };
    CallFailure::new(ErrorCode::Unimplemented, why)
}

/// The response to a request.
pub(super) fn respond(answered: Result<Answered, CallFailure>) -> Response {
    match answered {
        Err(failure) => failure.into_response(),
        Ok(Answered::Batch(answers)) => json_response(StatusCode::OK, &answers),
        Ok(Answered::One(status, answer, headers)) => {
            let mut response = json_response(status, &answer);
            for (name, value) in headers {
                // The settings can name a header that is none.
                if let (Ok(name), Ok(value)) =
                    (HeaderName::try_from(name), HeaderValue::try_from(value))
                {
                    response.headers_mut().insert(name, value);
                }
            }
            response
        }
    }
}

// === impl CallService ===

impl CallService {
    pub(super) fn new(pipeline: Arc<Pipeline>) -> Self {
        Self { pipeline }
    }

    /// Carries out the request with this body.
    pub(super) async fn answer(
        &self,
        endpoint: Endpoint,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Answered, CallFailure> {
        let body = parse(body).map_err(CallFailure::invalid)?;
        let parent = self.pipeline.is_tracing().then(|| TraceParent::of(headers));
        let parent = parent.flatten();
        match endpoint {
            Endpoint::One(kind) => {
                let (status, answer, headers) = self.call(kind, &body, "", parent).await?;
                Ok(Answered::One(status, answer, headers))
            }
            Endpoint::Batch => Ok(Answered::Batch(self.batch(&body, parent).await?)),
        }
    }

    async fn call(
        &self,
        kind: CallKind,
        body: &Value,
        path: &str,
        parent: Option<TraceParent>,
    ) -> Result<(StatusCode, CallAnswer, Vec<(String, String)>), CallFailure> {
        let mut sent = SentCall::read(kind, body, path).map_err(CallFailure::invalid)?;
        let id = match (sent.reservation, kind) {
            (Some(id), _) => id.to_owned(),
            (None, CallKind::Reserve) => new_reservation_id()
                .map_err(|error| CallFailure::new(ErrorCode::Internal, error))?,
            (None, _) => String::new(),
        };
        let call = ApiRequest {
            request: std::mem::take::<Request<'_>>(&mut sent.request),
            step: sent.step(&id),
            deadline: Deadline::NEVER,
            parent,
        };
        let mut answer = self.pipeline.call_api(call).await?;
        let status = match (answer.verdict, kind) {
            (Code::OverLimit, CallKind::Check | CallKind::Reserve) => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::OK,
        };
        let headers = std::mem::take(&mut answer.headers);
        Ok((status, CallAnswer::of(kind, id, answer), headers))
    }

    /// Carries out the calls of a batch, one after the other. One that fails does not end it.
    async fn batch(
        &self,
        body: &Value,
        parent: Option<TraceParent>,
    ) -> Result<BatchAnswer, CallFailure> {
        let calls = read_batch(body).map_err(CallFailure::invalid)?;
        let mut answers = Vec::with_capacity(calls.len());
        for (position, call) in calls.iter().enumerate() {
            let path = format!("calls[{position}]");
            let (tag, answered) = match read_tagged(call, &path) {
                Err(why) => (0, Err(CallFailure::invalid(why))),
                Ok((tag, kind, call)) => {
                    let path = format!("{path}.{}", kind.name());
                    (tag, self.call(kind, call, &path, parent).await)
                }
            };
            let (status, answer) = match answered {
                Ok((status, answer, _)) => (status, answer.into()),
                Err(failure) => (failure.code.status(), OneAnswer::Error(failure.into_body())),
            };
            answers.push(TaggedAnswer {
                tag,
                status: status.as_u16(),
                answer,
            });
        }
        Ok(BatchAnswer { answers })
    }
}

fn read_batch(body: &Value) -> Result<&[Value], String> {
    let fields = Fields::of(body, "", &["calls"])?;
    let calls = fields
        .list("calls")?
        .ok_or_else(|| fields.missing("calls", r#"[{"check": {…}}, {"commit": {…}}]"#))?;
    if calls.len() > API_CALLS_MAX {
        let count = calls.len();
        return Err(format!(
            "calls has {count} calls; send at most {API_CALLS_MAX}"
        ));
    }
    Ok(calls)
}

/// One call of a batch, and its tag.
fn read_tagged<'v>(call: &'v Value, path: &str) -> Result<(u64, CallKind, &'v Value), String> {
    let mut known = vec!["tag"];
    known.extend(CallKind::ALL.map(CallKind::name));
    let fields = Fields::of(call, path, &known)?;
    let tag = fields.number("tag", u64::MAX)?.unwrap_or_default();
    let mut sent = CallKind::ALL
        .into_iter()
        .filter_map(|kind| Some((kind, fields.get(kind.name())?)));
    if let (Some((kind, call)), None) = (sent.next(), sent.next()) {
        return Ok((tag, kind, call));
    }
    let (first, names) = known.split_first().unwrap_or((&"", &[]));
    let names = names.join(", ");
    Err(format!(
        "{path} needs one of {names}, and may have a {first}"
    ))
}
