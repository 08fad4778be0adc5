//! The memory store: every bucket in this process, in partitions that each have one owner.
//!
//! Why partitions: a table that one task owns needs no lock, and a decision in it cannot be interrupted by another. How:
//! the upper half of a key's keyed hash picks the partition; the check goes into that partition's mailbox; its worker
//! answers. A request whose checks lie in several partitions sends each its share and waits for all.
//!
//! What was taken on trial (`Trial`) goes back as a message of its own, which no bound refuses: there is never more of it
//! than was let in. It lies in wait wherever an answer may be lost: with the caller, in the reply's channel, in the worker.
//!
//! What it deliberately does not do: survive a restart, share with other processes, queue past a full mailbox.

mod bucket;
mod eviction;
mod marks_table;
mod partition;
mod table;
mod worker;

use std::sync::Arc;

use tokio::sync::mpsc;

use self::partition::Partition;
pub use self::worker::PartitionWorker;
use super::queue::{self as mailbox, Mailbox, MailboxAsking, Mailboxes, Route};
use super::{Applying, Asking, Deadline, Store, StoreError, Terms};
use crate::clock::Clock;
use crate::metrics::Metrics;
use tollgate_limiter::Check;

/// The memory store's bounds.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many partitions; at least 1.
    pub partitions: usize,
    /// How many checks may wait in one partition's mailbox.
    pub mailbox_checks_max: usize,
    /// How many bytes buckets, marks (logged hits, segments, slots) and all that they need to grow may take together.
    pub memory_max: usize,
    /// What becomes of new keys when there is no room and nothing may be forgotten.
    pub when_full: WhenFull,
}

/// What becomes of a check for whose bucket there is no room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WhenFull {
    /// It is counted in a bucket that all such keys of its rule share, one a partition.
    Share,
    /// It passes and is not counted.
    Allow,
    /// It is refused.
    Deny,
    /// It is not decided.
    Error,
}

/// What a partition did for want of room, and for good order.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Buckets that were as good as new.
    freed: u64,
    /// Buckets that were not, but not exhausted either.
    forgotten: u64,
    /// Checks without room, by what became of them.
    shared: u64,
    allowed: u64,
    denied: u64,
}

/// The store's handle: where each partition's mailbox is.
#[derive(Debug)]
pub struct MemoryStore {
    mailboxes: Arc<Mailboxes>,
}

// === impl MemoryStore ===

impl MemoryStore {
    /// A store and the workers that own its partitions. The caller spawns them; they end when the store is dropped.
    pub fn pair(
        bounds: &Bounds,
        clock: &Arc<dyn Clock>,
        metrics: &Arc<Metrics>,
    ) -> (Self, Vec<PartitionWorker>) {
        let partitions = bounds.partitions.max(1);
        let bytes_max = bounds.memory_max / partitions;
        metrics
            .buckets
            .memory_max_bytes
            .set(i64::try_from(bounds.memory_max).unwrap_or(i64::MAX));
        let (mailboxes, workers) = (0..partitions)
            .map(|number| {
                let (sender, receiver) = mpsc::unbounded_channel();
                let levels = metrics.partition_levels(number);
                let mailbox = Mailbox {
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
                (mailbox, worker)
            })
            .unzip();
        let bounds = mailbox::Bounds {
            waiting_max: bounds.mailbox_checks_max,
            batch_weight_max: usize::MAX,
            weigh: |_| 1,
            full: StoreError::Overloaded {
                waiting_max: bounds.mailbox_checks_max,
            },
            shed: metrics.buckets.shed_mailbox_full.clone(),
        };
        let store = Self {
            mailboxes: Arc::new(Mailboxes::new(mailboxes, Route::ByKey, bounds)),
        };
        (store, workers)
    }
}

impl Store for MemoryStore {
    fn apply(&self, checks: Vec<Check>, deadline: Deadline, terms: Terms) -> Applying<'_> {
        Box::pin(self.mailboxes.apply(checks, deadline, terms))
    }

    fn asking(&self) -> Option<Box<dyn Asking>> {
        Some(Box::new(MailboxAsking::new(Arc::clone(&self.mailboxes))))
    }
}
