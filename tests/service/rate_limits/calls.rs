//! What the bytes of the calls (`wire`) do not show: times, and health.

use prost_types::Duration;
use tollgate::proto::tollgate::v1::{OnExpiry, ReserveRequest};
use tollgate_test_support::grpc_client::channel;
use tollgate_test_support::in_process::Service;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::{RULES, SECOND, client, left, reserve};

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
