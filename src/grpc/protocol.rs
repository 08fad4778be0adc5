//! What every request to tonic's routes must keep of gRPC's protocol: tonic leaves the method, the
//! content type, a malformed timeout and a second message of a unary call unchecked.
//!
//! Source: the protocol's specification, `doc/PROTOCOL-HTTP2.md` of grpc/grpc. A request that is
//! not gRPC gets an HTTP status.
//!
//! What it deliberately does not do: check calls on the fast path (`tollgate_http2` takes only
//! valid ones).

use std::convert::Infallible;
use std::future::ready;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::{Body, Frame, SizeHint};
use tollgate_http2::grpc::{MESSAGE_HEAD_BYTES, timeout_us};
use tonic::Status;
use tonic::codegen::{BoxFuture, Service, StdError};
use tonic::service::Routes;
use tower::layer::layer_fn;

/// What the content type of a call is, up to parameters.
const CONTENT_TYPES: [&[u8]; 2] = [b"application/grpc", b"application/grpc+proto"];

/// A service whose requests are checked.
#[derive(Clone)]
struct RequireGrpc<S> {
    service: S,
    is_client_streaming: fn(path: &[u8]) -> bool,
}

/// The body of a call. One of a unary call has one message.
struct CallBody<B> {
    body: B,
    /// None where requests stream.
    message: Option<OneMessage>,
}

/// Follows a body that is one message behind its head.
#[derive(Debug, Default)]
struct OneMessage {
    head: [u8; MESSAGE_HEAD_BYTES],
    received_bytes: u64,
}

/// The same routes, for calls that keep to the protocol. Others are refused.
pub(super) fn require_grpc(routes: Routes, is_client_streaming: fn(path: &[u8]) -> bool) -> Routes {
    let layer = layer_fn(move |service| RequireGrpc {
        service,
        is_client_streaming,
    });
    routes.into_axum_router().layer(layer).into()
}

/// The answer to a request that is no gRPC call.
fn refusal<B: Default>(request: &Request<impl Sized>) -> Option<Response<B>> {
    let of_status = |status| {
        let mut response = Response::new(B::default());
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

// === impl RequireGrpc ===

impl<S, B, R> Service<Request<B>> for RequireGrpc<S>
where
    S: Service<Request<CallBody<B>>, Response = Response<R>, Error = Infallible>,
    S::Future: Send + 'static,
    R: Default + Send + 'static,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = BoxFuture<Response<R>, Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if let Some(refused) = refusal(&request) {
            return Box::pin(ready(Ok(refused)));
        }
        let streams = (self.is_client_streaming)(request.uri().path().as_bytes());
        Box::pin(self.service.call(request.map(|body| CallBody {
            body,
            message: (!streams).then(OneMessage::default),
        })))
    }
}

// === impl CallBody ===

impl<B> Body for CallBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        polled.map(|frame| {
            let frame = match frame? {
                Ok(frame) => frame,
                Err(error) => return Some(Err(error.into())),
            };
            if let (Some(message), Some(data)) = (&mut self.message, frame.data_ref())
                && !message.receive(data)
            {
                let why = "a unary call has one message, and this one has more";
                return Some(Err(Status::internal(why).into()));
            }
            Some(Ok(frame))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
