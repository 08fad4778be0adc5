//! Metrics of requests: how many, their answers, their latency, and the bounds that they exceed.

use prometheus::Histogram;

use super::declaration::{Counter, metrics};

/// Upper bounds of the latency histogram, in seconds: an in-memory decision takes tens of
/// microseconds, and Envoy gives up after 20 ms.
const LATENCY_BUCKETS: &[f64] = &[
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.02,
    0.05, 0.1, 0.5, 1.0,
];

metrics! {
    /// Metrics of requests.
    pub struct RequestMetrics {
        /// gRPC calls received.
        Counter "ratelimit_service_total_requests" as "ratelimit_server.{}.total_requests"
            by grpc_method { calls = "ShouldRateLimit" }

        /// Requests decided, by overall code.
        Counter "tollgate_decisions_total" by code {
            decisions_ok = "ok",
            decisions_over_limit = "over_limit",
        }

        /// Requests answered with a gRPC error, by cause: the request (service_error) or the store
        /// (redis_error).
        Counter "ratelimit_service_should_rate_limit_error"
            as "ratelimit.service.call.should_rate_limit.{}"
            by err_type { service_errors = "service_error", store_errors = "redis_error" }

        /// Seconds from decoded request to encoded answer.
        Histogram "ratelimit_service_response_time_seconds" in LATENCY_BUCKETS
            by grpc_method { response_time = "ShouldRateLimit" }

        /// Requests answered by --on-overload because the store did not decide.
        Counter "tollgate_overload_answers_total" => pub overload_answers;

        /// Limits sent with a request that were ignored because they had no valid unit.
        Counter "tollgate_overrides_not_obeyed_total" => pub overrides_not_obeyed;

        /// Requests over limit that SHADOW_MODE let pass.
        Counter "ratelimit_service_global_shadow_mode" as "ratelimit.service.global_shadow_mode"
            => pub global_shadow_mode;

        /// Requests that exceeded a bound and were answered by --on-excess.
        Counter "tollgate_excess_total" by bound {
            excess_descriptors = "descriptors",
            excess_entries = "entries",
            excess_matching_steps = "matching_steps",
            excess_message_size = "message_size",
        }
    }
}
