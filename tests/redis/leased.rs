//! Leases on a real Redis: never more than the limit, all of it in the end, and few calls.
//! `tests/store/leased` shows the rest on simulated time.

use tokio::task::JoinSet;
use tollgate_test_support::grpc_client::Code;
use tollgate_test_support::polling::wait_for;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::Tollgate;

use super::{RECOVERY, ask, client, replica};

const LIMIT: usize = 1_000;

const RULES: &str = "
domain: d
descriptors:
- { key: k, value: fixed_window, rate_limit: { unit: year, requests_per_unit: 1000 } }
- { key: k, value: sliding_window, rate_limit: { unit: year, requests_per_unit: 1000, algorithm: sliding_window } }
- { key: k, value: token_bucket, rate_limit: { unit: year, requests_per_unit: 1000, algorithm: token_bucket } }
- { key: k, value: sliding_log, rate_limit: { unit: year, requests_per_unit: 1000, algorithm: sliding_log } }
- { key: k, value: wide, rate_limit: { unit: year, requests_per_unit: 1000000 } }
";

fn leased(url: &str) -> Tollgate {
    leased_for(url, "200")
}

/// A replica that holds hits for this many milliseconds.
fn leased_for(url: &str, age_ms: &str) -> Tollgate {
    let arguments = [
        "--store",
        url,
        "--store-mode",
        "leased",
        "--lease-age-max-ms",
        age_ms,
        "--store-deadline-ms",
        "20000",
    ];
    replica(RULES, &arguments)
}

/// Sends many requests at once to each replica; returns how many passed.
async fn burst(replicas: &[Tollgate], in_flight: usize, each: usize, key: &'static str) -> usize {
    let mut tasks = JoinSet::new();
    for replica in replicas {
        let client = client(replica).await;
        for _ in 0..in_flight {
            let mut client = client.clone();
            tasks.spawn(async move {
                let mut passed = 0;
                for _ in 0..each {
                    passed += usize::from(ask(&mut client, key).await.unwrap() == Code::Ok);
                }
                passed
            });
        }
    }
    tasks.join_all().await.into_iter().sum()
}

/// Sends requests until this many have passed in all, and then one more.
async fn ask_on(replicas: &[Tollgate], mut passed: usize, wanted: usize, key: &'static str) {
    let end = tokio::time::Instant::now() + RECOVERY;
    while passed < wanted && tokio::time::Instant::now() < end {
        passed += burst(replicas, 1, 5, key).await;
    }
    passed += burst(replicas, 4, 5, key).await;
    assert_eq!(passed, wanted, "{key}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_replicas_never_pass_the_limit_and_reach_it() {
    let redis = RedisServer::start(&[]);
    let replicas = [0; 3].map(|_| leased(&redis.url()));
    for key in [
        "fixed_window",
        "sliding_window",
        "token_bucket",
        "sliding_log",
    ] {
        let passed = burst(&replicas, 128, 10, key).await;
        assert!(passed <= LIMIT, "{key}: {passed}");
        ask_on(&replicas, passed, LIMIT, key).await;
    }
    // One rule has no leases, and the log says so at start.
    let said = replicas[0].said();
    assert!(
        said.contains("some rules use exact mode despite --store-mode leased"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_calls_decide_many_checks() {
    let redis = RedisServer::start(&[]);
    let replicas = [leased(&redis.url())];
    assert_eq!(burst(&replicas, 32, 200, "wide").await, 6_400);
    let calls = replicas[0].metric("tollgate_lease_calls_total");
    assert!(calls < 320, "{calls}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_replica_loses_only_the_hits_it_held() {
    let redis = RedisServer::start(&[]);
    let mut replicas = vec![
        leased(&redis.url()),
        leased(&redis.url()),
        leased(&redis.url()),
    ];
    let mut passed = burst(&replicas, 16, 10, "fixed_window").await;
    let mut dead = replicas.remove(0);
    let held = usize::try_from(dead.metric("tollgate_lease_hits_held")).unwrap();
    dead.signal("KILL");
    assert!(dead.wait(RECOVERY).is_some());
    let end = tokio::time::Instant::now() + RECOVERY;
    while passed + held < LIMIT && tokio::time::Instant::now() < end {
        passed += burst(&replicas, 4, 20, "fixed_window").await;
    }
    for _ in 0..5 {
        passed += burst(&replicas, 4, 20, "fixed_window").await;
    }
    assert!(passed <= LIMIT && passed + held >= LIMIT, "{passed} {held}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_replica_returns_its_leased_hits() {
    let redis = RedisServer::start(&[]);
    let mut replicas = vec![leased_for(&redis.url(), "60000"), leased(&redis.url())];
    let passed = burst(&replicas[..1], 16, 10, "fixed_window").await;
    let mut stopped = replicas.remove(0);
    assert!(stopped.metric("tollgate_lease_hits_held") > 0);
    stopped.signal("TERM");
    assert!(stopped.wait(RECOVERY).is_some(), "{}", stopped.said());
    ask_on(&replicas, passed, LIMIT, "fixed_window").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hits_are_returned_later_when_redis_is_read_only() {
    let redis = RedisServer::start(&[]);
    let replicas = [leased_for(&redis.url(), "500")];
    let passed = burst(&replicas, 16, 40, "wide").await;
    let metric = |name: &str| replicas[0].metric(name);
    assert!(metric("tollgate_lease_hits_held") > 0);
    let _: redis::Value = redis.say(&["REPLICAOF", "127.0.0.1", "1"]);
    // It has tried and was rejected.
    let ended = || (metric("tollgate_lease_hits_held") == 0).then_some(());
    assert!(wait_for(RECOVERY, ended).is_some());
    let refused = || (metric("tollgate_store_up") == 0).then_some(());
    assert!(wait_for(RECOVERY, refused).is_some());
    let returns = metric("tollgate_lease_returns_total");
    let _: redis::Value = redis.say(&["REPLICAOF", "NO", "ONE"]);
    let returned = || (metric("tollgate_lease_returns_total") > returns).then_some(());
    assert!(wait_for(RECOVERY, returned).is_some());
    assert_eq!(metric("tollgate_lease_returns_lost_total"), 0);
    let mut client = client(&replicas[0]).await;
    let left = super::left(&mut client, "wide").await;
    assert_eq!(usize::try_from(left).unwrap(), 1_000_000 - passed);
}

#[test]
fn leases_without_a_leasable_rule_are_reported() {
    let alone = Tollgate::start(RULES, &["--store-mode", "leased"]);
    assert!(alone.said().contains("set --store"), "{}", alone.said());
}
