//! What the service promises on the wire, in this process and at a time of the test's choosing.
//!
//! What it deliberately does not do: repeat the limiter's own arithmetic (`tests/laws`), or start
//! processes (`tests/process`, `tests/envoy`).
// tests: a panic is how it says no.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod all_or_nothing;
mod answers;
mod dotnet;
mod dotnet_matching;
mod dotnet_page;
mod exactness;
mod freed_labels;
mod grpc;
mod headers;
mod http;
mod json;
mod labels;
mod limits;
mod modes;
mod overload;
mod reloading;
mod requests;
mod threat_page;
