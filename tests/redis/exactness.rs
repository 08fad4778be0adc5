//! Three replicas with a hundred and twenty-eight requests in flight on each, and a limit of a
//! thousand: a thousand pass.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;
use tollgate_limiter::ALGORITHMS;
use tollgate_test_support::grpc_client::Code;
use tollgate_test_support::in_process::limit_of;
use tollgate_test_support::redis_server::RedisServer;

use super::{ask, client, replica};

pub(super) const IN_FLIGHT: usize = 128;
const EACH: usize = 10;

/// A limit in this algorithm that refills nothing while a test runs.
pub(super) fn rules() -> String {
    let mut rules = "domain: d\ndescriptors:\n".to_owned();
    for algorithm in ALGORITHMS {
        let limit = limit_of(1_000, *algorithm).replace("unit: hour", "unit: year");
        let name = algorithm.name();
        let _ = writeln!(rules, "- {{ key: k, value: {name}, rate_limit: {limit} }}");
    }
    rules
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_replicas_let_exactly_a_thousand_pass_in_every_algorithm() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    // The denial cache would save most calls, and this test needs the store.
    let arguments = [
        "--store",
        &url,
        "--store-deadline-ms",
        "20000",
        "--store-over-limit-cache-ms",
        "0",
    ];
    let rules = rules();
    let replicas = [0; 3].map(|_| replica(&rules, &arguments));
    for algorithm in ALGORITHMS {
        let mut tasks = JoinSet::new();
        for replica in &replicas {
            let client = client(replica).await;
            for _ in 0..IN_FLIGHT {
                let mut client = client.clone();
                tasks.spawn(async move {
                    let mut passed = 0;
                    for _ in 0..EACH {
                        let answer = ask(&mut client, algorithm.name()).await;
                        passed += usize::from(answer.unwrap() == Code::Ok);
                    }
                    passed
                });
            }
        }
        let passed: usize = tasks.join_all().await.into_iter().sum();
        assert_eq!(passed, 1_000, "{algorithm:?}");
    }
    for replica in &replicas {
        assert_eq!(replica.metric("tollgate_store_unknown_outcomes_total"), 0);
        // Calls carried many checks.
        let checks = replica.metric("tollgate_store_call_checks_sum");
        let calls = replica.metric("tollgate_store_call_checks_count");
        assert_eq!(checks, (ALGORITHMS.len() * IN_FLIGHT * EACH) as u64);
        assert!(calls * 2 < checks, "{calls} calls for {checks} checks");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_replica_loses_only_the_checks_in_flight() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    let arguments = ["--store", &url, "--store-deadline-ms", "20000"];
    let mut replicas = [0; 3].map(|_| replica(super::RULES, &arguments));
    let passed = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for replica in &replicas {
        let client = client(replica).await;
        for _ in 0..IN_FLIGHT {
            let (mut client, passed) = (client.clone(), Arc::clone(&passed));
            tasks.spawn(async move {
                for _ in 0..EACH {
                    match ask(&mut client, "a").await {
                        Ok(Code::Ok) => passed.fetch_add(1, Ordering::Relaxed),
                        Ok(_) => 0,
                        // Whether it passed is unknown.
                        Err(_) => return 1,
                    };
                }
                0
            });
        }
    }
    while passed.load(Ordering::Relaxed) < 100 {
        tokio::task::yield_now().await;
    }
    replicas[0].signal("KILL");
    let unknown: usize = tasks.join_all().await.into_iter().sum();
    let passed = passed.load(Ordering::Relaxed);
    assert!(unknown > 0, "it was killed in the middle");
    assert!(unknown <= IN_FLIGHT);
    assert!(
        passed <= 1_000 && passed + unknown >= 1_000,
        "{passed} {unknown}"
    );
    assert!(!replicas[0].running());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_denial_cache_answers_for_a_bounded_time() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    let rules = super::RULES.replace("1000", "3");
    let arguments = ["--store", &url, "--store-deadline-ms", "5000"];
    let (one, other) = (replica(&rules, &arguments), replica(&rules, &arguments));
    let mut client = client(&one).await;
    let cached = || one.metric("tollgate_store_over_limit_cache_answers_total");
    for _ in 0..3 {
        assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    }
    for _ in 0..10 {
        assert_eq!(ask(&mut client, "a").await, Ok(Code::OverLimit));
    }
    assert!(cached() >= 8, "{}", cached());
    // The bucket is deleted, as if by another replica: this shows after a second.
    let mut keys: Vec<String> = redis.say(&["KEYS", "tg:{*"]);
    assert_eq!(keys.len(), 1, "{keys:?}");
    let deleted: i64 = redis.say(&["DEL", &keys.remove(0)]);
    assert_eq!(deleted, 1);
    let seen = async {
        while ask(&mut client, "a").await != Ok(Code::Ok) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::RECOVERY, seen).await.unwrap();
    assert_eq!(other.metric("tollgate_store_replicas"), 2);
}
