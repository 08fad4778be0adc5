//! What the bytes of the calls (`wire`) do not show: times, and health.

use prost_types::Duration;
use serde_json::json;
use tollgate::proto::tollgate::v1::answer::Answer;
use tollgate::proto::tollgate::v1::call::Call as Sent;
use tollgate::proto::tollgate::v1::{BatchRequest, Call, CheckRequest, OnExpiry, ReserveRequest};
use tollgate_test_support::grpc_client::channel;
use tollgate_test_support::in_process::Service;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::super::api::post;
use super::{RULES, SECOND, check, client, descriptor, left, reserve};

fn seconds(seconds: i64, nanos: i32) -> Duration {
    Duration { seconds, nanos }
}

#[tokio::test]
async fn the_rule_says_the_amount_and_the_call_what_becomes_of_it_at_its_expiry() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let sent = ReserveRequest {
        hits: None,
        on_expiry: OnExpiry::Release.into(),
        ..reserve("model", "r", 0)
    };
    let answer = client.reserve(sent).await.unwrap().into_inner();
    assert_eq!((answer.reservation.as_str(), answer.hits), ("r", 300));
    assert_eq!(answer.expires, Some(seconds(300, 0)));
    assert_eq!(left(&service, "model").await, 700);
    service.clock.advance_us(301 * SECOND);
    assert_eq!(left(&service, "model").await, 1_000);
    let sent = ReserveRequest {
        expires: Some(seconds(10, 1)),
        ..reserve("user", "", 800)
    };
    let answer = client.reserve(sent).await.unwrap().into_inner();
    assert_eq!(answer.reservation.len(), 32, "{answer:?}");
    // Rounded up to a millisecond.
    assert_eq!(answer.expires, Some(seconds(10, 1_000_000)));
}

#[tokio::test]
async fn health_knows_both_services() {
    let service = Service::start(RULES, &[]).await;
    let mut health = HealthClient::new(channel(service.grpc).await);
    for name in [
        "tollgate.v1.RateLimits",
        "kuadrant.service.ratelimit.v1.RateLimitService",
    ] {
        let asked = HealthCheckRequest {
            service: name.to_owned(),
        };
        let status = health.check(asked).await.expect(name).into_inner();
        assert_eq!(status.status(), ServingStatus::Serving, "{name}");
    }
}

#[tokio::test]
async fn a_call_without_a_limit_says_why() {
    let rules = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 10 }
  - key: free
    rate_limit: { unlimited: true }
  - key: level
    descriptors:
      - key: below
        rate_limit: { unit: hour, requests_per_unit: 10 }
";
    let service = Service::start(rules, &[]).await;
    let mut client = client(&service).await;
    let cases = [
        ("d", &["user"][..], ""),
        ("d", &["free"], "unlimited"),
        ("d", &["none"], "no_rule"),
        ("d", &["level"], "no_rule"),
        ("d", &["none", "free"], "unlimited"),
        ("d", &["free", "user"], ""),
        ("misspelt", &["user"], "unknown_domain"),
    ];
    for (domain, keys, why) in cases {
        let asked = CheckRequest {
            domain: domain.to_owned(),
            descriptors: keys.iter().map(|key| descriptor(key, "ann")).collect(),
            hits: None,
        };
        let checked = client.check(asked.clone()).await.unwrap().into_inner();
        let peeked = client.peek(asked).await.unwrap().into_inner();
        let reserved = ReserveRequest {
            domain: domain.to_owned(),
            descriptors: keys.iter().map(|key| descriptor(key, "ann")).collect(),
            hits: Some(1),
            ..ReserveRequest::default()
        };
        let reserved = client.reserve(reserved).await.unwrap().into_inner();
        let said = [checked.no_limit, peeked.no_limit, reserved.no_limit];
        assert_eq!(said, [why; 3], "{domain} {keys:?}");
        let one = |key: &&str| json!({ "entries": [{ "key": key, "value": "ann" }] });
        let descriptors: Vec<_> = keys.iter().map(one).collect();
        let body = json!({ "domain": domain, "descriptors": descriptors, "hits": 1 });
        for call in ["check", "peek", "reserve"] {
            let (status, answer) = post(service.http, call, &body).await;
            assert_eq!(status, 200, "{answer}");
            assert_eq!(answer["no_limit"].as_str().unwrap_or_default(), why);
        }
    }
    // Each call is counted by its own method, whichever way it came.
    let sent = [
        ("Check", 14),
        ("Peek", 14),
        ("Reserve", 14),
        ("ShouldRateLimit", 0),
    ];
    for (method, calls) in sent {
        let series = format!("ratelimit_service_total_requests{{grpc_method=\"{method}\"}}");
        assert_eq!(service.metric(&series), calls, "{method}");
    }
}

/// A check that comes alone is encoded by the engine, one in a batch by prost.
#[tokio::test]
async fn a_check_alone_is_answered_as_one_in_a_batch() {
    let rules = "
domain: d
descriptors:
  - key: user
    rate_limits:
      - { unit: hour, requests_per_unit: 3, name: few }
      - { unit: day, unit_multiplier: 2, requests_per_unit: 9007199254740991 }
  - key: shadow
    rate_limit: { unit: hour, requests_per_unit: 1 }
    shadow_mode: true
  - key: never
    rate_limit: { unit: hour, requests_per_unit: 0 }
  - key: month
    rate_limit: { unit: month, requests_per_unit: 5, calendar: true, time_zone: Europe/Paris }
  - key: bucket
    rate_limit: { unit: minute, requests_per_unit: 7, algorithm: token_bucket }
  - key: free
    rate_limit: { unlimited: true }
";
    let services = [
        Service::start(rules, &[]).await,
        Service::start(rules, &[]).await,
    ];
    let [mut alone, mut many] = [client(&services[0]).await, client(&services[1]).await];
    for hits in [1, 2, 4, 1] {
        for key in ["user", "shadow", "never", "month", "bucket", "free", "none"] {
            let sent = check(key, hits);
            let call = Call {
                call: Some(Sent::Check(sent.clone())),
                ..Call::default()
            };
            let calls = vec![call];
            let of_many = many.batch(BatchRequest { calls }).await.unwrap();
            let of_many = of_many.into_inner().answers.remove(0).answer;
            let of_one = alone.check(sent).await.unwrap().into_inner();
            if key == "user" {
                assert_eq!(of_one.limits[1].requests_per_unit, 9_007_199_254_740_991);
            }
            assert_eq!(of_many, Some(Answer::Check(of_one)), "{hits} of {key}");
        }
        for service in &services {
            service.clock.advance_us(7 * SECOND + 1);
        }
    }
}
