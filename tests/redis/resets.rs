//! Resets on a real Redis: two replicas on one server, a second server for limits per second,
//! behind a sentinel, on a cluster, and with the reference service's keys. Markers of resets.
//!
//! The replicas are stores in this process. `tests/store` has the rest of what a reset promises,
//! also with leases and a fallback.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicU16;

use tollgate::store::{Deadline, Purpose, SharedSettings, StoreBuilder};
use tollgate::store_redis as redis_store;
use tollgate_limiter::{ALGORITHMS, Algorithm, Check, Hits, Key, Limit, Outcome, Unit, algorithm};
use tollgate_test_support::asking_store::ResetBuckets as _;
use tollgate_test_support::polling::until_async;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::redis_server::cluster::RedisCluster;

use super::rate_leases::{Replica, builder, settings};
use super::sentinels::sentinel_of;

const LIMIT: u64 = 10;

impl Replica {
    async fn two(redis: &dyn StoreBuilder) -> [Self; 2] {
        let one = Self::start(redis).connect().await;
        [one, Self::start(redis).connect().await]
    }

    async fn ask(&self, check: &Check) -> Outcome {
        let checks = vec![check.clone()];
        let applied = self.store.ask(checks, Deadline::NEVER, Purpose::Decide);
        applied.await.unwrap().answers.remove(0).unwrap()
    }

    /// Asks until a hit is denied; returns how many passed.
    async fn drain(&self, check: &Check) -> u64 {
        let mut passed = 0;
        while passed <= LIMIT && self.ask(check).await.allowed {
            passed += 1;
        }
        passed
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

/// Resets an exhausted key on one of two replicas, which both have cached the denial. The key
/// passes its limit again and no more, and the other key does not change.
async fn resets_for_both(replicas: &[Replica; 2], reset: &Check, other: &Check) {
    let name = format!("{:?}", reset.algorithm);
    assert_eq!(replicas[0].drain(reset).await, LIMIT, "{name}");
    assert_eq!(replicas[1].drain(reset).await, 0, "{name}");
    assert!(replicas[1].ask(other).await.allowed, "{name}");
    let counted = replicas[0].store.reset(vec![reset.clone()]).await;
    assert_eq!(counted, Ok(vec![true]), "{name}");
    // At once here, and when the denial has expired elsewhere.
    assert!(replicas[0].ask(reset).await.allowed, "{name}");
    until_async("the key passes on the other replica", async || {
        replicas[1].ask(reset).await.allowed
    })
    .await;
    assert_eq!(replicas[1].drain(reset).await, LIMIT - 2, "{name}");
    let used = replicas[0].ask(&look(other)).await.used_before;
    assert_eq!(used, 1, "{name}");
}

/// The same in these algorithms.
async fn in_each(redis: &dyn StoreBuilder, algorithms: &[&'static dyn Algorithm]) {
    let replicas = Replica::two(redis).await;
    for (key, algorithm) in (0..).step_by(2).zip(algorithms) {
        let (reset, other) = (check(key, *algorithm), check(key + 1, *algorithm));
        resets_for_both(&replicas, &reset, &other).await;
    }
}

/// One algorithm of each kind of bucket, for the ways to reach a server.
fn a_few() -> [&'static dyn Algorithm; 2] {
    ["fixed_window", "concurrency"].map(|name| algorithm::from_name(name).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_key_passes_again_on_two_replicas() {
    let redis = RedisServer::start(&[]);
    in_each(&*builder(&settings(&redis.url())), ALGORITHMS).await;
    let primary = Arc::new(AtomicU16::new(redis.port()));
    let _: redis::Value = redis.say(&["FLUSHALL"]);
    let url = format!("redis+sentinel://{}/main", sentinel_of(&primary).await);
    in_each(&*builder(&settings(&url)), &a_few()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_key_passes_again_on_two_replicas_of_a_cluster() {
    let cluster = RedisCluster::start(3);
    in_each(&*builder(&settings(&cluster.url())), &a_few()).await;
    // Markers are in the slots of their buckets.
    assert_eq!(cluster.keys("tg:{*:reset").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_of_the_reference_is_reset_under_its_name() {
    let redis = RedisServer::start(&[]);
    let settings = SharedSettings {
        reference_keys: true,
        ..settings(&redis.url())
    };
    let replicas = Replica::two(&*builder(&settings)).await;
    let named = |key, name: &str| Check {
        bucket_name: Some(name.as_bytes().into()),
        ..check(key, ALGORITHMS[0])
    };
    resets_for_both(&replicas, &named(0, "d_k_"), &named(1, "d_other_")).await;
    assert_eq!(redis.say::<Vec<String>>(&["KEYS", "d_k_*"]).len(), 1);
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
    let replicas = Replica::two(&*redis_setup).await;
    let year = NonZeroU32::new(31_536_000).unwrap();
    let a_year_in_seconds = |key| Check {
        limit: Limit::per(LIMIT, Unit::Second, year),
        ..check(key, ALGORITHMS[0])
    };
    resets_for_both(&replicas, &a_year_in_seconds(0), &a_year_in_seconds(1)).await;
    assert_eq!(second.say::<Vec<String>>(&["KEYS", "*:reset"]).len(), 1);
    assert_eq!(first.say::<Vec<String>>(&["KEYS", "*:reset"]).len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_marker_drops_roll_backs_of_another_replica_and_expires() {
    let redis = RedisServer::start(&[]);
    let replicas = Replica::two(&*builder(&settings(&redis.url()))).await;
    for algorithm in ALGORITHMS {
        let two = Check {
            operation: Hits::Take(2).into(),
            ..check(7, *algorithm)
        };
        let applied = replicas[1].store.ask(
            vec![two.clone()],
            Deadline::NEVER,
            Purpose::DecideTentatively,
        );
        let before = applied.await.unwrap().tentative.unwrap();
        let counted = replicas[0].store.reset(vec![two.clone()]).await;
        assert_eq!(counted, Ok(vec![true]));
        assert_eq!(replicas[0].ask(&two).await.remaining, LIMIT - 2);
        let given_back = || replicas[1].metrics.buckets.given_back.get();
        let earlier = given_back();
        before.roll_back();
        until_async("the roll-back is sent", async || given_back() > earlier).await;
        let left = replicas[0].ask(&look(&two)).await.remaining;
        assert_eq!(left, LIMIT - 2, "{algorithm:?}");
        let markers: Vec<String> = redis.say(&["KEYS", "*:reset"]);
        assert_eq!(markers.len(), 1);
        let left_s: i64 = redis.say(&["TTL", &markers[0]]);
        assert!((1..=600).contains(&left_s), "{left_s}");
        let _: redis::Value = redis.say(&["FLUSHALL"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_delays_roll_backs_and_resets_and_no_check() {
    let cluster = RedisCluster::start(3);
    let replica = Replica::connected(&settings(&cluster.url())).await;
    let one = check(1, ALGORITHMS[0]);
    let applied = replica.store.ask(
        vec![one.clone()],
        Deadline::NEVER,
        Purpose::DecideTentatively,
    );
    let before = applied.await.unwrap().tentative.unwrap();
    let key = redis_store::bucket_name("", one.key);
    let moving = cluster.begin_move(cluster.slot_of(&key));
    before.roll_back();
    let is_reset = Cell::new(false);
    let resets = async {
        let reset = async || replica.store.reset(vec![one.clone()]).await;
        let counted = until_async("the reset is carried out", reset).await;
        assert_eq!(counted, [true]);
        is_reset.set(true);
    };
    let moves = async {
        for _ in 0..5 {
            assert!(replica.ask(&one).await.allowed);
        }
        assert!(!is_reset.get());
        moving.move_keys(&[&key]);
        assert!(replica.ask(&one).await.allowed);
        moving.finish();
    };
    tokio::join!(resets, moves);
    // The roll-back is carried out, before the reset or after it.
    until_async("the roll-back is carried out", async || {
        replica.metrics.buckets.given_back.get() > 0
    })
    .await;
    let used = replica.ask(&look(&one)).await.used_before;
    assert_eq!(used, 0);
    assert_eq!(replica.metrics.store.give_backs_lost.get(), 0);
}
