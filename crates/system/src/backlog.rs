//! How many things wait for a thread or a task that may be slow, so that each is counted once: by
//! who carries it out, or by the stop that abandons all that wait.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Value of `waiting` after all were abandoned. No queue is that long.
const ABANDONED: usize = usize::MAX;

/// The number of things that wait or are being carried out, and its bound.
#[derive(Debug)]
pub struct Backlog {
    waiting: AtomicUsize,
    max: usize,
}

// === impl Backlog ===

impl Backlog {
    /// Nothing waits yet. At most `max` may.
    pub fn new(max: usize) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            max: max.min(ABANDONED - 1),
        }
    }

    fn update(&self, change: impl FnMut(usize) -> Option<usize>) -> bool {
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        self.waiting.fetch_update(set, get, change).is_ok()
    }

    /// Counts one in. False if there is no space, or after [`Backlog::abandon`].
    pub fn enter(&self) -> bool {
        self.update(|waiting| (waiting < self.max).then(|| waiting.saturating_add(1)))
    }

    /// Counts some out. False if they were abandoned.
    pub fn leave(&self, count: usize) -> bool {
        self.update(|waiting| (waiting != ABANDONED).then(|| waiting.saturating_sub(count)))
    }

    /// How many wait or are being carried out.
    pub fn waiting(&self) -> usize {
        match self.waiting.load(Ordering::Relaxed) {
            ABANDONED => 0,
            waiting => waiting,
        }
    }

    /// Abandons for ever what waits or is being carried out, and returns how many that were.
    pub fn abandon(&self) -> usize {
        match self.waiting.swap(ABANDONED, Ordering::Relaxed) {
            ABANDONED => 0,
            waiting => waiting,
        }
    }
}
