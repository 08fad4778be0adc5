//! What is measured of connections: how many, and how they end.
//!
//! What it deliberately does not do: know TLS (`tls`).

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::polled_gauge::PolledGauge;
use super::register::{counter, counters, gauge, gauges};

/// The metrics of connections.
#[derive(Debug)]
pub struct ConnectionMetrics {
    /// gRPC connections asked to go because of their age.
    pub aged: IntCounter,
    /// Calls reset because their message did not come.
    pub calls_late: IntCounter,
    /// Calls reset because nobody made room for their answer.
    pub answers_unread: IntCounter,
    /// Calls refused because unfinished bodies hold too much memory.
    pub bodies_refused: IntCounter,
    /// Calls refused because their header lists were too long.
    pub header_lists_refused: IntCounter,
    /// Bytes that unfinished request bodies hold.
    pub unfinished_bodies_bytes: PolledGauge,
    /// gRPC connections closed because nobody answered a keepalive.
    pub silent: IntCounter,
    /// HTTP requests that were answered 503 because too many were under way or theirs took too long.
    pub http_shed: IntCounter,
    /// Streaming calls open.
    pub streaming_calls: IntGauge,
    streaming_calls_refused: IntCounterVec,
    broken: IntCounterVec,
    open: IntGaugeVec,
    accepted: IntCounterVec,
    refused: IntCounterVec,
    accept_errors: IntCounterVec,
}

/// The counters of one listening port.
#[derive(Clone, Debug)]
pub struct PortCounters {
    /// Connections open.
    pub open: IntGauge,
    /// Connections accepted so far.
    pub accepted: IntCounter,
    /// Connections closed at once because there were too many.
    pub refused: IntCounter,
    /// Times the system would not give a connection.
    pub accept_errors: IntCounter,
}

// === impl ConnectionMetrics ===

impl ConnectionMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            aged: counter(
                r,
                "tollgate_connections_aged_total",
                "gRPC connections asked to go because of their age",
            )?,
            calls_late: counter(
                r,
                "tollgate_calls_late_total",
                "Calls reset because their message did not come in time",
            )?,
            answers_unread: counter(
                r,
                "tollgate_answers_unread_total",
                "Calls reset because their caller made no room for the answer in time",
            )?,
            bodies_refused: counter(
                r,
                "tollgate_bodies_refused_total",
                "Calls refused because unfinished request bodies held too much of --body-memory-max",
            )?,
            header_lists_refused: counter(
                r,
                "tollgate_header_lists_refused_total",
                "Calls refused because their metadata was larger than --header-list-size-max",
            )?,
            unfinished_bodies_bytes: PolledGauge::new(
                r,
                "tollgate_unfinished_bodies_bytes",
                "Bytes that request bodies which have not arrived in full hold of --body-memory-max",
            )?,
            silent: counter(
                r,
                "tollgate_connections_silent_total",
                "gRPC connections closed because nobody said in time that it is still there",
            )?,
            http_shed: counter(
                r,
                "tollgate_http_shed_total",
                "HTTP requests answered 503 because too many were under way or theirs took too long",
            )?,
            streaming_calls: gauge(
                r,
                "tollgate_streaming_calls",
                "Reflection and health Watch calls open",
            )?,
            streaming_calls_refused: counters(
                r,
                "tollgate_streaming_calls_refused_total",
                "Reflection and health Watch calls refused because too many were open",
                &["bound"],
            )?,
            broken: counters(
                r,
                "tollgate_connections_broken_total",
                "gRPC connections closed because of what their client sent, by HTTP/2's word for it",
                &["reason"],
            )?,
            open: gauges(r, "tollgate_connections", "Connections open", &["port"])?,
            accepted: counters(
                r,
                "tollgate_connections_accepted_total",
                "Connections accepted",
                &["port"],
            )?,
            refused: counters(
                r,
                "tollgate_connections_refused_total",
                "Connections closed at once because there were too many",
                &["port"],
            )?,
            accept_errors: counters(
                r,
                "tollgate_accept_errors_total",
                "Times the system would not give a connection",
                &["port"],
            )?,
        })
    }

    /// The counters of a listening port.
    pub(super) fn port(&self, port: &str) -> PortCounters {
        PortCounters {
            open: self.open.with_label_values(&[port]),
            accepted: self.accepted.with_label_values(&[port]),
            refused: self.refused.with_label_values(&[port]),
            accept_errors: self.accept_errors.with_label_values(&[port]),
        }
    }

    /// Counts a streaming call that was refused. There are two bounds.
    pub(super) fn count_refused_streaming_call(&self, bound: &'static str) {
        self.streaming_calls_refused
            .with_label_values(&[bound])
            .inc();
    }

    /// Counts a gRPC connection that was closed because of what its client sent. There are as many words for that as HTTP/2
    /// has.
    pub(super) fn count_broken(&self, reason: &'static str) {
        self.broken.with_label_values(&[reason]).inc();
    }
}
