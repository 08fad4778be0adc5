//! What Envoy Gateway needs of a rate limit service, and what every guarded port needs: TLS,
//! sockets, xDS, and the exact environment that it starts the reference service with.
//!
//! How: certificates are made by the test, laid out as Kubernetes lays out a secret and exchanged
//! as Kubernetes exchanges one; the xDS server is the test's own, so that its streams can be cut
//! and its answers be anything; Envoy is real.
//!
//! What it deliberately does not do: start a cluster.
// tests: a panic is how it says no.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod admin;
mod ads;
mod dropin;
mod hit;
mod names;
mod sockets;
mod tls;
mod xds;

use std::time::Duration;

/// A limit of a thousand an hour for each key, in one domain.
const RULES: &str = "
domain: d
descriptors:
- key: k
  rate_limit: { unit: hour, requests_per_unit: 1000 }
";

/// How long a change of files may take to count.
const RECOVERY: Duration = Duration::from_secs(10);
