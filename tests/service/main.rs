//! What the service promises on the wire, in this process and at a time of the test's choosing.
//!
//! What it deliberately does not do: repeat the limiter's own arithmetic (`tests/laws`), or start processes
//! (`tests/process`, `tests/envoy`).
// tests: a panic is how it says no.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

#[path = "../asking/mod.rs"]
mod asking;
#[path = "../running/mod.rs"]
mod running;

mod answers;
mod exactness;
mod grpc;
mod http;
mod labels;
mod modes;
mod overload;
mod reloading;
