//! What is measured of requests: how many, what they were told, how long it took, which bound they passed.
//!
//! What it deliberately does not do: count by rule (`limits`).

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, Registry};

use super::register::{counter, counters};

/// Upper bounds of the latency histogram, in seconds: an in-memory decision takes tens of microseconds, and Envoy gives
/// up after 20 ms.
const LATENCY_BUCKETS: &[f64] = &[
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.02,
    0.05, 0.1, 0.5, 1.0,
];

/// The metrics of requests.
#[derive(Debug)]
pub struct RequestMetrics {
    /// Calls of ShouldRateLimit.
    pub calls: IntCounter,
    /// Requests whose answer was "pass".
    pub decisions_ok: IntCounter,
    /// Requests whose answer was "over limit".
    pub decisions_over_limit: IntCounter,
    /// Requests that were answered with a gRPC error because of what they asked.
    pub service_errors: IntCounter,
    /// Requests that were answered with a gRPC error because the store did not decide.
    pub store_errors: IntCounter,
    /// From request decoded to answer ready, in seconds.
    pub response_time: Histogram,
    /// Requests that the overload setting answered.
    pub overload_answers: IntCounter,
    /// Overrides without a usable unit.
    pub overrides_not_obeyed: IntCounter,
    /// Requests that `SHADOW_MODE` let pass.
    pub global_shadow_mode: IntCounter,
    /// Requests with more descriptors than they may have.
    pub excess_descriptors: IntCounter,
    /// Requests with a descriptor of more entries than it may have.
    pub excess_entries: IntCounter,
    /// Requests that take more steps to match against patterns than they may.
    pub excess_matching_steps: IntCounter,
    /// Messages larger than they may be.
    pub excess_message_size: IntCounter,
}

// === impl RequestMetrics ===

impl RequestMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self, prometheus::Error> {
        let decisions = counters(
            r,
            "tollgate_decisions_total",
            "Requests decided, by the overall code",
            &["code"],
        )?;
        let excess = counters(
            r,
            "tollgate_excess_total",
            "Requests that passed a bound which their caller can reach, and were answered by --on-excess",
            &["bound"],
        )?;
        let errors = counters(
            r,
            "ratelimit_service_should_rate_limit_error",
            "Requests answered with a gRPC error, by whose fault it was",
            &["err_type"],
        )?;
        let requests = counters(
            r,
            "ratelimit_service_total_requests",
            "gRPC calls received",
            &["grpc_method"],
        )?;
        let response_time = HistogramVec::new(
            HistogramOpts::new(
                "ratelimit_service_response_time_seconds",
                "From request decoded to answer ready",
            )
            .buckets(LATENCY_BUCKETS.to_vec()),
            &["grpc_method"],
        )?;
        r.register(Box::new(response_time.clone()))?;
        Ok(Self {
            calls: requests.with_label_values(&["ShouldRateLimit"]),
            decisions_ok: decisions.with_label_values(&["ok"]),
            decisions_over_limit: decisions.with_label_values(&["over_limit"]),
            service_errors: errors.with_label_values(&["service_error"]),
            store_errors: errors.with_label_values(&["redis_error"]),
            response_time: response_time.with_label_values(&["ShouldRateLimit"]),
            overload_answers: counter(
                r,
                "tollgate_overload_answers_total",
                "Requests that --on-overload answered because the store did not decide",
            )?,
            overrides_not_obeyed: counter(
                r,
                "tollgate_overrides_not_obeyed_total",
                "Limits that came with a request and had no usable unit",
            )?,
            global_shadow_mode: counter(
                r,
                "ratelimit_service_global_shadow_mode",
                "Requests over limit that SHADOW_MODE let pass",
            )?,
            excess_descriptors: excess.with_label_values(&["descriptors"]),
            excess_entries: excess.with_label_values(&["entries"]),
            excess_matching_steps: excess.with_label_values(&["matching_steps"]),
            excess_message_size: excess.with_label_values(&["message_size"]),
        })
    }
}
