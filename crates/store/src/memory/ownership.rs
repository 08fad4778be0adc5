//! Who owns a partition: one task at a time.
//!
//! The worker of a partition takes it for each batch of messages. A task that has only a few checks
//! takes it itself, if no message waits for the worker: it decides in its own thread, without a
//! message and without waking another thread, which costs many times what a decision costs.
//!
//! Order: a message counts as waiting from before it is sent until it has been carried out. So a
//! check is never decided before a check or a refund that was sent earlier.
//!
//! Nobody waits for the lock. A task that does not get the partition sends a message, and a worker
//! that does not get it is woken when it is released. While a worker wants it, no task takes it.
//!
//! What it deliberately does not do: decide (`decider`).

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use tokio::sync::Notify;

use super::decider::PartitionDecider;
use crate::queue::{Batch, InlineDecider};
use tollgate_system::per_thread::lock;
use tollgate_telemetry::metrics::PartitionLevels;

/// A partition, and who may take it.
pub(super) struct PartitionOwnership {
    decider: Mutex<PartitionDecider>,
    pub(super) levels: Arc<PartitionLevels>,
    /// Messages to the worker that were not carried out yet.
    messages: AtomicUsize,
    /// Whether the worker runs.
    is_open: AtomicBool,
    /// Whether the worker waits for the partition.
    is_wanted: AtomicBool,
    /// Wakes the worker that waits.
    released: Notify,
}

/// A check panicked while it was decided.
#[derive(Debug)]
pub(super) struct Poisoned;

/// Wakes the worker, if it waits, when dropped.
struct WakeWorker<'o>(&'o PartitionOwnership);

// === impl PartitionOwnership ===

impl PartitionOwnership {
    pub(super) fn new(decider: PartitionDecider, levels: Arc<PartitionLevels>) -> Self {
        Self {
            decider: Mutex::new(decider),
            levels,
            messages: AtomicUsize::new(0),
            is_open: AtomicBool::new(false),
            is_wanted: AtomicBool::new(false),
            released: Notify::new(),
        }
    }

    /// The partition, before its worker runs: no other task takes it.
    pub(super) fn take_before_start(&self) -> MutexGuard<'_, PartitionDecider> {
        lock(&self.decider)
    }

    /// The worker runs: tasks may take the partition.
    pub(super) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    /// The worker has ended.
    pub(super) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
    }

    /// So many messages have been carried out. The caller still has the partition.
    pub(super) fn messages_answered(&self, count: usize) {
        self.messages.fetch_sub(count, Ordering::AcqRel);
    }

    /// Takes the partition for its worker.
    ///
    /// # Errors
    ///
    /// When a task panicked while it had the partition.
    pub(super) async fn acquire(&self) -> Result<MutexGuard<'_, PartitionDecider>, Poisoned> {
        if let Some(decider) = self.try_acquire()? {
            return Ok(decider);
        }
        loop {
            self.is_wanted.store(true, Ordering::Relaxed);
            // Either this sees the partition free, or the task that has it sees that it is wanted.
            fence(Ordering::SeqCst);
            if let Some(decider) = self.try_acquire()? {
                self.is_wanted.store(false, Ordering::Relaxed);
                return Ok(decider);
            }
            self.released.notified().await;
        }
    }

    fn try_acquire(&self) -> Result<Option<MutexGuard<'_, PartitionDecider>>, Poisoned> {
        match self.decider.try_lock() {
            Ok(decider) => Ok(Some(decider)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Poisoned(_)) => Err(Poisoned),
        }
    }

    fn is_idle(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
            && self.messages.load(Ordering::Acquire) == 0
            && !self.is_wanted.load(Ordering::Relaxed)
    }
}

impl InlineDecider for PartitionOwnership {
    fn expect_message(&self) {
        self.messages.fetch_add(1, Ordering::AcqRel);
    }

    fn try_decide(&self, batch: &mut Batch) -> bool {
        if !self.is_idle() {
            return false;
        }
        let Ok(Some(decider)) = self.try_acquire() else {
            return false;
        };
        // Dropped after the partition is released.
        let _wake_worker = WakeWorker(self);
        let mut decider = decider;
        // A message that was sent before is carried out before: with the partition in hand, it is
        // still waiting or it is done.
        let is_idle = self.is_idle();
        if is_idle {
            decider.decide_unsent(batch);
        }
        is_idle
    }
}

impl fmt::Debug for PartitionOwnership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartitionOwnership").finish_non_exhaustive()
    }
}

// === impl WakeWorker ===

impl Drop for WakeWorker<'_> {
    fn drop(&mut self) {
        // See `acquire`.
        fence(Ordering::SeqCst);
        if self.0.is_wanted.load(Ordering::Relaxed) {
            self.0.released.notify_one();
        }
    }
}
