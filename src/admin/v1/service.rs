//! Carries out calls, one or many.

use std::sync::Arc;

use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};
use tollgate_limiter::{Code, Request};

use super::answers::{CallAnswer, OneAnswer, TaggedAnswer};
use super::calls::{CallKind, SentCall};
use super::failure::{CallFailure, ErrorCode};
use super::fields::Fields;
use super::strict_json::parse;
use crate::admin::query::{JSON_HEADERS, json_response};
use crate::answer_memory::{AnswerPermit, ConnectionAnswers};
use crate::pipeline::{API_CALLS_MAX, ApiError, ApiRequest, Pipeline, new_reservation_id};
use crate::rules::file::nearest;
use crate::store::Deadline;
use crate::tracing::TraceParent;

/// The name of the path that takes many calls.
const BATCH: &str = "batch";

/// How the body of a batch begins.
const BATCH_START: &[u8] = br#"{"answers":["#;

/// How it ends.
const BATCH_END: &[u8] = b"]}\n";

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

/// What a request gets, and the memory for it.
pub(super) struct Answered {
    answer: Answer,
    permit: AnswerPermit,
}

/// A call's answer, and the status and headers that it would have alone.
type Called = (StatusCode, CallAnswer, Vec<(String, String)>);

enum Answer {
    One(StatusCode, CallAnswer, Vec<(String, String)>),
    /// The body.
    Batch(Vec<u8>),
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
    let Answered { answer, permit } = match answered {
        Err(failure) => return failure.into_response(),
        Ok(answered) => answered,
    };
    let mut response = match answer {
        Answer::Batch(body) => (StatusCode::OK, JSON_HEADERS, body).into_response(),
        Answer::One(status, answer, headers) => {
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
    };
    response.extensions_mut().insert(Arc::new(permit));
    response
}

/// How many calls a body has, and how many descriptors they have.
fn count(endpoint: Endpoint, body: &Value) -> (u64, u64) {
    let descriptors = |call: &Value| {
        let descriptors = call.get("descriptors").and_then(Value::as_array);
        descriptors.map_or(0, Vec::len) as u64
    };
    match endpoint {
        Endpoint::One(_) => (1, descriptors(body)),
        Endpoint::Batch => {
            let calls = body.get("calls").and_then(Value::as_array);
            let calls = calls.map_or(&[][..], Vec::as_slice);
            let objects = calls.iter().filter_map(Value::as_object);
            let descriptors = objects.flat_map(Map::values).map(descriptors).sum();
            (calls.len() as u64, descriptors)
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
        memory: &Arc<ConnectionAnswers>,
    ) -> Result<Answered, CallFailure> {
        let body = parse(body).map_err(CallFailure::invalid)?;
        let bytes_max = self.pipeline.answer_bytes_max();
        let (calls, descriptors) = count(endpoint, &body);
        let answer_bytes = self.pipeline.answers_bytes_max(calls, descriptors);
        let answer_bytes = answer_bytes.min(bytes_max as u64);
        let permit = memory.reserve(answer_bytes, 0).await.map_err(|error| {
            let why = error.to_string();
            CallFailure::new(ErrorCode::Unavailable, why)
        })?;
        let parent = self.pipeline.is_tracing().then(|| TraceParent::of(headers));
        let parent = parent.flatten();
        let answer = match endpoint {
            Endpoint::One(kind) => {
                let (status, answer, headers) =
                    self.call(kind, &body, "", parent, bytes_max).await?;
                Answer::One(status, answer, headers)
            }
            Endpoint::Batch => Answer::Batch(self.batch(&body, parent).await?),
        };
        Ok(Answered { answer, permit })
    }

    async fn call(
        &self,
        kind: CallKind,
        body: &Value,
        path: &str,
        parent: Option<TraceParent>,
        answer_bytes_max: usize,
    ) -> Result<Called, CallFailure> {
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
        let answered = self.pipeline.call_api_within(call, Some(answer_bytes_max));
        let mut answer = answered.await?;
        let status = match (answer.verdict, kind) {
            (Code::OverLimit, CallKind::Check | CallKind::Reserve) => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::OK,
        };
        let headers = std::mem::take(&mut answer.headers);
        Ok((status, CallAnswer::of(kind, id, answer), headers))
    }

    /// Carries out the calls of a batch, one after the other, and writes their answers. A call that
    /// fails does not end it, nor does one whose answer would be too large, which is not carried
    /// out. Now and then the other tasks of the thread run.
    async fn batch(
        &self,
        body: &Value,
        parent: Option<TraceParent>,
    ) -> Result<Vec<u8>, CallFailure> {
        let calls = read_batch(body).map_err(CallFailure::invalid)?;
        let mut progress = self.pipeline.begin_batch(calls.len())?;
        let mut written = BATCH_START.to_vec();
        for (position, call) in calls.iter().enumerate() {
            let path = format!("calls[{position}]");
            let begun = written.len();
            let left = progress.next_bytes_max(begun.saturating_add(BATCH_END.len()));
            let (tag, answered) = match read_tagged(call, &path) {
                Err(why) => (0, Err(CallFailure::invalid(why))),
                Ok((tag, kind, call)) => {
                    let path = format!("{path}.{}", kind.name());
                    (tag, self.call(kind, call, &path, parent, left).await)
                }
            };
            let failed = answered.is_err();
            write_tagged(&mut written, tag, answered)?;
            if failed && written.len().saturating_sub(begun) > left {
                written.truncate(begun);
                let why = ApiError::from(self.pipeline.answer_too_large());
                write_tagged(&mut written, tag, Err(why.into()))?;
            }
            progress.give_way(written.len()).await;
        }
        written.extend_from_slice(BATCH_END);
        Ok(written)
    }
}

/// Writes the answer to one call of a batch.
fn write_tagged(
    written: &mut Vec<u8>,
    tag: u64,
    answered: Result<Called, CallFailure>,
) -> Result<(), CallFailure> {
    let (status, answer) = match answered {
        Ok((status, answer, _)) => (status, answer.into()),
        Err(failure) => (failure.code.status(), OneAnswer::Error(failure.into_body())),
    };
    if written.len() > BATCH_START.len() {
        written.push(b',');
    }
    let answer = TaggedAnswer {
        tag,
        status: status.as_u16(),
        answer,
    };
    serde_json::to_writer(written, &answer)
        .map_err(|error| CallFailure::new(ErrorCode::Internal, error.to_string()))
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
