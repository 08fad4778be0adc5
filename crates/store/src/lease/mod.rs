//! The leased store: takes hits from a shared store in advance and admits them without asking it
//! again.
//!
//! One process then answers most checks in microseconds, and the shared store sees a fraction of
//! them. The cost is fairness and delay near the limit: no other replica can use hits that one
//! replica holds, for at most a lease's age (`docs/shared-limits.md`).
//!
//! The shared store is debited before anything is admitted, so all replicas together never admit
//! more than it granted. A lease of a fixed window ends with the window. For sliding windows and
//! token buckets the promise holds over a span that is longer by a lease's age. Algorithms without
//! leases ([`tollgate_limiter::LeasePolicy::Never`]) ask the shared store for every check.
//!
//! Each partition has a worker that owns its leases; checks reach it by `store/queue`. A check that
//! a lease answers never leaves its worker. Other checks of the same bucket wait together for one
//! take.

mod leases;
mod worker;

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use self::leases::Leases;
pub use self::leases::{AHEAD_SHARE, LeaseLimits};
pub use self::worker::LeaseWorker;
use crate::queue::{Queue, QueueBatchClient, QueueLimits, Queues, Route};
use crate::shared::{RateLeases, SharedRecords};
use crate::{BatchClient, DrainFuture, Store, StoreHealth, StoreInspection};
use tollgate_limiter::BucketNaming;
use tollgate_system::clock::Clock;
use tollgate_telemetry::metrics::{Metrics, Part, PartitionLevels};

/// The leased store.
pub struct LeasedStore {
    queues: Arc<Queues>,
    /// One per worker. A worker drops the sender that it receives here when it holds no hits.
    drains: Vec<mpsc::UnboundedSender<oneshot::Sender<()>>>,
    shared: Arc<dyn Store>,
}

// === impl LeasedStore ===

impl LeasedStore {
    /// A store with leases of `shared` in this many partitions, and the workers that own them. The
    /// caller spawns them. When the store is dropped they give back what they hold, and end.
    pub fn pair(
        shared: &Arc<dyn Store>,
        bounds: LeaseLimits,
        partitions: usize,
        queue_checks_max: usize,
        clock: &Arc<dyn Clock>,
        metrics: &Arc<Metrics>,
    ) -> (Self, Vec<LeaseWorker>) {
        metrics.show(Part::Leases);
        let mut drains = Vec::new();
        let (queues, workers) = (0..partitions.max(1))
            .map(|_| {
                let (sender, receiver) = mpsc::unbounded_channel();
                let (drain, drain_requests) = mpsc::unbounded_channel();
                drains.push(drain);
                let levels = Arc::<PartitionLevels>::default();
                let queue = Queue {
                    sender,
                    levels: Arc::clone(&levels),
                    inline: None,
                };
                let worker = LeaseWorker::new(
                    Leases::new(bounds),
                    Arc::clone(shared),
                    receiver,
                    drain_requests,
                    levels,
                    Arc::clone(clock),
                    Arc::clone(metrics),
                );
                (queue, worker)
            })
            .unzip();
        let bounds = QueueLimits::of_partitions(queue_checks_max, metrics);
        let store = Self {
            queues: Arc::new(Queues::new(queues, Route::ByKey, bounds)),
            drains,
            shared: Arc::clone(shared),
        };
        (store, workers)
    }
}

impl Store for LeasedStore {
    fn batch_client(&self) -> Box<dyn BatchClient> {
        Box::new(QueueBatchClient::new(Arc::clone(&self.queues)))
    }

    fn bucket_naming(&self) -> Option<BucketNaming> {
        self.shared.bucket_naming()
    }

    fn drain(&self) -> DrainFuture<'_> {
        Box::pin(async move {
            let started = self.drains.iter().filter_map(|worker| {
                let (done, drained) = oneshot::channel();
                worker.send(done).ok()?;
                Some(drained)
            });
            for drained in started.collect::<Vec<_>>() {
                // The worker drops the sender and does not send: either way it is done.
                let _ = drained.await;
            }
            self.shared.drain().await;
        })
    }

    fn rate_leases(&self) -> Option<Arc<dyn RateLeases>> {
        self.shared.rate_leases()
    }

    fn shared_records(&self) -> Option<Arc<dyn SharedRecords>> {
        self.shared.shared_records()
    }

    fn health(&self) -> Option<StoreHealth> {
        self.shared.health()
    }

    fn inspect(&self) -> StoreInspection {
        StoreInspection {
            is_leased: true,
            partitions: self.queues.levels().cloned().collect(),
            ..self.shared.inspect()
        }
    }
}
