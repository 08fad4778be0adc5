//! Metrics of traces, of statsd and of the decision log.

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

        /// Sampled decisions that were not traced because of --traces-per-second-max.
        Counter "tollgate_traces_skipped_total" => pub skipped;
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

metrics! {
    /// Metrics of the decision log.
    pub struct DecisionLogMetrics {
        /// Decisions written to the decision log.
        Counter "tollgate_decision_log_written_total" => pub written;

        /// Decisions chosen for the decision log and not written, by reason: rate (more than
        /// --decision-log-per-second-max), queue_full (the destination is slow) or write_failed.
        Counter "tollgate_decision_log_skipped_total" by reason {
            rate = "rate",
            queue_full = "queue_full",
            write_failed = "write_failed",
        }
    }
}
