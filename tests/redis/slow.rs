//! A Redis that answers every call too late: requests are answered in time, as the policy says, and
//! afterwards the service recovers.
//!
//! A relay of the test holds every byte of the server for half as long again as the store's
//! deadline. The bytes are not changed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tollgate::proto::tollgate::v1 as api;
use tollgate::proto::tollgate::v1::rate_limits_client::RateLimitsClient;
use tollgate::proto::tollgate::v1::{CommitRequest, ReserveRequest};
use tollgate_test_support::grpc_client::{Code, channel, descriptor, request};
use tollgate_test_support::redis_server::RedisServer;

use super::{RECOVERY, RULES, ask, client, decides, left, replica};

const DEADLINE_MS: u64 = 200;
const LATE_MS: u64 = 300;

/// How long an answer may take: the deadline and some time for the machine.
const IN_TIME: Duration = Duration::from_secs(1);

/// A relay that delays what the server sends. It ends with the test's runtime.
struct Relay {
    address: SocketAddr,
    late_ms: Arc<AtomicU64>,
}

impl Relay {
    async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let late_ms = Arc::new(AtomicU64::new(0));
        let relays = Arc::clone(&late_ms);
        tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let (from_caller, to_caller) = caller.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(pass(from_caller, to_server));
                tokio::spawn(hold(from_server, to_caller, Arc::clone(&relays)));
            }
        });
        Self { address, late_ms }
    }
}

/// Passes bytes on.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let _ = tokio::io::copy(&mut from, &mut to).await;
}

/// Passes bytes on, each piece after this delay; pieces do not wait for each other.
async fn hold(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, late_ms: Arc<AtomicU64>) {
    let (held, mut due) = mpsc::channel::<(tokio::time::Instant, Vec<u8>)>(10_000);
    tokio::spawn(async move {
        let mut bytes = vec![0; 65_536];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            let late = Duration::from_millis(late_ms.load(Ordering::Relaxed));
            let at = tokio::time::Instant::now() + late;
            if held.send((at, bytes[..count].to_vec())).await.is_err() {
                return;
            }
        }
    });
    while let Some((at, bytes)) = due.recv().await {
        tokio::time::sleep_until(at).await;
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::disallowed_methods)] // it is the wait that is measured
async fn a_slow_redis_delays_no_answer_and_is_used_again_when_it_is_fast() {
    for policy in ["error", "deny"] {
        let redis = RedisServer::start(&[]);
        let relay = Relay::to(redis.port()).await;
        let url = format!("redis://{}", relay.address);
        let deadline_ms = DEADLINE_MS.to_string();
        let arguments = [
            "--store",
            &url,
            "--store-deadline-ms",
            &deadline_ms,
            "--on-store-failure",
            policy,
        ];
        let mut tollgate = tokio::task::block_in_place(|| replica(RULES, &arguments));
        let mut known = client(&tollgate).await;
        assert_eq!(ask(&mut known, "a").await, Ok(Code::Ok));
        relay.late_ms.store(LATE_MS, Ordering::Relaxed);
        let mut tasks = JoinSet::new();
        for task in 0..100 {
            let mut client = known.clone();
            tasks.spawn(async move {
                let mut longest = Duration::ZERO;
                let mut answers = Vec::new();
                for key in 0..20 {
                    let began = Instant::now();
                    answers.push(ask(&mut client, &format!("{task}-{key}")).await);
                    longest = longest.max(began.elapsed());
                }
                (answers, longest)
            });
        }
        let expected = match policy {
            "deny" => Ok(Code::OverLimit),
            _ => Err(tonic::Code::Unavailable),
        };
        for (answers, longest) in tasks.join_all().await {
            assert!(longest < IN_TIME, "{policy}: {longest:?}");
            assert!(answers.iter().all(|answer| *answer == expected), "{policy}");
        }
        relay.late_ms.store(0, Ordering::Relaxed);
        tokio::task::block_in_place(|| decides(&tollgate, RECOVERY));
        assert_eq!(ask(&mut known, "b").await, Ok(Code::Ok));
        assert_eq!(left(&mut known, "a").await, 999);
        assert!(tollgate.metric("tollgate_store_unknown_outcomes_total") > 0);
        assert!(tollgate.running());
    }
}

/// Redis has reserved, and its answer comes after the caller gave up. The hits go back as soon as
/// the answer is there, and not at the expiry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservation_whose_caller_gave_up_is_withdrawn() {
    let redis = RedisServer::start(&[]);
    let relay = Relay::to(redis.port()).await;
    let url = format!("redis://{}", relay.address);
    let tollgate = tokio::task::block_in_place(|| {
        let arguments = ["--store", &url, "--store-deadline-ms", "2000"];
        replica(RULES, &arguments)
    });
    let mut known = client(&tollgate).await;
    let reserve = |key: &str| ReserveRequest {
        domain: "d".to_owned(),
        descriptors: vec![api::Descriptor {
            entries: vec![api::Entry {
                key: "k".to_owned(),
                value: key.to_owned(),
            }],
            hits: None,
        }],
        hits: Some(600),
        reservation: "late".to_owned(),
        ..ReserveRequest::default()
    };
    let mut api = RateLimitsClient::new(channel(tollgate.grpc).await);
    // The scripts are loaded.
    api.reserve(reserve("first")).await.unwrap();
    relay.late_ms.store(LATE_MS, Ordering::Relaxed);
    let mut impatient = tonic::Request::new(reserve("a"));
    impatient.set_timeout(Duration::from_millis(LATE_MS / 2));
    let gave_up = api.reserve(impatient).await.unwrap_err();
    assert!(
        matches!(
            gave_up.code(),
            tonic::Code::Cancelled | tonic::Code::DeadlineExceeded
        ),
        "{gave_up}"
    );
    let keys = || -> Vec<String> { redis.say(&["KEYS", "*"]) };
    assert!(keys().len() > 1, "Redis reserved: {:?}", keys());
    relay.late_ms.store(0, Ordering::Relaxed);
    let mut was = 0;
    while was != 1_000 {
        was = left(&mut known, "a").await;
    }
    let commit = CommitRequest {
        domain: "d".to_owned(),
        descriptors: reserve("a").descriptors,
        reservation: "late".to_owned(),
        hits: Some(1),
    };
    let unknown = api.commit(commit).await.unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
    assert_eq!(left(&mut known, "a").await, 1_000);
}

/// A log of ten thousand takes Redis up to a millisecond, in which it serves no other client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_of_many_marks_get_a_call_of_their_own() {
    let rules = "
domain: d
descriptors:
- key: k
  rate_limit: { unit: hour, requests_per_unit: 1000 }
- key: long
  rate_limit: { unit: hour, requests_per_unit: 10000, algorithm: sliding_log }
";
    let redis = RedisServer::start(&[]);
    let tollgate = replica(
        rules,
        &["--store", &redis.url(), "--store-deadline-ms", "5000"],
    );
    let mut client = client(&tollgate).await;
    let calls =
        |le: &str| tollgate.metric(&format!("tollgate_store_call_checks_bucket{{le=\"{le}\"}}"));
    for (key, alone) in [("k", 0), ("long", 64)] {
        let before = (calls("1"), calls("+Inf"));
        let descriptors = (0..64).map(|number| descriptor(&[(key, &format!("{key}{number}"))]));
        let asked = request("d", descriptors.collect());
        client.should_rate_limit(asked).await.unwrap();
        assert_eq!(calls("1") - before.0, alone, "{key}");
        if key == "k" {
            assert!(calls("+Inf") - before.1 < 64, "the others share");
        }
    }
}
