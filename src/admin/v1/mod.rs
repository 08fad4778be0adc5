//! `/v1`: tollgate's own API as JSON, on the port of `/json` and under the same switches.
//!
//! | file | what |
//! | --- | --- |
//! | `body` | bodies of requests, as messages |
//! | `answers` | bodies of responses |
//!
//! `openapi.json` describes it. `docs/api.md` explains it.
//!
//! What it deliberately does not do: decide (`pipeline`), or know what a call needs (`api_calls`).

mod answers;
mod body;

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use prost::Message as _;
use serde_json::{Map, Value};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tollgate_limiter::Code;

use self::answers::{CallFailure, ErrorCode, OneAnswer, TaggedAnswer};
use super::AdminState;
use super::http::{self, BodyFault, NO_MEMORY};
use super::json::JsonService;
use super::query::{JSON_HEADERS, json_response};
use crate::answer_memory::{AnswerMemory, AnswerPermit, ConnectionAnswers};
use crate::api_calls;
use crate::metrics::Counter;
use crate::pipeline::{API_CALLS_MAX, ApiError, ApiRequest, LeaseAnswer, Pipeline};
use crate::proto::tollgate::v1 as proto;
use crate::proto::tollgate::v1::call::Call;
use crate::protobuf_json::{FieldDescriptor, MessageDescriptor};
use crate::rules::file::nearest;
use crate::store::Deadline;
use crate::tracing::TraceParent;

/// Most requests in progress, whose bodies have arrived; further ones get 503 at once.
const REQUESTS_MAX: usize = 128;

/// Timeout of a request, including its body.
const REQUEST_WAIT_MAX: Duration = Duration::from_secs(10);

/// Largest request body, in bytes.
const BODY_BYTES_MAX: usize = 1 << 20;

/// Most bytes of large bodies that are JSON values at once; further ones wait. Values can take 90
/// times the memory of their text.
const PARSED_BYTES_MAX: usize = BODY_BYTES_MAX;

/// Bodies up to this length never wait: the bound on requests is enough for them.
const SMALL_BODY_BYTES: usize = 4 << 10;

/// The name of the path that takes many calls.
const BATCH: &str = "batch";

/// How the body of a batch begins.
const BATCH_START: &[u8] = br#"{"answers":["#;

/// How it ends.
const BATCH_END: &[u8] = b"]}\n";

/// The description of the API.
pub(crate) const OPENAPI: &str = include_str!("openapi.json");

/// Requests in progress, and what carries them out.
struct Endpoints {
    json: Arc<JsonService>,
    memory: Arc<AnswerMemory>,
    in_progress: Semaphore,
    parsed: ParsedBytes,
    shed: Counter,
}

/// The bytes of the large bodies that are JSON values now.
struct ParsedBytes(Semaphore);

/// A path below `/v1`.
enum Endpoint {
    /// The field of a `Call` that has the call.
    One(FieldDescriptor),
    Batch,
}

/// What a request gets, and the memory for it.
struct Answered {
    answer: Answer,
    permit: AnswerPermit,
}

enum Answer {
    One(Box<CallResult>),
    /// The body.
    Batch(Vec<u8>),
}

/// A call's answer, and the status and headers that it would have alone.
struct CallResult {
    status: StatusCode,
    answer: OneAnswer,
    headers: Vec<(String, String)>,
}

/// Endpoints of the API.
pub(super) fn router(
    json: Arc<JsonService>,
    memory: Arc<AnswerMemory>,
    shed: Counter,
) -> Router<AdminState> {
    let endpoints = Arc::new(Endpoints {
        json,
        memory,
        in_progress: Semaphore::new(REQUESTS_MAX),
        parsed: ParsedBytes(Semaphore::new(PARSED_BYTES_MAX)),
        shed,
    });
    let answer = move |request| {
        let endpoints = Arc::clone(&endpoints);
        async move { endpoints.answer(request).await }
    };
    Router::new()
        .route("/v1/openapi.json", any(openapi))
        .route("/v1", any(answer.clone()))
        .route("/v1/", any(answer.clone()))
        .route("/v1/{*call}", any(answer))
}

async fn openapi(request: Request) -> Response {
    let method = request.method().clone();
    drain(request.into_body()).await;
    match method {
        Method::GET | Method::HEAD => (StatusCode::OK, JSON_HEADERS, OPENAPI).into_response(),
        _ => wrong_method("GET"),
    }
}

/// The path with that name.
fn endpoint(calls: &MessageDescriptor, name: &str) -> Result<Endpoint, CallFailure> {
    if name == BATCH {
        return Ok(Endpoint::Batch);
    }
    let mut fields = call_fields(calls);
    if let Some(field) = fields.find(|field| field.json_name() == name) {
        return Ok(Endpoint::One(field));
    }
    let fields: Vec<_> = call_fields(calls).collect();
    let mut names: Vec<_> = fields.iter().map(FieldDescriptor::json_name).collect();
    names.push(BATCH);
    let why = match nearest(name, names.iter().copied()) {
        Some(near) => format!("there is no such path; did you mean /v1/{near}?"),
        None => format!("there is no such path; below /v1/ are {}", names.join(", ")),
    };
    Err(CallFailure::new(ErrorCode::Unimplemented, why))
}

/// The calls that a `Call` can be. Their names in JSON are those of the paths: `return`, which is
/// `give_back` in protobuf.
fn call_fields(calls: &MessageDescriptor) -> impl Iterator<Item = FieldDescriptor> {
    let fields = calls.fields();
    fields.filter(|field| field.containing_oneof().is_some())
}

/// The response to a request.
fn respond(answered: Result<Answered, CallFailure>) -> Response {
    let Answered { answer, permit } = match answered {
        Err(failure) => return failure.into_response(),
        Ok(answered) => answered,
    };
    let mut response = match answer {
        Answer::Batch(body) => (StatusCode::OK, JSON_HEADERS, body).into_response(),
        Answer::One(result) => {
            let mut response = match result.answer {
                OneAnswer::Check(answer) => json_response(result.status, &answer),
                OneAnswer::Reserve(answer) => json_response(result.status, &answer),
                OneAnswer::Settle(answer) => json_response(result.status, &answer),
                OneAnswer::Lease(answer) => json_response(result.status, &answer),
                OneAnswer::Return(answer) => json_response(result.status, &answer),
                OneAnswer::Error(failure) => failure.into_response(),
            };
            for (name, value) in result.headers {
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
fn count(endpoint: &Endpoint, body: &Value) -> (u64, u64) {
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

// === impl Endpoints ===

impl Endpoints {
    fn pipeline(&self) -> &Arc<Pipeline> {
        &self.json.pipeline
    }

    /// Answers one request. The body of one that is refused is read all the same: where a response
    /// comes before the body was sent, the client can see a reset instead.
    async fn answer(&self, request: Request) -> Response {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        let name = path.strip_prefix("/v1").unwrap_or(path);
        let name = name.strip_prefix('/').unwrap_or(name);
        let endpoint = match endpoint(self.json.transcoder.calls(), name) {
            Ok(endpoint) => endpoint,
            Err(failure) => {
                drain(body).await;
                return failure.into_response();
            }
        };
        if head.method != Method::POST {
            drain(body).await;
            return wrong_method("POST");
        }
        if let Err(failure) = require_json(&head.headers) {
            drain(body).await;
            return failure.into_response();
        }
        let carried_out = self.carry_out(&endpoint, &head.headers, body);
        let answered = timeout(REQUEST_WAIT_MAX, carried_out).await;
        respond(answered.unwrap_or_else(|_| {
            self.shed.inc();
            Err(took_too_long())
        }))
    }

    async fn carry_out(
        &self,
        endpoint: &Endpoint,
        headers: &HeaderMap,
        mut body: Body,
    ) -> Result<Answered, CallFailure> {
        let connection = self.memory.connection();
        let unavailable = |why| {
            self.shed.inc();
            Err(CallFailure::new(ErrorCode::Unavailable, why))
        };
        let mut arriving = connection.request();
        let body = match http::read_body(&mut body, BODY_BYTES_MAX, &mut arriving).await {
            Ok(body) => body,
            Err(BodyFault::Incomplete) => {
                let why = "the body is incomplete; send it whole";
                return Err(CallFailure::invalid(why));
            }
            Err(BodyFault::NoMemory) => {
                drain(body).await;
                return unavailable(NO_MEMORY);
            }
            Err(BodyFault::TooLarge) => {
                drain(body).await;
                let why =
                    format!("the body is larger than {BODY_BYTES_MAX} bytes; send fewer calls");
                return Err(CallFailure::new(ErrorCode::TooLarge, why));
            }
        };
        let Ok(_permit) = self.in_progress.try_acquire() else {
            return unavailable("too many requests are in progress; try again later");
        };
        let _parsed = self.parsed.take(body.len()).await;
        self.carry_out_body(endpoint, headers, &body, &connection)
            .await
    }

    /// Carries out the request with this body.
    async fn carry_out_body(
        &self,
        endpoint: &Endpoint,
        headers: &HeaderMap,
        body: &[u8],
        memory: &Arc<ConnectionAnswers>,
    ) -> Result<Answered, CallFailure> {
        let body = body::parse(body).map_err(CallFailure::invalid)?;
        let pipeline = self.pipeline();
        let bytes_max = pipeline.answer_bytes_max();
        let (calls, descriptors) = count(endpoint, &body);
        let answer_bytes = pipeline.answers_bytes_max(calls, descriptors);
        let answer_bytes = answer_bytes.min(bytes_max as u64);
        let permit = memory.reserve(answer_bytes, 0).await.map_err(|error| {
            let why = error.to_string();
            CallFailure::new(ErrorCode::Unavailable, why)
        })?;
        let parent = pipeline.is_tracing().then(|| TraceParent::of(headers));
        let parent = parent.flatten();
        let answer = match endpoint {
            Endpoint::One(field) => Answer::One(Box::new(
                self.call(field, &body, "", parent, bytes_max).await?,
            )),
            Endpoint::Batch => Answer::Batch(self.batch(&body, parent).await?),
        };
        Ok(Answered { answer, permit })
    }

    async fn call(
        &self,
        field: &FieldDescriptor,
        body: &Value,
        path: &str,
        parent: Option<TraceParent>,
        answer_bytes_max: usize,
    ) -> Result<CallResult, CallFailure> {
        let mut message = Vec::new();
        body::encode_field(field, body, path, &mut message).map_err(CallFailure::invalid)?;
        let call = proto::Call::decode(&*message).map_err(internal)?.call;
        let mut call = call.ok_or_else(|| internal("the body is no call"))?;
        api_calls::fill_id(&mut call).map_err(internal)?;
        let (request, operation) = api_calls::read(&call).map_err(|invalid| {
            let at = body::field_path(path, &invalid.path);
            CallFailure::invalid(format!("{at} {}", invalid.fault.json_text()))
        })?;
        let sent = ApiRequest {
            request,
            operation,
            id: api_calls::id_of(&call),
            deadline: Deadline::NEVER,
            parent,
        };
        let answered = self.pipeline().carry_out(sent, answer_bytes_max);
        let mut answer = answered.await?;
        let is_refused = answer.verdict == Code::OverLimit;
        let status = match call {
            Call::Check(_) | Call::Reserve(_) if is_refused => StatusCode::TOO_MANY_REQUESTS,
            Call::Lease(_) if answer.lease == Some(LeaseAnswer::Refused) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            _ => StatusCode::OK,
        };
        let headers = std::mem::take(&mut answer.headers);
        Ok(CallResult {
            status,
            answer: OneAnswer::of(call, answer),
            headers,
        })
    }

    /// Carries out the calls of a batch, one after the other, and writes their answers. A call that
    /// fails does not end it, nor does one whose answer would be too large, which is not carried
    /// out. Now and then the other tasks of the thread run.
    async fn batch(
        &self,
        body: &Value,
        parent: Option<TraceParent>,
    ) -> Result<Vec<u8>, CallFailure> {
        let calls = batch_calls(body).map_err(CallFailure::invalid)?;
        let mut progress = self.pipeline().begin_batch(calls.len())?;
        let mut written = BATCH_START.to_vec();
        for (position, call) in calls.iter().enumerate() {
            let path = format!("calls[{position}]");
            let begun = written.len();
            let left = progress.next_bytes_max(begun.saturating_add(BATCH_END.len()));
            let (tag, answered) = match tagged_call(self.json.transcoder.calls(), call, &path) {
                Err(why) => (0, Err(CallFailure::invalid(why))),
                Ok((tag, field, call)) => {
                    let path = format!("{path}.{}", field.json_name());
                    (tag, self.call(&field, call, &path, parent, left).await)
                }
            };
            let failed = answered.is_err();
            write_tagged(&mut written, tag, answered)?;
            if failed && written.len().saturating_sub(begun) > left {
                written.truncate(begun);
                let why = ApiError::from(self.pipeline().answer_too_large());
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
    answered: Result<CallResult, CallFailure>,
) -> Result<(), CallFailure> {
    let (status, answer) = match answered {
        Ok(result) => (result.status, result.answer),
        Err(failure) => (failure.code.status(), OneAnswer::Error(failure)),
    };
    if written.len() > BATCH_START.len() {
        written.push(b',');
    }
    let answer = TaggedAnswer {
        tag,
        status: status.as_u16(),
        answer,
    };
    serde_json::to_writer(written, &answer).map_err(internal)
}

fn batch_calls(body: &Value) -> Result<&[Value], String> {
    let fields = body::object(body, "", &["calls"])?;
    let calls = body::get(fields, "calls");
    let calls = calls.ok_or(r#"calls is missing; send [{"check": {…}}, {"commit": {…}}]"#)?;
    let calls = body::list(calls, "calls")?;
    if calls.len() > API_CALLS_MAX {
        let count = calls.len();
        return Err(format!(
            "calls has {count} calls; send at most {API_CALLS_MAX}"
        ));
    }
    Ok(calls)
}

/// One call of a batch: its tag, its field of a `Call`, and its body.
fn tagged_call<'v>(
    calls: &MessageDescriptor,
    call: &'v Value,
    path: &str,
) -> Result<(u64, FieldDescriptor, &'v Value), String> {
    let fields: Vec<_> = calls.fields().collect();
    let known: Vec<_> = fields.iter().map(FieldDescriptor::json_name).collect();
    let object = body::object(call, path, &known)?;
    let tag = body::get(object, "tag");
    let tag = tag.map(|tag| body::number(tag, &format!("{path}.tag"), u64::MAX));
    let tag = tag.transpose()?.unwrap_or_default();
    let mut sent =
        call_fields(calls).filter_map(|field| Some((body::get(object, field.json_name())?, field)));
    if let (Some((call, field)), None) = (sent.next(), sent.next()) {
        return Ok((tag, field, call));
    }
    let (first, names) = known.split_first().unwrap_or((&"", &[]));
    let names = names.join(", ");
    Err(format!(
        "{path} needs one of {names}, and may have a {first}"
    ))
}

#[allow(clippy::needless_pass_by_value)] // for `map_err`
fn internal(why: impl ToString) -> CallFailure {
    CallFailure::new(ErrorCode::Internal, why.to_string())
}

// === impl ParsedBytes ===

impl ParsedBytes {
    /// Waits until a body of this length may become a value. None for a small one.
    async fn take(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        if bytes <= SMALL_BODY_BYTES {
            return None;
        }
        let permits = u32::try_from(bytes.min(PARSED_BYTES_MAX)).ok()?;
        // Fails only when it is closed, which it never is.
        self.0.acquire_many(permits).await.ok()
    }
}

/// Reads what is left of a body and drops it, within the bounds of a body.
async fn drain(body: Body) {
    http::drain(body, BODY_BYTES_MAX, REQUEST_WAIT_MAX).await;
}

/// The failure of a request that did not end in time.
fn took_too_long() -> CallFailure {
    let seconds = REQUEST_WAIT_MAX.as_secs();
    CallFailure::new(
        ErrorCode::DeadlineExceeded,
        format!("the request took longer than {seconds} s; what it did is unknown"),
    )
}

fn wrong_method(allowed: &'static str) -> Response {
    let why = format!("this path takes {allowed} only");
    let failure = CallFailure::new(ErrorCode::MethodNotAllowed, why);
    ([(header::ALLOW, allowed)], failure).into_response()
}

/// Refuses bodies that say they are no JSON. Without a content type, and with the one that curl
/// sends by itself, a body is read as JSON.
fn require_json(headers: &HeaderMap) -> Result<(), CallFailure> {
    let encoding = headers.get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        let why = "the body is compressed; send it without content-encoding";
        return Err(CallFailure::new(ErrorCode::UnsupportedMediaType, why));
    }
    let Some(content_type) = headers.get(header::CONTENT_TYPE) else {
        return Ok(());
    };
    let text = content_type.to_str().unwrap_or_default();
    let media = text.split(';').next().unwrap_or_default().trim();
    let media = media.to_ascii_lowercase();
    match media.as_str() {
        "application/json" | "application/x-www-form-urlencoded" => Ok(()),
        media if media.ends_with("+json") => Ok(()),
        _ => {
            let why = "a body is JSON; send the header `content-type: application/json`";
            Err(CallFailure::new(ErrorCode::UnsupportedMediaType, why))
        }
    }
}

#[cfg(test)]
mod tests {
    use ::http::StatusCode;
    use tokio::sync::Semaphore;

    use super::answers::CallFailure;
    use super::{PARSED_BYTES_MAX, ParsedBytes, SMALL_BODY_BYTES, took_too_long};
    use crate::pipeline::{ApiError, RequestError};
    use crate::store::StoreError;

    #[tokio::test]
    async fn a_large_body_waits_while_others_are_values_and_a_small_one_does_not() {
        let parsed = ParsedBytes(Semaphore::new(PARSED_BYTES_MAX));
        let held = parsed.take(PARSED_BYTES_MAX).await;
        assert!(held.is_some());
        assert!(parsed.take(SMALL_BODY_BYTES).await.is_none());
        let mut waiting = Box::pin(parsed.take(SMALL_BODY_BYTES + 1));
        let is_waiting = tokio::select! {
            biased;
            _ = &mut waiting => false,
            () = std::future::ready(()) => true,
        };
        assert!(is_waiting);
        drop(held);
        assert!(waiting.await.is_some());
    }

    #[test]
    fn deadlines_are_504_and_other_faults_of_the_store_503() {
        for (error, status) in [
            (StoreError::DeadlineExceeded, StatusCode::GATEWAY_TIMEOUT),
            (StoreError::Stopped, StatusCode::SERVICE_UNAVAILABLE),
            (
                StoreError::Full { bytes_max: 1 },
                StatusCode::SERVICE_UNAVAILABLE,
            ),
        ] {
            let why = error.to_string();
            let failure = CallFailure::from(ApiError::Request(RequestError::Store(error)));
            assert_eq!((failure.code.status(), failure.message), (status, why));
        }
        let status = took_too_long().code.status();
        assert_eq!(status, StatusCode::GATEWAY_TIMEOUT);
    }
}
