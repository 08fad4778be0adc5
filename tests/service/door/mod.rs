//! Both doors, told apart by nobody: what a client sees frame by frame, whichever it comes through.
//!
//! How: a client on the `h2` crate that sends what no gRPC library would (`raw`); each case goes through a service with
//! `--door h2` and one with `--door tonic`, and what is seen must be alike (`cases`, `streams`, `endings`). What is sent to wear a server
//! down goes through both as well (`hostile`); there each has bounds of its own.
//!
//! One thing differs and may: hyper, below tonic, puts a `date` on each response. HTTP asks that of a server of pages;
//! gRPC names no such header and its own servers in Go and C++ send none, so the quick door does not either.
//!
//! What it deliberately does not do: repeat what is decided; all of `tests/service` runs through both doors (`make test`).

mod bodies;
mod cases;
mod endings;
mod gzip;
mod hostile;
mod raw;
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

/// A service behind each door.
pub(crate) async fn doors(arguments: &[&str]) -> [(&'static str, Service); 2] {
    let mut services = Vec::new();
    for door in ["h2", "tonic"] {
        let arguments = [&["--door", door], arguments].concat();
        services.push((door, Service::start(RULES, &arguments).await));
    }
    services.try_into().ok().unwrap()
}

/// Asks for that many hits of a key of its own.
pub(crate) fn one(value: &str, count: u64) -> RateLimitRequest {
    request("d", vec![hits("many", value, count)])
}

/// How many are left of such a key.
pub(crate) async fn left(service: &mut Service, value: &str) -> u32 {
    let look: Descriptor = hits("many", value, 0);
    service.status("d", look).await.limit_remaining
}
