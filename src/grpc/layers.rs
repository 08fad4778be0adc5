//! What tonic's routes leave to this server, as one layer over all of them: gRPC's protocol, bounds
//! on streaming calls, and the answer to a message that is too large to be decoded.
//!
//! **Protocol.** tonic leaves the method, the content type, a malformed timeout and a second
//! message of a unary call unchecked. A request that is not gRPC gets an HTTP status. Source: the
//! protocol's specification, `doc/PROTOCOL-HTTP2.md` of grpc/grpc.
//!
//! **Streaming calls** (RateLimits/Stream, reflection, quotas, and the Watch method of health) stay
//! open as long as their client likes, so `--body-wait` does not apply to them, and each holds some
//! 11 KiB. So such a call takes a permit of its connection and one of the process, and returns both
//! with its response. A call beyond a bound is answered RESOURCE_EXHAUSTED on its own stream.
//!
//! **Message size.** tonic answers a message that is too large with an error, and Envoy treats an
//! error as "let it through": a client that can make a message large would pass every limit. So
//! that one error is replaced by what `--on-excess` says. tonic answers OUT_OF_RANGE to a message
//! whose length exceeds the bound and RESOURCE_EXHAUSTED to one that gzip expands beyond it;
//! nothing behind tonic answers OUT_OF_RANGE, and [`Decoded`] tells the two kinds of
//! RESOURCE_EXHAUSTED apart.
//!
//! What it deliberately does not do: check calls on the fast path (`tollgate_http2` takes only
//! valid ones).

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use bytes::BytesMut;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, BodyStream, StreamBody};
use hyper::body::Frame;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::StreamExt as _;
use tollgate_http2::grpc::{MESSAGE_HEAD_BYTES, timeout_us};
use tollgate_limiter::Decision;
use tonic::codegen::StdError;
use tonic::service::Routes;
use tonic::{Code, Status};

use crate::grpc::service::{ServerParts, StreamingMethod};
use crate::metrics::{Counted, Metrics};
use crate::pipeline::{EncodedResponse, Pipeline, RequestBound};

/// Path of Envoy's method, whose calls the fast path takes unless they are unusual.
pub(crate) const SHOULD_RATE_LIMIT: &str =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// What the content type of a call is, up to parameters.
const CONTENT_TYPES: [&[u8]; 2] = [b"application/grpc", b"application/grpc+proto"];

/// A connection's bound on streaming calls. It travels with each request.
#[derive(Clone)]
pub(crate) struct ConnectionCalls {
    permits: Arc<Semaphore>,
    calls_max: usize,
}

/// Whether tonic has decoded the message. Travels with the request; a later error is the service's
/// own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decoded(Arc<AtomicBool>);

/// The layer.
struct CallBounds {
    pipeline: Arc<Pipeline>,
    metrics: Arc<Metrics>,
    /// The methods that stream, by path.
    streaming: fn(path: &str) -> Option<&'static StreamingMethod>,
    streaming_calls: Arc<Semaphore>,
    streaming_calls_max: usize,
}

/// Follows a body that is one message behind its head.
#[derive(Debug, Default)]
struct OneMessage {
    head: [u8; MESSAGE_HEAD_BYTES],
    received_bytes: u64,
}

/// The permits that a streaming call holds while it is open.
struct Permits {
    _process: OwnedSemaphorePermit,
    _connection: Option<OwnedSemaphorePermit>,
    _open: Counted,
}

/// The same routes behind the layer.
pub(super) fn layered(
    routes: Routes,
    parts: ServerParts<'_>,
    streaming: fn(path: &str) -> Option<&'static StreamingMethod>,
) -> Routes {
    let streaming_calls_max = parts.settings.connections.streaming_calls_max;
    let bounds = Arc::new(CallBounds {
        pipeline: Arc::clone(parts.pipeline),
        metrics: Arc::clone(parts.metrics),
        streaming,
        streaming_calls: permits(streaming_calls_max),
        streaming_calls_max,
    });
    let layer = from_fn_with_state(bounds, within_bounds);
    routes.into_axum_router().layer(layer).into()
}

async fn within_bounds(
    State(bounds): State<Arc<CallBounds>>,
    request: Request,
    next: Next,
) -> Response {
    if let Some(refused) = refusal(&request) {
        return refused;
    }
    let streaming = (bounds.streaming)(request.uri().path());
    let is_sized = request.uri().path() == SHOULD_RATE_LIMIT;
    let is_unary = streaming.is_none_or(|method| !method.requests_stream);
    let request = if is_unary {
        request.map(with_one_message)
    } else {
        request
    };
    if streaming.is_some() {
        bounds.stream(request, next).await
    } else if is_sized {
        bounds.answer_excess(request, next).await
    } else {
        next.run(request).await
    }
}

/// The answer to a request that is no gRPC call.
fn refusal(request: &Request) -> Option<Response> {
    let of_status = |status| {
        let mut response = Response::new(Body::default());
        *response.status_mut() = status;
        response
    };
    if request.method() != Method::POST {
        let mut response = of_status(StatusCode::METHOD_NOT_ALLOWED);
        let post = HeaderValue::from_static("POST");
        response.headers_mut().insert(header::ALLOW, post);
        return Some(response);
    }
    if !is_grpc(request.headers()) {
        return Some(of_status(StatusCode::UNSUPPORTED_MEDIA_TYPE));
    }
    let timeout = request.headers().get("grpc-timeout");
    if timeout.is_some_and(|timeout| timeout_us(timeout.as_bytes()).is_none()) {
        let why = "malformed grpc-timeout: send up to eight digits and one of H, M, S, m, u, n";
        return Some(Status::internal(why).into_http());
    }
    None
}

/// The body of a unary call, which fails where a second message begins.
fn with_one_message(body: Body) -> Body {
    let mut message = OneMessage::default();
    let frames = BodyStream::new(body).map(move |frame| {
        let frame = frame?;
        if frame.data_ref().is_none_or(|data| message.receive(data)) {
            return Ok::<_, StdError>(frame);
        }
        let why = "a unary call has one message, and this one has more";
        Err(Status::internal(why).into())
    });
    Body::new(StreamBody::new(frames))
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let content_types = headers.get_all(header::CONTENT_TYPE);
    let is_valid = |value: &HeaderValue| {
        let mut parts = value.as_bytes().split(|byte| *byte == b';');
        let media = parts.next().unwrap_or_default().trim_ascii_end();
        let mut valid = CONTENT_TYPES.iter();
        valid.any(|valid| media.eq_ignore_ascii_case(valid))
    };
    headers.contains_key(header::CONTENT_TYPE) && content_types.iter().all(is_valid)
}

/// This many permits, or as many as a semaphore may have.
fn permits(count: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)))
}

fn is_too_large(response: &Response, decoded: &Decoded) -> bool {
    let is = |code: Code| {
        let status = response.headers().get("grpc-status");
        status.is_some_and(|status| status.as_bytes() == (code as i32).to_string().as_bytes())
    };
    let is_decoded = decoded.0.load(Ordering::Relaxed);
    is(Code::OutOfRange) || (is(Code::ResourceExhausted) && !is_decoded)
}

/// A good gRPC response with this frame.
fn framed(frame: BytesMut) -> Response {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    // A stream of frames has no length, and so no content-length that other answers have not.
    let frames = [Frame::data(frame.freeze()), Frame::trailers(trailers)].map(Ok::<_, Infallible>);
    let body = StreamBody::new(tokio_stream::iter(frames));
    let mut response = Response::new(Body::new(body));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    response
}

// === impl ConnectionCalls ===

impl ConnectionCalls {
    /// A new connection's.
    pub(crate) fn new(calls_max: usize) -> Self {
        Self {
            permits: permits(calls_max),
            calls_max,
        }
    }
}

// === impl Decoded ===

impl Decoded {
    /// The message is decoded.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

// === impl CallBounds ===

impl CallBounds {
    /// Runs a streaming call, which holds its permits until the body of its response is dropped.
    async fn stream(&self, request: Request, next: Next) -> Response {
        let permits = match self.admit(request.extensions().get()) {
            Ok(permits) => permits,
            Err(status) => return status.into_http(),
        };
        next.run(request).await.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _held = &permits;
                frame
            }))
        })
    }

    fn admit(&self, connection: Option<&ConnectionCalls>) -> Result<Permits, Status> {
        let of_connection = match connection {
            None => None,
            Some(connection) => {
                let permit = Arc::clone(&connection.permits).try_acquire_owned();
                Some(permit.map_err(|_| self.refuse("connection", connection.calls_max))?)
            }
        };
        let process = Arc::clone(&self.streaming_calls).try_acquire_owned();
        let process = process.map_err(|_| self.refuse("process", self.streaming_calls_max))?;
        Ok(Permits {
            _process: process,
            _connection: of_connection,
            _open: Counted::new(&self.metrics.connections.streaming_calls),
        })
    }

    fn refuse(&self, bound: &'static str, calls_max: usize) -> Status {
        self.metrics.connections.count_refused_streaming_call(bound);
        let setting = match bound {
            "connection" => "--streaming-calls-per-connection-max",
            _ => "--streaming-calls-max",
        };
        Status::resource_exhausted(format!(
            "too many streaming calls: this {bound} may have {calls_max} open (RateLimits/Stream, \
             reflection and health Watch). End one and try again, or raise {setting}"
        ))
    }

    /// Runs a call whose oversized message is answered by a setting.
    async fn answer_excess(&self, mut request: Request, next: Next) -> Response {
        let decoded = Decoded::default();
        request.extensions_mut().insert(decoded.clone());
        let response = next.run(request).await;
        if !is_too_large(&response, &decoded) {
            return response;
        }
        let answered = self.pipeline.exceeded(RequestBound::MessageSize);
        answered.map_or(response, |code| {
            let mut frame = BytesMut::new();
            let decision = Decision::of_code(code);
            EncodedResponse::new(&decision, &mut Vec::new(), |_| ()).write_frame(&mut frame);
            framed(frame)
        })
    }
}

// === impl OneMessage ===

impl OneMessage {
    /// Takes the next part of the body. False if there is more than one message.
    fn receive(&mut self, data: &[u8]) -> bool {
        let known = usize::try_from(self.received_bytes).unwrap_or(usize::MAX);
        for (byte, received) in self.head.iter_mut().skip(known).zip(data) {
            *byte = *received;
        }
        self.received_bytes = self.received_bytes.saturating_add(data.len() as u64);
        if self.received_bytes <= MESSAGE_HEAD_BYTES as u64 {
            return true;
        }
        let [_, length @ ..] = self.head;
        let bytes_max = u64::from(u32::from_be_bytes(length)) + MESSAGE_HEAD_BYTES as u64;
        self.received_bytes <= bytes_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_one_message_however_it_is_split() {
        let message = b"\0\0\0\0\x03abc";
        let two = [&message[..], b"\0"].concat();
        for part_bytes in 1..=9 {
            let receive = |body: &[u8]| {
                let mut one = OneMessage::default();
                body.chunks(part_bytes).all(|part| one.receive(part))
            };
            assert!(receive(message), "{part_bytes}");
            assert!(receive(b"\0\0\0\0\0"), "{part_bytes}");
            assert!(!receive(&two), "{part_bytes}");
            assert!(!receive(b"\0\0\0\0\0\0"), "{part_bytes}");
        }
    }

    #[test]
    fn content_types_are_those_of_protocol_buffers() {
        let of = |value: &str| {
            let value = HeaderValue::from_str(value).unwrap();
            is_grpc(&HeaderMap::from_iter([(header::CONTENT_TYPE, value)]))
        };
        for good in [
            "application/grpc",
            "application/grpc+proto",
            "Application/GRPC",
            "application/grpc; charset=utf-8",
            "application/grpc+proto ;x=y",
        ] {
            assert!(of(good), "{good}");
        }
        for bad in [
            "",
            "text/plain",
            "application/json",
            "application/grpc-web",
            "application/grpc+json",
            "application/grpcx",
        ] {
            assert!(!of(bad), "{bad}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
