//! Leases of rates when Redis is killed, frozen, restarted, protected or has damaged values: each
//! exchange has a result in time, and afterwards leases are exchanged again.

use std::time::Duration;

use bytes::Bytes;
use tollgate::store::shared::{RateLease, RateLeaseRequest, RateLeaseResult};
use tollgate::store::{SharedSettings, StoreFault};
use tollgate_limiter::Key;
use tollgate_test_support::polling::until_async;
use tollgate_test_support::redis_server::RedisServer;

use super::rate_leases::{Replica, look, one, settings};

const ERA: &str = "tg:{quota}:era";

/// A request for ten of a hundred.
fn ten(bucket: u128, version: u64) -> RateLeaseRequest {
    RateLeaseRequest {
        bucket: Key(bucket),
        replica: 5,
        version,
        wants: 10,
        limit: 100,
        demand: Bytes::from_static(b"much"),
        new_era: version,
        ..look(bucket)
    }
}

fn name(bucket: u128) -> String {
    format!("tg:{{quota}}:{bucket:032x}")
}

/// Asks until it is answered.
async fn recovered(replica: &Replica, request: RateLeaseRequest) -> RateLease {
    let asked = async || one(replica, request.clone()).await;
    until_async("leases are exchanged", asked).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_data_begins_another_era_and_kept_data_does_not() {
    for kept in [false, true] {
        let arguments: &[&str] = if kept {
            &["--appendonly", "yes", "--appendfsync", "always"]
        } else {
            &[]
        };
        let mut redis = RedisServer::start(arguments);
        let replica = Replica::connected(&settings(&redis.url())).await;
        let before = one(&replica, ten(1, 1)).await.unwrap();
        redis.kill();
        let down = one(&replica, ten(1, 2)).await;
        assert!(down.is_err(), "{down:?}");
        redis.start_again();
        let after = recovered(&replica, ten(1, 3)).await;
        let same = after.era.id == before.era.id;
        assert_eq!(same, kept, "{before:?} {after:?}");
        // Nobody but the replica itself has leases there.
        assert_eq!((after.holds, after.others), (10, Vec::new()));
        let metrics = &replica.metrics.store;
        let failed = StoreFault::NAMES.map(|fault| metrics.rate_lease_fault(fault).get());
        assert!(failed.iter().sum::<u64>() > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_redis_fails_every_exchange_and_is_used_again() {
    let redis = RedisServer::start(&[]);
    let settings = SharedSettings {
        deadline: Duration::from_secs(2),
        ..settings(&redis.url())
    };
    let replica = Replica::connected(&settings).await;
    recovered(&replica, ten(1, 1)).await;
    redis.signal("STOP");
    let many = (0..2_000).map(|bucket| ten(bucket, 2)).collect();
    let results = replica.leases.exchange(many).await;
    assert_eq!(results.len(), 2_000);
    assert!(results.iter().all(Result::is_err));
    // A few calls were sent; what followed was not.
    let rests = |result: &&RateLeaseResult| **result == Err(StoreFault::BreakerOpen);
    assert!(results.iter().filter(rests).count() > 1_000);
    redis.signal("CONT");
    let lease = recovered(&replica, ten(1, 3)).await;
    assert_eq!(lease.holds, 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_value_is_an_error_for_its_bucket_alone() {
    let redis = RedisServer::start(&[]);
    let replica = Replica::connected(&settings(&redis.url())).await;
    let lease = one(&replica, ten(0, 1)).await.unwrap();
    let made = replica.metrics.store.connections_made.get();
    let say = |words: &[&str]| {
        let _: redis::Value = redis.say(words);
    };
    say(&["SET", &name(1), "text"]);
    say(&["RPUSH", &name(2), "list"]);
    say(&["HSET", &name(3), "00000000000000ff", "short"]);
    say(&["HSET", &name(4), "ff", "sixteen bytes or more"]);
    // More than 2^53.
    say(&[
        "HSET",
        &name(5),
        "00000000000000ff",
        "\u{1}23456789012345678",
    ]);
    // As long as a replica, and not one.
    let nothing = "\0\0\0\0\0\0\0\u{1}\0\0\0\0\0\0\0\u{1}";
    say(&["HSET", &name(6), "not hexadecimal!", nothing]);
    let many: Vec<String> = (0..4_097).map(|number| format!("{number:016x}")).collect();
    for replica in &many {
        say(&["HSET", &name(7), replica, nothing]);
    }
    let requests = (0..9).map(|bucket| ten(bucket, 2)).collect();
    let results = replica.leases.exchange(requests).await;
    for (bucket, result) in results.iter().enumerate() {
        match bucket {
            0 | 8 => assert_eq!(result.as_ref().unwrap().era.id, lease.era.id),
            6 => assert_eq!(*result, Err(StoreFault::UnexpectedReply)),
            _ => assert_eq!(*result, Err(StoreFault::InvalidBucket), "{bucket}"),
        }
    }
    let text: String = redis.say(&["GET", &name(1)]);
    assert_eq!(text, "text");
    // One less can be read.
    say(&["HDEL", &name(7), &many[0]]);
    let full = one(&replica, ten(7, 3)).await;
    assert_eq!(full.unwrap().others.len(), 4_095);
    say(&["SET", ERA, "yesterday"]);
    let result = one(&replica, ten(0, 3)).await;
    assert_eq!(result, Err(StoreFault::InvalidBucket));
    say(&["SET", ERA, "the old days ..."]);
    let result = one(&replica, ten(0, 3)).await;
    assert_eq!(result, Err(StoreFault::UnexpectedReply));
    say(&["DEL", ERA]);
    say(&["RPUSH", ERA, "list"]);
    let result = one(&replica, ten(0, 4)).await;
    assert_eq!(result, Err(StoreFault::InvalidBucket));
    say(&["DEL", ERA]);
    // The connection was good throughout.
    assert_eq!(one(&replica, ten(0, 5)).await.unwrap().holds, 10);
    assert_eq!(replica.metrics.store.connections_made.get(), made);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_out_of_bounds_are_not_sent() {
    let redis = RedisServer::start(&[]);
    let replica = Replica::connected(&settings(&redis.url())).await;
    let over = (1 << 53) + 1;
    let requests = vec![
        RateLeaseRequest {
            version: over,
            ..ten(1, 1)
        },
        RateLeaseRequest {
            wants: over,
            ..ten(1, 1)
        },
        RateLeaseRequest {
            demand: vec![0; 513].into(),
            ..ten(1, 1)
        },
        RateLeaseRequest {
            ended: vec![(7, 7); 4_097],
            ..ten(1, 1)
        },
    ];
    for result in replica.leases.exchange(requests).await {
        assert_eq!(result, Err(StoreFault::UnexpectedReply));
    }
    let keys: Vec<String> = redis.say(&["KEYS", "tg:{quota}:*"]);
    assert!(keys.is_empty(), "{keys:?}");
    assert_eq!(replica.leases.exchange(Vec::new()).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_store_closes_its_connection() {
    let redis = RedisServer::start(&[]);
    let replica = Replica::connected(&settings(&redis.url())).await;
    one(&replica, ten(1, 1)).await.unwrap();
    let Replica { store, leases, .. } = replica;
    drop(store);
    until_async("the connection is closed", async || {
        let exchanged = leases.exchange(vec![ten(1, 2)]).await;
        let clients: String = redis.say(&["CLIENT", "LIST"]);
        // The test's own is one.
        if exchanged == [Err(StoreFault::NotConnected)] && clients.lines().count() == 1 {
            Ok(())
        } else {
            Err((exchanged, clients))
        }
    })
    .await;
}
