//! Reservations that replicas share through a real Redis: exact among replicas, and lost only as
//! `docs/budgets.md` says. Each row of its table "What is lost" names the test here.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::task::JoinSet;
use tollgate::proto::tollgate::v1::rate_limits_client::RateLimitsClient;
use tollgate::proto::tollgate::v1::{
    CheckRequest, CommitRequest, Descriptor, Entry, ExtendRequest, ReleaseRequest, ReserveRequest,
    SettleResponse, Verdict,
};
use tollgate_test_support::grpc_client::{channel, descriptor as envoy_descriptor, request};
use tollgate_test_support::http_client::http;
use tollgate_test_support::polling::{PATIENCE, wait_for};
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::seeded_rng::SeededRng;
use tollgate_test_support::tollgate_process::Tollgate;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::exactness::IN_FLIGHT;
use super::{RECOVERY, add_user_of_the_page, decides, replica};

const LIMIT: u64 = 100_000;

/// Reservations that each task makes, one after the other.
const EACH: u64 = 6;

/// A bucket of the calendar year and one that refills by a hit in five minutes.
const RULES: &str = "
domain: d
descriptors:
- { key: k, value: fixed_window, rate_limit: { unit: year, requests_per_unit: 100000 } }
- { key: k, value: token_bucket, rate_limit: { unit: year, requests_per_unit: 100000, algorithm: token_bucket } }
- key: user
  rate_limit:
    unit: year
    requests_per_unit: 100000
    reserve: { key: stream, amount: 800, expires: 5m }
";

type Client = RateLimitsClient<Channel>;

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

async fn client(tollgate: &Tollgate) -> Client {
    RateLimitsClient::new(channel(tollgate.grpc).await)
}

fn descriptor(key: &str, value: &str) -> Vec<Descriptor> {
    vec![Descriptor {
        entries: vec![Entry {
            key: key.to_owned(),
            value: value.to_owned(),
        }],
        hits: None,
    }]
}

fn reserve(value: &str, id: &str, hits: u64) -> ReserveRequest {
    ReserveRequest {
        domain: "d".to_owned(),
        descriptors: descriptor("k", value),
        hits: Some(hits),
        reservation: id.to_owned(),
        ..ReserveRequest::default()
    }
}

fn commit(value: &str, id: &str, hits: u64) -> CommitRequest {
    CommitRequest {
        domain: "d".to_owned(),
        descriptors: descriptor("k", value),
        reservation: id.to_owned(),
        hits: Some(hits),
    }
}

/// What a bucket has left.
async fn left(client: &mut Client, key: &str, value: &str) -> u64 {
    let peek = CheckRequest {
        domain: "d".to_owned(),
        descriptors: descriptor(key, value),
        hits: Some(0),
    };
    let answer = client.peek(peek).await.unwrap().into_inner();
    answer.remaining.unwrap()
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
        for task in 0..3 * IN_FLIGHT as u64 {
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

/// A replica and its client.
async fn shared(redis: &RedisServer, deadline_ms: &str) -> (Tollgate, Client) {
    let url = redis.url();
    let replica = replica(
        RULES,
        &["--store", &url, "--store-deadline-ms", deadline_ms],
    );
    let client = client(&replica).await;
    (replica, client)
}

/// Waits until the store is used again after its restart.
async fn recovers(client: &mut Client) {
    let peek = || CheckRequest {
        domain: "d".to_owned(),
        descriptors: descriptor("k", "token_bucket"),
        hits: Some(0),
    };
    let decided = async {
        while client.peek(peek()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(RECOVERY, decided).await.unwrap();
}

/// Sends the start of a stream over Envoy's protocol (0 hits), or its end.
async fn stream(tollgate: &Tollgate, hits: u64) {
    let mut one = envoy_descriptor(&[("user", "ann"), ("stream", "s1")]);
    one.hits_addend = Some(hits);
    let mut client = super::client(tollgate).await;
    client
        .should_rate_limit(request("d", vec![one]))
        .await
        .unwrap();
}

fn settled(answer: Result<Response<SettleResponse>, Status>) -> Result<(u64, u64), Code> {
    let answer = answer.map_err(|status| status.code())?.into_inner();
    Ok((answer.reserved, answer.committed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_replica_loses_no_reservation() {
    let redis = RedisServer::start(&[]);
    let (mut one, mut client) = shared(&redis, "20000").await;
    let (other, mut left_over) = shared(&redis, "20000").await;
    client
        .reserve(reserve("fixed_window", "a", 800))
        .await
        .unwrap();
    client
        .reserve(reserve("fixed_window", "b", 900))
        .await
        .unwrap();
    stream(&one, 0).await;
    one.signal("KILL");
    assert!(wait_for(PATIENCE, || (!one.running()).then_some(())).is_some());
    let answer = left_over.commit(commit("fixed_window", "a", 300)).await;
    assert_eq!(settled(answer), Ok((800, 300)));
    // The other one is open until it expires.
    assert_eq!(
        left(&mut left_over, "k", "fixed_window").await,
        LIMIT - 1_200
    );
    stream(&other, 200).await;
    assert_eq!(left(&mut left_over, "user", "ann").await, LIMIT - 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_without_persistence_loses_all_when_it_restarts() {
    let mut redis = RedisServer::start(&[]);
    let (replica, mut client) = shared(&redis, "500").await;
    client
        .reserve(reserve("fixed_window", "a", 800))
        .await
        .unwrap();
    stream(&replica, 0).await;
    assert_eq!(left(&mut client, "user", "ann").await, LIMIT - 800);
    redis.kill();
    redis.start_again();
    recovers(&mut client).await;
    let answer = client.commit(commit("fixed_window", "a", 300)).await;
    assert_eq!(settled(answer), Err(Code::NotFound));
    assert_eq!(left(&mut client, "k", "fixed_window").await, LIMIT);
    // The end of a stream is charged in full.
    stream(&replica, 200).await;
    assert_eq!(left(&mut client, "user", "ann").await, LIMIT - 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_writes_each_command_to_disk_loses_nothing() {
    let mut redis = RedisServer::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let (replica, mut client) = shared(&redis, "500").await;
    client
        .reserve(reserve("fixed_window", "a", 800))
        .await
        .unwrap();
    stream(&replica, 0).await;
    redis.kill();
    redis.start_again();
    recovers(&mut client).await;
    let answer = client.commit(commit("fixed_window", "a", 300)).await;
    assert_eq!(settled(answer), Ok((800, 300)));
    assert_eq!(left(&mut client, "k", "fixed_window").await, LIMIT - 300);
    stream(&replica, 200).await;
    assert_eq!(left(&mut client, "user", "ann").await, LIMIT - 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_with_its_own_memory_loses_all_when_it_ends() {
    let mut first = Tollgate::start(RULES, &[]);
    let mut before = client(&first).await;
    before
        .reserve(reserve("fixed_window", "a", 800))
        .await
        .unwrap();
    first.signal("KILL");
    assert!(wait_for(PATIENCE, || (!first.running()).then_some(())).is_some());
    let second = Tollgate::start(RULES, &[]);
    let mut after = client(&second).await;
    let answer = after.commit(commit("fixed_window", "a", 300)).await;
    assert_eq!(settled(answer), Err(Code::NotFound));
    assert_eq!(left(&mut after, "k", "fixed_window").await, LIMIT);
}

/// Redis stands still, so the answer to a commit comes after its deadline, or never.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_is_repeated() {
    let redis = RedisServer::start(&[]);
    let (replica, mut client) = shared(&redis, "300").await;
    client
        .reserve(reserve("fixed_window", "a", 800))
        .await
        .unwrap();
    redis.signal("STOP");
    let answer = client.commit(commit("fixed_window", "a", 300)).await;
    assert_eq!(settled(answer), Err(Code::Unavailable));
    redis.signal("CONT");
    decides(&replica, RECOVERY);
    let answer = client.commit(commit("fixed_window", "a", 300)).await;
    assert_eq!(settled(answer), Ok((800, 300)));
    assert_eq!(left(&mut client, "k", "fixed_window").await, LIMIT - 300);
}

/// Keys of reservations do not stay in Redis for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_of_reservations_expires() {
    let redis = RedisServer::start(&[]);
    let (_replica, mut client) = shared(&redis, "20000").await;
    for number in 0..20 {
        let id = number.to_string();
        client
            .reserve(reserve("token_bucket", &id, 10))
            .await
            .unwrap();
        if number % 2 == 0 {
            client.commit(commit("token_bucket", &id, 5)).await.unwrap();
        }
    }
    let keys: Vec<String> = redis.say(&["KEYS", "tg:{*"]);
    let ledger: Vec<_> = keys.iter().filter(|key| !key.ends_with('}')).collect();
    assert!(ledger.len() >= 2, "{keys:?}");
    for key in keys {
        let ttl_ms: i64 = redis.say(&["PTTL", &key]);
        assert!(ttl_ms > 0, "{key} has no expiry: {ttl_ms}");
    }
}

/// A user with the rights that the page names, and no others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_on_the_page_are_all_that_a_user_needs() {
    let redis = RedisServer::start(&[]);
    let commands = add_user_of_the_page(&redis);
    let directory = tempfile::tempdir().unwrap();
    let password = directory.path().join("password");
    fs::write(&password, "secret").unwrap();
    let url = redis.url();
    let replica = replica(
        RULES,
        &[
            "--store",
            &url,
            "--store-user",
            "limits",
            "--store-password-file",
            password.to_str().unwrap(),
            "--store-deadline-ms",
            "20000",
        ],
    );
    let mut client = client(&replica).await;
    for id in ["a", "b", "a"] {
        client
            .reserve(reserve("fixed_window", id, 800))
            .await
            .unwrap();
    }
    let answer = client.commit(commit("fixed_window", "a", 900)).await;
    assert_eq!(settled(answer), Ok((800, 900)));
    stream(&replica, 0).await;
    stream(&replica, 5).await;
    // An interval may have begun without any limit.
    for value in ["fixed_window", "token_bucket"] {
        left(&mut client, "k", value).await;
    }
    let reset = r#"{"domain":"d","descriptor":[{"key":"k","value":"fixed_window"}]}"#;
    let answer = http(replica.admin, "POST", "/reset", reset);
    assert_eq!(answer.0, 200, "{}", answer.1);
    let denied: Vec<redis::Value> = redis.say(&["ACL", "LOG"]);
    assert!(denied.is_empty(), "{denied:?}");
    // Limits in other algorithms use other commands of the scripts.
    let mut folders = vec![PathBuf::from("src/store/redis")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            for call in fs::read_to_string(path).unwrap().split("call('").skip(1) {
                let (command, _) = call.split_once('\'').unwrap();
                let mut listed = commands.iter();
                assert!(listed.any(|one| one == command), "the page lacks {command}");
            }
        }
    }
}

#[test]
fn the_page_names_these_tests() {
    let page = fs::read_to_string("docs/budgets.md").unwrap();
    let (_, section) = page.split_once("\n## What is lost\n").unwrap();
    for words in [
        "a replica is killed",
        "Redis restarts without persistence",
        "Redis restarts with `appendonly yes` and `appendfsync always`",
        "a process with the memory store ends",
        "the answer to a commit is lost",
    ] {
        assert!(section.contains(words), "the page lacks: {words}");
    }
}
