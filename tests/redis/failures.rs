//! A Redis that is frozen, killed, cut off or absent: every answer comes as the policy says, and
//! afterwards the service recovers.

use tokio::task::JoinSet;
use tollgate_test_support::grpc_client::Code;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::Tollgate;

use super::{RULES, ask, client, decides, left, patient, replica, shared, shows, verbose};

/// The deadline where Redis does not answer: a busy machine meets it.
const DEADLINE_MS: &str = "5000";

const IN_FLIGHT: usize = 100;

/// The store has so many calls in flight.
const CALLS_MAX: usize = 4;

/// The answer to a request that the store does not decide.
fn answer_of(policy: &str) -> Result<Code, tonic::Code> {
    match policy {
        "error" => Err(tonic::Code::Unavailable),
        "deny" => Ok(Code::OverLimit),
        _ => Ok(Code::Ok),
    }
}

/// Sends requests for this many new keys, a hundred at a time. Each must have this answer.
async fn flood(tollgate: &Tollgate, name: &str, keys: usize, expected: Result<Code, tonic::Code>) {
    let client = client(tollgate).await;
    let mut tasks = JoinSet::new();
    for task in 0..IN_FLIGHT {
        let mut client = client.clone();
        let name = name.to_owned();
        tasks.spawn(async move {
            for key in 0..keys / IN_FLIGHT {
                let answer = ask(&mut client, &format!("{name}-{task}-{key}")).await;
                assert_eq!(answer, expected, "{name}");
            }
        });
    }
    tasks.join_all().await;
}

/// All answers come while Redis is frozen. Only those wait for the deadline that are in flight when
/// it freezes: then the breaker opens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_redis_delays_no_answer_and_is_used_again_when_it_resumes() {
    for policy in ["error", "allow", "deny", "local"] {
        let redis = RedisServer::start(&[]);
        let url = redis.url();
        let arguments = [
            ["--store", &url],
            ["--store-deadline-ms", DEADLINE_MS],
            ["--on-store-failure", policy],
        ];
        let mut tollgate = replica(RULES, &arguments.concat());
        let mut client = client(&tollgate).await;
        assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
        redis.signal("STOP");
        flood(&tollgate, "frozen", 5_000, answer_of(policy)).await;
        let shown = verbose(&tollgate);
        assert!(shown.contains("[-] store: 127.0.0.1:"), "{shown}");
        assert!(shown.ends_with("ready\n"), "{shown}");
        assert!(!shown.contains("not ready"), "{shown}");
        let metric = |name: &str| tollgate.metric(name);
        assert!(metric("tollgate_store_breaker_opened_total") > 0);
        // Each call carries what is in flight, at most.
        let late = metric("tollgate_store_unknown_outcomes_total");
        assert!(late <= (CALLS_MAX * IN_FLIGHT) as u64, "{policy}: {late}");
        redis.signal("CONT");
        decides(&tollgate);
        flood(&tollgate, "thawed", 1_000, Ok(Code::Ok)).await;
        assert_eq!(left(&mut client, "a").await, 999);
        let local = metric("tollgate_store_decided_locally_total");
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
    flood(&tollgate, "frozen", 1_000, answer_of("error")).await;
    tollgate.signal("TERM");
    // Redis is still frozen.
    assert!(tollgate.wait().success());
}

/// Without Redis the policy of the domain applies, and the server's where the domain has none. The
/// service is ready only where it is not `error`: that is the default, and nobody's choice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_starts_without_redis_and_uses_it_once_it_is_up() {
    let allow = "\non_store_failure: allow";
    for (of_domain, of_server, policy) in [
        ("", "deny", "deny"),
        (allow, "error", "allow"),
        ("", "error", "error"),
    ] {
        let port = RedisServer::later();
        let url = format!("redis://127.0.0.1:{port}");
        let rules = RULES.replace("domain: d", &format!("domain: d{of_domain}"));
        let arguments = patient(&url, &["--on-store-failure", of_server]);
        let tollgate = Tollgate::start(&rules, &arguments);
        let mut client = client(&tollgate).await;
        assert_eq!(ask(&mut client, "a").await, answer_of(policy));
        let shown = verbose(&tollgate);
        assert!(shown.contains("[-] store: 127.0.0.1:"), "{shown}");
        let is_ready = || http(tollgate.http, "GET", "/readyz", "").0 == 200;
        if policy == "error" {
            shows(&tollgate, "[-] start: the store has not decided yet");
            assert!(!is_ready());
        } else {
            until("it is ready", is_ready);
            until("the choice is logged", || {
                tollgate.said().contains("ready without the store")
            });
        }
        assert_eq!(tollgate.metric("tollgate_store_up"), 0);
        let answers = format!("tollgate_store_failure_answers_total{{answer=\"{policy}\"}}");
        assert_eq!(tollgate.metric(&answers), 1);
        let _redis = RedisServer::start_at(port);
        until("a first check is decided", is_ready);
        decides(&tollgate);
        assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
        let shown = verbose(&tollgate);
        assert!(shown.contains("[+] store: 127.0.0.1:"), "{shown}");
        recovery_is_logged(&tollgate);
    }
}

/// Waits until the default log, which shows warnings, has a failure of the store and its end.
fn recovery_is_logged(tollgate: &Tollgate) {
    until("the recovery is logged", || {
        let said = tollgate.said();
        let logged = said
            .split_once("--on-store-failure applies")
            .is_some_and(|(_, after)| {
                let mut lines = after.lines();
                lines.any(|line| line.contains("connected to the store") && line.contains(" WARN "))
            });
        if logged { Ok(()) } else { Err(said) }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_redis_is_used_again() {
    let mut redis = RedisServer::start(&[]);
    let url = redis.url();
    let arguments = ["--store", &url, "--store-deadline-ms", DEADLINE_MS];
    let tollgate = replica(RULES, &arguments);
    let mut client = client(&tollgate).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    redis.kill();
    flood(&tollgate, "dead", 1_000, answer_of("error")).await;
    redis.start_again();
    decides(&tollgate);
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    assert!(tollgate.metric("tollgate_store_breaker_opened_total") > 0);
    recovery_is_logged(&tollgate);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_is_reopened_without_an_error() {
    let redis = RedisServer::start(&[]);
    let (tollgate, mut client) = shared(&redis.url(), &[]).await;
    let metric = |name: &str| tollgate.metric(name);
    for _ in 0..5 {
        let made = metric("tollgate_store_connections_total");
        let unknown = metric("tollgate_store_unknown_outcomes_total");
        let killed: i64 = redis.say(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        assert!(killed > 0);
        // The request that finds the fault may have an unknown outcome; all others are decided,
        // unless a busy machine takes longer than a second to connect.
        let opened = metric("tollgate_store_breaker_opened_total");
        let first = ask(&mut client, "a").await;
        let is_unknown = metric("tollgate_store_unknown_outcomes_total") > unknown;
        if metric("tollgate_store_breaker_opened_total") > opened {
            until("the log says that it took too long", || {
                let said = tollgate.said();
                said.contains("within 1000 ms").then_some(()).ok_or(said)
            });
            decides(&tollgate);
            continue;
        }
        assert!(first == Ok(Code::Ok) || is_unknown, "{first:?}");
        for _ in 0..10 {
            assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
        }
        assert!(metric("tollgate_store_connections_total") > made);
    }
}
