//! Leases: replicas that hold hits of one shared store, here a memory store.
//!
//! The test sets the clock, and tokio's time is paused, so a worker's tick takes no real time.
//! `tests/redis` runs leases on Redis.

use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use tokio::task::JoinHandle;
use tollgate::store::lease::{LeaseLimits, LeasedStore};
use tollgate::store::memory::MemoryStore;
use tollgate::store::{BatchClient, ResetFuture};
use tollgate_limiter::{Operation, Otherwise, Outcome, ReservationOutcome};

use super::hourly as check;
use super::*;

const AGE_US: u64 = 2_000_000;

const LEASES: LeaseLimits = LeaseLimits {
    age_max_us: AGE_US,
    ahead_hits_max: 1_000,
    leases_max: 10_000,
};

/// A shared store that records its checks and can stop answering.
struct Shared {
    store: MemoryStore,
    clock: Arc<ManualClock>,
    /// When hits were granted, and how many.
    granted: Mutex<Vec<(u64, u64)>>,
    /// How many hits were given back, and when they had been taken.
    given_back: Mutex<Vec<(u64, Timestamp)>>,
    /// How long the next call takes, in microseconds.
    delay_us: Mutex<u64>,
    calls: Mutex<u64>,
    fails: Mutex<bool>,
    panics: Mutex<bool>,
}

impl Store for Shared {
    fn apply(
        &self,
        checks: Vec<Check>,
        deadline: Deadline,
        terms: CommitMode,
    ) -> Pin<Box<dyn Future<Output = Result<StoreReply, StoreError>> + Send + '_>> {
        Box::pin(async move {
            *self.calls.lock().unwrap() += 1;
            let panics = *self.panics.lock().unwrap();
            assert!(!panics, "a defect in a store");
            if *self.fails.lock().unwrap() {
                return Err(StoreError::Stopped);
            }
            self.clock
                .advance_us(std::mem::take(&mut *self.delay_us.lock().unwrap()));
            for check in &checks {
                if let Hits::Undo { hits, taken_at } = check.operation.hits {
                    self.given_back.lock().unwrap().push((hits, taken_at));
                }
            }
            let applied = self.store.apply(checks.clone(), deadline, terms).await?;
            let now_us = self.clock.uptime_us();
            for (check, answer) in checks.iter().zip(&applied.answers) {
                let allowed = answer.as_ref().is_ok_and(|outcome| outcome.allowed);
                let hits = match check.operation.hits {
                    Hits::Take(hits) if allowed => hits,
                    _ => 0,
                };
                self.granted.lock().unwrap().push((now_us, hits));
            }
            Ok(applied)
        })
    }

    fn reset(&self, checks: Vec<Check>) -> ResetFuture<'_> {
        if *self.fails.lock().unwrap() {
            return Box::pin(async { Err(StoreError::Stopped) });
        }
        self.store.reset(checks)
    }
}

/// Lets the workers run for this long. Time is paused, so it takes none.
async fn tick(ms: u64) {
    // sleep: of simulated time
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Replicas of one shared store.
struct Replicas {
    shared: Arc<Shared>,
    clock: Arc<ManualClock>,
    metrics: Arc<Metrics>,
    stores: Vec<Option<Arc<LeasedStore>>>,
    workers: Vec<Vec<JoinHandle<()>>>,
}

impl Replicas {
    fn new(count: usize, bounds: LeaseLimits) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_seconds(1_700_006_410)));
        let metrics = Arc::new(Metrics::new().unwrap());
        let dynamic: Arc<dyn tollgate::clock::Clock> = clock.clone();
        let (store, workers) = MemoryStore::pair(&BOUNDS, &dynamic, &metrics);
        for worker in workers {
            tokio::spawn(worker.run());
        }
        let shared = Arc::new(Shared {
            store,
            clock: Arc::clone(&clock),
            granted: Mutex::default(),
            given_back: Mutex::default(),
            delay_us: Mutex::default(),
            calls: Mutex::default(),
            fails: Mutex::default(),
            panics: Mutex::default(),
        });
        let (mut stores, mut running) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let as_store: Arc<dyn Store> = shared.clone();
            let (store, workers) =
                LeasedStore::pair(&as_store, bounds, 2, 16_384, &dynamic, &metrics);
            stores.push(Some(Arc::new(store)));
            running.push(
                workers
                    .into_iter()
                    .map(|worker| tokio::spawn(worker.run()))
                    .collect(),
            );
        }
        Self {
            shared,
            clock,
            metrics,
            stores,
            workers: running,
        }
    }

    fn store(&self, replica: usize) -> Arc<LeasedStore> {
        Arc::clone(self.stores[replica].as_ref().unwrap())
    }

    async fn ask(&self, replica: usize, check: &Check) -> Outcome {
        let store = self.store(replica);
        let applied = store.apply(vec![check.clone()], Deadline::NEVER, CommitMode::Immediate);
        answers(applied.await).unwrap().remove(0).unwrap()
    }

    /// What the shared store has left.
    async fn left(&self, check: &Check) -> u64 {
        let look = Check {
            operation: Hits::Take(0).into(),
            ..check.clone()
        };
        let applied = self
            .shared
            .store
            .apply(vec![look], Deadline::NEVER, CommitMode::Immediate);
        answers(applied.await).unwrap()[0]
            .as_ref()
            .unwrap()
            .remaining
    }

    /// Lets leases reach their age, and the workers notice it.
    async fn settle(&self) {
        self.clock.advance_us(AGE_US);
        tick(1_000).await;
        self.clock.advance_us(AGE_US / 4);
        tick(1_000).await;
    }

    fn held(&self) -> u64 {
        let text = self.metrics.render().unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("tollgate_lease_hits_held "));
        line.unwrap().parse().unwrap()
    }

    /// Many tasks send checks at once, on each of these replicas; returns how many hits were
    /// admitted.
    async fn burst(&self, replicas: &[usize], tasks: usize, each: usize, check: &Check) -> u64 {
        let mut set = JoinSet::new();
        for replica in replicas {
            for _ in 0..tasks {
                let (store, check) = (self.store(*replica), check.clone());
                set.spawn(async move {
                    let mut admitted = 0;
                    for _ in 0..each {
                        let applied = store.apply(
                            vec![check.clone()],
                            Deadline::NEVER,
                            CommitMode::Immediate,
                        );
                        let outcomes = answers(applied.await).unwrap();
                        if outcomes[0].as_ref().unwrap().allowed {
                            admitted += check.operation.hits.requested();
                        }
                    }
                    admitted
                });
            }
        }
        set.join_all().await.into_iter().sum()
    }
}

#[tokio::test(start_paused = true)]
async fn replicas_admit_exactly_the_limit() {
    for limit in [1, 10, 1_000] {
        let replicas = Replicas::new(3, LEASES);
        let check = check(1, limit, 1);
        let mut admitted = replicas.burst(&[0, 1, 2], 64, 20, &check).await;
        assert!(admitted <= u64::from(limit));
        // What one replica holds and does not need goes back, and another replica gets it.
        for _ in 0..20 {
            replicas.settle().await;
            admitted += replicas.burst(&[0, 1, 2], 1, 20, &check).await;
        }
        assert_eq!(admitted, u64::from(limit));
        assert_eq!(replicas.left(&check).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn many_hits_need_few_calls() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 4_000_000, 1);
    assert_eq!(replicas.burst(&[0], 64, 1_000, &check).await, 64_000);
    let calls = *replicas.shared.calls.lock().unwrap();
    assert!(calls < 200, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn a_new_key_takes_only_the_requested_hits() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 1_000, 3);
    assert!(replicas.ask(0, &check).await.allowed);
    assert_eq!((replicas.left(&check).await, replicas.held()), (997, 0));
}

#[tokio::test(start_paused = true)]
async fn near_the_limit_nothing_is_taken_in_advance() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 1_000, 1);
    for asked in 0..1_000 {
        let outcome = replicas.ask(0, &check).await;
        assert!(outcome.allowed);
        assert_eq!(
            (outcome.used_before, outcome.remaining),
            (asked, 999 - asked)
        );
        let left = replicas.left(&check).await;
        assert_eq!(left + replicas.held(), outcome.remaining);
        assert!(
            replicas.held() <= left.max(4) * 2,
            "{asked}: {}",
            replicas.held()
        );
    }
    assert!(!replicas.ask(0, &check).await.allowed);
}

#[tokio::test(start_paused = true)]
async fn a_denied_key_is_not_sent_again_within_a_second() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 5, 1);
    assert_eq!(replicas.burst(&[0], 1, 10, &check).await, 5);
    let calls = *replicas.shared.calls.lock().unwrap();
    let refused = replicas.ask(0, &check).await;
    assert!(!refused.allowed);
    assert_eq!(
        refused.retry_us,
        Some(3_600_000_000 - 1_700_006_410 % 3_600 * 1_000_000)
    );
    assert_eq!(*replicas.shared.calls.lock().unwrap(), calls);
    replicas.clock.advance_us(1_000_000);
    assert!(!replicas.ask(0, &check).await.allowed);
    assert!(*replicas.shared.calls.lock().unwrap() > calls);
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_never_written() {
    let replicas = Replicas::new(2, LEASES);
    let check = check(1, 10, 1);
    let refunded = Check {
        operation: Hits::Refund(2).into(),
        ..check.clone()
    };
    replicas.burst(&[0, 1], 4, 50, &check).await;
    replicas.settle().await;
    replicas.burst(&[0, 1], 4, 50, &check).await;
    // A fixed window counts denied hits and would grant nothing for this.
    replicas.ask(0, &refunded).await;
    assert_eq!(replicas.left(&check).await, 2);
    replicas.clock.advance_us(1_000_000);
    assert_eq!(replicas.burst(&[1], 1, 10, &check).await, 2);
}

#[tokio::test(start_paused = true)]
async fn unspent_hits_of_a_window_are_not_spent_in_the_next() {
    let replicas = Replicas::new(3, LEASES);
    let check = Check {
        limit: Limit::per(1_000, Unit::Second, NonZeroU32::MIN),
        ..check(1, 1_000, 1)
    };
    for _ in 0..5 {
        replicas.burst(&[0, 1, 2], 8, 12, &check).await;
        assert!(replicas.held() > 0);
        // The next window, before any worker has seen it.
        replicas.clock.advance_us(1_000_000);
        let admitted = replicas.burst(&[0, 1, 2], 16, 40, &check).await;
        assert!(admitted <= 1_000, "{admitted}");
        replicas.clock.advance_us(1_000_000);
    }
}

/// A take is sent while an older lease has unspent hits, and the older lease ends (by its window or
/// by its age) before the shared store decides. The older hits, and only those, go back with the
/// time at which they were taken.
#[tokio::test(start_paused = true)]
async fn a_take_that_outlives_the_lease_before_it_keeps_what_it_was_granted() {
    let second = Limit::per(1_000, Unit::Second, NonZeroU32::MIN);
    let minute = Limit::per(1_000, Unit::Minute, NonZeroU32::MIN);
    for (name, limit, ends_us) in [
        ("fixed_window", second, 1_000_000),
        ("fixed_window", minute, AGE_US),
        ("sliding_window", minute, AGE_US),
        ("token_bucket", minute, AGE_US),
    ] {
        let replicas = Replicas::new(1, LEASES);
        let algorithm = tollgate_limiter::algorithm::from_name(name).unwrap();
        let one = Check {
            algorithm,
            limit,
            ..check(1, 1_000, 1)
        };
        assert_eq!(replicas.burst(&[0], 8, 12, &one).await, 96);
        let unspent = replicas.held();
        assert!(unspent > 0);
        let taken_at = replicas.clock.now();
        replicas.clock.advance_us(ends_us - 100_000);
        *replicas.shared.delay_us.lock().unwrap() = 200_000;
        let more = Check {
            operation: Hits::Take(unspent + 1).into(),
            ..one.clone()
        };
        assert!(replicas.ask(0, &more).await.allowed);
        // The worker sends the refunds and updates the gauge.
        tick(1_000).await;
        let given_back = replicas.shared.given_back.lock().unwrap().clone();
        assert_eq!(given_back, [(unspent, taken_at)], "{name} {limit:?}");
        if limit == second {
            let left = replicas.left(&one).await;
            assert_eq!(left + replicas.held() + unspent + 1, 1_000);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_replica_loses_only_the_hits_it_held() {
    let mut replicas = Replicas::new(3, LEASES);
    let check = check(1, 1_000, 1);
    let mut admitted = replicas.burst(&[0, 1, 2], 16, 10, &check).await;
    let before = replicas.held();
    for worker in replicas.workers.remove(0) {
        worker.abort();
    }
    replicas.stores[0] = None;
    for _ in 0..20 {
        replicas.settle().await;
        admitted += replicas.burst(&[1, 2], 4, 40, &check).await;
    }
    assert!(
        admitted <= 1_000 && admitted + before >= 1_000,
        "{admitted} {before}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_graceful_shutdown_returns_all_leased_hits() {
    let mut replicas = Replicas::new(1, LEASES);
    let check = check(1, 100_000, 1);
    let admitted = replicas.burst(&[0], 16, 100, &check).await;
    assert!(replicas.held() > 0);
    replicas.stores[0] = None;
    for worker in replicas.workers.remove(0) {
        worker.await.unwrap();
    }
    assert_eq!(replicas.left(&check).await, 100_000 - admitted);
    assert_eq!(replicas.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn takes_of_a_denied_request_return_to_the_lease() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 100_000, 1);
    replicas.burst(&[0], 16, 100, &check).await;
    let store = replicas.store(0);
    let sum = replicas.left(&check).await + replicas.held();
    for _ in 0..10 {
        let applied = store.apply(vec![check.clone()], Deadline::NEVER, CommitMode::Tentative);
        drop(applied.await.unwrap());
    }
    replicas.settle().await;
    assert_eq!(replicas.left(&check).await + replicas.held(), sum);
}

#[tokio::test(start_paused = true)]
async fn a_changed_limit_applies_at_once() {
    let replicas = Replicas::new(1, LEASES);
    replicas.burst(&[0], 16, 10, &check(1, 1_000, 1)).await;
    assert!(!replicas.ask(0, &check(1, 100, 1)).await.allowed);
    assert_eq!(replicas.burst(&[0], 1, 100, &check(1, 200, 1)).await, 40);
}

#[tokio::test(start_paused = true)]
async fn every_algorithm_admits_exactly_its_limit_through_one_replica() {
    let replicas = Replicas::new(1, LEASES);
    for (number, algorithm) in ALGORITHMS.iter().enumerate() {
        let asked = Check {
            algorithm: *algorithm,
            ..check(number as u64, 500, 1)
        };
        assert_eq!(
            replicas.burst(&[0], 16, 100, &asked).await,
            500,
            "{algorithm:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_fails_or_panics_answers_all_waiting_callers() {
    let replicas = Replicas::new(1, LEASES);
    let Shared { fails, panics, .. } = &*replicas.shared;
    for (fault, keys) in [(fails, [1, 2]), (panics, [3, 4])] {
        *fault.lock().unwrap() = true;
        let store = replicas.store(0);
        let checks = || keys.map(|key| check(key, 10, 1)).to_vec();
        let together = store.apply(checks(), Deadline::NEVER, CommitMode::Immediate);
        assert!(matches!(together.await, Err(StoreError::Stopped)));
        for check in checks() {
            let alone = store.apply(vec![check], Deadline::NEVER, CommitMode::Immediate);
            assert!(matches!(alone.await, Err(StoreError::Stopped)));
        }
        *fault.lock().unwrap() = false;
        let admitted = replicas.burst(&[0], 4, 5, &checks()[0]).await;
        assert_eq!(admitted, 10);
    }
}

#[tokio::test(start_paused = true)]
async fn without_space_for_a_lease_the_shared_store_decides() {
    let bounds = LeaseLimits {
        leases_max: 4,
        ..LEASES
    };
    let replicas = Replicas::new(1, bounds);
    for key in 0..100 {
        for hit in 0..5 {
            assert_eq!(replicas.ask(0, &check(key, 4, 1)).await.allowed, hit < 4);
        }
    }
    assert_eq!(replicas.left(&check(99, 4, 1)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn many_at_once_are_answered_each_once() {
    let replicas = Replicas::new(1, LEASES);
    let mut asking: Box<dyn BatchClient> = replicas.store(0).batch_client().unwrap();
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let (mut shares, mut answered, mut allowed) = (0, 0, 0);
    for ticket in 0..300 {
        let checks = [check(1, 200, 1), check(1_000 + u64::from(ticket), 5, 1)];
        shares += asking
            .add(ticket, &checks, Deadline::NEVER, CommitMode::Immediate)
            .unwrap();
        if ticket % 7 == 0 {
            asking.send();
        }
    }
    asking.send();
    for _ in 0..200 {
        tick(1).await;
        asking.take_replies(&mut cx, &mut |share| {
            answered += 1;
            for (position, answer) in share.positions.iter().zip(share.answers) {
                allowed += u32::from(*position == 0 && answer.as_ref().unwrap().allowed);
            }
        });
    }
    assert_eq!((answered, allowed), (shares, 200));
}

/// For sliding windows and token buckets: every admitted hit was granted at most a lease's age
/// before. With the shared store's promise about grants, this is the promise over a span longer by
/// that age.
#[tokio::test(start_paused = true)]
async fn nothing_is_admitted_that_was_granted_longer_ago_than_an_age() {
    for (number, name) in ["sliding_window", "token_bucket", "fixed_window"]
        .iter()
        .enumerate()
    {
        for seed in 0..20_u64 {
            let replicas = Replicas::new(3, LEASES);
            let algorithm = *ALGORITHMS
                .iter()
                .find(|known| known.name() == *name)
                .unwrap();
            let mut state = seed * 7 + number as u64 + 1;
            let mut next = |bound: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % bound
            };
            let mut admitted: Vec<(u64, u64)> = Vec::new();
            for _ in 0..400 {
                let asked = Check {
                    algorithm,
                    limit: Limit::per(200, Unit::Minute, NonZeroU32::MIN),
                    operation: Operation::from(Hits::Take(1 + next(3))),
                    ..check(1, 200, 1)
                };
                let replica = usize::try_from(next(3)).unwrap();
                if replicas.ask(replica, &asked).await.allowed {
                    admitted.push((replicas.clock.uptime_us(), asked.operation.hits.requested()));
                }
                if next(4) == 0 {
                    replicas.clock.advance_us(next(700_000));
                    tick(200).await;
                }
            }
            let granted = replicas.shared.granted.lock().unwrap().clone();
            // Hall's condition for spans: what is admitted in a span was granted in it, or at most
            // an age before.
            for from in (0..admitted.len()).step_by(7) {
                for to in from..admitted.len() {
                    let (begin, end) = (admitted[from].0, admitted[to].0);
                    let hits: u64 = admitted[from..=to].iter().map(|(_, hits)| hits).sum();
                    let lent: u64 = granted
                        .iter()
                        .filter(|(at, _)| *at + AGE_US >= begin && *at <= end)
                        .map(|(_, hits)| hits)
                        .sum();
                    assert!(hits <= lent, "{name} {seed}: {hits} > {lent}");
                }
            }
            assert!(admitted.len() > 50);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reset_key_passes_again_on_all_replicas_within_a_lease_age() {
    for limit in [10, 100, 1_000] {
        let replicas = Replicas::new(3, LEASES);
        let (reset, other) = (check(1, limit, 1), check(2, 1_000, 1));
        // Leases are out on all replicas, of both keys, and nothing is left of one.
        replicas.burst(&[0, 1, 2], 8, 20, &other).await;
        replicas.burst(&[0, 1, 2], 8, 20, &reset).await;
        for _ in 0..3 {
            replicas.settle().await;
            replicas.burst(&[0, 1, 2], 64, 20, &reset).await;
        }
        replicas.burst(&[0, 1, 2], 8, 20, &other).await;
        assert_eq!(replicas.left(&reset).await, 0);
        assert!(!replicas.ask(0, &reset).await.allowed);
        let unused = replicas.left(&other).await;
        let counted = replicas.store(0).reset(vec![reset.clone()]).await;
        assert_eq!(counted, Ok(vec![true]));
        assert_eq!(replicas.left(&reset).await, u64::from(limit));
        assert_eq!(replicas.left(&other).await, unused);
        // At once where it was reset; elsewhere as soon as what is held there has ended.
        assert!(replicas.ask(0, &reset).await.allowed);
        replicas.clock.advance_us(AGE_US);
        for replica in [1, 2] {
            assert!(replicas.ask(replica, &reset).await.allowed, "{replica}");
        }
        // What was held is not given back: no more than the limit passes.
        let mut admitted = 3;
        for _ in 0..20 {
            replicas.settle().await;
            admitted += replicas.burst(&[0, 1, 2], 8, 20, &reset).await;
        }
        assert_eq!(admitted, u64::from(limit));
    }
}

#[tokio::test(start_paused = true)]
async fn what_other_replicas_hold_is_not_given_back_after_a_reset() {
    let replicas = Replicas::new(2, LEASES);
    let check = check(1, 1_000, 1);
    replicas.burst(&[0, 1], 8, 10, &check).await;
    let held = replicas.held();
    assert!(held > 2, "{held}");
    replicas.store(0).reset(vec![check.clone()]).await.unwrap();
    // The lease of this replica has ended, and nothing of it goes back.
    let elsewhere = replicas.held();
    assert!(0 < elsewhere && elsewhere < held, "{elsewhere} of {held}");
    replicas.clock.advance_us(1);
    let admitted = replicas.burst(&[0], 1, 10, &check).await;
    assert_eq!(admitted, 10);
    let given_back = replicas.shared.given_back.lock().unwrap().len();
    replicas.settle().await;
    assert_eq!(replicas.held(), 0);
    let given_back = replicas.shared.given_back.lock().unwrap().len() - given_back;
    assert!(given_back > 0, "the other replica gives its lease back");
    assert_eq!(replicas.left(&check).await, 990);
}

#[tokio::test(start_paused = true)]
async fn a_take_in_flight_brings_nothing_back_that_a_reset_forgot() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 100, 40);
    let store = replicas.store(0);
    let mut taking = store.apply(vec![check.clone()], Deadline::NEVER, CommitMode::Immediate);
    let mut reset = store.reset(vec![check.clone()]);
    assert!(futures_poll(&mut taking).is_none());
    assert!(futures_poll(&mut reset).is_none());
    let mut after = store.apply(vec![check.clone()], Deadline::NEVER, CommitMode::Immediate);
    assert!(futures_poll(&mut after).is_none());
    assert_eq!(
        answers(taking.await).unwrap()[0].clone().unwrap().remaining,
        60
    );
    assert_eq!(reset.await, Ok(vec![true]));
    assert_eq!(
        answers(after.await).unwrap()[0].clone().unwrap().remaining,
        60
    );
    assert_eq!(replicas.left(&check).await, 60);
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_the_shared_store_rejects_changes_nothing() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 1_000, 1);
    replicas.burst(&[0], 8, 10, &check).await;
    let (held, left) = (replicas.held(), replicas.left(&check).await);
    assert!(held > 0);
    *replicas.shared.fails.lock().unwrap() = true;
    let reset = replicas.store(0).reset(vec![check.clone()]).await;
    assert_eq!(reset, Err(StoreError::Stopped));
    // The lease still answers.
    assert!(replicas.ask(0, &check).await.allowed);
    assert_eq!(replicas.held(), held - 1);
    *replicas.shared.fails.lock().unwrap() = false;
    assert_eq!(replicas.left(&check).await, left);
}

#[tokio::test(start_paused = true)]
async fn a_roll_back_from_before_a_reset_adds_nothing_to_the_lease_after_it() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 1_000, 10);
    let store = replicas.store(0);
    replicas.burst(&[0], 8, 10, &check).await;
    let before = store.apply(vec![check.clone()], Deadline::NEVER, CommitMode::Tentative);
    let before = before.await.unwrap().tentative.unwrap();
    store.reset(vec![check.clone()]).await.unwrap();
    // In the same instant, so that the times of the takes do not differ.
    replicas.burst(&[0], 8, 2, &check).await;
    let held = replicas.held();
    assert!(held > 0);
    let left = replicas.left(&check).await;
    before.roll_back();
    // The worker has read the roll-back before this.
    replicas
        .ask(
            0,
            &Check {
                operation: Hits::PEEK.into(),
                ..check.clone()
            },
        )
        .await;
    assert_eq!((replicas.held(), replicas.left(&check).await), (held, left));
}

#[tokio::test(start_paused = true)]
async fn leases_and_reservations_of_one_bucket_never_exceed_its_limit() {
    for _ in 0..3 {
        let replicas = Replicas::new(3, LEASES);
        let check = check(1, 1_000, 1);
        let with = |operation| Check {
            operation,
            ..check.clone()
        };
        let (mut admitted, mut committed, mut excess) = (0, 0, 0);
        for round in 0..30 {
            let replica = round % 3;
            let mut open = Vec::new();
            for number in 0..4 {
                let id = round as u64 * 4 + number;
                let asked = with(reservations::reserve(1, 1_000, id, 20).operation);
                let outcome = replicas.ask(replica, &asked).await;
                if outcome.allowed {
                    open.push((id, 10 + number * 5));
                }
            }
            admitted += replicas.burst(&[0, 1, 2], 4, 3, &check).await;
            let reserved = open.len() as u64 * 20;
            assert!(
                admitted + committed + reserved <= 1_000 + excess,
                "{admitted} {committed} {reserved} {excess}"
            );
            for (id, hits) in open {
                let commit = reservations::commit(1, 1_000, id, hits, Otherwise::Unknown);
                let outcome = replicas
                    .ask((replica + 1) % 3, &with(commit.operation))
                    .await;
                assert_eq!(outcome.reservation, ReservationOutcome::Settled);
                committed += hits;
                excess += hits.saturating_sub(20);
            }
            assert!(admitted + committed <= 1_000 + excess);
        }
        // Both draw on the shared store, until nothing is left.
        for _ in 0..20 {
            replicas.settle().await;
            admitted += replicas.burst(&[0, 1, 2], 1, 20, &check).await;
        }
        assert!(admitted > 100 && committed > 100, "{admitted} {committed}");
        assert_eq!((admitted + committed).max(1_000), admitted + committed);
        assert_eq!(replicas.left(&check).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_of_a_rule_that_reserves_holds_no_lease() {
    let replicas = Replicas::new(1, LEASES);
    let check = Check {
        is_exact: true,
        ..check(1, 100_000, 1)
    };
    for asked in 1..=100 {
        assert!(replicas.ask(0, &check).await.allowed);
        assert_eq!(*replicas.shared.calls.lock().unwrap(), asked);
        assert_eq!(replicas.held(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_settle_that_gives_back_ends_a_remembered_denial() {
    let replicas = Replicas::new(1, LEASES);
    let check = check(1, 10, 1);
    let with = |operation| Check {
        operation,
        ..check.clone()
    };
    let reserve = with(reservations::reserve(1, 10, 7, 8).operation);
    assert!(replicas.ask(0, &reserve).await.allowed);
    assert_eq!(replicas.burst(&[0], 1, 5, &check).await, 2);
    let commit = reservations::commit(1, 10, 7, 3, Otherwise::Unknown);
    replicas.ask(0, &with(commit.operation)).await;
    assert_eq!(replicas.burst(&[0], 1, 10, &check).await, 5);
}
