//! The contract suite: what every store in `BACKENDS` promises.
//!
//! Most tests run on every backend (`running`), Redis with a real server for each test and its own
//! clock: their limits are per year. Tests that need a simulated clock, a worker in the test's hand
//! or the memory store's limits run on memory (`idle`). `tentative_takes` tests tentative takes,
//! `resets` resets, `reservations` reservations, `batch_client` the batch client, `inline`,
//! `inline_alike` and `inline_threads` checks that are decided without a worker, `flood` a full
//! store. The limiter's own tests have the arithmetic of the algorithms.

mod batch_client;
mod flood;
mod inline;
mod inline_alike;
mod inline_threads;
mod lease_replicas;
mod leased;
mod leased_changes;
mod rate_lease_table;
mod reservations;
mod reservations_failover;
mod resets;
mod shared;
mod tentative_takes;

use std::future::poll_fn;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate::app::BACKENDS;
use tollgate::clock::{Clock as _, ManualClock};
use tollgate::metrics::Metrics;
use tollgate::store::{
    AskFuture, Backend, BatchClient, CheckResult, Deadline, Purpose, Setup, SharedSettings, Store,
    StoreError, StoreReply, memory,
};
use tollgate_limiter::{ALGORITHMS, Algorithm, Check, Hits, Key, Limit, Timestamp, Unit};
use tollgate_test_support::polling::{PATIENCE, until_async};
use tollgate_test_support::redis_server::RedisServer;

/// A store with its clock, metrics and workers.
struct Running {
    name: &'static str,
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    metrics: Arc<Metrics>,
    workers: Vec<tollgate::store::Worker>,
    /// Stopped when the test ends.
    _redis: Option<RedisServer>,
}

/// Checks without a deadline.
trait StoreExt: Store {
    /// Takes are final.
    fn apply_now(&self, checks: Vec<Check>) -> AskFuture<'_> {
        self.ask(checks, Deadline::NEVER, Purpose::Decide)
    }

    fn apply_tentatively(&self, checks: Vec<Check>) -> AskFuture<'_> {
        self.ask(checks, Deadline::NEVER, Purpose::DecideTentatively)
    }
}

impl<S: Store + ?Sized> StoreExt for S {}

/// Builds a backend; its workers are not spawned.
fn build(backend: &Backend, bounds: memory::MemoryLimits) -> Running {
    let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_700_006_410)));
    let metrics = Arc::new(Metrics::new().unwrap());
    let server = (backend.name == "redis").then(|| RedisServer::start(&[]));
    let url = server.as_ref().map(RedisServer::url);
    // A backend that needs no server of its own is named by the bare scheme.
    let url = url.or_else(|| backend.url_forms.first().map(|form| (*form).to_owned()));
    let settings = SharedSettings {
        url: url.unwrap_or_default(),
        deadline: Duration::from_secs(10),
        queue_bytes_max: 32 << 20,
        ..SharedSettings::default()
    };
    let setup = Setup {
        clock: clock.clone(),
        metrics: Arc::clone(&metrics),
        memory: bounds,
        recorder: Some(tollgate::capture::Capture::new()),
    };
    let (store, workers) = backend.build(&settings, &setup).unwrap();
    Running {
        name: backend.name,
        store,
        clock,
        metrics,
        workers,
        _redis: server,
    }
}

/// The memory store; its workers are not spawned.
fn idle(bounds: memory::MemoryLimits) -> impl Iterator<Item = Running> {
    let memory = BACKENDS.iter().filter(|backend| backend.name == "memory");
    memory.map(move |backend| build(backend, bounds))
}

/// Every backend, running and ready.
async fn running() -> Vec<Running> {
    let mut all = Vec::new();
    for backend in BACKENDS {
        let running = build(backend, BOUNDS).spawned();
        until_async("the store decides", async || match running.store.health() {
            Some(health) if !health.healthy => {
                // When a failed probe is sent again is a matter of this clock.
                running.clock.advance_us(10_000);
                Err(health)
            }
            _ => Ok(()),
        })
        .await;
        all.push(running);
    }
    assert!(all.len() > 1);
    all
}

impl Running {
    fn spawned(mut self) -> Self {
        for worker in self.workers.drain(..) {
            tokio::spawn(worker);
        }
        self
    }

    /// Sends checks whose takes are final.
    async fn ask(&self, checks: Vec<Check>) -> Result<Vec<CheckResult>, StoreError> {
        answers(self.store.apply_now(checks).await)
    }

    /// What is left of a bucket of this limit.
    async fn left(&self, key: u64, limit: u64) -> u64 {
        let answers = self.ask(vec![check(key, limit, 0)]).await.unwrap();
        answers[0].as_ref().unwrap().remaining
    }

    fn metric(&self, series: &str) -> String {
        let text = self.metrics.render().unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or("none").to_owned()
    }
}

const BOUNDS: memory::MemoryLimits = memory::MemoryLimits {
    partitions: 4,
    queue_checks_max: 16_384,
    memory_max: 64 << 20,
    when_full: memory::WhenFull::Share,
};

/// A check of a limit per year, which does not reset during a test by any clock.
fn check(key: u64, limit: u64, hits: u64) -> Check {
    Check {
        // Spread over partitions and tables, as keyed hashes are.
        key: Key(u128::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)),
        limit: Limit::per(limit, Unit::Year, NonZeroU32::MIN),
        algorithm: ALGORITHMS[0],
        operation: Hits::Take(hits).into(),
        fingerprint: 1,
        shared_bucket: false,
        may_fall_back: false,
        is_exact: false,
        bucket_name: None,
    }
}

/// The same per hour, for tests that set the clock.
fn hourly(key: u64, limit: u64, hits: u64) -> Check {
    Check {
        limit: Limit::per(limit, Unit::Hour, NonZeroU32::MIN),
        ..check(key, limit, hits)
    }
}

fn answers(applied: Result<StoreReply, StoreError>) -> Result<Vec<CheckResult>, StoreError> {
    let applied = applied?;
    assert!(applied.tentative.is_none(), "final is final");
    Ok(applied.answers)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_the_limit_passes_under_concurrency_in_every_algorithm() {
    for running in running().await {
        for (number, algorithm) in ALGORITHMS.iter().enumerate() {
            let algorithm: &'static dyn Algorithm = *algorithm;
            let mut tasks = JoinSet::new();
            for _ in 0..64 {
                let store = Arc::clone(&running.store);
                tasks.spawn(async move {
                    let mut allowed = 0;
                    for _ in 0..100 {
                        let check = Check {
                            algorithm,
                            ..check(number as u64, 1_000, 1)
                        };
                        let applied = store.apply_now(vec![check]).await;
                        let outcomes = answers(applied).unwrap();
                        allowed += u32::from(outcomes[0].as_ref().unwrap().allowed);
                    }
                    allowed
                });
            }
            let allowed: u32 = tasks.join_all().await.into_iter().sum();
            assert_eq!(allowed, 1_000, "{} {algorithm:?}", running.name);
        }
    }
}

#[tokio::test]
async fn outcomes_keep_the_order_of_the_checks_across_partitions() {
    for running in running().await {
        let checks: Vec<_> = (0..100).map(|key| check(key, 1_000, key)).collect();
        let outcomes = running.ask(checks).await.unwrap();
        let remaining: Vec<_> = outcomes
            .iter()
            .map(|outcome| outcome.as_ref().unwrap().remaining)
            .collect();
        assert_eq!(
            remaining,
            (0..100).map(|key| 1_000 - key).collect::<Vec<_>>()
        );
    }
}

/// Whatever the store counted of refused hits, and whatever a denial cache hid from it.
#[tokio::test]
async fn a_raised_limit_lets_as_many_more_pass_as_it_was_raised_by() {
    for running in running().await {
        for refused in 1..5 {
            let key = refused;
            let mut passed = 0;
            for asked in [check(key, 10, 7), check(key, 10, 5), check(key, 20, 1)] {
                let times = match asked.operation.hits.count() {
                    5 => refused * refused,
                    1 => 30,
                    _ => 1,
                };
                for _ in 0..times {
                    let outcomes = running.ask(vec![asked.clone()]).await.unwrap();
                    passed += u32::from(outcomes[0].as_ref().unwrap().allowed);
                }
            }
            // The first, which took seven of ten; refused hits filled the window.
            assert_eq!(passed, 1 + 10, "{} {refused}", running.name);
        }
    }
}

#[tokio::test]
async fn two_checks_of_one_bucket_count_together() {
    for running in running().await {
        let checks = vec![
            check(1, 10, 4),
            check(2, 10, 1),
            check(1, 10, 4),
            check(1, 10, 4),
        ];
        let outcomes = running.ask(checks).await.unwrap();
        let allowed: Vec<_> = outcomes
            .iter()
            .map(|outcome| outcome.as_ref().unwrap().allowed)
            .collect();
        assert_eq!(allowed, [true, true, true, false]);
    }
}

#[tokio::test]
async fn idle_buckets_are_freed_while_others_are_in_use() {
    for running in idle(BOUNDS).map(Running::spawned) {
        let floods: Vec<_> = (0..5_000).map(|key| hourly(key, 10, 1)).collect();
        for part in floods.chunks(1_000) {
            running.ask(part.to_vec()).await.unwrap();
        }
        // A window, and the part in 512 by which a life is rounded up.
        running.clock.advance_us(3_608_000_000);
        // Each message sweeps more than it can add, so a lap ends however many messages come.
        for key in 5_000..35_000 {
            running.ask(vec![hourly(key, 10, 1)]).await.unwrap();
        }
        assert_eq!(running.metric("tollgate_buckets_freed_total"), "5000");
    }
}

/// Polls once; returns the output if it is ready.
fn futures_poll<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(future).poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

/// Waits, on a thread of its own, for the answers to this many checks, in any order.
fn wait_for_answers(client: &mut Box<dyn BatchClient>, checks: usize) -> Vec<CheckResult> {
    let mut answers = Vec::new();
    let received = poll_fn(|cx| {
        client.take_replies(cx, &mut |reply| answers.extend_from_slice(reply.answers));
        if answers.len() < checks {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let waited = runtime.block_on(async { tokio::time::timeout(PATIENCE, received).await });
    waited.expect("every check is answered");
    answers
}
