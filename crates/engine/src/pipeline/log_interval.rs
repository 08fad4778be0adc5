//! A log line that is written once a minute, however often there is a reason for it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Between two lines, in microseconds.
const INTERVAL_US: u64 = 60_000_000;

/// When a line may be written again, in the clock's uptime.
#[derive(Debug, Default)]
pub(super) struct LogInterval(AtomicU64);

// === impl LogInterval ===

impl LogInterval {
    /// Whether the line is to be written now. If so, the next one is in a minute.
    pub(super) fn is_due(&self, now_us: u64) -> bool {
        let later_us = now_us.saturating_add(INTERVAL_US);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next_us| {
                (now_us >= next_us).then_some(later_us)
            })
            .is_ok()
    }
}
