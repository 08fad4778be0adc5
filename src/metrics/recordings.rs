//! Metrics of recordings.

use super::declaration::{Counter, Gauge, metrics};

metrics! {
    /// Metrics of recordings.
    pub struct RecordingMetrics {
        /// Recordings that run: POST /record.
        Gauge "tollgate_recordings" => pub running;

        /// Requests sent to recordings.
        Counter "tollgate_recorded_requests_total" => pub requests;

        /// Requests that a recording lacks, by cause: rate (its bound), slow_reader,
        /// without_entry (nothing to sample by), too_long, caller_left.
        Counter "tollgate_recording_skipped_total" by cause {
            rate = "rate",
            slow_reader = "slow_reader",
            without_entry = "without_entry",
            too_long = "too_long",
            caller_left = "caller_left",
        }
    }
}

// === impl RecordingMetrics ===

impl RecordingMetrics {
    /// Counts what was skipped, by cause in the order of the format.
    pub fn skipped(&self, counts: [u64; 5]) {
        let counters = [
            &self.rate,
            &self.slow_reader,
            &self.without_entry,
            &self.too_long,
            &self.caller_left,
        ];
        for (counter, count) in counters.into_iter().zip(counts) {
            counter.inc_by(count);
        }
    }
}
