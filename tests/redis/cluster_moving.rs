//! Slots move under load, one after the other: limits stay exact where one script run has checks of
//! many slots, some of them on the move, and so do reservations whose keys move one by one.
//!
//! A check that was charged twice would let fewer requests pass than the limit, and one that was
//! lost would let more pass.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::JoinSet;
use tollgate::proto::tollgate::v1::call::Call;
use tollgate::proto::tollgate::v1::{
    CheckRequest, OnExpiry, ReleaseRequest, ReserveRequest, SettleResponse,
};
use tollgate_test_support::grpc_client::Code as Verdict;
use tollgate_test_support::polling::until_async;
use tollgate_test_support::redis_server::cluster::RedisCluster;
use tollgate_test_support::seeded_rng::SeededRng;
use tollgate_test_support::tollgate_process::Tollgate;
use tonic::{Code, Response};

use super::cluster::{Tally, load, replicas, sum};
use super::reservations::{self, commit, descriptor, reserve};
use super::{RULES, ask, becomes, client, shows};

const LIMIT: usize = 1_000;
const KEYS: usize = 12;

/// Keys with reservations.
const RESERVED_KEYS: u64 = 6;

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
        assert_eq!(ask(&mut one, value).await, Ok(Verdict::Ok));
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

/// A limit that the reservations of a test do not reach.
const RESERVING: &str = "
domain: d
descriptors:
- key: k
  rate_limit: { unit: year, requests_per_unit: 100000 }
";

/// Tasks of each replica for each key.
const TASKS: u64 = 2;

/// What the answers said of one key, and what a test steers.
#[derive(Default)]
struct Reserved {
    used: AtomicU64,
    answers: AtomicU64,
    /// The moves have ended: no further reservation is made.
    ends: AtomicBool,
}

/// One task on one key.
struct Task {
    client: reservations::Client,
    value: String,
    key: Arc<Reserved>,
    number: u64,
}

// === impl Task ===

impl Task {
    /// Sends until the call is decided. An undecided call has changed nothing. Returns how many
    /// hits a settle found reserved.
    async fn ask(&mut self, call: Call) -> u64 {
        loop {
            let client = &mut self.client;
            let decided = match call.clone() {
                Call::Check(request) => client.check(request).await.map(|_| 0),
                Call::Reserve(request) => client.reserve(request).await.map(|_| 0),
                Call::Commit(request) => client.commit(request).await.map(reserved),
                Call::Release(request) => client.release(request).await.map(reserved),
                other => panic!("{other:?}"),
            };
            self.key.answers.fetch_add(1, Ordering::Relaxed);
            match decided {
                Ok(reserved) => return reserved,
                Err(status) if status.code() == Code::Unavailable => {}
                Err(status) => panic!("{status}"),
            }
        }
    }

    /// Reserves, checks and settles until the moves have ended. Where reservations `expire`, none
    /// is settled, and the bucket is without reservations again and again.
    async fn run(mut self, expire: bool) {
        let mut random = SeededRng::of_seed(self.number);
        let mut open: Option<(String, u64)> = None;
        for number in 0.. {
            let ends = self.key.ends.load(Ordering::Relaxed);
            if let Some((id, hits)) = open.take() {
                self.settle(&id, hits, random.below(12)).await;
            }
            if ends {
                return;
            }
            let (id, hits) = (format!("{}-{number}", self.number), random.between(1, 9));
            let expires = expire.then_some(prost_types::Duration {
                seconds: 0,
                nanos: 5_000_000,
            });
            self.ask(Call::Reserve(ReserveRequest {
                expires,
                on_expiry: OnExpiry::Release.into(),
                ..reserve(&self.value, &id, hits)
            }))
            .await;
            open = (!expire).then_some((id, hits));
            self.ask(Call::Check(CheckRequest {
                domain: "d".to_owned(),
                descriptors: descriptor("k", &self.value),
                hits: Some(1),
            }))
            .await;
            self.key.used.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn settle(&mut self, id: &str, hits: u64, actual: u64) {
        let call = match actual {
            0 => Call::Release(ReleaseRequest {
                domain: "d".to_owned(),
                descriptors: descriptor("k", &self.value),
                reservation: id.to_owned(),
            }),
            _ => Call::Commit(commit(&self.value, id, actual)),
        };
        assert_eq!(self.ask(call).await, hits);
        self.key.used.fetch_add(actual, Ordering::Relaxed);
    }
}

/// The hits that a settle found, which must be the first.
fn reserved(settled: Response<SettleResponse>) -> u64 {
    let settled = settled.into_inner();
    assert!(!settled.repeated);
    settled.reserved
}

/// Waits until every state of a move was met: by answers, and by redirects where there are some.
async fn goes_on(keys: &BTreeMap<String, Arc<Reserved>>, replicas: &[Tollgate], redirects: usize) {
    let answers = || -> u64 {
        let each = keys.values().map(|key| key.answers.load(Ordering::Relaxed));
        each.sum()
    };
    let (from, redirected) = (answers(), sum(replicas, "tollgate_store_redirects_total"));
    until_async("the load goes on", async || {
        let redirected = sum(replicas, "tollgate_store_redirects_total") - redirected;
        let answered = answers() - from;
        if answered >= 50 && redirected >= redirects {
            Ok(())
        } else {
            Err((answered, redirected))
        }
    })
    .await;
}

/// Moves each slot with so many keys at once, in another order each time.
async fn reservations_are_exact_with(at_once: usize) {
    let cluster = RedisCluster::start(3);
    let replicas = replicas(&cluster, RESERVING);
    for replica in &replicas {
        becomes(replica, "tollgate_store_replicas", 3);
        becomes(replica, "tollgate_store_cluster_servers", 3);
    }
    let keys: BTreeMap<String, Arc<Reserved>> = (0..RESERVED_KEYS)
        .map(|number| (format!("r{number}"), Arc::default()))
        .collect();
    let mut load = JoinSet::new();
    for (at, replica) in (0..).zip(&replicas) {
        let client = reservations::client(replica).await;
        for (number, (value, key)) in (0..).zip(&keys) {
            for task in 0..TASKS {
                let task = Task {
                    client: client.clone(),
                    value: value.clone(),
                    key: Arc::clone(key),
                    number: (at * RESERVED_KEYS + number) * TASKS + task,
                };
                load.spawn(task.run(number % 3 == 2));
            }
        }
    }
    goes_on(&keys, &replicas, 0).await;
    let buckets = cluster.keys("tg:{*}:?????*");
    let slots = buckets.iter().map(|bucket| cluster.slot_of(bucket));
    let mut slots: Vec<u16> = slots.collect();
    slots.sort_unstable();
    slots.dedup();
    for (moved, slot) in slots.iter().enumerate() {
        let moving = cluster.begin_move(*slot);
        goes_on(&keys, &replicas, 0).await;
        loop {
            let mut left = moving.keys_left(100);
            left.sort_unstable();
            if left.is_empty() {
                break;
            }
            let first = moved % left.len();
            left.rotate_left(first);
            left.truncate(at_once);
            moving.move_keys(&left);
            goes_on(&keys, &replicas, 8).await;
        }
        moving.finish();
    }
    for key in keys.values() {
        key.ends.store(true, Ordering::Relaxed);
    }
    load.join_all().await;
    let mut peeking = reservations::client(&replicas[0]).await;
    until_async("every key has what the answers said", async || {
        let mut wrong = Vec::new();
        for (value, key) in &keys {
            let used = reservations::LIMIT - reservations::left(&mut peeking, "k", value).await;
            let said = key.used.load(Ordering::Relaxed);
            if used != said {
                wrong.push((value, used, said));
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    })
    .await;
    assert_eq!(sum(&replicas, "tollgate_store_unknown_outcomes_total"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reservations_are_exact_while_their_keys_move_one_at_a_time() {
    reservations_are_exact_with(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reservations_are_exact_while_their_keys_move_ten_at_a_time() {
    reservations_are_exact_with(10).await;
}
