//! Where buckets live, seen from outside: one call that asks and takes in the same step.
//!
//! Why one call: a store that hands out a count and takes back a sum lets another request in between. [`Store::apply`]
//! is a transition: the checks go in, the outcomes come out, and the buckets have changed.
//!
//! A new store is one folder and one line in [`BACKENDS`]; the one contract suite (`tests/store`) runs on it.
//!
//! What this deliberately does not do: see a rule. A [`Check`] carries its limit and algorithm by value.

pub mod memory;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::clock::Clock;
use crate::limiter::{Check, Outcome};
use crate::metrics::Metrics;

/// Until when an answer is of use, in the clock's uptime.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Deadline {
    uptime_us: u64,
}

/// Why a store did not decide. Nothing was taken.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// A mailbox is full. Waiting would only make it worse.
    #[error(
        "a partition's mailbox is full ({waiting_max} checks wait): the service gets more than it can decide; add replicas or raise --mailbox-checks-max"
    )]
    Overloaded {
        /// How many checks a mailbox holds.
        waiting_max: usize,
    },
    /// There is no room for another bucket.
    #[error(
        "a partition is full ({buckets_max} buckets): more keys are in use than there is room for; raise --buckets-max"
    )]
    Full {
        /// How many buckets a partition holds.
        buckets_max: usize,
    },
    /// The caller's deadline passed before the checks were decided.
    #[error("the caller's deadline passed before the decision")]
    DeadlineExceeded,
    /// The store is shutting down.
    #[error("the store has stopped")]
    Stopped,
}

/// What became of one check: one that has no outcome took nothing, whatever became of the others.
pub type Answer = Result<Outcome, StoreError>;

/// The answers of a [`Store::apply`] call to come.
pub type Applying<'s> = Pin<Box<dyn Future<Output = Result<Vec<Answer>, StoreError>> + Send + 's>>;

/// Keeps buckets.
pub trait Store: Send + Sync + 'static {
    /// Decides every check, in order, and gives one answer each. Two checks of one bucket see one another. An error
    /// means that no check was decided.
    fn apply(&self, checks: Vec<Check>, deadline: Deadline) -> Applying<'_>;
}

/// A task that must run for a store to answer. It ends when the store is dropped.
pub type Worker = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One kind of store.
#[derive(Debug)]
pub struct Backend {
    /// Its name in settings.
    pub name: &'static str,
    /// Makes the store and the workers that the caller must spawn.
    pub build: fn(&Setup) -> Built,
}

/// A store, and the workers that the caller must spawn.
pub type Built = (Arc<dyn Store>, Vec<Worker>);

/// What stores are made of.
pub struct Setup {
    /// The time, for stores that have none of their own.
    pub clock: Arc<dyn Clock>,
    /// Where to count.
    pub metrics: Arc<Metrics>,
    /// Bounds of the memory store.
    pub memory: memory::Bounds,
}

/// Every kind of store there is. The first is the default.
pub static BACKENDS: &[Backend] = &[Backend {
    name: "memory",
    build: |setup| {
        let (store, workers) =
            memory::MemoryStore::pair(&setup.memory, &setup.clock, &setup.metrics);
        let workers = workers
            .into_iter()
            .map(|worker| Box::pin(worker.run()) as Worker)
            .collect();
        (Arc::new(store), workers)
    },
}];

// === impl Deadline ===

impl Deadline {
    /// Never passes.
    pub const NEVER: Self = Self {
        uptime_us: u64::MAX,
    };

    /// Passes `within_us` microseconds from now.
    pub fn within_us(clock: &dyn Clock, within_us: u64) -> Self {
        Self {
            uptime_us: clock.uptime_us().saturating_add(within_us),
        }
    }

    /// Whether it has passed at this uptime.
    pub fn passed(self, uptime_us: u64) -> bool {
        uptime_us >= self.uptime_us
    }
}
