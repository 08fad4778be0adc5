//! Each call and its answer.

use prost_types::Duration;
use tollgate::proto::tollgate::v1::answer::Answer;
use tollgate::proto::tollgate::v1::call::Call as Sent;
use tollgate::proto::tollgate::v1::{
    BatchRequest, Call, CheckResponse, ExtendRequest, LimitStatus, OnExpiry, ReleaseRequest,
    ReserveRequest, Verdict,
};
use tollgate_test_support::grpc_client::channel;
use tollgate_test_support::in_process::Service;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::{RULES, SECOND, check, client, commit, descriptor, left, reserve};

fn seconds(seconds: i64, nanos: i32) -> Duration {
    Duration { seconds, nanos }
}

#[tokio::test]
async fn a_check_takes_hits_and_says_all_of_what_is_left() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let answer = client.check(check("user", 800)).await.unwrap().into_inner();
    let reset = Some(seconds(3_589, 500_000_000));
    let limit = LimitStatus {
        descriptor: 0,
        name: "tokens".to_owned(),
        rule: "d.user name=tokens".to_owned(),
        requests_per_unit: 1_000,
        window: "1 hour".to_owned(),
        verdict: Verdict::Ok.into(),
        remaining: 200,
        reset,
        retry_after: None,
    };
    let expected = CheckResponse {
        verdict: Verdict::Ok.into(),
        remaining: Some(200),
        reset,
        retry_after: None,
        limits: vec![limit],
    };
    assert_eq!(answer, expected);
    // Over limit is an answer, and no error. A peek takes nothing.
    let answer = client.peek(check("user", 201)).await.unwrap().into_inner();
    assert_eq!(answer.verdict(), Verdict::OverLimit);
    let answer = client.check(check("user", 201)).await.unwrap().into_inner();
    assert_eq!(answer.verdict(), Verdict::OverLimit);
    assert_eq!(answer.retry_after, reset);
    assert_eq!(left(&service, "team").await, 100);
    client.peek(check("team", 1)).await.unwrap();
    assert_eq!(left(&service, "team").await, 100);
}

#[tokio::test]
async fn a_reservation_is_extended_committed_once_and_remembered() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let sent = ReserveRequest {
        expires: Some(seconds(10, 1)),
        ..reserve("user", "r", 800)
    };
    let answer = client.reserve(sent).await.unwrap().into_inner();
    assert_eq!(answer.verdict(), Verdict::Ok);
    assert_eq!((answer.reservation.as_str(), answer.hits), ("r", 800));
    // Rounded up to a millisecond.
    assert_eq!(answer.expires, Some(seconds(10, 1_000_000)));
    let extend = ExtendRequest {
        domain: "d".to_owned(),
        descriptors: vec![descriptor("user", "ann")],
        reservation: "r".to_owned(),
        expires: Some(seconds(60, 0)),
    };
    let answer = client.extend(extend).await.unwrap().into_inner();
    assert_eq!(answer.expires, Some(seconds(60, 0)));
    service.clock.advance_us(30 * SECOND);
    let settled = client.commit(commit("user", "r", 300)).await.unwrap();
    let settled = settled.into_inner();
    assert_eq!((settled.reserved, settled.committed), (800, 300));
    assert_eq!((settled.repeated, settled.remaining), (false, Some(700)));
    let again = client.commit(commit("user", "r", 999)).await.unwrap();
    let again = again.into_inner();
    assert_eq!((again.reserved, again.committed), (800, 300));
    assert_eq!((again.repeated, again.remaining), (true, Some(700)));
}

#[tokio::test]
async fn a_refused_reservation_takes_nothing_and_a_released_one_gives_all_back() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let both = ReserveRequest {
        descriptors: vec![descriptor("user", "ann"), descriptor("team", "ann")],
        ..reserve("user", "r", 200)
    };
    let refused = client.reserve(both).await.unwrap().into_inner();
    assert_eq!(refused.verdict(), Verdict::OverLimit);
    assert_eq!((refused.reservation.as_str(), refused.hits), ("", 0));
    assert_eq!(left(&service, "user").await, 1_000);
    assert_eq!(left(&service, "team").await, 100);
    let reserved = client.reserve(reserve("user", "", 200)).await.unwrap();
    let id = reserved.into_inner().reservation;
    assert_eq!(id.len(), 32, "{id}");
    assert_eq!(left(&service, "user").await, 800);
    let release = ReleaseRequest {
        domain: "d".to_owned(),
        descriptors: vec![descriptor("user", "ann")],
        reservation: id,
    };
    let released = client.release(release).await.unwrap().into_inner();
    assert_eq!((released.reserved, released.committed), (200, 0));
    assert_eq!(left(&service, "user").await, 1_000);
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
    assert_eq!(answer.hits, 300);
    assert_eq!(answer.expires, Some(seconds(300, 0)));
    assert_eq!(left(&service, "model").await, 700);
    service.clock.advance_us(301 * SECOND);
    assert_eq!(left(&service, "model").await, 1_000);
}

#[tokio::test]
async fn a_batch_keeps_its_order_and_a_bad_call_fails_alone() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let call = |tag, call| Call { tag, call };
    let calls = vec![
        call(7, Some(Sent::Reserve(reserve("user", "r", 600)))),
        call(8, Some(Sent::Commit(commit("user", "r", 100)))),
        call(9, Some(Sent::Commit(commit("user", "never", 100)))),
        call(7, None),
        call(0, Some(Sent::Check(check("user", 900)))),
    ];
    let answers = client.batch(BatchRequest { calls }).await.unwrap();
    let answers = answers.into_inner().answers;
    let tags: Vec<_> = answers.iter().map(|answer| answer.tag).collect();
    assert_eq!(tags, [7, 8, 9, 7, 0]);
    let kinds = answers.iter().map(|answer| match &answer.answer {
        Some(Answer::Reserve(answer)) => format!("reserved {}", answer.hits),
        Some(Answer::Settle(answer)) => format!("settled {}", answer.committed),
        Some(Answer::Check(answer)) => format!("left {:?}", answer.remaining),
        Some(Answer::Failure(failure)) => format!("{} {}", failure.code, failure.details.len()),
        None => "nothing".to_owned(),
    });
    let kinds: Vec<_> = kinds.collect();
    let expected = ["reserved 600", "settled 100", "5 2", "3 1", "left Some(0)"];
    assert_eq!(kinds, expected);
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
