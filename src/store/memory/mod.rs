//! The memory store: every bucket in this process, in partitions that each have one owner.
//!
//! Why partitions: a table that one task owns needs no lock, and a decision in it cannot be interrupted by another. How:
//! the upper half of a key's keyed hash picks the partition; the check goes into that partition's queue; its worker
//! answers. A request whose checks lie in several partitions sends each its share and waits for all.
//!
//! What was taken tentatively (`TentativeTake`) goes back as a message of its own, which no bound refuses: there is never more of it
//! than was let in. It lies in wait wherever an answer may be lost: with the caller, in the reply's channel, in the worker.
//!
//! What it deliberately does not do: survive a restart, share with other processes, queue past a full queue.

mod backend;
mod bucket;
mod eviction;
mod marks_table;
mod partition;
mod table;
mod worker;

use std::sync::Arc;

use tokio::sync::mpsc;

pub use self::backend::BACKEND;
use self::partition::Partition;
pub use self::worker::PartitionWorker;
use super::queue::{Queue, QueueBatchClient, QueueLimits, Queues, Route};
use super::{ApplyFuture, BatchClient, CommitMode, Deadline, Store, StoreError};
use crate::clock::Clock;
use crate::metrics::Metrics;
pub use crate::store::memory_limits::{MemoryLimits, WhenFull};
use tollgate_limiter::Check;

/// The store's handle: where each partition's queue is.
#[derive(Debug)]
pub struct MemoryStore {
    queues: Arc<Queues>,
}

// === impl MemoryStore ===

impl MemoryStore {
    /// A store and the workers that own its partitions. The caller spawns them; they end when the store is dropped.
    pub fn pair(
        bounds: &MemoryLimits,
        clock: &Arc<dyn Clock>,
        metrics: &Arc<Metrics>,
    ) -> (Self, Vec<PartitionWorker>) {
        let partitions = bounds.partitions.max(1);
        let bytes_max = bounds.memory_max / partitions;
        metrics
            .buckets
            .memory_max_bytes
            .set(i64::try_from(bounds.memory_max).unwrap_or(i64::MAX));
        let (queues, workers) = (0..partitions)
            .map(|number| {
                let (sender, receiver) = mpsc::unbounded_channel();
                let levels = metrics.partition_levels(number);
                let queue = Queue {
                    sender,
                    levels: Arc::clone(&levels),
                };
                let worker = PartitionWorker::new(
                    Partition::new(bytes_max, bounds.when_full),
                    receiver,
                    levels,
                    Arc::clone(clock),
                    Arc::clone(metrics),
                );
                (queue, worker)
            })
            .unzip();
        let bounds = QueueLimits {
            waiting_max: bounds.queue_checks_max,
            batch_weight_max: usize::MAX,
            weigh: |_| 1,
            full: StoreError::Overloaded {
                waiting_max: bounds.queue_checks_max,
            },
            shed: metrics.buckets.shed_mailbox_full.clone(),
        };
        let store = Self {
            queues: Arc::new(Queues::new(queues, Route::ByKey, bounds)),
        };
        (store, workers)
    }
}

impl Store for MemoryStore {
    fn apply(
        &self,
        checks: Vec<Check>,
        deadline: Deadline,
        commit_mode: CommitMode,
    ) -> ApplyFuture<'_> {
        Box::pin(self.queues.apply(checks, deadline, commit_mode))
    }

    fn batch_client(&self) -> Option<Box<dyn BatchClient>> {
        Some(Box::new(QueueBatchClient::new(Arc::clone(&self.queues))))
    }
}
