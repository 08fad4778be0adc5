//! The answer to a message that is too large to be decoded.
//!
//! tonic answers such a message with an error, and Envoy treats an error as "let it through": a
//! client that can make a message large would pass every limit. So a layer around the service
//! replaces that one error by what `--on-excess` says. tonic answers OUT_OF_RANGE to a message
//! whose length exceeds the bound and RESOURCE_EXHAUSTED to one that gzip expands beyond it;
//! nothing behind tonic answers OUT_OF_RANGE, and [`Decoded`] tells the two kinds of
//! RESOURCE_EXHAUSTED apart.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::BytesMut;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tollgate_limiter::Decision;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;

use crate::pipeline::{EncodedResponse, Pipeline, RequestBound};

/// A service whose oversized messages are answered by a setting.
#[derive(Clone)]
pub(crate) struct MessageSizeLimit<S> {
    service: S,
    pipeline: Arc<Pipeline>,
}

/// Whether tonic has decoded the message. Travels with the request; a later error is the service's
/// own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decoded(Arc<AtomicBool>);

// === impl Decoded ===

impl Decoded {
    /// The message is decoded.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl MessageSizeLimit ===

impl<S> MessageSizeLimit<S> {
    pub(crate) fn new(service: S, pipeline: Arc<Pipeline>) -> Self {
        Self { service, pipeline }
    }
}

impl<S: NamedService> NamedService for MessageSizeLimit<S> {
    const NAME: &'static str = S::NAME;
}

type ResponseFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<S, B> Service<Request<B>> for MessageSizeLimit<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> ResponseFuture {
        let decoded = Decoded::default();
        request.extensions_mut().insert(decoded.clone());
        let response = self.service.call(request);
        let pipeline = Arc::clone(&self.pipeline);
        Box::pin(async move {
            let response = response.await?;
            if !too_large(&response, &decoded) {
                return Ok(response);
            }
            let answered = pipeline.exceeded(RequestBound::MessageSize);
            Ok(answered.map_or(response, |code| {
                let mut frame = BytesMut::new();
                let decision = Decision::of_code(code);
                EncodedResponse::new(&decision, &[]).write_frame(&mut frame);
                framed(frame)
            }))
        })
    }
}

fn too_large(response: &Response<Body>, decoded: &Decoded) -> bool {
    let is = |code: Code| {
        let status = response.headers().get("grpc-status");
        status.is_some_and(|status| status.as_bytes() == (code as i32).to_string().as_bytes())
    };
    is(Code::OutOfRange) || (is(Code::ResourceExhausted) && !decoded.is_set())
}

/// A good gRPC response with this frame.
fn framed(frame: BytesMut) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    // A stream of frames has no length, and so no content-length that other answers have not.
    let frames = [Frame::data(frame.freeze()), Frame::trailers(trailers)].map(Ok::<_, Infallible>);
    let body = StreamBody::new(tokio_stream::iter(frames));
    let mut response = Response::new(Body::new(body));
    let grpc = HeaderValue::from_static("application/grpc");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, grpc);
    response
}
