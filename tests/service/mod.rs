//! The service over gRPC and HTTP, in this process, on a clock that the test moves.
//!
//! What it deliberately does not do: test the limiter's arithmetic (`crates/limiter`), or start
//! processes (`tests/process`, `tests/envoy`).

mod admin;
mod all_or_nothing;
mod answers;
mod api;
mod candidates;
mod decisions;
mod dotnet;
mod dotnet_page;
mod exactness;
mod forward_auth;
mod freed_labels;
mod grpc;
mod headers;
mod http;
mod json;
mod labels;
mod limit_from_request;
mod limits;
mod limits_from;
mod lost_answers;
mod modes;
mod notify;
mod overload;
mod penalties;
mod quotas;
mod quotas_seen;
mod rate_limits;
mod recorded_calls;
mod recording;
mod reloading;
mod requests;
mod reservations_at_bounds;
mod reservations_counted;
mod reservations_seen;
mod resp;
mod snapshots;
mod snapshots_refused;
mod spoe;
mod threat_page;
mod top_keys;
mod walks;
mod ways_in;

use tollgate_test_support::grpc_client::{RateLimitOverride, RateLimitResponse, hits};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::polling::until_async;

/// Arguments as on a command line.
pub(crate) fn flags(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Sends `count` hits in the domain `d`; returns what is left.
pub(crate) async fn remaining(service: &mut Service, key: &str, value: &str, count: u64) -> u32 {
    let status = service.status("d", hits(key, value, count)).await;
    status.limit_remaining
}

/// A limit that a request brings along.
#[allow(clippy::unnecessary_wraps)] // the field is optional
pub(crate) fn override_of(requests_per_unit: u32, unit: i32) -> Option<RateLimitOverride> {
    Some(RateLimitOverride {
        requests_per_unit,
        unit,
        unit_multiplier: None,
    })
}

/// The headers of an answer as `name: value`.
pub(crate) fn headers_of(answer: &RateLimitResponse) -> Vec<String> {
    let headers = answer.response_headers_to_add.iter();
    let texts = headers.map(|header| format!("{}: {}", header.key, header.value));
    texts.collect()
}

/// Waits until a series has this value. A task of the service may count after an answer.
pub(crate) async fn until_metric(service: &Service, series: &str, value: u64) {
    let look = async || {
        let now = service.metric(series);
        (now == value).then_some(()).ok_or(now)
    };
    until_async(&format!("{series} is {value}"), look).await;
}
