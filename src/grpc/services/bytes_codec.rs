//! Messages that a service receives and sends as bytes: received ones are decoded when it is their
//! turn, and sent ones were encoded before a connection asks for them.
//!
//! What it deliberately does not do: bound them (tonic and the services do).

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use bytes::{Buf as _, BufMut as _, Bytes};
use tonic::Status;
use tonic::codec::{
    Codec, CompressionEncoding, DecodeBuf, Decoder, EnabledCompressionEncodings, EncodeBuf, Encoder,
};
use tonic::server::{Grpc, StreamingService, UnaryService};
use tower::service_fn;

/// Messages are received as bytes, and sent as bytes.
#[derive(Debug, Default)]
pub(super) struct BytesCodec;

/// Adds a unary method. A handler would add a `content-length` to its errors, which the other
/// methods' errors do not have.
pub(super) fn add_unary<S>(
    router: Router,
    path: &str,
    service: S,
    message_size_max: usize,
) -> Router
where
    S: UnaryService<Bytes, Response = Bytes, Future: Send> + Clone + Send + Sync + 'static,
{
    let call = move |request: Request| {
        let service = service.clone();
        async move {
            let mut methods = bytes_methods(message_size_max);
            Ok::<_, Infallible>(methods.unary(service, request).await.map(Body::new))
        }
    };
    router.route_service(path, service_fn(call))
}

/// Adds a method whose requests and responses stream.
pub(super) fn add_streaming<S>(
    router: Router,
    path: &str,
    service: S,
    message_size_max: usize,
) -> Router
where
    S: StreamingService<Bytes, Response = Bytes, Future: Send> + Clone + Send + Sync + 'static,
    S::ResponseStream: Send,
{
    let call = move |request: Request| {
        let service = service.clone();
        async move {
            let mut methods = bytes_methods(message_size_max);
            Ok::<_, Infallible>(methods.streaming(service, request).await.map(Body::new))
        }
    };
    router.route_service(path, service_fn(call))
}

/// Methods whose requests may be compressed.
fn bytes_methods(message_size_max: usize) -> Grpc<BytesCodec> {
    let mut accepted = EnabledCompressionEncodings::default();
    accepted.enable(CompressionEncoding::Gzip);
    Grpc::new(BytesCodec)
        .apply_compression_config(accepted, EnabledCompressionEncodings::default())
        .apply_max_message_size_config(Some(message_size_max), None)
}

// === impl BytesCodec ===

impl Codec for BytesCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, target: &mut EncodeBuf<'_>) -> Result<(), Status> {
        target.put(message);
        Ok(())
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
