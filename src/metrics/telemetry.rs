//! Metrics of traces and of statsd.

use super::declaration::{Counter, metrics};

metrics! {
    /// Metrics of traces.
    pub struct TraceMetrics {
        /// Spans of decisions, by result: sent, dropped (the queue was full) or lost (the collector
        /// did not accept them).
        Counter "tollgate_trace_spans_total" by result {
            sent = "sent",
            dropped = "dropped",
            lost = "lost",
        }
    }
}

metrics! {
    /// Metrics of statsd.
    pub struct StatsdMetrics {
        /// Flushes to statsd, by result; what a failed flush held is sent by the next.
        Counter "tollgate_statsd_flushes_total" by result { flushes = "sent", failures = "failed" }

        /// Lines for statsd lost with a connection.
        Counter "tollgate_statsd_lines_lost_total" => pub lines_lost;
    }
}
