//! The interface of a store: checks go in, outcomes come out, and the buckets have changed.
//!
//! Why one call: between a read and a later write, another request could take the same hits.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::shared::{RateLeases, SharedRecords};
use crate::{CheckResult, StoreError, TentativeTake};
use tollgate_limiter::{BucketNaming, Check, Timestamp};
use tollgate_system::clock::Clock;
use tollgate_telemetry::metrics::PartitionLevels;

/// When a result is no longer of use, in the clock's uptime.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Deadline {
    uptime_us: u64,
}

/// What becomes of the checks of a request.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Purpose {
    /// They are decided. Takes are final, whatever the other checks and the caller do.
    #[default]
    Decide,
    /// They are decided. Takes go back unless the caller commits them ([`TentativeTake::commit`]).
    DecideTentatively,
    /// Hits are taken, as many of those asked for as a fixed window has left; denied where it has
    /// none. What [`remaining`](tollgate_limiter::Outcome::remaining) and
    /// [`used_before`](tollgate_limiter::Outcome::used_before) leave of the limit were taken. A
    /// store that cannot do it denies where fewer are left than asked for, as other algorithms do.
    TakeUpTo,
    /// Hits are taken from the window that follows the present one, and may be used from its
    /// beginning. Granted are as many as asked for, and at most a quarter of what that window has
    /// left: what [`remaining`](tollgate_limiter::Outcome::remaining) and
    /// [`used_before`](tollgate_limiter::Outcome::used_before), which are that window's, leave of
    /// the limit. It is denied by a store that cannot do it, and where the algorithm is not
    /// `fixed_window`, or the bucket has reservations or a penalty.
    TakeAhead,
    /// Their buckets are forgotten, in this process and in the shared store, with what is held of
    /// them in advance (leases) or remembered about them (denials). The hits of the checks do not
    /// matter. [`Outcome::used_before`](tollgate_limiter::Outcome::used_before) is above 0 where
    /// hits counted in the bucket.
    ///
    /// What is given back afterwards but was taken before is dropped. Leases and denials that other
    /// processes hold end within their own bounds. A key without a bucket of its own, for lack of
    /// memory, keeps what is counted in the bucket that such keys share.
    ///
    /// An error means that some buckets may be forgotten and others not, and that it is safe to
    /// reset again. Whether the failed call was carried out may be unknown
    /// ([`StoreFault::outcome_unknown`](crate::StoreFault::outcome_unknown)).
    Reset,
}

impl Purpose {
    /// Whether the checks are decided by the present state of their buckets.
    pub fn decides(self) -> bool {
        matches!(
            self,
            Self::Decide | Self::DecideTentatively | Self::TakeUpTo
        )
    }
}

/// The results of a [`Store::ask`] call.
#[derive(Debug)]
pub struct StoreReply {
    /// One per check, in the order of the checks.
    pub answers: Vec<CheckResult>,
    /// What was taken tentatively; none unless that was the purpose.
    pub tentative: Option<TentativeTake>,
    /// Whether the denial cache answered, and not the store itself.
    pub from_denial_cache: bool,
    /// The positions of checks that the fallback decided.
    pub local: Vec<usize>,
    /// When each check was decided, while a recording runs. Empty where no partition says it.
    pub stamps: Vec<CheckStamp>,
}

/// The future of a [`Store::ask`] call.
pub type AskFuture<'s> = Pin<Box<dyn Future<Output = Result<StoreReply, StoreError>> + Send + 's>>;

/// The future of a [`Store::drain`] call.
pub type DrainFuture<'s> = Pin<Box<dyn Future<Output = ()> + Send + 's>>;

/// Keeps buckets and decides checks.
pub trait Store: Send + Sync + 'static {
    /// The one way to ask the store: a client that lets a task send many requests at once.
    fn batch_client(&self) -> Box<dyn BatchClient>;

    /// Asks about one request, by a client of its own: for callers that ask now and then. An error
    /// means that no check was decided. Takes without a live [`TentativeTake`] go back, also when
    /// this future is dropped before it is ready.
    fn ask(&self, checks: Vec<Check>, deadline: Deadline, purpose: Purpose) -> AskFuture<'_> {
        let client = self.batch_client();
        Box::pin(ask(client, checks, deadline, purpose))
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

    /// Leases of rates that replicas share. None where no other replica uses the store.
    fn rate_leases(&self) -> Option<Arc<dyn RateLeases>> {
        None
    }

    /// Records that replicas share. None where no other replica uses the store.
    fn shared_records(&self) -> Option<Arc<dyn SharedRecords>> {
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
    /// Where it is, without passwords.
    pub address: String,
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

/// Sends many requests at once on behalf of one task.
pub trait BatchClient: Send {
    /// Adds a request's checks to the next [`BatchClient::send`]. Returns the number of replies
    /// that the request will get. Every check is decided, with one result each. Two checks of one
    /// bucket see each other's takes. Takes without a live [`TentativeTake`] go back, also when
    /// the client is dropped before it took the reply.
    ///
    /// # Errors
    ///
    /// When a queue is full. No check of this request is sent then.
    fn add(
        &mut self,
        ticket: Ticket,
        checks: &[Check],
        deadline: Deadline,
        purpose: Purpose,
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

/// Requests that are decided by a future of their own, beside a batch: those that are not ready.
#[derive(Default)]
pub struct RequestsApart(Vec<RequestApart>);

struct RequestApart {
    ticket: Ticket,
    checks: usize,
    reply: AskFuture<'static>,
}

/// A recording of what partitions do. `capture` implements it, so that stores need not know it.
pub trait PartitionRecorder: fmt::Debug + Send + Sync {
    /// Whether a recording runs.
    fn is_running(&self) -> bool;

    /// Takes numbers for this many checks and returns the first.
    fn take_orders(&self, checks: usize) -> u64;

    /// What one partition writes refunds with.
    fn refunds(self: Arc<Self>) -> Box<dyn RefundRecorder>;
}

/// Writes the refunds of one partition.
pub trait RefundRecorder: fmt::Debug + Send {
    /// Hits are about to be given back that the checks of these numbers took.
    fn refund(&mut self, at: Timestamp, taken: &[u64]);
}

/// When the checks of one request in one batch were decided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BatchStamp {
    /// The number of the first check. The others follow it.
    pub order: u64,
    /// The time at which all of them were decided.
    pub at: Timestamp,
    /// Whether each was decided by its own bucket. False when one had no memory.
    pub by_own_buckets: bool,
}

/// When one check was decided.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CheckStamp {
    /// Its number; 0 when no partition worker decided it.
    pub order: u64,
    /// The time at which it was decided.
    pub at: Timestamp,
    /// Whether its own bucket decided it.
    pub by_own_bucket: bool,
}

/// A task that must run for a store to answer. It ends when the store is dropped.
pub type Worker = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Asks about one request with a client that has no other.
pub async fn ask(
    mut client: Box<dyn BatchClient>,
    checks: Vec<Check>,
    deadline: Deadline,
    purpose: Purpose,
) -> Result<StoreReply, StoreError> {
    let count = checks.len();
    let mut replies_due = client.add(0, &checks, deadline, purpose)?;
    client.send();
    let mut reply = StoreReply::undecided(count, &StoreError::Stopped);
    poll_fn(|cx| {
        client.take_replies(cx, &mut |part| {
            replies_due = replies_due.saturating_sub(1);
            reply.add(part);
        });
        if replies_due == 0 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    reply.or_error()
}

/// Puts the stamps of a batch's checks at their positions among the `count` checks of their
/// request.
pub fn put_stamps(
    stamps: &mut Vec<CheckStamp>,
    count: usize,
    positions: &[usize],
    stamp: &BatchStamp,
) {
    if stamps.len() < count {
        stamps.resize(count, CheckStamp::default());
    }
    for (place, position) in positions.iter().enumerate() {
        if let Some(check) = stamps.get_mut(*position) {
            *check = stamp.of_check(place);
        }
    }
}

// === impl StoreReply ===

impl StoreReply {
    /// The reply to so many checks, of which none was decided.
    pub fn undecided(count: usize, error: &StoreError) -> Self {
        Self {
            answers: vec![Err(error.clone()); count],
            tentative: None,
            from_denial_cache: false,
            local: Vec::new(),
            stamps: Vec::new(),
        }
    }

    /// Puts in the result of one check.
    pub fn put(&mut self, position: usize, answer: CheckResult) {
        if let Some(slot) = self.answers.get_mut(position) {
            *slot = answer;
        }
    }

    fn add(&mut self, part: PartialReply<'_>) {
        for (position, answer) in part.positions.iter().zip(part.answers) {
            self.put(*position, answer.clone());
        }
        TentativeTake::merge(&mut self.tentative, part.tentative);
        self.from_denial_cache |= part.from_denial_cache;
        self.local.extend_from_slice(part.local);
        if let Some(stamp) = part.stamp {
            put_stamps(&mut self.stamps, self.answers.len(), part.positions, &stamp);
        }
    }

    /// The error of all checks, if no check was decided.
    fn or_error(self) -> Result<Self, StoreError> {
        let not_looked_at = |answer: &CheckResult| {
            matches!(
                answer,
                Err(StoreError::DeadlineExceeded
                    | StoreError::Stopped
                    | StoreError::Unavailable(_))
            )
        };
        match self.answers.first() {
            Some(Err(error)) if self.answers.iter().all(not_looked_at) => Err(error.clone()),
            _ => Ok(self),
        }
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

    /// The time until it, at this uptime; none where it never passes.
    pub fn us_left(self, uptime_us: u64) -> Option<u64> {
        (self != Self::NEVER).then(|| self.uptime_us.saturating_sub(uptime_us))
    }
}

impl Default for Deadline {
    fn default() -> Self {
        Self::NEVER
    }
}

// === impl BatchStamp ===

impl BatchStamp {
    /// The stamp of the check with this place among the checks of the request in the batch.
    pub(crate) fn of_check(&self, place: usize) -> CheckStamp {
        CheckStamp {
            order: self.order.saturating_add(place as u64),
            at: self.at,
            by_own_bucket: self.by_own_buckets,
        }
    }
}

// === impl RequestsApart ===

impl RequestsApart {
    /// Adds a request of so many checks, which gets one reply: when this future is ready.
    pub fn push(&mut self, ticket: Ticket, checks: usize, reply: AskFuture<'static>) {
        self.0.push(RequestApart {
            ticket,
            checks,
            reply,
        });
    }

    /// Passes the replies that are ready to `take`. Returns how many.
    pub fn take_replies(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(PartialReply<'_>),
    ) -> usize {
        let before = self.0.len();
        self.0.retain_mut(|request| {
            let Poll::Ready(reply) = request.reply.as_mut().poll(cx) else {
                return true;
            };
            let positions: Vec<usize> = (0..request.checks).collect();
            let reply = reply.unwrap_or_else(|error| StoreReply::undecided(request.checks, &error));
            take(PartialReply {
                ticket: request.ticket,
                positions: &positions,
                answers: &reply.answers,
                tentative: reply.tentative,
                from_denial_cache: reply.from_denial_cache,
                local: &reply.local,
                stamp: None,
            });
            false
        });
        before - self.0.len()
    }
}
