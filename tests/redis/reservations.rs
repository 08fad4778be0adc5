//! Reservations that replicas share through a real Redis: settled by any replica, and lost only as
//! `docs/budgets.md` says in its table "What is lost". `tests/twin` shows that Redis decides them
//! in one step, as the laws of the limiter say.

use tollgate::proto::tollgate::v1::rate_limits_client::RateLimitsClient;
use tollgate::proto::tollgate::v1::{
    CheckRequest, CommitRequest, Descriptor, Entry, OnExpiry, ReserveRequest, SettleResponse,
};
use tollgate_test_support::grpc_client::{channel, descriptor as envoy_descriptor, request};
use tollgate_test_support::polling::{until, until_async};
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::tollgate_process::Tollgate;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use super::{decides, replica};

pub(super) const LIMIT: u64 = 100_000;

/// A bucket of the calendar year and one that refills by a hit in five minutes.
pub(super) const RULES: &str = "
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

pub(super) type Client = RateLimitsClient<Channel>;

pub(super) async fn client(tollgate: &Tollgate) -> Client {
    RateLimitsClient::new(channel(tollgate.grpc).await)
}

pub(super) fn descriptor(key: &str, value: &str) -> Vec<Descriptor> {
    vec![Descriptor {
        entries: vec![Entry {
            key: key.to_owned(),
            value: value.to_owned(),
        }],
        hits: None,
    }]
}

pub(super) fn reserve(value: &str, id: &str, hits: u64) -> ReserveRequest {
    ReserveRequest {
        domain: "d".to_owned(),
        descriptors: descriptor("k", value),
        hits: Some(hits),
        reservation: id.to_owned(),
        ..ReserveRequest::default()
    }
}

pub(super) fn commit(value: &str, id: &str, hits: u64) -> CommitRequest {
    CommitRequest {
        domain: "d".to_owned(),
        descriptors: descriptor("k", value),
        reservation: id.to_owned(),
        hits: Some(hits),
    }
}

/// What a bucket has left.
pub(super) async fn left(client: &mut Client, key: &str, value: &str) -> u64 {
    let peek = CheckRequest {
        domain: "d".to_owned(),
        descriptors: descriptor(key, value),
        hits: Some(0),
    };
    let answer = client.peek(peek).await.unwrap().into_inner();
    answer.remaining.unwrap()
}

/// A replica and its client.
async fn shared(redis: &RedisServer, deadline_ms: &str) -> (Tollgate, Client) {
    let url = redis.url();
    let arguments = ["--store", &url, "--store-deadline-ms", deadline_ms];
    let replica = replica(RULES, &arguments);
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
    until_async("the store decides", async || client.peek(peek()).await).await;
}

/// Sends the start of a stream over Envoy's protocol (0 hits), or its end.
pub(super) async fn stream(tollgate: &Tollgate, hits: u64) {
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
    until("the replica has ended", || !one.running());
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

/// A restart loses all without persistence, and nothing where each command is written to disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_redis_has_what_it_wrote_to_disk() {
    let to_disk = ["--appendonly", "yes", "--appendfsync", "always"];
    for (arguments, committed, used) in [
        (&[][..], Err(Code::NotFound), 0),
        (&to_disk, Ok((800, 300)), 300),
    ] {
        let mut redis = RedisServer::start(arguments);
        let (replica, mut client) = shared(&redis, "5000").await;
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
        assert_eq!(settled(answer), committed);
        assert_eq!(left(&mut client, "k", "fixed_window").await, LIMIT - used);
        // The end of a stream whose start was lost is charged in full.
        stream(&replica, 200).await;
        assert_eq!(left(&mut client, "user", "ann").await, LIMIT - 200);
    }
}

/// Redis stands still, so the answer to a commit comes after its deadline, or never.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_is_repeated() {
    let redis = RedisServer::start(&[]);
    let (replica, mut client) = shared(&redis, "5000").await;
    client
        .reserve(reserve("fixed_window", "a", 800))
        .await
        .unwrap();
    redis.signal("STOP");
    let answer = client.commit(commit("fixed_window", "a", 300)).await;
    assert_eq!(settled(answer), Err(Code::Unavailable));
    redis.signal("CONT");
    decides(&replica);
    let answer = client.commit(commit("fixed_window", "a", 300)).await;
    assert_eq!(settled(answer), Ok((800, 300)));
    assert_eq!(left(&mut client, "k", "fixed_window").await, LIMIT - 300);
}

/// Keys of reservations do not stay in Redis forever.
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
    let keys: Vec<String> = redis.say(&["KEYS", "tg:{*}:?????*"]);
    let ledger: Vec<_> = keys.iter().filter(|key| !key.ends_with('}')).collect();
    assert!(ledger.len() >= 2, "{keys:?}");
    for key in keys {
        let ttl_ms: i64 = redis.say(&["PTTL", &key]);
        assert!(ttl_ms > 0, "{key} has no expiry: {ttl_ms}");
    }
}

/// A look that meets reservations which are due has their keys in a second call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_finds_what_expired_reservations_gave_back() {
    let redis = RedisServer::start(&[]);
    let (_replica, mut client) = shared(&redis, "20000").await;
    let expires = Some(prost_types::Duration {
        seconds: 0,
        nanos: 1_000_000,
    });
    let request = ReserveRequest {
        expires,
        on_expiry: OnExpiry::Release.into(),
        ..reserve("fixed_window", "a", 800)
    };
    client.reserve(request).await.unwrap();
    until_async("the hits are back", async || {
        match left(&mut client, "k", "fixed_window").await {
            LIMIT => Ok(()),
            left => Err(left),
        }
    })
    .await;
}
