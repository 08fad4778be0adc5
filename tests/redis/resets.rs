//! Resets on a real Redis: three replicas, with leases out, on one server, a second server for
//! limits per second, sentinels, a cluster, and with the reference service's keys.
//!
//! The replicas are stores in this process. `tests/store` has the rest of what a reset promises.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tollgate::clock::{Clock, SystemClock};
use tollgate::metrics::Metrics;
use tollgate::store::failover::FailoverStore;
use tollgate::store::lease::{LeaseLimits, LeasedStore};
use tollgate::store::memory::{self, MemoryLimits, WhenFull};
use tollgate::store::redis as redis_store;
use tollgate::store::{
    CommitMode, Deadline, Setup, SharedSettings, Store, StoreBuilder, StoreError, StoreFault,
};
use tollgate_limiter::{
    ALGORITHMS, Algorithm, Check, Hits, Key, LeasePolicy, Limit, Outcome, Unit, algorithm,
};
use tollgate_test_support::redis_server::RedisServer;

use super::RECOVERY;
use super::cluster::cluster;
use super::sentinels::Trio;

const LIMIT: u32 = 200;

const MEMORY: MemoryLimits = MemoryLimits {
    partitions: 2,
    queue_checks_max: 16_384,
    memory_max: 64 << 20,
    when_full: WhenFull::Share,
};

const LEASES: LeaseLimits = LeaseLimits {
    age_max_us: 500_000,
    ahead_hits_max: 1_000,
    leases_max: 10_000,
};

/// One replica, in this process.
struct Replica {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
}

fn settings(url: &str) -> SharedSettings {
    SharedSettings {
        url: url.to_owned(),
        deadline: Duration::from_secs(10),
        queue_bytes_max: 32 << 20,
        over_limit_cache: Duration::from_millis(200),
        ..SharedSettings::default()
    }
}

impl Replica {
    /// A replica as `app` builds it: Redis, leases, a fallback in memory.
    async fn start(redis: &dyn StoreBuilder, leased: bool) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let metrics = Arc::new(Metrics::new().unwrap());
        let setup = Setup {
            clock: Arc::clone(&clock),
            metrics: Arc::clone(&metrics),
            memory: MEMORY,
            capture: tollgate::capture::Capture::new(),
        };
        let (mut store, workers) = redis.build(&setup).unwrap();
        for worker in workers {
            tokio::spawn(worker);
        }
        if leased {
            let (in_advance, workers) =
                LeasedStore::pair(&store, LEASES, 2, 16_384, &clock, &metrics);
            for worker in workers {
                tokio::spawn(worker.run());
            }
            store = Arc::new(in_advance);
        }
        let (second, workers) = memory::MemoryStore::pair(&MEMORY, &clock, &metrics);
        for worker in workers {
            tokio::spawn(worker.run());
        }
        let store = FailoverStore::new(store, Arc::new(second), metrics.store.clone());
        let ready = async {
            while store.health().is_some_and(|health| !health.healthy) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let ready = tokio::time::timeout(2 * RECOVERY, ready).await;
        assert!(ready.is_ok(), "{:?}", store.health());
        let store = Arc::new(store);
        Self { store, metrics }
    }

    async fn three(redis: &dyn StoreBuilder, leased: bool) -> Vec<Self> {
        let mut replicas = Vec::new();
        for _ in 0..3 {
            replicas.push(Self::start(redis, leased).await);
        }
        replicas
    }

    async fn ask(&self, check: &Check) -> Outcome {
        let checks = vec![check.clone()];
        let applied = self
            .store
            .apply(checks, Deadline::NEVER, CommitMode::Immediate);
        applied.await.unwrap().answers.remove(0).unwrap()
    }

    /// Asks until this many were denied in a row; returns how many hits passed.
    async fn drain(&self, check: &Check, denials: u32) -> u32 {
        let (mut passed, mut denied) = (0, 0);
        while denied < denials {
            if self.ask(check).await.allowed {
                (passed, denied) = (passed + 1, 0);
            } else {
                denied += 1;
            }
        }
        passed
    }

    fn held(&self) -> u64 {
        u64::try_from(self.metrics.leases.hits_held.get()).unwrap()
    }
}

/// A check of one hit, of a limit that refills nothing while a test runs.
fn check(key: u64, algorithm: &'static dyn Algorithm) -> Check {
    Check {
        // Spread over hash tags, as keyed hashes are.
        key: Key(u128::from(key).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)),
        limit: Limit::per(LIMIT, Unit::Year, NonZeroU32::MIN),
        algorithm,
        operation: Hits::Take(1).into(),
        fingerprint: 1,
        shared_bucket: false,
        may_fall_back: true,
        is_exact: false,
        bucket_name: None,
    }
}

fn look(check: &Check) -> Check {
    Check {
        operation: Hits::PEEK.into(),
        ..check.clone()
    }
}

/// Resets a key on the first of three replicas, with leases of it out on the others, and spends it
/// again.
async fn resets_for_all(replicas: &[Replica], reset: &Check, other: &Check) {
    let name = format!("{:?}", reset.algorithm);
    for replica in replicas {
        for _ in 0..20 {
            assert!(replica.ask(reset).await.allowed, "{name}");
            assert!(replica.ask(other).await.allowed, "{name}");
        }
    }
    let used = replicas[0].ask(&look(other)).await.used_before;
    let held: u64 = replicas[1..].iter().map(Replica::held).sum();
    let counted = replicas[0].store.reset(vec![reset.clone()]).await;
    assert_eq!(counted, Ok(vec![true]), "{name}");
    // All of it is spent again, and no more but what was held elsewhere.
    let mut passed = 0;
    let spent = async {
        while passed < LIMIT {
            for replica in replicas {
                passed += replica.drain(reset, 1).await;
            }
        }
        for replica in replicas {
            passed += replica.drain(reset, 5).await;
        }
    };
    let spent = tokio::time::timeout(4 * RECOVERY, spent).await;
    assert!(spent.is_ok(), "{name}: {passed}");
    assert!(
        u64::from(passed) <= u64::from(LIMIT) + held,
        "{name}: {passed}, {held} were held"
    );
    // A denied key passes again too: at once here, soon elsewhere.
    let counted = replicas[0].store.reset(vec![reset.clone()]).await;
    assert_eq!(counted, Ok(vec![true]), "{name}");
    assert!(replicas[0].ask(reset).await.allowed, "{name}");
    for replica in replicas {
        let again = async { while !replica.ask(reset).await.allowed {} };
        let again = tokio::time::timeout(RECOVERY, again).await;
        assert!(again.is_ok(), "{name}");
    }
    let after = replicas[0].ask(&look(other)).await.used_before;
    assert!(after <= used, "{name}: {after} of {used}");
    assert!(after >= 60, "{name}: {after}");
}

/// The same in these algorithms, with and without leases. Returns how many keys were reset.
async fn every_mode(redis: &dyn StoreBuilder, algorithms: &[&'static dyn Algorithm]) -> usize {
    let mut key = 0;
    for leased in [false, true] {
        let replicas = Replica::three(redis, leased).await;
        for algorithm in algorithms {
            if leased && algorithm.lease_policy() == LeasePolicy::Never {
                continue;
            }
            let (reset, other) = (check(key, *algorithm), check(key + 1, *algorithm));
            resets_for_all(&replicas, &reset, &other).await;
            key += 2;
        }
    }
    usize::try_from(key / 2).unwrap()
}

/// One algorithm of each kind of bucket, for the ways to reach a server.
fn a_few() -> [&'static dyn Algorithm; 2] {
    ["fixed_window", "concurrency"].map(|name| algorithm::from_name(name).unwrap())
}

fn builder(url: &str) -> Box<dyn StoreBuilder> {
    (redis_store::BACKEND.configure)(&settings(url)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_key_passes_again_on_three_replicas_of_one_server() {
    let redis = RedisServer::start(&[]);
    every_mode(&*builder(&redis.url()), ALGORITHMS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_key_passes_again_behind_sentinels() {
    let trio = Trio::start();
    every_mode(&*builder(&trio.url()), &a_few()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_key_passes_again_on_three_replicas_of_a_cluster() {
    let shared = cluster();
    let cluster = shared.lock().await;
    cluster.clear();
    let reset = every_mode(&*builder(&cluster.url()), &a_few()).await;
    // Markers are in the slots of their buckets.
    assert_eq!(cluster.keys("tg:{*:reset").len(), reset);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_of_the_reference_is_reset_under_its_name() {
    let redis = RedisServer::start(&[]);
    let settings = SharedSettings {
        reference_keys: true,
        ..settings(&redis.url())
    };
    let redis_setup = (redis_store::BACKEND.configure)(&settings).unwrap();
    for (number, leased) in [(0, false), (1, true)] {
        let replicas = Replica::three(&*redis_setup, leased).await;
        let named = |key, name: String| Check {
            bucket_name: Some(name.into_bytes().into()),
            ..check(key, ALGORITHMS[0])
        };
        let reset = named(number * 2, format!("d_k_{number}_"));
        let other = named(number * 2 + 1, format!("d_other_{number}_"));
        resets_for_all(&replicas, &reset, &other).await;
    }
    assert_eq!(redis.say::<Vec<String>>(&["KEYS", "d_k_*"]).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_per_second_is_reset_on_its_own_server() {
    let (first, second) = (RedisServer::start(&[]), RedisServer::start(&[]));
    let (url, second_url) = (first.url(), second.url());
    let address = |url: &str| url.trim_start_matches("redis://").to_owned();
    let variable = |name: &str| match name {
        "REDIS_URL" => Some(address(&url)),
        "REDIS_PERSECOND" => Some("true".to_owned()),
        "REDIS_PERSECOND_URL" => Some(address(&second_url)),
        "REDIS_SOCKET_TYPE" | "REDIS_PERSECOND_SOCKET_TYPE" => Some("tcp".to_owned()),
        _ => None,
    };
    let configure = redis_store::BACKEND.configure_from_variables.unwrap();
    let redis_setup = configure(&settings(""), &variable).unwrap().unwrap();
    let year = NonZeroU32::new(31_536_000).unwrap();
    for (number, leased) in [(0, false), (1, true)] {
        let replicas = Replica::three(&*redis_setup, leased).await;
        let a_second = |key| Check {
            limit: Limit::per(LIMIT, Unit::Second, year),
            ..check(key, ALGORITHMS[0])
        };
        resets_for_all(&replicas, &a_second(number * 2), &a_second(number * 2 + 1)).await;
    }
    assert_eq!(second.say::<Vec<String>>(&["KEYS", "*:reset"]).len(), 2);
    assert_eq!(first.say::<Vec<String>>(&["KEYS", "*:reset"]).len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unavailable_redis_is_an_error_and_the_fallback_is_not_reset() {
    let mut redis = RedisServer::start(&[]);
    let replica = Replica::start(&*builder(&redis.url()), false).await;
    let check = check(1, ALGORITHMS[0]);
    assert!(replica.ask(&check).await.allowed);
    redis.kill();
    // The fallback decides from now on.
    while replica.metrics.store.decided_locally.get() == 0 {
        let checks = vec![check.clone()];
        let applied = replica
            .store
            .apply(checks, Deadline::NEVER, CommitMode::Immediate);
        assert!(applied.await.is_ok());
    }
    let used = replica.ask(&look(&check)).await.used_before;
    assert!(used > 0);
    let error = replica.store.reset(vec![check.clone()]).await.unwrap_err();
    assert!(
        matches!(error, StoreError::Unavailable(fault) if !fault.outcome_unknown()
            || fault == StoreFault::ConnectionLost),
        "{error}"
    );
    assert_eq!(replica.ask(&look(&check)).await.used_before, used);
    // Redis is back, empty. A reset reaches both.
    redis.start_again();
    let back = async { while replica.store.reset(vec![check.clone()]).await != Ok(vec![true]) {} };
    assert!(tokio::time::timeout(RECOVERY, back).await.is_ok());
    redis.kill();
    let local = replica.metrics.store.decided_locally.get();
    while replica.metrics.store.decided_locally.get() == local {
        assert_eq!(replica.ask(&look(&check)).await.used_before, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_marker_drops_roll_backs_of_another_replica_and_expires() {
    let redis = RedisServer::start(&[]);
    let replicas = Replica::three(&*builder(&redis.url()), false).await;
    for algorithm in ALGORITHMS {
        let two = Check {
            operation: Hits::Take(2).into(),
            ..check(7, *algorithm)
        };
        let applied =
            replicas[1]
                .store
                .apply(vec![two.clone()], Deadline::NEVER, CommitMode::Tentative);
        let before = applied.await.unwrap().tentative.unwrap();
        let counted = replicas[0].store.reset(vec![two.clone()]).await;
        assert_eq!(counted, Ok(vec![true]));
        assert_eq!(replicas[2].ask(&two).await.remaining, u64::from(LIMIT) - 2);
        let given_back = replicas[1].metrics.buckets.given_back.get();
        before.roll_back();
        while replicas[1].metrics.buckets.given_back.get() == given_back {
            tokio::task::yield_now().await;
        }
        let left = replicas[2].ask(&look(&two)).await.remaining;
        assert_eq!(left, u64::from(LIMIT) - 2, "{algorithm:?}");
        let markers: Vec<String> = redis.say(&["KEYS", "*:reset"]);
        assert_eq!(markers.len(), 1);
        let left_s: i64 = redis.say(&["TTL", &markers[0]]);
        assert!((1..=600).contains(&left_s), "{left_s}");
        let _: redis::Value = redis.say(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_delays_roll_backs_and_resets_and_no_check() {
    let shared = cluster();
    let cluster = shared.lock().await;
    cluster.clear();
    let replica = Replica::start(&*builder(&cluster.url()), false).await;
    let one = check(1, ALGORITHMS[0]);
    let applied = replica
        .store
        .apply(vec![one.clone()], Deadline::NEVER, CommitMode::Tentative);
    let before = applied.await.unwrap().tentative.unwrap();
    let key = redis_store::bucket_name("", one.key);
    let moving = cluster.begin_move(cluster.slot_of(&key));
    before.roll_back();
    let store = Arc::clone(&replica.store);
    let again = one.clone();
    let reset =
        tokio::spawn(
            async move { while store.reset(vec![again.clone()]).await != Ok(vec![true]) {} },
        );
    for _ in 0..20 {
        assert!(replica.ask(&one).await.allowed);
    }
    assert!(!reset.is_finished());
    moving.move_keys(&[&key]);
    assert!(replica.ask(&one).await.allowed);
    moving.finish();
    assert!(tokio::time::timeout(2 * RECOVERY, reset).await.is_ok());
    // The roll-back is carried out, before the reset or after it.
    let given_back = async {
        while replica.metrics.buckets.given_back.get() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(tokio::time::timeout(2 * RECOVERY, given_back).await.is_ok());
    let used = replica.ask(&look(&one)).await.used_before;
    assert_eq!(used, 0);
    assert_eq!(replica.metrics.store.give_backs_lost.get(), 0);
    cluster.settle();
}
