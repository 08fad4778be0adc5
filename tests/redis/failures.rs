//! A Redis that is frozen, killed, cut off or absent: every answer comes in time, as the policy
//! says, and afterwards the service recovers.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tollgate_test_support::grpc_client::Code;
use tollgate_test_support::polling::wait_for;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::Tollgate;

use super::{RECOVERY, RULES, ask, client, decides, left, replica, verbose};

/// The store's deadline in these tests: the machine is busy with other tests.
const DEADLINE_MS: &str = "250";

/// How long an answer may take: the deadline and some time for the machine.
const IN_TIME: Duration = Duration::from_secs(1);

/// The answer to a request that the store does not decide.
fn answer_of(policy: &str) -> Result<Code, tonic::Code> {
    match policy {
        "error" => Err(tonic::Code::Unavailable),
        "deny" => Ok(Code::OverLimit),
        _ => Ok(Code::Ok),
    }
}

/// Sends requests for this many new keys, many at a time: every answer, and the longest wait.
#[allow(clippy::disallowed_methods)] // it is the wait that is measured
async fn flood(
    tollgate: &Tollgate,
    name: &str,
    keys: usize,
) -> (Vec<Result<Code, tonic::Code>>, Duration) {
    let client = client(tollgate).await;
    let mut tasks = JoinSet::new();
    for task in 0..100 {
        let mut client = client.clone();
        let name = name.to_owned();
        tasks.spawn(async move {
            let (mut answers, mut longest) = (Vec::new(), Duration::ZERO);
            for key in 0..keys / 100 {
                let began = Instant::now();
                answers.push(ask(&mut client, &format!("{name}-{task}-{key}")).await);
                longest = longest.max(began.elapsed());
            }
            (answers, longest)
        });
    }
    let (mut answers, mut longest) = (Vec::new(), Duration::ZERO);
    for (some, wait) in tasks.join_all().await {
        answers.extend(some);
        longest = longest.max(wait);
    }
    (answers, longest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_redis_delays_no_answer_and_is_used_again_when_it_resumes() {
    for policy in ["error", "allow", "deny", "local"] {
        let redis = RedisServer::start(&[]);
        let url = redis.url();
        let arguments = [
            "--store",
            &url,
            "--store-deadline-ms",
            DEADLINE_MS,
            "--on-store-failure",
            policy,
        ];
        let mut tollgate = replica(RULES, &arguments);
        let mut client = client(&tollgate).await;
        assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
        redis.signal("STOP");
        let keys = 50_000;
        let (answers, longest) = flood(&tollgate, "frozen", keys).await;
        assert!(longest < IN_TIME, "{policy}: {longest:?}");
        let as_said = answers
            .iter()
            .filter(|answer| **answer == answer_of(policy))
            .count();
        assert_eq!(as_said, answers.len(), "{policy}");
        let shown = verbose(&tollgate);
        assert!(shown.contains("[-] store: 127.0.0.1:"), "{shown}");
        assert!(shown.ends_with("ready\n"), "{shown}");
        assert!(!shown.contains("not ready"), "{shown}");
        // Checks that were sent before the breaker opened have an unknown outcome and are counted.
        assert!(tollgate.metric("tollgate_store_unknown_outcomes_total") > 0);
        redis.signal("CONT");
        decides(&tollgate, RECOVERY);
        let (answers, _) = flood(&tollgate, "thawed", 1_000).await;
        let good = answers.iter().all(|answer| *answer == Ok(Code::Ok));
        assert!(good, "{policy}");
        assert_eq!(left(&mut client, "a").await, 999);
        let local = tollgate.metric("tollgate_store_decided_locally_total");
        assert_eq!(local > 0, policy == "local", "{policy}: {local}");
        assert!(tollgate.running());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_redis_does_not_hold_up_a_stop() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    let mut tollgate = replica(RULES, &["--store", &url, "--drain-delay", "0"]);
    redis.signal("STOP");
    flood(&tollgate, "frozen", 1_000).await;
    tollgate.signal("TERM");
    assert!(tollgate.wait(Duration::from_secs(8)).unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_starts_without_redis_and_uses_it_once_it_is_up() {
    let port = RedisServer::later();
    let url = format!("redis://127.0.0.1:{port}");
    let arguments = ["--store", &url, "--on-store-failure", "deny"];
    let arguments = [arguments.as_slice(), &["--store-deadline-ms", "5000"]].concat();
    let tollgate = Tollgate::start(RULES, &arguments);
    let mut client = client(&tollgate).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::OverLimit));
    let shown = verbose(&tollgate);
    assert!(shown.contains("[-] store: 127.0.0.1:"), "{shown}");
    assert_eq!(tollgate.metric("tollgate_store_up"), 0);
    assert_eq!(
        tollgate.metric("tollgate_store_failure_answers_total{answer=\"deny\"}"),
        1
    );
    let _redis = RedisServer::start_at(port);
    decides(&tollgate, RECOVERY);
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    let shown = verbose(&tollgate);
    assert!(shown.contains("[+] store: 127.0.0.1:"), "{shown}");
    recovery_is_logged(&tollgate, "connected to the store");
}

/// Waits until the default log, which shows warnings, has a failure of the store and its end.
fn recovery_is_logged(tollgate: &Tollgate, end: &str) {
    let logged = || {
        let said = tollgate.said();
        let (_, after) = said.split_once("--on-store-failure applies")?;
        let mut lines = after.lines();
        let line = lines.find(|line| line.contains(end))?;
        line.contains(" WARN ").then_some(())
    };
    let logged = wait_for(RECOVERY * 2, logged);
    assert!(logged.is_some(), "{}", tollgate.said());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_redis_is_used_again() {
    let mut redis = RedisServer::start(&[]);
    let url = redis.url();
    let tollgate = replica(
        RULES,
        &["--store", &url, "--store-deadline-ms", DEADLINE_MS],
    );
    let mut client = client(&tollgate).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    redis.kill();
    let (answers, longest) = flood(&tollgate, "dead", 1_000).await;
    assert!(longest < IN_TIME, "{longest:?}");
    let refused = Err(tonic::Code::Unavailable);
    assert!(answers.iter().all(|answer| *answer == refused));
    redis.start_again();
    decides(&tollgate, RECOVERY);
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    assert!(tollgate.metric("tollgate_store_breaker_opened_total") > 0);
    recovery_is_logged(&tollgate, "connected to the store");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_is_reopened_without_an_error() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    let tollgate = replica(RULES, &["--store", &url, "--store-deadline-ms", "5000"]);
    let mut client = client(&tollgate).await;
    for round in 1..=5 {
        let killed: i64 = redis.say(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        assert!(killed > 0);
        // The request that finds the fault may have an unknown outcome; all others are decided.
        let first = ask(&mut client, "a").await;
        let unknown = tollgate.metric("tollgate_store_unknown_outcomes_total");
        assert!(first == Ok(Code::Ok) || unknown > 0, "{first:?}");
        for _ in 0..10 {
            assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
        }
        let made = tollgate.metric("tollgate_store_connections_total");
        assert_eq!(made, round + 1);
    }
    assert_eq!(tollgate.metric("tollgate_store_breaker_opened_total"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_replica_enforces_its_part_while_redis_is_down() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    let arguments = [
        "--store",
        &url,
        "--on-store-failure",
        "local",
        "--store-deadline-ms",
        "200",
    ];
    let replicas = [0; 2].map(|_| replica(RULES, &arguments));
    for replica in &replicas {
        let two = || (replica.metric("tollgate_store_replicas") == 2).then_some(());
        assert!(wait_for(RECOVERY, two).is_some());
    }
    redis.signal("STOP");
    let mut passed = 0;
    for replica in &replicas {
        let mut client = client(replica).await;
        for _ in 0..700 {
            passed += usize::from(ask(&mut client, "a").await == Ok(Code::Ok));
        }
    }
    assert_eq!(passed, 1_000);
    redis.signal("CONT");
    for replica in &replicas {
        decides(replica, RECOVERY);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_domain_s_failure_policy_overrides_the_server_s() {
    let port = RedisServer::later();
    let url = format!("redis://127.0.0.1:{port}");
    let rules = RULES.replace("domain: d", "domain: d\non_store_failure: allow");
    let tollgate = Tollgate::start(&rules, &["--store", &url, "--on-store-failure", "deny"]);
    let mut client = client(&tollgate).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    let counted = tollgate.metric("tollgate_store_failure_answers_total{answer=\"allow\"}");
    assert_eq!(counted, 1);
}
