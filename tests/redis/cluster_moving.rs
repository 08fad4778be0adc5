//! Slots move under load, one after the other: limits stay exact where one script run has checks of
//! many slots, some of them on the move.
//!
//! A check that was charged twice would let fewer requests pass than the limit, and one that was
//! lost would let more pass.

use std::sync::atomic::Ordering;

use tollgate_test_support::grpc_client::Code;
use tollgate_test_support::redis_server::cluster::RedisCluster;

use super::cluster::{Tally, load, replicas, sum};
use super::{RULES, ask, becomes, client, shows};

const LIMIT: usize = 1_000;
const KEYS: usize = 12;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_of_many_slots_are_exact_while_each_slot_moves() {
    let cluster = RedisCluster::start(3);
    let replicas = replicas(&cluster, RULES);
    for replica in &replicas {
        becomes(replica, "tollgate_store_replicas", 3);
        becomes(replica, "tollgate_store_cluster_servers", 3);
        shows(replica, "[+] store: the cluster of 127.0.0.1:");
    }
    let values: Vec<String> = (0..KEYS).map(|number| format!("s{number}")).collect();
    let mut one = client(&replicas[0]).await;
    for value in &values {
        assert_eq!(ask(&mut one, value).await, Ok(Code::Ok));
    }
    let buckets = cluster.keys("tg:{*}:?????*");
    let slots = buckets.iter().map(|bucket| cluster.slot_of(bucket));
    let mut slots: Vec<u16> = slots.collect();
    slots.sort_unstable();
    slots.dedup();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let tally = Tally::of(&values);
    let load = load(&replicas, &tally).await;
    let step = (KEYS * LIMIT - 2_000) / slots.len() / 3;
    for (moved, slot) in slots.iter().enumerate() {
        tally.reaches(3 * moved * step + step).await;
        let moving = cluster.begin_move(*slot);
        tally.reaches(3 * moved * step + 2 * step).await;
        moving.move_keys(&moving.keys_left(100));
        tally.reaches(3 * moved * step + 3 * step).await;
        moving.finish();
    }
    load.join_all().await;
    for (value, passed) in &tally.passed {
        // Each was asked once before.
        assert_eq!(passed.load(Ordering::Relaxed) + 1, LIMIT, "{value}");
    }
    assert_eq!(tally.undecided.load(Ordering::Relaxed), 0);
    assert_eq!(sum(&replicas, "tollgate_store_unknown_outcomes_total"), 0);
    assert!(sum(&replicas, "tollgate_store_redirects_total") > 0);
}
