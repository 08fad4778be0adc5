//! The gRPC server over HTTP/2, frame by frame.
//!
//! A client on the `h2` crate sends what no gRPC library would (`raw`). tonic's routes, called in
//! this process, are the oracle (`routes`): the server must respond like they do to a table of
//! requests (`cases`) and to random ones (`random_requests`). The other files test connections,
//! streams and floods, which the routes do not have.
//!
//! What it deliberately does not do: test decisions, which the rest of `tests/service` does.

mod bodies;
mod cases;
mod endings;
pub(crate) mod gzip;
pub(crate) mod hostile;
mod random_requests;
pub(crate) mod raw;
mod routes;
mod streaming;
mod streams;

use tollgate_test_support::grpc_client::{Descriptor, RateLimitRequest, hits, request};
use tollgate_test_support::in_process::Service;

pub(crate) const RULES: &str = "
domain: d
descriptors:
  - key: many
    rate_limit: { unit: hour, requests_per_unit: 1000000 }
  - key: other
    rate_limit: { unit: hour, requests_per_unit: 1000000, algorithm: token_bucket }
";

/// A service with [`RULES`].
pub(crate) async fn service(arguments: &[&str]) -> Service {
    Service::start(RULES, arguments).await
}

/// A request for `count` hits of a key.
pub(crate) fn one(value: &str, count: u64) -> RateLimitRequest {
    request("d", vec![hits("many", value, count)])
}

/// The remaining hits of such a key.
pub(crate) async fn left(service: &mut Service, value: &str) -> u32 {
    let look: Descriptor = hits("many", value, 0);
    service.status("d", look).await.limit_remaining
}
