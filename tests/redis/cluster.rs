//! A cluster of three masters and three replicas: requests over several servers, and failovers.
//! `cluster_moving` moves slots.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_test_support::grpc_client::Code;
use tollgate_test_support::polling::{until, until_async};
use tollgate_test_support::redis_server::cluster::{RedisCluster, follow};
use tollgate_test_support::tollgate_process::Tollgate;

use super::cluster_log::wait_until_logged;
use super::{RULES, ask, client, decides, descriptor, left, patient, replica, request};

const LIMIT: usize = 1_000;

/// Requests in flight at each replica.
const IN_FLIGHT: usize = 32;

pub(super) fn replicas(cluster: &RedisCluster, rules: &str) -> [Tollgate; 3] {
    let url = cluster.url();
    let arguments = patient(&url, &["--store-over-limit-cache-ms", "0"]);
    [0; 3].map(|_| replica(rules, &arguments))
}

pub(super) fn sum(replicas: &[Tollgate], metric: &str) -> usize {
    let all = replicas.iter().map(|replica| replica.metric(metric));
    usize::try_from(all.sum::<u64>()).unwrap()
}

/// Counts of the responses to background load, by key.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) passed: BTreeMap<String, AtomicUsize>,
    /// Errors.
    pub(super) undecided: AtomicUsize,
}

impl Tally {
    pub(super) fn of(keys: &[&str]) -> Arc<Self> {
        let passed = keys
            .iter()
            .map(|key| ((*key).to_owned(), AtomicUsize::new(0)));
        Arc::new(Self {
            passed: passed.collect(),
            ..Self::default()
        })
    }

    pub(super) fn passed(&self) -> usize {
        let each = self.passed.values();
        each.map(|passed| passed.load(Ordering::Relaxed)).sum()
    }

    /// Waits until this many requests have passed.
    pub(super) async fn reaches(&self, passed: usize) {
        until_async("enough requests have passed", async || {
            let now = self.passed();
            if now >= passed {
                Ok(())
            } else {
                Err((now, passed))
            }
        })
        .await;
    }
}

/// Keeps requests in flight on each replica, for every key until each is over its limit. Undecided
/// requests are sent again a moment later.
pub(super) async fn load(replicas: &[Tollgate], tally: &Arc<Tally>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for replica in replicas {
        let client = client(replica).await;
        for first in 0..IN_FLIGHT {
            let (mut client, tally) = (client.clone(), Arc::clone(tally));
            tasks.spawn(async move {
                let mut keys: Vec<_> = tally.passed.iter().collect();
                let count = keys.len();
                keys.rotate_left(first % count);
                while !keys.is_empty() {
                    let mut rest = Vec::new();
                    for (key, passed) in keys {
                        match ask(&mut client, key).await {
                            Ok(Code::Ok) => {
                                passed.fetch_add(1, Ordering::Relaxed);
                            }
                            Ok(_) => continue,
                            Err(_) => {
                                tally.undecided.fetch_add(1, Ordering::Relaxed);
                                // sleep: the pace of the load while no server decides
                                tokio::time::sleep(Duration::from_millis(20)).await;
                            }
                        }
                        rest.push((key, passed));
                    }
                    keys = rest;
                }
            });
        }
    }
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_over_several_servers_passes_whole_or_takes_nothing() {
    let cluster = RedisCluster::start(3);
    let rules = RULES.replace("domain: d", "domain: d\nall_or_nothing: true")
        + "- key: few\n  rate_limit: { unit: year, requests_per_unit: 10 }\n";
    let replicas = replicas(&cluster, &rules);
    let mut client = client(&replicas[0]).await;
    // Twelve buckets and one: some are on other nodes.
    let wide: Vec<String> = (0..12).map(|number| format!("w{number}")).collect();
    let mut passed = 0;
    for _ in 0..30 {
        let mut descriptors: Vec<_> = wide.iter().map(|key| descriptor(&[("k", key)])).collect();
        descriptors.push(descriptor(&[("few", "a")]));
        let answer = client
            .should_rate_limit(request("d", descriptors))
            .await
            .unwrap();
        passed += usize::from(answer.into_inner().overall_code == i32::from(Code::Ok));
    }
    assert_eq!(passed, 10);
    for key in &wide {
        until_async(
            "the takes of refused requests are back",
            async || match left(&mut client, key).await {
                990 => Ok(()),
                other => Err((key, other)),
            },
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_admits_exactly_the_limit() {
    let cluster = RedisCluster::start(3);
    let replicas = replicas(&cluster, RULES);
    let mut one = client(&replicas[0]).await;
    assert_eq!(ask(&mut one, "a").await, Ok(Code::Ok));
    let (master, replica) = serving_the_only_bucket(&cluster);
    let tally = Tally::of(&["a"]);
    let load = load(&replicas, &tally).await;
    tally.reaches(100).await;
    let mut looks = 0;
    until("the replica is a master", || {
        // A failover that takes longer than five seconds is given up.
        if looks % 600 == 0 {
            let _: redis::Value = cluster.nodes[replica].server.say(&["CLUSTER", "FAILOVER"]);
        }
        looks += 1;
        cluster.masters().contains(&replica)
    });
    load.join_all().await;
    until("the old master follows", || {
        !cluster.masters().contains(&master)
    });
    assert_eq!(tally.passed() + 1, LIMIT);
    assert_eq!(tally.undecided.load(Ordering::Relaxed), 0);
    // The other node answers now.
    assert_eq!(ask(&mut one, "a").await, Ok(Code::OverLimit));
    assert_eq!(sum(&replicas, "tollgate_store_unknown_outcomes_total"), 0);
}

/// The master of the only bucket, and its replica.
fn serving_the_only_bucket(cluster: &RedisCluster) -> (usize, usize) {
    let keys = cluster.keys("tg:{*}:?????*");
    assert_eq!(keys.len(), 1, "{keys:?}");
    cluster.serving(cluster.slot_of(&keys[0]))
}

/// What Redis had not replicated is lost. So here all is replicated before the master dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicated_hits_of_a_dead_master_are_kept() {
    let mut cluster = RedisCluster::start(3);
    let replicas = replicas(&cluster, RULES);
    let mut one = client(&replicas[0]).await;
    for _ in 0..LIMIT / 2 {
        assert_eq!(ask(&mut one, "a").await, Ok(Code::Ok));
    }
    let (master, replica) = serving_the_only_bucket(&cluster);
    follow(&cluster.nodes[master].server);
    cluster.fail_over_soon();
    cluster.nodes[master].server.kill();
    let tally = Tally::of(&["a"]);
    load(&replicas, &tally).await.join_all().await;
    assert!(cluster.masters().contains(&replica));
    assert_eq!(tally.passed(), LIMIT / 2);
    for replica in &replicas {
        decides(replica);
        wait_until_logged(replica, "assignment: the unavailable node left the cluster");
    }
}
