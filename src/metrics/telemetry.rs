//! What is measured of what goes out by itself: spans, and counters by statsd.
//!
//! What it deliberately does not do: send (`telemetry`).

use prometheus::{IntCounter, Registry};

use super::register::{counter, counters};

/// The metrics of traces.
#[derive(Clone, Debug)]
pub struct TraceMetrics {
    /// Spans that the collector took.
    pub sent: IntCounter,
    /// Spans for which there was no room among those that wait.
    pub dropped: IntCounter,
    /// Spans that did not reach the collector.
    pub lost: IntCounter,
}

/// The metrics of statsd.
#[derive(Clone, Debug)]
pub struct StatsdMetrics {
    /// Times that everything there was went out.
    pub flushes: IntCounter,
    /// Times that it did not.
    pub failures: IntCounter,
    /// Counters whose news went out and may not have come.
    pub lines_lost: IntCounter,
}

// === impl TraceMetrics ===

impl TraceMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self, prometheus::Error> {
        let spans = counters(
            r,
            "tollgate_trace_spans_total",
            "Spans of decisions, by what became of them: sent, dropped (too many waited) or lost (the collector did not take them)",
            &["result"],
        )?;
        Ok(Self {
            sent: spans.with_label_values(&["sent"]),
            dropped: spans.with_label_values(&["dropped"]),
            lost: spans.with_label_values(&["lost"]),
        })
    }
}

// === impl StatsdMetrics ===

impl StatsdMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self, prometheus::Error> {
        let flushes = counters(
            r,
            "tollgate_statsd_flushes_total",
            "Times that statsd was told, or could not be (what was to be told waits for the next)",
            &["result"],
        )?;
        Ok(Self {
            flushes: flushes.with_label_values(&["sent"]),
            failures: flushes.with_label_values(&["failed"]),
            lines_lost: counter(
                r,
                "tollgate_statsd_lines_lost_total",
                "Counters whose news were lost with a connection to statsd",
            )?,
        })
    }
}
