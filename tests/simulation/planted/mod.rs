//! Planted bugs: the default seeds must find each one, by every law listed for it.
//!
//! Thousands of passing seeds do not show that a bug would be found. A planted bug wraps the real
//! store or the service, or changes their input; everything else is the real code. Most are
//! plausible mistakes in a store. Replay one with `BUG=name SEED=… cargo test --test simulation --
//! replay --nocapture`.
//!
//! | bug | found by |
//! | --- | --- |
//! | **deciding** (`deciding`) | |
//! | checks the limit first and takes later, in two steps | DecidedOnce, FaithfulReplies, Promise |
//! | retries a slow call of the store, and hits are applied twice | DecidedOnce, Recount |
//! | reads the clock at the send, not at the decision | Recount |
//! | ignores the deadline of a request, and takes its hits after it | BeforeDeadline |
//! | decides after the caller has left | NotAfterLeave |
//! | a reload changes the limit of a check in flight | Recount |
//! | a reload resets a bucket | Recount, Promise |
//! | one bucket is in two partitions | Recount, Promise |
//! | a sweep frees a bucket that is in use | Recount, Promise |
//! | takes instead of refunding | Recount |
//! | **answering** (`answering`) | |
//! | replies in another order than the checks | FaithfulReplies |
//! | replies check by check, and a share that fails loses the replies of the others | FaithfulReplies |
//! | passes checks that found no memory | FaithfulReplies |
//! | loses the wake-up of a reply | RequestResult |
//! | statuses in another order than the descriptors | Statuses |
//! | a request of several descriptors sees two generations of rules | OneGeneration, Statuses |
//! | shadow mode is enforced | Statuses |
//! | **capacity** (`capacity`) | |
//! | a shed request leaves part of its shares sent | FaithfulReplies |
//! | queue slots are not released when a caller leaves | Capacity |
//! | a mailbox holds one check more than it may | Capacity |
//! | a mailbox holds one check less than it may | Capacity |
//! | buckets are evicted below the memory limit | Recount, Capacity, Promise |
//! | a sent check is lost | Accounted |
//! | **all or nothing** (`all_or_nothing`) | |
//! | no refund when the caller leaves | AllOrNothing, Remaining |
//! | refunds into the present window | Recount, Remaining |
//! | refunds twice | AllOrNothing, Recount, Remaining |
//! | refunds because a shadow limit or a quota is over | AllOrNothing, Remaining, Promise |
//! | refunds what passed | AllOrNothing, Remaining, Promise |
//! | refunds hits that the limit counts despite the refusal | AllOrNothing, Remaining |
//! | refunds shed checks, which took nothing | AllOrNothing, Recount |
//! | refunds hits that their own limit denied and counted | AllOrNothing, Recount, Remaining |
//! | **resets** (`resets`) | |
//! | a reset leaves the bucket | Recount, Remaining |
//! | a reset forgets another bucket too | Recount, Remaining, Promise |
//! | a reset gives back what was taken before | Recount, Promise |
//!
//! What it deliberately does not do: plant two bugs at once, or bugs inside an algorithm
//! (`tests/laws/planted`).

#![allow(clippy::needless_pass_by_value)] // one signature for all bugs

mod all_or_nothing;
mod answering;
mod capacity;
mod deciding;
mod resets;

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use tollgate::clock::ManualClock;
use tollgate::pipeline::Pipeline;
use tollgate::store::memory::{MemoryLimits, MemoryStore};
use tollgate::store::{
    ApplyFuture, CommitMode, Deadline, ResetFuture, Store, StoreError, StoreReply,
};
use tollgate_limiter::{
    Algorithm, AlgorithmOption, Check, CountRefused, Hits, Key, Limit, Operation, Outcome, State,
    Timestamp,
};

use self::resets::{PlantedReset, ResetBug};
use crate::DEFAULT_SEEDS;
use crate::judge::Law;
use crate::run::{DecisionService, run};

/// A bug and the laws that must find it.
pub(crate) struct Bug {
    pub(crate) name: &'static str,
    pub(crate) plant: Plant,
    found_by: &'static [Law],
}

/// Where a bug is planted.
#[derive(Clone, Copy)]
pub(crate) enum Plant {
    /// Replaces [`Store::apply`], between the journal's tap and the real store.
    Store(Apply),
    /// Changes the checks of [`Store::reset`].
    Reset(ResetBug),
    /// Wraps the service.
    DecisionService(fn(Arc<Pipeline>) -> Box<dyn DecisionService>),
    /// Changes the text of the rules.
    Rules(fn(&str) -> String),
    /// Changes the store's bounds.
    Limits(fn(MemoryLimits) -> MemoryLimits),
}

/// How a bug changes a call.
#[derive(Clone, Copy)]
pub(crate) struct Apply(fn(Arc<BugContext>, Call) -> Sending);

/// The arguments of [`Store::apply`].
#[derive(Clone)]
struct Call {
    checks: Vec<Check>,
    deadline: Deadline,
    terms: CommitMode,
}

/// The future replies of a call, which owns what it needs.
type Sending = Pin<Box<dyn Future<Output = Answers> + Send>>;

type Answers = Result<StoreReply, StoreError>;

/// The real store and the state that bugs need.
pub(crate) struct BugContext {
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    bounds: MemoryLimits,
    /// Calls that no caller awaits and that are not dropped.
    kept: Mutex<Vec<Sending>>,
    count: AtomicUsize,
    newest_limits: Mutex<HashMap<Key, Limit>>,
}

/// The store, wrapped by the bug.
struct Planted {
    apply: Apply,
    around: Arc<BugContext>,
}

/// Wraps the store in a bug of its resets.
pub(crate) fn around_resets(store: MemoryStore, bug: ResetBug) -> Arc<dyn Store> {
    Arc::new(PlantedReset {
        store,
        bug,
        before: Mutex::default(),
    })
}

/// All planted bugs.
pub(crate) fn bugs() -> impl Iterator<Item = &'static Bug> {
    let all = [
        deciding::BUGS,
        answering::BUGS,
        capacity::BUGS,
        all_or_nothing::BUGS,
        resets::BUGS,
    ];
    all.into_iter().flatten()
}

/// Runs the default seeds until every listed law has found the bug.
fn must_be_found(bug: &Bug) {
    let mut first: BTreeMap<Law, u64> = BTreeMap::new();
    for seed in DEFAULT_SEEDS {
        for broken in run(seed, Some(bug), false).broken {
            first.entry(broken.law).or_insert(seed);
        }
        if bug.found_by.iter().all(|law| first.contains_key(law)) {
            println!("{}: {first:?}", bug.name);
            return;
        }
    }
    panic!("{}: found by {first:?} only", bug.name);
}

#[test]
fn each_is_found() {
    // On as many threads as there are processors, since runs are independent.
    let bugs: Vec<_> = bugs().collect();
    let next = AtomicUsize::new(0);
    let found = || {
        while let Some(bug) = bugs.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
            must_be_found(bug);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..crate::threads() {
            scope.spawn(found);
        }
    });
}

// === impl Apply ===

impl Apply {
    /// Wraps the store in this bug.
    pub(crate) fn around(
        self,
        store: MemoryStore,
        clock: &Arc<ManualClock>,
        bounds: &MemoryLimits,
    ) -> Arc<dyn Store> {
        let around = BugContext {
            store: Arc::new(store),
            clock: Arc::clone(clock),
            bounds: *bounds,
            kept: Mutex::default(),
            count: AtomicUsize::new(0),
            newest_limits: Mutex::default(),
        };
        Arc::new(Planted {
            apply: self,
            around: Arc::new(around),
        })
    }
}

impl Store for Planted {
    fn apply(&self, checks: Vec<Check>, deadline: Deadline, terms: CommitMode) -> ApplyFuture<'_> {
        let call = Call {
            checks,
            deadline,
            terms,
        };
        (self.apply.0)(Arc::clone(&self.around), call)
    }

    fn reset(&self, checks: Vec<Check>) -> ResetFuture<'_> {
        self.around.store.reset(checks)
    }
}

// === impl BugContext ===

impl BugContext {
    /// Calls the real store without borrowing it.
    fn send(&self, call: Call) -> Sending {
        let store = Arc::clone(&self.store);
        Box::pin(async move { store.apply(call.checks, call.deadline, call.terms).await })
    }

    /// Keeps a call alive.
    fn keep(&self, sending: Sending) {
        self.kept.lock().unwrap().push(sending);
    }
}

/// Polls once; returns the reply if it is ready.
async fn poll_once(sending: &mut Sending) -> Option<Answers> {
    std::future::poll_fn(|context| match sending.as_mut().poll(context) {
        Poll::Ready(answers) => Poll::Ready(Some(answers)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Yields once to other tasks.
async fn yield_once() {
    let mut waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// How a modified algorithm decides.
type DecideFn = dyn Fn(&dyn Algorithm, &Limit, &mut State, Operation, Timestamp) -> Outcome + Sync;

/// An algorithm that decides differently.
struct ModifiedAlgorithm {
    base: &'static dyn Algorithm,
    decide: Box<DecideFn>,
    life_us: Option<u64>,
}

/// Modifies the decision of a check.
fn modify(
    check: &mut Check,
    decide: impl Fn(&dyn Algorithm, &Limit, &mut State, Operation, Timestamp) -> Outcome
    + Sync
    + 'static,
) {
    check.algorithm = Box::leak(Box::new(ModifiedAlgorithm {
        base: check.algorithm,
        decide: Box::new(decide),
        life_us: None,
    }));
}

// === impl ModifiedAlgorithm ===

impl Algorithm for ModifiedAlgorithm {
    fn name(&self) -> &'static str {
        self.base.name()
    }

    fn promise(&self) -> &'static str {
        self.base.promise()
    }

    fn options(&self) -> &'static [AlgorithmOption] {
        self.base.options()
    }

    fn has_marks(&self) -> bool {
        self.base.has_marks()
    }

    fn default_count_refused(&self) -> CountRefused {
        self.base.default_count_refused()
    }

    fn decide(&self, limit: &Limit, state: &mut State, ask: Operation, now: Timestamp) -> Outcome {
        (self.decide)(self.base, limit, state, ask, now)
    }

    /// Registers that the bug changes are written, too.
    fn changed(
        &self,
        limit: &Limit,
        was: (Timestamp, [u64; 2]),
        state: &State,
        ask: Operation,
        outcome: &Outcome,
    ) -> bool {
        let mut looked_at = State {
            updated_at: was.0,
            registers: was.1,
            ..State::default()
        };
        self.base.decide(
            limit,
            &mut looked_at,
            Hits::PEEK.into(),
            outcome.bucket_time,
        );
        self.base.changed(limit, was, state, ask, outcome)
            || !self.base.has_marks() && looked_at.registers != state.registers
    }

    fn ttl_us(&self, limit: &Limit) -> u64 {
        self.life_us.unwrap_or_else(|| self.base.ttl_us(limit))
    }
}
