//! How many script runs the checks of a cluster need: one a node, whatever their slots, and one for
//! each slot where the node refuses the first way. Calls in flight and load of each master.
//!
//! Counted by the servers (`INFO commandstats`), so the numbers are exact. Not measured: time and
//! CPU (`make bench-redis-cluster`).

use std::collections::BTreeSet;

use tokio::task::JoinSet;
use tollgate_test_support::grpc_client::{Code, descriptor, request};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::redis_server::cluster::RedisCluster;
use tollgate_test_support::tollgate_process::Tollgate;

use super::{Client, RULES, becomes, buckets, client, connected, left, replica};

const BUCKETS: usize = 120;

/// Script runs of all servers so far.
fn runs(cluster: &RedisCluster) -> u64 {
    let of = |number: usize| {
        let stats: String = cluster.nodes[number].server.say(&["INFO", "commandstats"]);
        let calls = stats.lines().find_map(|line| {
            let calls = line.strip_prefix("cmdstat_evalsha:calls=")?;
            calls.split(',').next()?.parse::<u64>().ok()
        });
        calls.unwrap_or(0)
    };
    cluster.masters().into_iter().map(of).sum()
}

/// The script runs for all buckets: one a master, and on Valkey one for each hash tag.
fn expected(cluster: &RedisCluster) -> u64 {
    let server: String = cluster.nodes[0].server.say(&["INFO", "server"]);
    let buckets = cluster.keys("tg:{*}:?????*");
    let tags: BTreeSet<_> = buckets.iter().map(|bucket| &bucket[4..6]).collect();
    let runs = if server.contains("valkey_version") {
        tags.len()
    } else {
        cluster.masters().len()
    };
    runs as u64
}

/// A replica whose calls may take long.
fn patient_replica(cluster: &RedisCluster) -> Tollgate {
    let url = cluster.url();
    replica(RULES, &["--store", &url, "--store-deadline-ms", "60000"])
}

/// Takes a hit of each bucket in one request, which passes. Gives what each has left.
async fn ask_all(client: &mut Client, keys: &[String]) -> Vec<u32> {
    let descriptors = keys.iter().map(|key| descriptor(&[("k", key)])).collect();
    let answer = client.should_rate_limit(request("d", descriptors)).await;
    let answer = answer.unwrap().into_inner();
    assert_eq!(answer.overall_code, i32::from(Code::Ok));
    let statuses = answer.statuses.iter();
    statuses.map(|status| status.limit_remaining).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_of_many_slots_are_one_run_a_node() {
    let cluster = RedisCluster::start(3);
    let url = cluster.url();
    let settings = ["--store", &url, "--store-deadline-ms", "60000"];
    // A node's heartbeat is a script run as well, and due by a clock that stands still here.
    let service = connected(Service::start(RULES, &settings).await).await;
    let mut client = Service::connect(service.grpc).await;
    let keys: Vec<String> = (0..BUCKETS).map(|number| format!("c{number}")).collect();
    // New buckets, then buckets that exist.
    for round in 1..=3 {
        let before = runs(&cluster);
        let remaining = ask_all(&mut client, &keys).await;
        assert_eq!(remaining, vec![1_000 - round; BUCKETS]);
        assert_eq!(runs(&cluster) - before, expected(&cluster), "round {round}");
    }
    for key in &keys {
        assert_eq!(left(&mut client, key).await, 997, "{key}");
    }
    assert_eq!(service.metric("tollgate_store_redirects_total"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_that_the_node_passed_over_is_counted_once_where_it_belongs() {
    let cluster = RedisCluster::start(3);
    let tollgate = patient_replica(&cluster);
    let mut client = client(&tollgate).await;
    let keys: Vec<String> = (0..BUCKETS).map(|number| format!("m{number}")).collect();
    assert_eq!(ask_all(&mut client, &keys).await, vec![999; BUCKETS]);
    // A slot without its bucket: what is not there is asked of the other node.
    let bucket = cluster.keys("tg:{*}:?????*").remove(0);
    let moving = cluster.begin_move(cluster.slot_of(&bucket));
    moving.move_keys(&moving.keys_left(100));
    assert_eq!(ask_all(&mut client, &keys).await, vec![998; BUCKETS]);
    assert!(tollgate.metric("tollgate_store_redirects_total") > 0);
    moving.finish();
    assert_eq!(ask_all(&mut client, &keys).await, vec![997; BUCKETS]);
    assert_eq!(tollgate.metric("tollgate_store_unknown_outcomes_total"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_master_has_calls_of_its_own_and_a_load_by_its_tags() {
    let cluster = RedisCluster::start(3);
    let tollgate = patient_replica(&cluster);
    let masters = cluster.masters();
    let each = |words: &[&str]| {
        for number in &masters {
            let _: redis::Value = cluster.nodes[*number].server.say(words);
        }
    };
    // Scripts wait, and the cluster's bus goes on.
    each(&["CLIENT", "PAUSE", "600000", "WRITE"]);
    let mut tasks = JoinSet::new();
    for number in 0..40 {
        let mut client = client(&tollgate).await;
        tasks.spawn(async move {
            let keys = (0..BUCKETS).map(|bucket| format!("l{number}-{bucket}"));
            let descriptors = keys.map(|key| descriptor(&[("k", key)])).collect();
            let answer = client.should_rate_limit(request("d", descriptors)).await;
            answer.unwrap().into_inner().overall_code
        });
    }
    becomes(&tollgate, "tollgate_store_calls_in_flight", 4 * 3);
    each(&["CLIENT", "UNPAUSE"]);
    assert_eq!(tasks.join_all().await, vec![i32::from(Code::Ok); 40]);
    // Of 4,800 buckets each master has its part of the 256 tags.
    let slot_of = |tag: usize| -> u16 {
        let tag = format!("{tag:02x}");
        cluster.slot_of(&tag)
    };
    let mut tags = vec![0; cluster.nodes.len()];
    for tag in 0..256 {
        tags[cluster.serving(slot_of(tag)).0] += 1;
    }
    for number in masters {
        let buckets = buckets(&cluster.nodes[number].server);
        let expected = 40 * BUCKETS * tags[number] / 256;
        let difference = buckets.len().abs_diff(expected);
        assert!(difference * 10 < expected, "{} {expected}", buckets.len());
    }
}
