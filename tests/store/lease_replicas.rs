//! Replicas that hold hits of one shared store, here a memory store.
//!
//! The test sets the clock, and tokio's time is paused, so a worker's tick takes no real time.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tollgate::store::lease::{LeaseLimits, LeasedStore};
use tollgate::store::memory::MemoryStore;
use tollgate_limiter::{Outcome, ReservationOutcome};
use tollgate_test_support::asking_store::asking_client;

use super::*;

pub(super) const AGE_US: u64 = 2_000_000;

pub(super) const LEASES: LeaseLimits = LeaseLimits {
    age_max_us: AGE_US,
    ahead_hits_max: 1_000,
    leases_max: 10_000,
};

/// A shared store that records its checks and can stop answering.
pub(super) struct Shared {
    store: MemoryStore,
    clock: Arc<ManualClock>,
    /// When hits were granted, and how many.
    pub(super) granted: Mutex<Vec<(u64, u64)>>,
    /// How many hits were given back, and when they had been taken.
    pub(super) given_back: Mutex<Vec<(u64, Timestamp)>>,
    /// How long the next call takes, in microseconds.
    pub(super) delay_us: Mutex<u64>,
    /// What the next calls wait for, each for one.
    pub(super) held: Mutex<VecDeque<oneshot::Receiver<()>>>,
    pub(super) calls: Mutex<u64>,
    /// Hits of windows that have not begun, by their beginning.
    ahead: Mutex<HashMap<Timestamp, u64>>,
    /// How many takes of them came.
    pub(super) ahead_calls: Mutex<u64>,
    pub(super) fails: Mutex<bool>,
    pub(super) panics: Mutex<bool>,
}

struct SharedStore(Arc<Shared>);

impl Store for SharedStore {
    fn batch_client(&self) -> Box<dyn BatchClient> {
        let shared = Arc::clone(&self.0);
        asking_client(move |checks, deadline, purpose| {
            let shared = Arc::clone(&shared);
            Box::pin(async move { shared.decide(checks, deadline, purpose).await })
        })
    }
}

impl Shared {
    async fn decide(
        &self,
        checks: Vec<Check>,
        deadline: Deadline,
        purpose: Purpose,
    ) -> Result<StoreReply, StoreError> {
        if purpose == Purpose::Reset {
            if *self.fails.lock().unwrap() {
                return Err(StoreError::Stopped);
            }
            return self.store.ask(checks, deadline, purpose).await;
        }
        *self.calls.lock().unwrap() += 1;
        *self.ahead_calls.lock().unwrap() += u64::from(purpose == Purpose::TakeAhead);
        let held = self.held.lock().unwrap().pop_front();
        if let Some(held) = held {
            held.await.unwrap();
        }
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
        if purpose == Purpose::TakeAhead {
            let mut reply = StoreReply::undecided(0, &StoreError::Stopped);
            reply.answers = vec![Ok(self.take_ahead(&checks[0]))];
            return Ok(reply);
        }
        let window = checks[0].limit.window_at(self.clock.now());
        let ahead = self.ahead.lock().unwrap().remove(&window.start);
        if let Some(hits) = ahead {
            let counted = Check {
                operation: Hits::Take(hits).into(),
                ..checks[0].clone()
            };
            self.store.ask(vec![counted], deadline, purpose).await?;
        }
        let reply = self.store.ask(checks.clone(), deadline, purpose).await?;
        let now_us = self.clock.uptime_us();
        for (check, answer) in checks.iter().zip(&reply.answers) {
            let allowed = answer.as_ref().is_ok_and(|outcome| outcome.allowed);
            let hits = match check.operation.hits {
                Hits::Take(hits) if allowed => hits,
                _ => 0,
            };
            self.granted.lock().unwrap().push((now_us, hits));
        }
        Ok(reply)
    }
}

impl Shared {
    /// Takes from the next window as the script does.
    fn take_ahead(&self, check: &Check) -> Outcome {
        let now = self.clock.now();
        let mut ahead = self.ahead.lock().unwrap();
        let window = check.limit.window_at(now);
        let taken = ahead.entry(window.end).or_default();
        let (used_before, left) = (*taken, check.limit.requests() - *taken);
        let hits = check.operation.hits.requested().min(left / 4);
        *taken += hits;
        let window_us = check.limit.window().as_us();
        Outcome {
            allowed: hits > 0,
            used_before,
            remaining: left - hits,
            reset_us: window.end.since_us(now) + window_us,
            retry_us: Some(0),
            bucket_time: now,
            reservation: ReservationOutcome::None,
            blocked: false,
        }
    }
}

/// Lets the workers run for this long. Time is paused, so it takes none.
pub(super) async fn tick(ms: u64) {
    // sleep: of simulated time
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Replicas of one shared store.
pub(super) struct Replicas {
    pub(super) shared: Arc<Shared>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) stores: Vec<Option<Arc<LeasedStore>>>,
    pub(super) workers: Vec<Vec<JoinHandle<()>>>,
}

impl Replicas {
    pub(super) fn new(count: usize, bounds: LeaseLimits) -> Self {
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
            held: Mutex::default(),
            calls: Mutex::default(),
            ahead: Mutex::default(),
            ahead_calls: Mutex::default(),
            fails: Mutex::default(),
            panics: Mutex::default(),
        });
        let (mut stores, mut running) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let as_store: Arc<dyn Store> = Arc::new(SharedStore(shared.clone()));
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

    pub(super) fn store(&self, replica: usize) -> Arc<LeasedStore> {
        Arc::clone(self.stores[replica].as_ref().unwrap())
    }

    pub(super) async fn ask(&self, replica: usize, check: &Check) -> Outcome {
        let store = self.store(replica);
        let applied = store.apply_now(vec![check.clone()]);
        answers(applied.await).unwrap().remove(0).unwrap()
    }

    /// What the shared store has left.
    pub(super) async fn left(&self, check: &Check) -> u64 {
        let look = Check {
            operation: Hits::Take(0).into(),
            ..check.clone()
        };
        let applied = self.shared.store.apply_now(vec![look]);
        answers(applied.await).unwrap()[0]
            .as_ref()
            .unwrap()
            .remaining
    }

    /// Lets leases reach their age, and the workers notice it.
    pub(super) async fn settle(&self) {
        self.clock.advance_us(AGE_US);
        tick(1_000).await;
        self.clock.advance_us(AGE_US / 4);
        tick(1_000).await;
    }

    /// Holds the next calls to the shared store until each is released.
    pub(super) fn hold<const CALLS: usize>(&self) -> [oneshot::Sender<()>; CALLS] {
        std::array::from_fn(|_| {
            let (release, held) = oneshot::channel();
            self.shared.held.lock().unwrap().push_back(held);
            release
        })
    }

    pub(super) fn held(&self) -> u64 {
        self.metric("tollgate_lease_hits_held")
    }

    pub(super) fn metric(&self, name: &str) -> u64 {
        let text = self.metrics.render().unwrap();
        let mut lines = text.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap().parse().unwrap()
    }

    /// Many tasks send checks at once, on each of these replicas; returns how many hits were
    /// admitted.
    pub(super) async fn burst(
        &self,
        replicas: &[usize],
        tasks: usize,
        each: usize,
        check: &Check,
    ) -> u64 {
        let mut set = JoinSet::new();
        for replica in replicas {
            for _ in 0..tasks {
                let (store, check) = (self.store(*replica), check.clone());
                set.spawn(async move {
                    let mut admitted = 0;
                    for _ in 0..each {
                        let applied = store.apply_now(vec![check.clone()]);
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
