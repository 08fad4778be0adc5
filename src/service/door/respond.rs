//! Whoever waits for an answer, as a core sees it: a stream of HTTP/2.
//!
//! Why a trait for one kind: what a core does is then measured and tested without a socket (`allocations`); it costs
//! nothing, for a core is compiled for its kind.
//!
//! What it deliberately does not do: forward (`forward`).

use std::task::{Context, Waker};

use bytes::Bytes;
use h2::server::SendResponse;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response};
use tonic::Status as GrpcStatus;

use crate::service::ratelimit::Unanswered;

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// One who waits for one answer.
pub(super) trait Respond {
    /// Sends a gRPC frame, and that all is well.
    fn answer(self, frame: Bytes);

    /// Sends a gRPC error.
    fn refuse(self, unanswered: Unanswered);

    /// Whether nobody waits any more.
    fn is_gone(&mut self) -> bool;
}

impl Respond for SendResponse<Bytes> {
    fn answer(mut self, frame: Bytes) {
        // An error in any of these means that the client has gone.
        if let Ok(mut stream) = self.send_response(head(), false)
            && stream.send_data(frame, false).is_ok()
        {
            let _ = stream.send_trailers(trailers());
        }
    }

    fn refuse(mut self, unanswered: Unanswered) {
        // The same.
        let _ = self.send_response(GrpcStatus::from(unanswered).into_http(), true);
    }

    fn is_gone(&mut self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        self.poll_reset(&mut nobody).is_ready()
    }
}

/// The head of a good answer.
pub(super) fn head() -> Response<()> {
    let mut response = Response::new(());
    *response.headers_mut() = one_header(CONTENT_TYPE, "application/grpc");
    response
}

/// What stands behind its message.
pub(super) fn trailers() -> HeaderMap {
    one_header(GRPC_STATUS, "0")
}

/// Headers with room for no more than they are: the name is made before, since a text would be read each time.
fn one_header(name: HeaderName, value: &'static str) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(1);
    headers.insert(name, HeaderValue::from_static(value));
    headers
}
