//! Metrics of answers that clients have not read.

use super::declaration::{Counter, metrics};
use super::polled_gauge::PolledGauge;

metrics! {
    /// Metrics of answers that clients have not read.
    pub struct AnswerMetrics {
        /// Calls refused because their answers were larger than --answer-size-max (call), or
        /// because too much of --answer-memory-max was held by this connection (connection) or by
        /// others (process).
        Counter "tollgate_answers_refused_total" by bound {
            refused_call = "call",
            refused_connection = "connection",
            refused_process = "process",
        }

        /// Calls that waited for their clients to read earlier answers.
        Counter "tollgate_answers_waited_total" => pub waited;

        /// Bytes of --answer-memory-max that answers hold until they are sent.
        PolledGauge "tollgate_unsent_answers_bytes" => pub unread_bytes;

        /// Bytes that requests hold while they wait for memory for their answers, and bodies while
        /// they arrive; at most --answer-memory-max.
        PolledGauge "tollgate_waiting_requests_bytes" => pub waiting_bytes;
    }
}
