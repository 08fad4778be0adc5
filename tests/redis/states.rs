//! A Redis that runs and cannot decide: read-only, out of memory, busy, loading, unable to save, a
//! cluster with a gap, without the script. Each state is reported as itself, and the service
//! recovers.
//!
//! A heartbeat may find the state before a request does. So the tests read the page, which shows
//! the state in both cases; `error_class` has the reasons that are counted.

use tollgate_test_support::grpc_client::Code;
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::until;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::redis_server::cluster::Node;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use super::{RULES, ask, buckets, decides, left, passes, patient, reservations, shared, shows};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_takes_no_writes_is_reported() {
    let states: [(&[&str], &[&str], &str); 2] = [
        (
            &["REPLICAOF", "127.0.0.1", "1"],
            &["REPLICAOF", "NO", "ONE"],
            "it is read-only",
        ),
        (
            &["CONFIG", "SET", "maxmemory", "1"],
            &["CONFIG", "SET", "maxmemory", "0"],
            "no memory left",
        ),
    ];
    for (set, back, words) in states {
        let redis = RedisServer::start(&[]);
        let (tollgate, mut client) = shared(&redis.url(), &[]).await;
        assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
        let _: redis::Value = redis.say(set);
        assert_eq!(ask(&mut client, "a").await, Err(tonic::Code::Unavailable));
        assert_eq!(tollgate.metric("tollgate_store_unknown_outcomes_total"), 0);
        shows(&tollgate, words);
        let _: redis::Value = redis.say(back);
        decides(&tollgate);
        assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_whose_script_hangs_is_busy() {
    let redis = RedisServer::start(&["--lua-time-limit", "10"]);
    let (tollgate, mut client) = shared(&redis.url(), &[]).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    let mut connection = redis.connection();
    let hanging = std::thread::spawn(move || {
        let mut command = redis::cmd("EVAL");
        command.arg("while true do end").arg(0);
        command.query::<redis::Value>(&mut connection)
    });
    shows(&tollgate, "another script keeps it busy");
    assert_eq!(ask(&mut client, "a").await, Err(tonic::Code::Unavailable));
    let killed: redis::Value = redis.say(&["SCRIPT", "KILL"]);
    assert_eq!(killed, redis::Value::Okay);
    assert!(hanging.join().unwrap().is_err());
    decides(&tollgate);
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_script_is_sent_again_without_an_error() {
    let redis = RedisServer::start(&[]);
    let (tollgate, mut client) = shared(&redis.url(), &[]).await;
    for round in 1..=3 {
        let _: redis::Value = redis.say(&["SCRIPT", "FLUSH"]);
        assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
        assert_eq!(left(&mut client, "a").await, 1_000 - round);
        let again = tollgate.metric("tollgate_store_scripts_sent_again_total");
        assert_eq!(again, u64::from(round));
    }
    assert_eq!(tollgate.metric("tollgate_store_unknown_outcomes_total"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_is_not_a_bucket_is_kept_and_reported() {
    let redis = RedisServer::start(&[]);
    let (tollgate, mut client) = shared(&redis.url(), &["--cache-key-prefix", "mine:"]).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    let keys = buckets(&redis);
    assert!(keys.len() == 1 && keys[0].starts_with("mine:"), "{keys:?}");
    let _: redis::Value = redis.say(&["SET", &keys[0], "something else"]);
    assert_eq!(ask(&mut client, "a").await, Err(tonic::Code::Unavailable));
    let garbled = "tollgate_store_undecided_total{reason=\"garbled\"}";
    assert_eq!(tollgate.metric(garbled), 1);
    let stays: String = redis.say(&["GET", &keys[0]]);
    assert_eq!(stays, "something else");
    // Other buckets are still decided.
    assert_eq!(ask(&mut client, "b").await, Ok(Code::Ok));
    assert_eq!(tollgate.metric("tollgate_store_up"), 1);
}

/// Sets the rights of the user of all connections that have no other.
fn grant(redis: &RedisServer, rights: &str) {
    let _: redis::Value = redis.say(&["ACL", "SETUSER", "default", rights]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_an_acl_denies_within_the_script_opens_the_breaker() {
    const CHECKS: u64 = 200;
    let redis = RedisServer::start(&[]);
    let (tollgate, mut client) = shared(&redis.url(), &[]).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    grant(&redis, "-mget");
    for _ in 0..CHECKS {
        assert_eq!(ask(&mut client, "a").await, Err(tonic::Code::Unavailable));
    }
    shows(&tollgate, "[-] store: ");
    shows(&tollgate, "there is no access to it");
    assert!(tollgate.metric("tollgate_store_breaker_opened_total") > 0);
    // Three calls at most were sent, if no heartbeat found it before.
    let sent = tollgate.metric("tollgate_store_unknown_outcomes_total");
    assert!(sent <= 3, "{sent}");
    let said = tollgate.said();
    let lines = said.lines().filter(|line| line.contains("store=")).count();
    assert!(lines < 10, "{said}");
    grant(&redis, "+mget");
    decides(&tollgate);
    assert_eq!(left(&mut client, "a").await, 999);
    // The same from the start: it is never ready.
    grant(&redis, "-mget");
    let tollgate = Tollgate::start(RULES, &patient(&redis.url(), &[]));
    shows(&tollgate, "there is no access to it");
    assert_eq!(http(tollgate.http, "GET", "/readyz", "").0, 500);
}

/// Checks are decided and reservations are not, so the connection is kept, and the page says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_decides_half_of_its_checks_is_not_healthy() {
    let redis = RedisServer::start(&[]);
    let (tollgate, mut client) = shared(&redis.url(), &[]).await;
    let mut api = reservations::client(&tollgate).await;
    grant(&redis, "-hset");
    for number in 0..20 {
        let denied = api.reserve(reservations::reserve("a", "id", 1)).await;
        assert_eq!(denied.unwrap_err().code(), tonic::Code::Unavailable);
        assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
        if number == 2 {
            shows(&tollgate, "[-] store: ");
            shows(&tollgate, "checks: its ACL forbids a command of the script");
        }
    }
    assert_eq!(tollgate.metric("tollgate_store_up"), 1);
    assert_eq!(tollgate.metric("tollgate_store_breaker_opened_total"), 0);
    let reason = "tollgate_store_undecided_total{reason=\"script_refused\"}";
    assert_eq!(tollgate.metric(reason), 20);
    // The share is that of the last ten to twenty seconds: the page recovers without a restart.
    grant(&redis, "+hset");
    api.reserve(reservations::reserve("a", "id", 1))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_prints_the_bucket_name_under_the_replicas_own_key() {
    let redis = RedisServer::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (rules, hash_key) = (
        file("rules.yaml", RULES),
        file("key", "0123456789abcdef0123456789abcdef\n"),
    );
    let naming = [
        "--store-hash-key-file",
        &hash_key,
        "--cache-key-prefix",
        "mine:",
    ];
    let (_tollgate, mut client) = shared(&redis.url(), &naming).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    let keys = buckets(&redis);
    let explained = |naming: &[&str]| {
        let output = std::process::Command::new(tollgate_binary())
            .args(["explain", &rules, "--key"])
            .args(naming)
            .args(["d", "k=a"])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let said = explained(&naming);
    assert!(
        said.contains(&format!("shared store: {}\n", keys[0])),
        "{said}"
    );
    assert!(
        !explained(&naming[2..]).contains(&keys[0]),
        "another key, another name"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_cannot_save_is_reported() {
    let arguments = [
        "--dbfilename",
        "taken",
        "--stop-writes-on-bgsave-error",
        "yes",
    ];
    let redis = RedisServer::start(&arguments);
    let (tollgate, mut client) = shared(&redis.url(), &[]).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    // Not even root can put a file where a folder is.
    let folder = redis.directory().join("taken");
    std::fs::create_dir(&folder).unwrap();
    let _: redis::Value = redis.say(&["CONFIG", "SET", "save", "3600 1"]);
    let _: redis::Value = redis.say(&["BGSAVE"]);
    until("saving has failed", || {
        let info: String = redis.say(&["INFO", "persistence"]);
        info.contains("rdb_last_bgsave_status:err") && info.contains("rdb_bgsave_in_progress:0")
    });
    assert_eq!(ask(&mut client, "a").await, Err(tonic::Code::Unavailable));
    shows(&tollgate, "refuses writes (MISCONF)");
    std::fs::remove_dir(folder).unwrap();
    let _: redis::Value = redis.say(&["BGSAVE"]);
    decides(&tollgate);
    assert_eq!(left(&mut client, "a").await, 999);
    assert_eq!(tollgate.metric("tollgate_store_unknown_outcomes_total"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_loading_is_reported() {
    let mut redis = RedisServer::start(&["--enable-debug-command", "yes"]);
    let (tollgate, mut client) = shared(&redis.url(), &[]).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    let _: redis::Value = redis.say(&["DEBUG", "POPULATE", "100000"]);
    let _: redis::Value = redis.say(&["SAVE"]);
    redis.kill();
    // A millisecond for each key, and a look at its connections every kilobyte: some fifty keys.
    let slow = [
        "--key-load-delay",
        "1000",
        "--loading-process-events-interval-bytes",
        "1024",
    ];
    redis.start_again_with(&slow);
    shows(&tollgate, "it is loading its data set");
    assert_eq!(ask(&mut client, "a").await, Err(tonic::Code::Unavailable));
    let _: redis::Value = redis.say(&["CONFIG", "SET", "key-load-delay", "0"]);
    decides(&tollgate);
    // It knows what it had saved.
    assert_eq!(left(&mut client, "a").await, 999);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_unserved_slots_is_reported() {
    let node = Node::start(&[]);
    let redis = &node.server;
    let say = |words: &[&str]| {
        let _: redis::Value = redis.say(words);
    };
    node.serve(0..=16_383);
    let url = format!("redis+cluster://127.0.0.1:{}", redis.port());
    let (tollgate, mut client) = shared(&url, &[]).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    let slot: u16 = redis.say(&["CLUSTER", "KEYSLOT", &buckets(redis)[0]]);
    let slot = slot.to_string();
    // Without one of its slots it serves none.
    say(&["CLUSTER", "DELSLOTS", &slot]);
    until("the cluster is down", || {
        let info: String = redis.say(&["CLUSTER", "INFO"]);
        info.contains("cluster_state:fail")
    });
    assert_eq!(ask(&mut client, "b").await, Err(tonic::Code::Unavailable));
    shows(&tollgate, "[-] store: ");
    shows(&tollgate, "its cluster is down");
    // With this setting it serves the others.
    say(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    passes(&mut client, "b").await;
    assert_eq!(ask(&mut client, "a").await, Err(tonic::Code::Unavailable));
    shows(
        &tollgate,
        &format!("slot {slot} and 0 more of ours have no server"),
    );
    say(&["CLUSTER", "ADDSLOTS", &slot]);
    decides(&tollgate);
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    assert_eq!(tollgate.metric("tollgate_store_unknown_outcomes_total"), 0);
}
