//! A Redis whose replies come late, and checks that take Redis long.
//!
//! A relay of the test holds what the server sends until the test says so. The bytes are not
//! changed. `failures` has a Redis that does not answer in time.

use std::time::Duration;

use tollgate::proto::tollgate::v1 as api;
use tollgate::proto::tollgate::v1::rate_limits_client::RateLimitsClient;
use tollgate::proto::tollgate::v1::{CheckRequest, CommitRequest, ReserveRequest};
use tollgate_test_support::grpc_client::{channel, descriptor, request};
use tollgate_test_support::polling::{until, until_async};
use tollgate_test_support::redis_server::RedisServer;
use tollgate_test_support::relay::{Relay, Way};

use super::{buckets, client, left, patient, replica, shared};

/// Redis has reserved, and its answer comes after the caller gave up. The hits go back as soon as
/// the answer is there, and not at the expiry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservation_whose_caller_gave_up_is_withdrawn() {
    let redis = RedisServer::start(&[]);
    let relay = Relay::to(([127, 0, 0, 1], redis.port()).into());
    let (tollgate, mut known) = shared(&format!("redis://{}", relay.address), &[]).await;
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
    let keys = || buckets(&redis).len();
    let before = keys();
    relay.hold(Way::ToCaller);
    let mut impatient = tonic::Request::new(reserve("a"));
    impatient.set_timeout(Duration::from_secs(2));
    let gave_up = api.reserve(impatient).await.unwrap_err();
    assert!(
        matches!(
            gave_up.code(),
            tonic::Code::Cancelled | tonic::Code::DeadlineExceeded
        ),
        "{gave_up}"
    );
    until("Redis has reserved", || keys() > before);
    // An answer on the same connection: the service has read that the caller gave up.
    let elsewhere = CheckRequest {
        domain: "elsewhere".to_owned(),
        descriptors: reserve("a").descriptors,
        hits: Some(0),
    };
    let _ = api.peek(elsewhere).await;
    relay.release();
    until_async("the hits are back", async || {
        left(&mut known, "a").await == 1_000
    })
    .await;
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
  rate_limit: { unit: year, requests_per_unit: 1000 }
- key: long
  rate_limit: { unit: year, requests_per_unit: 10000, algorithm: sliding_log }
";
    let redis = RedisServer::start(&[]);
    let tollgate = replica(rules, &patient(&redis.url(), &[]));
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
