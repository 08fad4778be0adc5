//! The leased store: hits taken from a shared store in advance, and admitted here without asking it again.
//!
//! Why: one process then answers most checks in microseconds, and the shared store sees a fraction of them. What it costs
//! is fairness and lateness near the limit: hits that one replica holds no other can have, for as long as a lease is old at
//! most (`docs/shared-limits.md`).
//!
//! The promise: the shared store is debited before anything is admitted, so what all replicas admit is never more than it
//! granted. A fixed window's lease dies with its window. Of sliding windows and token buckets the promise holds over a span
//! longer by a lease's age. What else there is ([`tollgate_limiter::LeasePolicy::Never`]) is asked of the shared store, check by check.
//!
//! How: partitions, each with a worker that owns its leases; the way to them is `store/queue`. A check that a lease
//! answers never leaves its worker. Others of the same bucket wait together for one take.
//!
//! What it deliberately does not do: know what the shared store is, or decide when that one fails.

mod leases;
mod worker;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

pub use self::leases::LeaseLimits;
use self::leases::Leases;
pub use self::worker::LeaseWorker;
use crate::clock::Clock;
use crate::metrics::{Metrics, PartitionLevels};
use crate::store::queue::{Queue, QueueBatchClient, QueueLimits, Queues, Route};
use crate::store::{
    ApplyFuture, BatchClient, CommitMode, Deadline, DrainFuture, Store, StoreError, StoreHealth,
};
use tollgate_limiter::{BucketNaming, Check};

/// The store's handle.
pub struct LeasedStore {
    queues: Arc<Queues>,
    /// One a worker; what is sent there is dropped when the worker holds nothing.
    finish: Vec<mpsc::UnboundedSender<oneshot::Sender<()>>>,
    shared: Arc<dyn Store>,
}

// === impl LeasedStore ===

impl LeasedStore {
    /// A store that holds leases of `shared` in so many partitions, and the workers that own them. The caller spawns them;
    /// when the store is dropped they give back what they hold, and end.
    pub fn pair(
        shared: &Arc<dyn Store>,
        bounds: LeaseLimits,
        partitions: usize,
        queue_checks_max: usize,
        clock: &Arc<dyn Clock>,
        metrics: &Arc<Metrics>,
    ) -> (Self, Vec<LeaseWorker>) {
        let mut finish = Vec::new();
        let (queues, workers) = (0..partitions.max(1))
            .map(|_| {
                let (sender, receiver) = mpsc::unbounded_channel();
                let (drain, finishes) = mpsc::unbounded_channel();
                finish.push(drain);
                let levels = Arc::<PartitionLevels>::default();
                let queue = Queue {
                    sender,
                    levels: Arc::clone(&levels),
                };
                let worker = LeaseWorker::new(
                    Leases::new(bounds),
                    Arc::clone(shared),
                    (receiver, finishes),
                    levels,
                    Arc::clone(clock),
                    Arc::clone(metrics),
                );
                (queue, worker)
            })
            .unzip();
        let bounds = QueueLimits {
            waiting_max: queue_checks_max,
            batch_weight_max: usize::MAX,
            weigh: |_| 1,
            full: StoreError::Overloaded {
                waiting_max: queue_checks_max,
            },
            shed: metrics.buckets.shed_mailbox_full.clone(),
        };
        let store = Self {
            queues: Arc::new(Queues::new(queues, Route::ByKey, bounds)),
            finish,
            shared: Arc::clone(shared),
        };
        (store, workers)
    }
}

impl Store for LeasedStore {
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

    fn bucket_naming(&self) -> Option<BucketNaming> {
        self.shared.bucket_naming()
    }

    fn drain(&self) -> DrainFuture<'_> {
        Box::pin(async move {
            let drain: Vec<_> = self
                .finish
                .iter()
                .filter_map(|worker| {
                    let (done, finished) = oneshot::channel();
                    worker.send(done).ok()?;
                    Some(finished)
                })
                .collect();
            for finished in drain {
                // Dropped, not sent: either way it is done.
                let _ = finished.await;
            }
            self.shared.drain().await;
        })
    }

    fn health(&self) -> Option<StoreHealth> {
        self.shared.health()
    }
}
