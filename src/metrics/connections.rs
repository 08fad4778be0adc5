//! Metrics of connections: how many there are, and how they end.

use super::declaration::{Counter, CounterVec, Gauge, GaugeVec, LabelValues, metrics};
use super::polled_gauge::PolledGauge;

/// The names of listening ports.
pub(super) const PORTS: LabelValues = LabelValues::OneOf(&["grpc", "http", "admin"]);

const STREAMING_BOUNDS: LabelValues = LabelValues::OneOf(&["connection", "process"]);

/// The names of HTTP/2 error codes.
const HTTP2_REASONS: LabelValues = LabelValues::OneOf(&[
    "no_error",
    "protocol",
    "internal",
    "flow_control",
    "stream_closed",
    "frame_size",
    "refused_stream",
    "cancel",
    "compression",
    "enhance_your_calm",
]);

metrics! {
    /// Metrics of connections.
    pub struct ConnectionMetrics {
        /// gRPC connections sent GOAWAY because of their age.
        Counter "tollgate_connections_aged_total" => pub aged;

        /// Calls reset because their message did not arrive in time.
        Counter "tollgate_calls_late_total" => pub calls_late;

        /// Calls reset because the client did not open the flow-control window for the answer in
        /// time.
        Counter "tollgate_answers_unread_total" => pub answers_unread;

        /// Calls refused because unfinished request bodies held too much of --body-memory-max.
        Counter "tollgate_bodies_refused_total" => pub bodies_refused;

        /// Calls refused because their metadata was larger than --header-list-size-max.
        Counter "tollgate_header_lists_refused_total" => pub header_lists_refused;

        /// Bytes of --body-memory-max that unfinished request bodies hold.
        PolledGauge "tollgate_unfinished_bodies_bytes" => pub unfinished_bodies_bytes;

        /// gRPC connections closed because the client did not answer a keepalive in time.
        Counter "tollgate_connections_silent_total" => pub silent;

        /// HTTP requests answered 503 because too many were in flight or theirs took too long.
        Counter "tollgate_http_shed_total" => pub http_shed;

        /// Open calls of Stream, of reflection, and of Watch of health.
        Gauge "tollgate_streaming_calls" => pub streaming_calls;

        /// Calls of Stream, reflection, or Watch of health refused because too many were open.
        CounterVec "tollgate_streaming_calls_refused_total" [bound: STREAMING_BOUNDS]
            => streaming_calls_refused;

        /// gRPC connections closed because of what the client sent, by HTTP/2 error code.
        CounterVec "tollgate_connections_broken_total" [reason: HTTP2_REASONS] => broken;

        /// Open connections.
        GaugeVec "tollgate_connections" [port: PORTS] => open;

        /// Connections accepted.
        CounterVec "tollgate_connections_accepted_total" [port: PORTS] => accepted;

        /// Connections closed at once because too many were open.
        CounterVec "tollgate_connections_refused_total" [port: PORTS] => refused;

        /// System errors while connections were accepted.
        CounterVec "tollgate_accept_errors_total" [port: PORTS] => accept_errors;
    }
}

/// The counters of one listening port.
#[derive(Clone, Debug)]
pub struct PortCounters {
    /// Connections open.
    pub open: Gauge,
    /// Connections accepted so far.
    pub accepted: Counter,
    /// Connections closed at once because too many were open.
    pub refused: Counter,
    /// Errors of the system when a connection was accepted.
    pub accept_errors: Counter,
}

// === impl ConnectionMetrics ===

impl ConnectionMetrics {
    /// The counters of a listening port.
    pub(super) fn port(&self, port: &str) -> PortCounters {
        PortCounters {
            open: self.open.with_label_values(&[port]),
            accepted: self.accepted.with_label_values(&[port]),
            refused: self.refused.with_label_values(&[port]),
            accept_errors: self.accept_errors.with_label_values(&[port]),
        }
    }

    /// Counts a streaming call that was refused because of one of two bounds.
    pub(super) fn count_refused_streaming_call(&self, bound: &'static str) {
        self.streaming_calls_refused
            .with_label_values(&[bound])
            .inc();
    }

    /// Counts a gRPC connection closed because of what the client sent, by HTTP/2 error code.
    pub(super) fn count_broken(&self, reason: &'static str) {
        self.broken.with_label_values(&[reason]).inc();
    }
}
