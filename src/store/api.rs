//! The interface of a store: checks go in, outcomes come out, and the buckets have changed.
//!
//! Why one call: between a read and a later write, another request could take the same hits.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;

use crate::capture::{BatchStamp, CheckStamp};
use crate::clock::Clock;
use crate::metrics::PartitionLevels;
use crate::store::rate_leases::RateLeases;
use crate::store::{CheckResult, StoreError, TentativeTake};
use tollgate_limiter::{BucketNaming, Check};

/// When a result is no longer of use, in the clock's uptime.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Deadline {
    uptime_us: u64,
}

/// The results of a [`Store::apply`] call.
#[derive(Debug)]
pub struct StoreReply {
    /// One per check, in the order of the checks.
    pub answers: Vec<CheckResult>,
    /// What was taken tentatively; none with [`CommitMode::Immediate`].
    pub tentative: Option<TentativeTake>,
    /// Whether the denial cache answered, and not the store itself.
    pub from_denial_cache: bool,
    /// The positions of checks that the fallback decided.
    pub local: Vec<usize>,
    /// When each check was decided, while a recording runs. Empty where no partition says it.
    pub stamps: Vec<CheckStamp>,
}

/// The future of a [`Store::apply`] call.
pub type ApplyFuture<'s> =
    Pin<Box<dyn Future<Output = Result<StoreReply, StoreError>> + Send + 's>>;

/// The future of a [`Store::drain`] call.
pub type DrainFuture<'s> = Pin<Box<dyn Future<Output = ()> + Send + 's>>;

/// The future of a [`Store::reset`] call.
pub type ResetFuture<'s> = Pin<Box<dyn Future<Output = Result<Vec<bool>, StoreError>> + Send + 's>>;

/// The future of a [`Store::reset_stamped`] call.
pub type StampedResetFuture<'s> =
    Pin<Box<dyn Future<Output = Result<BucketsReset, StoreError>> + Send + 's>>;

/// The results of a [`Store::reset_stamped`] call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BucketsReset {
    /// For each check whether hits counted in its bucket.
    pub existed: Vec<bool>,
    /// When each bucket was forgotten, while a recording runs. Empty where no partition says it.
    pub stamps: Vec<CheckStamp>,
}

/// Whether takes are final.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CommitMode {
    /// Takes are final, whatever the other checks and the caller do.
    Immediate,
    /// Takes are given back unless the caller commits them ([`TentativeTake::commit`]).
    Tentative,
}

/// Keeps buckets and decides checks.
pub trait Store: Send + Sync + 'static {
    /// Decides every check, in order, with one result each. Two checks of one bucket see each
    /// other's takes. An error means that no check was decided. In tentative mode, takes without a
    /// live [`TentativeTake`] are given back, also when this future is dropped before it is ready.
    fn apply(
        &self,
        checks: Vec<Check>,
        deadline: Deadline,
        commit_mode: CommitMode,
    ) -> ApplyFuture<'_>;

    /// A client that lets one task send many requests at once. None where [`Store::apply`] is as
    /// good.
    fn batch_client(&self) -> Option<Box<dyn BatchClient>> {
        None
    }

    /// Names buckets as another service does, where the store continues the buckets of that
    /// service; else none.
    fn bucket_naming(&self) -> Option<BucketNaming> {
        None
    }

    /// Gives back hits that were taken in advance, before the process stops. Checks that come later
    /// are still decided.
    fn drain(&self) -> DrainFuture<'_> {
        Box::pin(std::future::ready(()))
    }

    /// Forgets the buckets of these checks, in this process and in the shared store, with what is
    /// held of them in advance (leases) or remembered about them (denials). The hits of the checks
    /// do not matter. Returns for each check whether hits counted in its bucket.
    ///
    /// What is given back afterwards but was taken before is dropped. Leases and denials that other
    /// processes hold end within their own bounds. A key without a bucket of its own, for lack of
    /// memory, keeps what is counted in the bucket that such keys share.
    ///
    /// An error means that some buckets may be forgotten and others not, and that it is safe to
    /// reset again. Whether the failed call was carried out may be unknown
    /// ([`StoreFault::outcome_unknown`](crate::store::StoreFault::outcome_unknown)).
    fn reset(&self, checks: Vec<Check>) -> ResetFuture<'_>;

    /// The same, with what a recording needs.
    fn reset_stamped(&self, checks: Vec<Check>) -> StampedResetFuture<'_> {
        Box::pin(async move {
            Ok(BucketsReset {
                existed: self.reset(checks).await?,
                stamps: Vec::new(),
            })
        })
    }

    /// Leases of rates that replicas share. None where no other replica uses the store.
    fn rate_leases(&self) -> Option<Arc<dyn RateLeases>> {
        None
    }

    /// Whether the store decides. None where it always does.
    fn health(&self) -> Option<StoreHealth> {
        None
    }

    /// What the store is made of, for people.
    fn inspect(&self) -> StoreInspection {
        StoreInspection::default()
    }
}

/// What a store is made of.
#[derive(Clone, Debug, Default)]
pub struct StoreInspection {
    /// The name of the backend.
    pub kind: &'static str,
    /// Whether this process takes hits from a shared store in advance.
    pub is_leased: bool,
    /// The partitions of this process that decide.
    pub partitions: Vec<Arc<PartitionLevels>>,
    /// The servers of a shared store.
    pub nodes: Vec<StoreNode>,
    /// Keys in the denial cache of a shared store.
    pub denied_keys: Option<usize>,
}

/// One server of a shared store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreNode {
    /// Its address, without a password.
    pub address: String,
    /// Whether it answers.
    pub healthy: bool,
    /// Checks that wait for it.
    pub queue_checks: usize,
}

/// The state of a store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoreHealth {
    /// Whether it decides.
    pub healthy: bool,
    /// Whether it has been in use since the start, at least in part.
    pub start: StoreStart,
    /// A sentence for people.
    pub message: String,
}

/// Whether a store has been in use since the start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreStart {
    /// Not all of its servers are reached, and none has failed.
    Connecting,
    /// A server has failed, and none was reached.
    Failed,
    /// It was in use, whatever its state is now: checks were decided by all servers, or by some
    /// when others had failed.
    Used,
}

/// Identifies a request while a store has its checks. The caller chooses it.
pub type Ticket = u32;

/// Sends many requests at once on behalf of one task. The promises of [`Store::apply`] hold here
/// too.
pub trait BatchClient {
    /// Adds a request's checks to the next [`BatchClient::send`]. Returns the number of replies
    /// that the request will get.
    ///
    /// # Errors
    ///
    /// When a queue is full. No check of this request is sent then.
    fn add(
        &mut self,
        ticket: Ticket,
        checks: &[Check],
        deadline: Deadline,
        commit_mode: CommitMode,
    ) -> Result<usize, StoreError>;

    /// Sends what was added since the last call.
    fn send(&mut self);

    /// Passes the replies that have arrived to `take` and returns in how many messages they came.
    /// The task is woken when there are more.
    fn take_replies(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(PartialReply<'_>),
    ) -> usize;
}

/// Results of some or all checks of one request.
#[derive(Debug)]
pub struct PartialReply<'b> {
    /// The request.
    pub ticket: Ticket,
    /// The positions of the checks in the request.
    pub positions: &'b [usize],
    /// One per position.
    pub answers: &'b [CheckResult],
    /// What these checks took tentatively.
    pub tentative: Option<TentativeTake>,
    /// Whether the denial cache answered, and not the store itself.
    pub from_denial_cache: bool,
    /// The positions of checks that the fallback decided.
    pub local: &'b [usize],
    /// When these checks were decided, while a recording runs and a partition says it.
    pub stamp: Option<BatchStamp>,
}

/// A task that must run for a store to answer. It ends when the store is dropped.
pub type Worker = Pin<Box<dyn Future<Output = ()> + Send>>;

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

    /// The time until it, at this uptime; none where it never passes.
    pub fn us_left(self, uptime_us: u64) -> Option<u64> {
        (self != Self::NEVER).then(|| self.uptime_us.saturating_sub(uptime_us))
    }
}
