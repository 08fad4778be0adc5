//! Where buckets live, seen from outside: one call that asks and takes in the same step.
//!
//! Why one call: a store that hands out a count and takes back a sum lets another request in between. [`Store::apply`]
//! is a transition: the checks go in, the outcomes come out, and the buckets have changed.
//!
//! Checks of a request that is all or nothing are taken tentatively ([`TentativeTake`]): who does not say that the request passed gives
//! back what was taken, even if it is never heard of again.
//!
//! A new store is one folder and one line in [`BACKENDS`]; the one contract suite (`tests/store`) runs on it.
//!
//! What this deliberately does not do: see a rule. A [`Check`] carries its limit and algorithm by value.

pub mod failover;
pub mod lease;
pub mod memory;
mod queue;
pub mod redis;
mod refund_queue;
mod store_error;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use crate::clock::Clock;
use crate::metrics::Metrics;
use tollgate_limiter::{Check, Hits, Operation, Outcome};

pub use self::store_error::StoreFault;

/// Until when an answer is of use, in the clock's uptime.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Deadline {
    uptime_us: u64,
}

/// Why a store did not decide. Nothing was taken, but where a shared store's fault says that it may have been.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum StoreError {
    /// A queue is full. Waiting would only make it worse.
    #[error(
        "a partition's mailbox is full ({waiting_max} checks wait): the service gets more than it can decide; add replicas or raise --mailbox-checks-max"
    )]
    Overloaded {
        /// How many checks a queue holds.
        waiting_max: usize,
    },
    /// There is no room for a bucket, nor for the one that keys without room share.
    #[error(
        "a partition is full ({bytes_max} bytes): more keys are over their limits than there is room for; raise --memory-max"
    )]
    Full {
        /// How many bytes a partition may take.
        bytes_max: usize,
    },
    /// The caller's deadline passed before the checks were decided.
    #[error("the caller's deadline passed before the decision")]
    DeadlineExceeded,
    /// The store is shutting down.
    #[error("the store has stopped")]
    Stopped,
    /// The store that replicas share is out of order. `--on-store-failure` says what that means.
    #[error("the shared store did not decide: {0}")]
    Unavailable(StoreFault),
}

/// What became of one check: one that has no outcome took nothing, whatever became of the others.
pub type CheckResult = Result<Outcome, StoreError>;

/// The answers of a [`Store::apply`] call, and what was taken tentatively.
#[derive(Debug)]
pub struct StoreReply {
    /// One a check, in the order asked.
    pub answers: Vec<CheckResult>,
    /// None when what is taken stays taken.
    pub tentative: Option<TentativeTake>,
}

/// What a [`Store::apply`] call will give.
pub type ApplyFuture<'s> =
    Pin<Box<dyn Future<Output = Result<StoreReply, StoreError>> + Send + 's>>;

/// Ends when a store holds nothing for requests to come.
pub type DrainFuture<'s> = Pin<Box<dyn Future<Output = ()> + Send + 's>>;

/// Whether what is taken stays taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CommitMode {
    /// It does, whatever becomes of the other checks and of the caller.
    Immediate,
    /// It goes back unless the caller says that the request passed ([`TentativeTake::commit`]).
    Tentative,
}

/// Keeps buckets.
pub trait Store: Send + Sync + 'static {
    /// Decides every check, in order, and gives one answer each. Two checks of one bucket see one another. An error
    /// means that no check was decided. On tentative, whatever was taken and has no [`TentativeTake`] that speaks for it goes back,
    /// also when this future is dropped half-way.
    fn apply(
        &self,
        checks: Vec<Check>,
        deadline: Deadline,
        commit_mode: CommitMode,
    ) -> ApplyFuture<'_>;

    /// A way for one task to ask for many requests at once; none where that is no better than [`Store::apply`].
    fn batch_client(&self) -> Option<Box<dyn BatchClient>> {
        None
    }

    /// Whether it goes on with counters of Envoy's reference service, and so wants their names
    /// ([`tollgate_limiter::Plan::set_reference_keys`]).
    fn wants_reference_keys(&self) -> bool {
        false
    }

    /// Gives back what it holds for requests to come, when none will. Whoever asks afterwards is answered all the same.
    fn drain(&self) -> DrainFuture<'_> {
        Box::pin(std::future::ready(()))
    }

    /// How it is, in a sentence; none where there is nothing that can be otherwise.
    fn health(&self) -> Option<StoreHealth> {
        None
    }
}

/// How a store is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreHealth {
    /// Whether it decides.
    pub healthy: bool,
    /// In words, for people.
    pub message: String,
}

/// What a request is known by while a store has its checks. Whoever asks chooses it.
pub type Ticket = u32;

/// Asks for many requests at once, on behalf of one task. What [`Store::apply`] promises of a request holds here too.
pub trait BatchClient {
    /// Adds a request's checks to what the next [`BatchClient::send`] asks. Gives in how many shares its answers will come.
    ///
    /// # Errors
    ///
    /// When there is no room; nothing of this request is asked then.
    fn add(
        &mut self,
        ticket: Ticket,
        checks: &[Check],
        deadline: Deadline,
        commit_mode: CommitMode,
    ) -> Result<usize, StoreError>;

    /// Asks all that was added since the last time.
    fn send(&mut self);

    /// Hands what was answered to `take`, share by share, and says in how many messages it came. Whoever asks is woken when
    /// there is more.
    fn take_replies(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(PartialReply<'_>),
    ) -> usize;
}

/// Some answers of one request, or all of them.
#[derive(Debug)]
pub struct PartialReply<'b> {
    /// Whose.
    pub ticket: Ticket,
    /// Where each stands among the request's checks.
    pub positions: &'b [usize],
    /// One a position.
    pub answers: &'b [CheckResult],
    /// What was taken tentatively.
    pub tentative: Option<TentativeTake>,
}

/// Carries out what goes back. It always does: a bound here would leave hits taken that nobody has.
pub trait RefundSink: Send + Sync {
    /// Gives back what these checks say, each a [`Hits::Undo`]. Does not wait.
    fn refund(&self, checks: Vec<Check>);
}

/// Hits taken tentatively. Dropped, they go back.
pub struct TentativeTake {
    /// What gives each take back.
    refunds: Vec<Check>,
    store: Arc<dyn RefundSink>,
    /// What was taken in another store, where two decided one request.
    other: Option<Box<TentativeTake>>,
}

/// A task that must run for a store to answer. It ends when the store is dropped.
pub type Worker = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One kind of store.
#[derive(Debug)]
pub struct Backend {
    /// Its name in settings.
    pub name: &'static str,
    /// Makes the store and the workers that the caller must spawn.
    pub build: fn(&Setup) -> Result<StoreWithWorkers, BuildError>,
}

/// Why a store cannot be built, in a sentence.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct BuildError(pub String);

/// A store, and the workers that the caller must spawn.
pub type StoreWithWorkers = (Arc<dyn Store>, Vec<Worker>);

/// What stores are made of.
pub struct Setup {
    /// The time, for stores that have none of their own.
    pub clock: Arc<dyn Clock>,
    /// Where to count.
    pub metrics: Arc<Metrics>,
    /// Bounds of the memory store.
    pub memory: memory::MemoryLimits,
    /// Where the Redis store is, if there is one.
    pub redis: Option<redis::RedisSetup>,
}

/// Every kind of store there is. The first is the default.
pub static BACKENDS: &[Backend] = &[
    Backend {
        name: "memory",
        build: |setup| {
            let (store, workers) =
                memory::MemoryStore::pair(&setup.memory, &setup.clock, &setup.metrics);
            let workers = workers
                .into_iter()
                .map(|worker| Box::pin(worker.run()) as Worker)
                .collect();
            Ok((Arc::new(store), workers))
        },
    },
    Backend {
        name: "redis",
        build: |setup| {
            let redis = setup.redis.as_ref();
            let redis =
                redis.ok_or_else(|| BuildError("nothing says where Redis is".to_owned()))?;
            let (store, workers) = redis::RedisStore::build(setup, redis)?;
            Ok((Arc::new(store), workers))
        },
    },
];

/// The kind of store of that name.
pub fn backend(name: &str) -> Option<&'static Backend> {
    BACKENDS.iter().find(|backend| backend.name == name)
}

// === impl TentativeTake ===

impl TentativeTake {
    /// What these checks took, going by their answers.
    pub fn new<'c>(
        store: Arc<dyn RefundSink>,
        decided: impl IntoIterator<Item = (&'c Check, &'c CheckResult)>,
    ) -> Self {
        let refunds = decided.into_iter().filter_map(|(check, answer)| {
            let Ok(outcome) = answer else {
                return None;
            };
            match check.operation.hits {
                // What was refused and counted stays counted.
                Hits::Take(hits) if hits > 0 && outcome.allowed => Some(Check {
                    operation: Operation {
                        hits: Hits::Undo {
                            hits,
                            taken_at: outcome.bucket_time,
                        },
                        ..check.operation
                    },
                    ..check.clone()
                }),
                _ => None,
            }
        });
        Self {
            refunds: refunds.collect(),
            store,
            other: None,
        }
    }

    /// The request passed: what was taken stays taken.
    pub fn commit(mut self) {
        self.refunds.clear();
        if let Some(other) = self.other.take() {
            other.commit();
        }
    }

    /// The request was refused: what was taken goes back, but for limits that count all that was refused.
    pub fn roll_back(mut self) {
        self.refunds.retain(|check| !check.keeps_refused_hits());
        if let Some(other) = self.other.take() {
            other.roll_back();
        }
    }

    /// Puts another share's to what there is.
    pub fn merge(tentative: &mut Option<Self>, more: Option<Self>) {
        match (tentative, more) {
            (Some(tentative), Some(more)) => tentative.append(more),
            (none @ None, more) => *none = more,
            (Some(_), None) => {}
        }
    }

    fn append(&mut self, mut share: Self) {
        if Arc::ptr_eq(&self.store, &share.store) {
            self.refunds.append(&mut share.refunds);
            if let Some(other) = share.other.take() {
                self.append(*other);
            }
        } else {
            match &mut self.other {
                Some(other) => other.append(share),
                none @ None => *none = Some(Box::new(share)),
            }
        }
    }
}

impl Drop for TentativeTake {
    fn drop(&mut self) {
        if !self.refunds.is_empty() {
            self.store.refund(std::mem::take(&mut self.refunds));
        }
    }
}

impl fmt::Debug for TentativeTake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TentativeTake")
            .field(&self.refunds)
            .field(&self.other)
            .finish()
    }
}

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

    /// Passes at this uptime.
    pub const fn at_uptime_us(uptime_us: u64) -> Self {
        Self { uptime_us }
    }

    /// Whether it has passed at this uptime.
    pub fn passed(self, uptime_us: u64) -> bool {
        uptime_us >= self.uptime_us
    }
}
