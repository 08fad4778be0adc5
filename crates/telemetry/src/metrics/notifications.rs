//! Metrics of events of limits with `notify`.

use super::declaration::{Counter, metrics};

metrics! {
    /// Metrics of events of limits with `notify`.
    pub struct NotifyMetrics {
        /// Events of limits with notify: a share of the limit was used for the first time in its
        /// window.
        Counter "tollgate_notify_events_total" => pub events;

        /// Events of limits that were not made or not delivered to --notify-url, and those that
        /// were, by result.
        Counter "tollgate_notify_results_total" by result {
            sent = "sent", failed = "failed", queue_full = "queue_full",
            repeated = "repeated", table_full = "table_full",
        }

        /// Deliveries of events to --notify-url that were tried again.
        Counter "tollgate_notify_retries_total" => pub retries;
    }
}
