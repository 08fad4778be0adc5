//! The task that answers the queue of one partition.
//!
//! It reads its queue in batches into a reused buffer, takes the partition for each of them
//! (`ownership`), and answers every message. It also wakes when no message comes, so that the idle
//! buckets of an idle partition are swept too.
//!
//! Checks whose caller has left are dropped before they are decided, and take nothing. Refunds are
//! always carried out. A worker that is dropped answers the checks that it has not decided, and
//! nothing is decided in its partition any more.
//!
//! The sender bounds the queue, before it sends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::copying::CopyRequest;
use super::decider::PartitionDecider;
use super::ownership::PartitionOwnership;
use crate::StoreError;
use crate::queue::Message;

/// How many messages are decided per reading of the clock.
const BATCH_MESSAGES_MAX: usize = 256;

/// How long a partition waits for messages before it sweeps.
const QUIET: Duration = Duration::from_millis(250);

/// A partition and its queue, ready to run.
pub struct PartitionWorker {
    ownership: Arc<PartitionOwnership>,
    queue: mpsc::UnboundedReceiver<Message>,
    /// Messages that were received and not carried out yet.
    received: Vec<Message>,
    /// Requests for copies, of which at most one waits, and whether any may come.
    copies: mpsc::UnboundedReceiver<CopyRequest>,
    copies_wanted: Arc<AtomicBool>,
}

/// Why a worker has woken.
enum Wake {
    /// That many messages were received.
    Messages(usize),
    Copy(CopyRequest),
    Quiet,
}

// === impl PartitionWorker ===

impl PartitionWorker {
    pub(super) fn new(
        ownership: Arc<PartitionOwnership>,
        queue: mpsc::UnboundedReceiver<Message>,
        copies: mpsc::UnboundedReceiver<CopyRequest>,
        copies_wanted: Arc<AtomicBool>,
    ) -> Self {
        Self {
            ownership,
            queue,
            received: Vec::with_capacity(BATCH_MESSAGES_MAX),
            copies,
            copies_wanted,
        }
    }

    /// The partition, before the worker runs.
    pub(super) fn decider(&self) -> MutexGuard<'_, PartitionDecider> {
        self.ownership.take_before_start()
    }

    /// Answers until every sender is gone.
    pub async fn run(mut self) {
        let mut quiet = tokio::time::interval(QUIET);
        quiet.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What a snapshot has loaded is shown before the first check.
        self.decider().report_levels(true);
        self.ownership.open();
        loop {
            // Without snapshots a wake does not look for requests: that costs as much as a check.
            let copies = self.copies_wanted.load(Ordering::Relaxed);
            let wake = tokio::select! {
                biased;
                received = self.queue.recv_many(&mut self.received, BATCH_MESSAGES_MAX) => {
                    Wake::Messages(received)
                }
                Some(request) = self.copies.recv(), if copies => Wake::Copy(request),
                _ = quiet.tick() => Wake::Quiet,
            };
            if matches!(wake, Wake::Messages(0)) {
                return;
            }
            // A check that panicked in another task has left the partition in an unknown state.
            let Ok(mut decider) = self.ownership.acquire().await else {
                return;
            };
            match wake {
                Wake::Messages(count) => {
                    decider.answer_all(&mut self.received);
                    self.ownership.messages_answered(count);
                }
                Wake::Copy(request) => {
                    request.answer(&decider.partition);
                    continue;
                }
                Wake::Quiet => decider.sweep_quietly(),
            }
            // Under load the queue always has messages: a slice is copied between batches.
            if copies && let Ok(request) = self.copies.try_recv() {
                request.answer(&decider.partition);
            }
        }
    }
}

impl Drop for PartitionWorker {
    /// Answers every caller, however the worker ends.
    fn drop(&mut self) {
        self.ownership.close();
        self.queue.close();
        let received = std::mem::take(&mut self.received).into_iter();
        let queued = std::iter::from_fn(|| self.queue.try_recv().ok());
        for message in received.chain(queued) {
            if let Message::Decide(mut batch) = message {
                let waiting = &self.ownership.levels.waiting;
                waiting.fetch_sub(batch.checks.len(), Ordering::AcqRel);
                batch.answer_all(&StoreError::Stopped);
                batch.send_back();
            }
        }
    }
}
