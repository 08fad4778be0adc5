//! Reservations where memory is full: every protocol refuses new ones and says why, a counter
//! rises, and no open one is lost.
//!
//! `tests/memory/reservations.rs` does it with a million, on the real process.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;
use tollgate::proto::kuadrant::service::ratelimit::v1 as kuadrant;
use tollgate::proto::kuadrant::service::ratelimit::v1::rate_limit_service_client::RateLimitServiceClient;
use tollgate::proto::tollgate::v1::answer::Answer;
use tollgate::proto::tollgate::v1::call::Call as Sent;
use tollgate::proto::tollgate::v1::rate_limits_client::RateLimitsClient;
use tollgate::proto::tollgate::v1::{
    BatchRequest, Call, CommitRequest, Descriptor, Entry, ReserveRequest,
};
use tollgate_test_support::grpc_client::{
    Descriptor as Stream, channel, descriptor as stream_entries, request,
};
use tollgate_test_support::in_process::Service;
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

use crate::service::api::{body, post};
use crate::service::flags;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 1000, reserve: { key: id, amount: 5, expires: 24h } }
";

/// Calls of a batch.
const AT_ONCE: u32 = 1_000;

const NOT_KEPT: &str = "tollgate_reservations_not_kept_total{reason=\"memory_full\"}";

async fn full(on_overload: &str) -> Service {
    let bounds = flags("--partitions 1 --memory-max 1MiB --on-overload");
    Service::start(RULES, &[&bounds[..], &[on_overload]].concat()).await
}

fn descriptors(user: u32) -> Vec<Descriptor> {
    vec![Descriptor {
        entries: vec![Entry {
            key: "user".to_owned(),
            value: user.to_string(),
        }],
        hits: None,
    }]
}

fn reserve(user: u32) -> Sent {
    Sent::Reserve(ReserveRequest {
        domain: "d".to_owned(),
        descriptors: descriptors(user),
        hits: Some(7),
        reservation: format!("r{user}"),
        ..ReserveRequest::default()
    })
}

fn commit(user: u32) -> Sent {
    Sent::Commit(CommitRequest {
        domain: "d".to_owned(),
        descriptors: descriptors(user),
        reservation: format!("r{user}"),
        hits: Some(3),
    })
}

/// Sends one call for each of these users; the answers in their order.
async fn send(
    client: &mut RateLimitsClient<Channel>,
    users: impl Iterator<Item = u32>,
    call: fn(u32) -> Sent,
) -> Vec<Answer> {
    let calls = users.map(|user| Call {
        tag: u64::from(user),
        call: Some(call(user)),
    });
    let calls: Vec<_> = calls.collect();
    let answers = client.batch(BatchRequest { calls }).await.unwrap();
    let answers = answers.into_inner().answers.into_iter();
    answers.map(|answer| answer.answer.unwrap()).collect()
}

/// Reserves for new users until memory is full; returns those whose reservation is open and how
/// many were refused.
async fn fill(client: &mut RateLimitsClient<Channel>) -> (Vec<u32>, u64) {
    let (mut open, mut refused) = (Vec::new(), 0);
    while refused < 1_000 {
        assert!(open.len() < 10_000, "more than fit are open");
        let first = u32::try_from(open.len()).unwrap() + refused;
        let answers = send(client, first..first + AT_ONCE, reserve).await;
        for (user, answer) in (first..).zip(answers) {
            match answer {
                Answer::Reserve(answer) => {
                    assert_eq!(answer.hits, 7);
                    open.push(user);
                }
                Answer::Failure(failure) => {
                    assert_eq!(failure.code, i32::from(tonic::Code::Unavailable));
                    assert!(failure.message.contains("--memory-max"), "{failure:?}");
                    refused += 1;
                }
                other => panic!("{other:?}"),
            }
        }
    }
    (open, refused.into())
}

fn late(user: &str) -> Value {
    body("user", user, json!({"hits": 7, "reservation": "late"}))
}

fn start(user: &str) -> Stream {
    Stream {
        hits_addend: Some(0),
        ..stream_entries(&[("user", user), ("id", "late")])
    }
}

#[tokio::test]
async fn at_the_memory_bound_every_protocol_says_what_to_do_and_no_reservation_is_lost() {
    let mut service = full("error").await;
    let mut client = RateLimitsClient::new(channel(service.grpc).await);
    let (open, mut refused) = fill(&mut client).await;
    assert!(open.len() > 300, "{} open", open.len());
    assert_eq!(service.metric(NOT_KEPT), refused);

    let advice =
        "too many keys are over their limits or have open reservations; raise --memory-max";
    let (status, answer) = post(service.http, "reserve", &late("late")).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (503, &json!("UNAVAILABLE"))
    );
    let why = answer["error"]["message"].as_str().unwrap();
    assert!(why.contains(advice), "{why}");

    let Sent::Reserve(one_more) = reserve(u32::MAX) else {
        panic!("a reservation");
    };
    let status = client.reserve(one_more).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(status.message().contains(advice), "{status}");
    assert_eq!(
        status.get_details_error_info().unwrap().reason,
        "MEMORY_FULL"
    );
    let retry = status.get_details_retry_info().unwrap().retry_delay;
    assert_eq!(retry, Some(Duration::from_secs(1)));

    let mut kuadrant_client = RateLimitServiceClient::new(channel(service.grpc).await);
    let one_more = kuadrant::ReserveRequest {
        domain: "d".into(),
        descriptors: vec![stream_entries(&[("user", "late")])],
        amount: 7,
        ttl: None,
    };
    let status = kuadrant_client.reserve(one_more).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(status.message().contains(advice), "{status}");

    let asked = request("d", vec![start("late")]);
    let status = service.client.should_rate_limit(asked).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    assert!(status.message().contains(advice), "{status}");
    refused += 4;
    assert_eq!(service.metric(NOT_KEPT), refused);
    assert_eq!(
        service.metric("tollgate_shed_total{reason=\"memory_full\"}"),
        refused
    );
    let gauge = "tollgate_reservations_open{partition=\"0\"}";
    assert_eq!(service.metric(gauge), open.len() as u64);
    assert!(service.metric("tollgate_memory_bytes{partition=\"0\"}") <= 1 << 20);

    // What was refused left nothing: an unknown id.
    let (status, _) = post(service.http, "commit", &late("late")).await;
    assert_eq!(status, 404);
    // Plain checks go on, also of users without a bucket.
    let passed = service
        .ask(request("d", vec![stream_entries(&[("user", "new")])]))
        .await;
    assert_eq!(passed.overall_code(), Code::Ok);

    for users in open.chunks(1_000) {
        for answer in send(&mut client, users.iter().copied(), commit).await {
            let Answer::Settle(answer) = answer else {
                panic!("{answer:?}");
            };
            assert_eq!((answer.reserved, answer.committed), (7, 3));
            assert_eq!((answer.repeated, answer.remaining), (false, Some(997)));
        }
    }
    assert_eq!(service.metric(gauge), 0);
    assert_eq!(service.metric(NOT_KEPT), refused);
    // Settled records go for new reservations.
    let (status, answer) = post(service.http, "reserve", &late("late")).await;
    assert_eq!(status, 200, "{answer}");
    assert!(service.metric("tollgate_reservation_records_dropped_total") > 0);
}

#[tokio::test]
async fn a_setting_can_let_requests_pass_at_the_memory_bound_without_a_reservation() {
    let mut service = full("allow").await;
    let mut client = RateLimitsClient::new(channel(service.grpc).await);
    let mut passed = 0;
    for first in (0..3_000).step_by(1_000) {
        for answer in send(&mut client, first..first + AT_ONCE, reserve).await {
            let Answer::Reserve(answer) = answer else {
                panic!("{answer:?}");
            };
            passed += u64::from(answer.hits == 0);
        }
    }
    assert!(passed > 1_000, "{passed}");
    assert_eq!(service.metric(NOT_KEPT), passed);
    let (status, answer) = post(service.http, "reserve", &late("late")).await;
    assert_eq!((status, &answer["hits"]), (200, &json!(0)), "{answer}");
    // There is nothing to settle, and no setting settles it.
    let (status, _) = post(service.http, "commit", &late("late")).await;
    assert_eq!(status, 404);
    let answer = service.ask(request("d", vec![start("late")])).await;
    assert_eq!(answer.overall_code(), Code::Ok);
}
