//! Bytes that one recorder may use, and those that all of them use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes of one recorder.
#[derive(Debug)]
pub(super) struct Budget {
    used: usize,
    max: usize,
    /// The bytes of all recorders, for the metric.
    all: Arc<AtomicU64>,
}

// === impl Budget ===

impl Budget {
    pub(super) fn new(max: usize, all: Arc<AtomicU64>) -> Self {
        Self { used: 0, max, all }
    }

    /// Takes bytes, if there are so many.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let used = self.used.saturating_add(bytes);
        if used > self.max {
            return false;
        }
        self.used = used;
        self.all.fetch_add(bytes as u64, Ordering::Relaxed);
        true
    }

    /// Gives bytes back.
    pub(super) fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.used);
        self.used = self.used.saturating_sub(bytes);
        self.all.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Whether at most so many quarters are used after taking these bytes.
    pub(super) fn has_within(&self, quarters: usize, bytes: usize) -> bool {
        self.used.saturating_add(bytes) <= (self.max / 4).saturating_mul(quarters)
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.give_back(self.used);
    }
}
