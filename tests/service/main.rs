//! The service over gRPC and HTTP, in this process, on a clock that the test moves.
//!
//! What it deliberately does not do: test the limiter's arithmetic (`tests/laws`), or start
//! processes (`tests/process`, `tests/envoy`).
// Tests: a panic is a failure.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod admin;
mod all_or_nothing;
mod answers;
mod api;
mod candidates;
mod decisions;
mod dotnet;
mod dotnet_matching;
mod dotnet_page;
mod exactness;
mod freed_labels;
mod grpc;
mod headers;
mod http;
mod inline;
mod json;
mod labels;
mod limits;
mod limits_from;
mod modes;
mod overload;
mod quotas;
mod quotas_seen;
mod rate_limits;
mod recorded_calls;
mod recording;
mod reloading;
mod requests;
mod reservations;
mod reservations_at_bounds;
mod reservations_counted;
mod reservations_reloaded;
mod reservations_seen;
mod snapshots;
mod snapshots_refused;
mod threat_page;
mod top_keys;
mod ways_in;
