//! Reservations that three replicas race for on a real Redis: exact at every answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinSet;
use tollgate::proto::tollgate::v1::{ExtendRequest, ReleaseRequest, Verdict};
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::seeded_rng::SeededRng;

use super::replica;
use super::reservations::{Client, LIMIT, RULES, client, commit, descriptor, left, reserve};

/// Tasks of each replica.
const IN_FLIGHT: u64 = 128;

/// Reservations that each task makes, one after the other.
const EACH: u64 = 6;

/// What tasks know of a limit. Each number is a bound: it is changed before a call that makes it
/// less true, and after a call that makes it more.
#[derive(Default)]
struct Tally {
    /// Committed hits and open reservations.
    taken: AtomicU64,
    /// What commits exceeded their reservations by.
    excess: AtomicU64,
    refused: AtomicU64,
}

impl Tally {
    fn assert_promise(&self) {
        let taken = self.taken.load(Ordering::SeqCst);
        let excess = self.excess.load(Ordering::SeqCst);
        assert!(taken <= LIMIT + excess, "{taken} taken, {excess} in excess");
    }
}

/// One task: reservations that are committed, released, extended, repeated or left open, each step
/// by any replica.
async fn work(clients: Arc<[Client]>, value: &'static str, task: u64, tally: Arc<Tally>) {
    let mut random = SeededRng::of_seed(task);
    for round in 0..EACH {
        let pick = |random: &mut SeededRng| clients[random.position(3)].clone();
        let (id, hits) = (format!("{task}-{round}"), 1 + random.below(2_000));
        let made = pick(&mut random).reserve(reserve(value, &id, hits)).await;
        if made.unwrap().into_inner().verdict() == Verdict::OverLimit {
            tally.refused.fetch_add(1, Ordering::SeqCst);
            continue;
        }
        tally.taken.fetch_add(hits, Ordering::SeqCst);
        tally.assert_promise();
        if random.below(4) == 0 {
            let extend = ExtendRequest {
                domain: "d".to_owned(),
                descriptors: descriptor("k", value),
                reservation: id.clone(),
                expires: Some(prost_types::Duration {
                    seconds: 600,
                    nanos: 0,
                }),
            };
            pick(&mut random).extend(extend).await.unwrap();
        }
        let actual = match random.below(8) {
            // It stays open.
            0 => continue,
            1 => 0,
            2 => hits,
            3..=5 => random.below(hits),
            _ => hits + random.below(2_000),
        };
        tally
            .excess
            .fetch_add(actual.saturating_sub(hits), Ordering::SeqCst);
        tally.taken.fetch_sub(hits, Ordering::SeqCst);
        let settled = if actual == 0 {
            let release = ReleaseRequest {
                domain: "d".to_owned(),
                descriptors: descriptor("k", value),
                reservation: id.clone(),
            };
            pick(&mut random).release(release).await
        } else {
            pick(&mut random).commit(commit(value, &id, actual)).await
        };
        let settled = settled.unwrap().into_inner();
        assert_eq!((settled.reserved, settled.repeated), (hits, false));
        tally.taken.fetch_add(actual, Ordering::SeqCst);
        tally.assert_promise();
        if random.below(4) == 0 {
            let again = pick(&mut random).commit(commit(value, &id, 9_999)).await;
            let again = again.unwrap().into_inner();
            assert_eq!((again.committed, again.repeated), (actual, true));
        }
    }
}

/// Three replicas with 128 tasks each.
async fn exact_among_replicas(mode: &[&str]) {
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    let mut arguments = vec!["--store", &*url, "--store-deadline-ms", "20000"];
    arguments.extend(mode);
    let replicas = [0; 3].map(|_| replica(RULES, &arguments));
    let mut clients = Vec::new();
    for replica in &replicas {
        clients.push(client(replica).await);
    }
    let clients: Arc<[Client]> = clients.into();
    for value in ["fixed_window", "token_bucket"] {
        let tally = Arc::new(Tally::default());
        let mut tasks = JoinSet::new();
        for task in 0..3 * IN_FLIGHT {
            tasks.spawn(work(Arc::clone(&clients), value, task, Arc::clone(&tally)));
        }
        tasks.join_all().await;
        tally.assert_promise();
        let taken = tally.taken.load(Ordering::SeqCst);
        let refused = tally.refused.load(Ordering::SeqCst);
        assert!(refused > 100, "the limit was met: {refused} refusals");
        let left = left(&mut clients[0].clone(), "k", value).await;
        // A bucket that refills can have a hit more.
        let expected = LIMIT.saturating_sub(taken);
        assert!((expected..=expected + 1).contains(&left), "{left} {taken}");
    }
    for replica in &replicas {
        assert_eq!(replica.metric("tollgate_store_unknown_outcomes_total"), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_replicas_keep_the_promise_at_every_answer() {
    exact_among_replicas(&["--store-over-limit-cache-ms", "0"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_leased_replicas_keep_the_promise_at_every_answer() {
    exact_among_replicas(&["--store-mode", "leased"]).await;
}
