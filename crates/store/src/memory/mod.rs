//! The memory store: all buckets in this process, in partitions with one owner each.
//!
//! A table with one owner needs no lock, and no other task can interrupt a decision in it. The
//! upper half of a key's keyed hash chooses the partition; the check goes into that partition's
//! queue, and its worker decides it. A few checks of an idle partition are decided in the thread
//! that has them (`ownership`). A request with checks in several partitions waits for all of them.
//!
//! Refunds of tentative takes are separate messages, which no bound rejects: there are never
//! more of them than accepted checks. They are sent wherever an answer may be lost: by the caller,
//! by the reply's channel, by the worker.
//!
//! Buckets are not shared with other processes. They survive a restart only in a snapshot.
//!
//! | file | content |
//! | --- | --- |
//! | `ownership` | who may decide in a partition: its worker, or a thread with few checks |
//! | `worker`, `decider` | the task of a partition; what decides a batch, and reads the clock |
//! | `partition`, `bucket`, `table`, `marks_table` | the buckets |
//! | `eviction` | the bound in bytes, and which buckets go first |
//! | `reset_times` | refunds that a reset makes void |
//! | `direct` | a partition without queue and task |
//! | `copying`, `loading` | snapshots |

mod bucket;
mod copying;
mod decider;
mod direct;
mod eviction;
mod loading;
mod marks_table;
mod ownership;
mod partition;
mod reset_times;
mod table;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

pub use self::copying::{BucketCopier, CopyFailed};
use self::decider::PartitionDecider;
pub use self::direct::DirectStore;
#[cfg(any(test, fuzzing))]
pub use self::loading::fuzz_harness as loading_harness;
pub use self::loading::{LoadCounts, load};
use self::ownership::PartitionOwnership;
use self::partition::Partition;
pub use self::worker::PartitionWorker;
use super::queue::{InlineDecider, Queue, QueueBatchClient, QueueLimits, Queues, Route};
use super::{
    Backend, BatchClient, BuildError, PartitionRecorder, Setup, Store, StoreBuilder,
    StoreInspection, StoreWithWorkers, Worker,
};
pub use crate::{MemoryLimits, WhenFull};
use tollgate_system::clock::Clock;
use tollgate_telemetry::metrics::Metrics;

/// The memory store in the table of backends: the default, without a URL.
pub static BACKEND: Backend = Backend {
    name: "memory",
    url_forms: &[],
    accepts_scheme: |_| false,
    configure: |_| Ok(Box::new(MemoryBuilder)),
    configure_from_variables: None,
};

/// The memory store has no settings but the limits in [`Setup`].
#[derive(Debug)]
struct MemoryBuilder;

/// The memory store: a queue for each partition.
#[derive(Debug)]
pub struct MemoryStore {
    queues: Arc<Queues>,
    copier: BucketCopier,
    /// Whether anybody copies: the workers then look for requests.
    copies_wanted: Arc<AtomicBool>,
}

// === impl MemoryStore ===

impl MemoryStore {
    /// A store and the workers of its partitions. The caller spawns them; they end when the store
    /// is dropped.
    pub fn pair(
        bounds: &MemoryLimits,
        clock: &Arc<dyn Clock>,
        metrics: &Arc<Metrics>,
    ) -> (Self, Vec<PartitionWorker>) {
        Self::recorded(bounds, clock, metrics, None)
    }

    /// A store whose partitions are recorded, and their workers.
    pub fn recorded(
        bounds: &MemoryLimits,
        clock: &Arc<dyn Clock>,
        metrics: &Arc<Metrics>,
        recorder: Option<&Arc<dyn PartitionRecorder>>,
    ) -> (Self, Vec<PartitionWorker>) {
        let partitions = bounds.partitions.max(1);
        let bytes_max = bounds.memory_max / partitions;
        metrics
            .buckets
            .memory_max_bytes
            .set(i64::try_from(bounds.memory_max).unwrap_or(i64::MAX));
        let mut copies = Vec::with_capacity(partitions);
        let copies_wanted = Arc::<AtomicBool>::default();
        let (queues, workers) = (0..partitions)
            .map(|number| {
                let (copy, copy_requests) = mpsc::unbounded_channel();
                copies.push(copy);
                let (sender, receiver) = mpsc::unbounded_channel();
                let levels = metrics.partition_levels(number);
                let decider = PartitionDecider::new(
                    Partition::new(bytes_max, bounds.when_full),
                    Arc::clone(&levels),
                    Arc::clone(clock),
                    Arc::clone(metrics),
                    recorder.cloned(),
                );
                let ownership = Arc::new(PartitionOwnership::new(decider, Arc::clone(&levels)));
                let queue = Queue {
                    sender,
                    levels,
                    inline: Some(Arc::clone(&ownership) as Arc<dyn InlineDecider>),
                };
                let wanted = Arc::clone(&copies_wanted);
                let worker = PartitionWorker::new(ownership, receiver, copy_requests, wanted);
                (queue, worker)
            })
            .unzip();
        let limits = QueueLimits::of_partitions(bounds.queue_checks_max, metrics);
        let store = Self {
            queues: Arc::new(Queues::new(queues, Route::ByKey, limits)),
            copier: BucketCopier::new(copies),
            copies_wanted,
        };
        (store, workers)
    }

    /// What copies the buckets of all partitions for a snapshot. Call it before the workers run.
    pub fn copier(&self) -> BucketCopier {
        self.copies_wanted.store(true, Ordering::Relaxed);
        self.copier.clone()
    }
}

impl Store for MemoryStore {
    fn batch_client(&self) -> Box<dyn BatchClient> {
        Box::new(QueueBatchClient::new(Arc::clone(&self.queues)))
    }

    fn inspect(&self) -> StoreInspection {
        StoreInspection {
            kind: BACKEND.name,
            partitions: self.queues.levels().cloned().collect(),
            ..StoreInspection::default()
        }
    }
}

// === impl MemoryBuilder ===

impl StoreBuilder for MemoryBuilder {
    fn build(&self, setup: &Setup) -> Result<StoreWithWorkers, BuildError> {
        let recorder = setup.recorder.as_ref();
        let (store, workers) =
            MemoryStore::recorded(&setup.memory, &setup.clock, &setup.metrics, recorder);
        let workers = workers.into_iter();
        let workers = workers.map(|worker| Box::pin(worker.run()) as Worker);
        Ok((Arc::new(store), workers.collect()))
    }
}
