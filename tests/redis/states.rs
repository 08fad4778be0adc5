//! A Redis that runs and cannot decide: read-only, out of memory, busy, loading, unable to save, a
//! cluster with a gap, without the script. Each state is reported as itself, and the service
//! recovers.

use std::time::Duration;

use tollgate_test_support::grpc_client::Code;
use tollgate_test_support::polling::wait_for;
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::redis_server::cluster::Node;
use tollgate_test_support::tollgate_process::{Tollgate, tollgate_binary};

use super::{RECOVERY, RULES, ask, client, decides, replica, verbose};

fn undecided(tollgate: &Tollgate, reason: &str) -> u64 {
    tollgate.metric(&format!(
        "tollgate_store_undecided_total{{reason=\"{reason}\"}}"
    ))
}

/// Brings the server into a state and out of it, and checks what is reported meanwhile.
async fn while_it_is(set: &[&str], back: &[&str], reason: &str, words: &str) {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    let tollgate = replica(RULES, &["--store", &url, "--store-deadline-ms", "5000"]);
    let mut client = client(&tollgate).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    let _: redis::Value = redis.say(set);
    assert_eq!(ask(&mut client, "a").await, Err(tonic::Code::Unavailable));
    assert!(undecided(&tollgate, reason) > 0, "{}", tollgate.said());
    assert_eq!(tollgate.metric("tollgate_store_unknown_outcomes_total"), 0);
    let told = || verbose(&tollgate).contains(words).then_some(());
    assert!(wait_for(RECOVERY, told).is_some(), "{}", verbose(&tollgate));
    let _: redis::Value = redis.say(back);
    decides(&tollgate, RECOVERY);
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_of_redis_is_read_only() {
    let replica_of = ["REPLICAOF", "127.0.0.1", "1"];
    let back = ["REPLICAOF", "NO", "ONE"];
    while_it_is(&replica_of, &back, "read_only", "it is read-only").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_without_memory_is_reported() {
    let full = ["CONFIG", "SET", "maxmemory", "1"];
    let back = ["CONFIG", "SET", "maxmemory", "0"];
    while_it_is(&full, &back, "out_of_memory", "no memory left").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_whose_script_hangs_is_busy() {
    let redis = RedisServer::start(&["--lua-time-limit", "10"]);
    let url = redis.url();
    let tollgate = replica(RULES, &["--store", &url, "--store-deadline-ms", "100"]);
    let mut client = client(&tollgate).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    let mut connection = redis.connection();
    let hanging = std::thread::spawn(move || {
        let mut command = redis::cmd("EVAL");
        command.arg("while true do end").arg(0);
        command.query::<redis::Value>(&mut connection)
    });
    let busy = || (undecided(&tollgate, "busy") > 0).then_some(());
    let mut seen = None;
    for _ in 0..200 {
        // While the breaker is open no call is sent; the probes' findings are reported.
        let _ = ask(&mut client, "a").await;
        seen = busy().or_else(|| {
            let shown = verbose(&tollgate);
            shown.contains("another script keeps it busy").then_some(())
        });
        if seen.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(seen.is_some(), "{}", verbose(&tollgate));
    let killed: redis::Value = redis.say(&["SCRIPT", "KILL"]);
    assert_eq!(killed, redis::Value::Okay);
    assert!(hanging.join().unwrap().is_err());
    decides(&tollgate, RECOVERY);
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_script_is_sent_again_without_an_error() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    let tollgate = replica(RULES, &["--store", &url, "--store-deadline-ms", "5000"]);
    let mut client = client(&tollgate).await;
    for round in 1..=3 {
        let _: redis::Value = redis.say(&["SCRIPT", "FLUSH"]);
        assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
        assert_eq!(super::left(&mut client, "a").await, 1_000 - round);
        let again = tollgate.metric("tollgate_store_scripts_sent_again_total");
        assert_eq!(again, u64::from(round));
    }
    assert_eq!(tollgate.metric("tollgate_store_unknown_outcomes_total"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_is_not_a_bucket_is_kept_and_reported() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    let arguments = ["--store", &url, "--store-deadline-ms", "5000"];
    let tollgate = replica(
        RULES,
        &[&arguments[..], &["--cache-key-prefix", "mine:"]].concat(),
    );
    let mut client = client(&tollgate).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    let keys: Vec<String> = redis.say(&["KEYS", "mine:tg:{*"]);
    assert_eq!(keys.len(), 1, "{keys:?}");
    let _: redis::Value = redis.say(&["SET", &keys[0], "something else"]);
    assert_eq!(ask(&mut client, "a").await, Err(tonic::Code::Unavailable));
    assert_eq!(undecided(&tollgate, "garbled"), 1);
    let stays: String = redis.say(&["GET", &keys[0]]);
    assert_eq!(stays, "something else");
    // Other buckets are still decided.
    assert_eq!(ask(&mut client, "b").await, Ok(Code::Ok));
    assert_eq!(tollgate.metric("tollgate_store_up"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_prints_the_bucket_name_under_the_replicas_own_key() {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
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
    let serve = [
        &["--store", &url, "--store-deadline-ms", "5000"],
        &naming[..],
    ]
    .concat();
    let tollgate = replica(RULES, &serve);
    let mut client = client(&tollgate).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    let keys: Vec<String> = redis.say(&["KEYS", "mine:tg:{*"]);
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
    let url = redis.url();
    let tollgate = replica(RULES, &["--store", &url, "--store-deadline-ms", "5000"]);
    let mut client = client(&tollgate).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    // Not even root can put a file where a folder is.
    let folder = redis.directory().join("taken");
    std::fs::create_dir(&folder).unwrap();
    let _: redis::Value = redis.say(&["CONFIG", "SET", "save", "3600 1"]);
    let _: redis::Value = redis.say(&["BGSAVE"]);
    let saved = |word: &str| {
        let info: String = redis.say(&["INFO", "persistence"]);
        let status = format!("rdb_last_bgsave_status:{word}");
        (info.contains(&status) && info.contains("rdb_bgsave_in_progress:0")).then_some(())
    };
    assert!(wait_for(RECOVERY, || saved("err")).is_some());
    assert_eq!(ask(&mut client, "a").await, Err(tonic::Code::Unavailable));
    assert!(
        undecided(&tollgate, "cannot_persist") > 0,
        "{}",
        tollgate.said()
    );
    let told = || {
        verbose(&tollgate)
            .contains("refuses writes (MISCONF)")
            .then_some(())
    };
    assert!(wait_for(RECOVERY, told).is_some(), "{}", verbose(&tollgate));
    std::fs::remove_dir(folder).unwrap();
    let _: redis::Value = redis.say(&["BGSAVE"]);
    decides(&tollgate, RECOVERY);
    assert_eq!(super::left(&mut client, "a").await, 999);
    assert_eq!(tollgate.metric("tollgate_store_unknown_outcomes_total"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_loading_is_reported() {
    let mut redis = RedisServer::start(&["--enable-debug-command", "yes"]);
    let url = redis.url();
    let tollgate = replica(RULES, &["--store", &url, "--store-deadline-ms", "5000"]);
    let mut client = client(&tollgate).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    let _: redis::Value = redis.say(&["DEBUG", "POPULATE", "2000"]);
    let _: redis::Value = redis.say(&["SAVE"]);
    redis.kill();
    // A millisecond per key, and a check of its connections every kilobyte.
    let slow = [
        "--key-load-delay",
        "1000",
        "--loading-process-events-interval-bytes",
        "1024",
    ];
    redis.start_again_with(&slow);
    let told = || {
        verbose(&tollgate)
            .contains("it is loading its data set")
            .then_some(())
    };
    assert!(wait_for(RECOVERY, told).is_some(), "{}", verbose(&tollgate));
    assert_eq!(ask(&mut client, "a").await, Err(tonic::Code::Unavailable));
    assert!(undecided(&tollgate, "loading") > 0, "{}", tollgate.said());
    decides(&tollgate, 2 * RECOVERY);
    // It knows what it had saved.
    assert_eq!(super::left(&mut client, "a").await, 999);
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
    let tollgate = replica(RULES, &["--store", &url, "--store-deadline-ms", "5000"]);
    let mut client = client(&tollgate).await;
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    let keys: Vec<String> = redis.say(&["KEYS", "tg:{*}:?????*"]);
    let slot: u16 = redis.say(&["CLUSTER", "KEYSLOT", &keys[0]]);
    let slot = slot.to_string();
    // Without one of its slots it serves none.
    say(&["CLUSTER", "DELSLOTS", &slot]);
    let down = || {
        let info: String = redis.say(&["CLUSTER", "INFO"]);
        info.contains("cluster_state:fail").then_some(())
    };
    assert!(wait_for(RECOVERY, down).is_some());
    assert_eq!(ask(&mut client, "b").await, Err(tonic::Code::Unavailable));
    assert!(
        undecided(&tollgate, "cluster_down") > 0,
        "{}",
        tollgate.said()
    );
    let told = || verbose(&tollgate).contains("[-] store: ").then_some(());
    assert!(wait_for(RECOVERY, told).is_some(), "{}", verbose(&tollgate));
    let shown = verbose(&tollgate);
    assert!(shown.contains("its cluster is down"), "{shown}");
    // With this setting it serves the others.
    say(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    let served = async {
        while ask(&mut client, "b").await != Ok(Code::Ok) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let served = tokio::time::timeout(2 * RECOVERY, served).await;
    assert!(served.is_ok(), "{}", verbose(&tollgate));
    assert_eq!(ask(&mut client, "a").await, Err(tonic::Code::Unavailable));
    let shown = verbose(&tollgate);
    assert!(
        shown.contains(&format!("slot {slot} and 0 more of ours have no server")),
        "{shown}"
    );
    say(&["CLUSTER", "ADDSLOTS", &slot]);
    decides(&tollgate, RECOVERY);
    assert_eq!(ask(&mut client, "a").await, Ok(Code::Ok));
    assert_eq!(tollgate.metric("tollgate_store_unknown_outcomes_total"), 0);
}
