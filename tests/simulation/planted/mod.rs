//! Planted bugs: the default seeds must find each one, by every law that is named for it.
//!
//! Thousands of passing seeds do not show that a bug would be found. A planted bug wraps the real
//! store or the service, or changes their input; everything else is the real code. Most are
//! plausible mistakes in a store. Replay one with `BUG=name SEED=… cargo test --test simulation --
//! replay
//! --nocapture`.
//!
//! | bug | found by |
//! | --- | --- |
//! | **deciding** (`deciding`) | |
//! | looks first and takes later, in two steps | Once, TrueAnswers, Promise |
//! | asks the store again when it is slow, and hits are applied twice | Once, Recount |
//! | takes the time at asking, not at deciding | Recount |
//! | forgets the deadline of a request, and takes its hits when nobody cares | InTime |
//! | decides for a caller who has left | NotForTheGone |
//! | a reload changes the limit of a check under way | Recount |
//! | a reload begins a bucket anew | Recount, Promise |
//! | one bucket lies in two partitions | Recount, Promise |
//! | a sweep frees a bucket that is still in use | Recount, Promise |
//! | what is given back is taken instead | Recount |
//! | **answering** (`answering`) | |
//! | answers checks in another order than asked | TrueAnswers |
//! | answers check after check, and a share that fails takes the answers of the others with it | TrueAnswers |
//! | lets pass checks that found no memory | TrueAnswers |
//! | loses the wake-up of an answer | Answered |
//! | statuses in another order than the descriptors | Statuses |
//! | a request of several descriptors sees two generations of rules | OneGeneration, Statuses |
//! | shadow mode is enforced | Statuses |
//! | **capacity** (`capacity`) | |
//! | a shed request leaves part of its shares sent | TrueAnswers |
//! | queue slots are not released when a caller leaves | Capacity |
//! | a mailbox holds one check more than it may | Capacity |
//! | a mailbox holds one check less than it may | Capacity |
//! | buckets are evicted below the memory limit | Recount, Capacity, Promise |
//! | a check is lost on its way | Accounted |
//! | **all or nothing** (`trying`) | |
//! | forgets to give back when the caller leaves | AllOrNothing, Left |
//! | gives back into whatever window there is | Recount, Left |
//! | gives back twice | AllOrNothing, Recount, Left |
//! | gives back because a shadow limit or a quota is over | AllOrNothing, Left, Promise |
//! | gives back what passed | AllOrNothing, Left, Promise |
//! | a refusal gives back what its limit is to count | AllOrNothing, Left |
//! | gives back what was shed, and so never taken | AllOrNothing, Recount |
//! | gives back what its own limit refused and counted | AllOrNothing, Recount, Left |
//!
//! What it deliberately does not do: plant two bugs at once, or bugs inside an algorithm
//! (`tests/laws/planted`).

#![allow(clippy::needless_pass_by_value)] // one signature for all bugs

mod answering;
mod capacity;
mod deciding;
mod trying;

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use tollgate::clock::ManualClock;
use tollgate::pipeline::Pipeline;
use tollgate::store::memory::{MemoryLimits, MemoryStore};
use tollgate::store::{ApplyFuture, CommitMode, Deadline, Store, StoreError, StoreReply};
use tollgate_limiter::{
    Algorithm, AlgorithmOption, Check, CountRefused, Hits, Key, Limit, Operation, Outcome, State,
    Timestamp,
};

use crate::DEFAULT_SEEDS;
use crate::judge::Law;
use crate::run::{DecisionService, run};

/// A bug, and who must find it.
pub(crate) struct Bug {
    pub(crate) name: &'static str,
    pub(crate) plant: Plant,
    found_by: &'static [Law],
}

/// Where a bug is put.
#[derive(Clone, Copy)]
pub(crate) enum Plant {
    /// In place of [`Store::apply`], between the journal's tap and the real store.
    Store(Apply),
    /// Wraps the service.
    DecisionService(fn(Arc<Pipeline>) -> Box<dyn DecisionService>),
    /// Into the rules, as text.
    Rules(fn(&str) -> String),
    /// Into the store's bounds.
    Limits(fn(MemoryLimits) -> MemoryLimits),
}

/// What a bug makes of a call.
#[derive(Clone, Copy)]
pub(crate) struct Apply(fn(Arc<Around>, Call) -> Sending);

/// What [`Store::apply`] is called with.
#[derive(Clone)]
struct Call {
    checks: Vec<Check>,
    deadline: Deadline,
    terms: CommitMode,
}

/// The answers of a call to come. Holds what it needs.
type Sending = Pin<Box<dyn Future<Output = Answers> + Send>>;

type Answers = Result<StoreReply, StoreError>;

/// The real store, and what bugs may want besides.
pub(crate) struct Around {
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    bounds: MemoryLimits,
    /// Calls that nobody waits for and that are not dropped.
    kept: Mutex<Vec<Sending>>,
    count: AtomicUsize,
    newest_limits: Mutex<HashMap<Key, Limit>>,
}

/// The store with the bug around it.
struct Planted {
    apply: Apply,
    around: Arc<Around>,
}

/// Every bug there is.
pub(crate) fn bugs() -> impl Iterator<Item = &'static Bug> {
    let all = [
        deciding::BUGS,
        answering::BUGS,
        capacity::BUGS,
        trying::BUGS,
    ];
    all.into_iter().flatten()
}

/// Runs the default seeds until every law named has found it.
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
    // On as many threads as there are processors: a run knows nothing of another.
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
    /// The store with this bug around it.
    pub(crate) fn around(
        self,
        store: MemoryStore,
        clock: &Arc<ManualClock>,
        bounds: &MemoryLimits,
    ) -> Arc<dyn Store> {
        let around = Around {
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
}

// === impl Around ===

impl Around {
    /// A call of the real store that does not borrow it.
    fn send(&self, call: Call) -> Sending {
        let store = Arc::clone(&self.store);
        Box::pin(async move { store.apply(call.checks, call.deadline, call.terms).await })
    }

    /// Sees to it that a call is not dropped.
    fn keep(&self, sending: Sending) {
        self.kept.lock().unwrap().push(sending);
    }
}

/// Polls once: the answer, if it is there.
async fn at_once(sending: &mut Sending) -> Option<Answers> {
    std::future::poll_fn(|context| match sending.as_mut().poll(context) {
        Poll::Ready(answers) => Poll::Ready(Some(answers)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Lets others go first.
async fn a_moment() {
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

/// How a bent algorithm decides.
type Bend = dyn Fn(&dyn Algorithm, &Limit, &mut State, Operation, Timestamp) -> Outcome + Sync;

/// An algorithm that decides in another way than it did.
struct Bent {
    base: &'static dyn Algorithm,
    decide: Box<Bend>,
    life_us: Option<u64>,
}

/// Bends what decides a check.
fn bend(
    check: &mut Check,
    decide: impl Fn(&dyn Algorithm, &Limit, &mut State, Operation, Timestamp) -> Outcome
    + Sync
    + 'static,
) {
    check.algorithm = Box::leak(Box::new(Bent {
        base: check.algorithm,
        decide: Box::new(decide),
        life_us: None,
    }));
}

// === impl Bent ===

impl Algorithm for Bent {
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

    /// What the bug adds to registers is written, too.
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
