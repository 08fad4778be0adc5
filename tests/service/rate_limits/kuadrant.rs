//! Kuadrant's RPCs.

use tollgate::proto::kuadrant::service::ratelimit::v1::rate_limit_service_client::RateLimitServiceClient;
use tollgate::proto::kuadrant::service::ratelimit::v1::{CommitRequest, ReserveRequest};
use tollgate_test_support::grpc_client::{Code, channel, descriptor, hits, request};
use tollgate_test_support::in_process::Service;
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

use super::{RULES, SECOND, left};

async fn client(service: &Service) -> RateLimitServiceClient<Channel> {
    RateLimitServiceClient::new(channel(service.grpc).await)
}

fn reserve(key: &str, amount: u64) -> ReserveRequest {
    ReserveRequest {
        domain: "d".into(),
        descriptors: vec![descriptor(&[(key, "ann")])],
        amount,
        ttl: None,
    }
}

fn commit(key: &str, id: &str, actual_amount: u64) -> CommitRequest {
    CommitRequest {
        domain: "d".into(),
        descriptors: vec![descriptor(&[(key, "ann")])],
        reservation_id: id.to_owned(),
        actual_amount,
    }
}

#[tokio::test]
async fn a_check_looks_only_and_a_report_charges_and_is_never_refused() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let asked = request("d", vec![descriptor(&[("team", "ann")])]);
    for _ in 0..200 {
        let looked = client.check_rate_limit(asked.clone()).await.unwrap();
        assert_eq!(looked.into_inner().overall_code(), Code::Ok);
    }
    assert_eq!(left(&service, "team").await, 100);
    // 0 hits are 1, those of a descriptor, too.
    let report = client.report(asked.clone()).await.unwrap().into_inner();
    assert_eq!(report.overall_code(), Code::Ok);
    assert_eq!(report.statuses[0].limit_remaining, 99);
    let zero = request("d", vec![hits("team", "ann", 0)]);
    client.report(zero).await.unwrap();
    assert_eq!(left(&service, "team").await, 98);
    let mut much = asked.clone();
    much.hits_addend = 150;
    let report = client.report(much.clone()).await.unwrap().into_inner();
    assert_eq!(report.overall_code(), Code::Ok);
    let looked = client.check_rate_limit(asked).await.unwrap().into_inner();
    assert_eq!(looked.overall_code(), Code::OverLimit);
    assert_eq!(looked.statuses[0].limit_remaining, 0);
    let name = looked.statuses[0].current_limit.as_ref().unwrap();
    assert_eq!((name.requests_per_unit, name.unit), (100, 3));
    let report = client.report(much).await.unwrap().into_inner();
    assert_eq!(report.overall_code(), Code::Ok);
}

#[tokio::test]
async fn a_reservation_is_committed_once_and_an_amount_of_0_releases_it() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let reserved = client.reserve(reserve("user", 600)).await.unwrap();
    let reserved = reserved.into_inner();
    assert_eq!(reserved.code(), Code::Ok);
    assert_eq!(left(&service, "user").await, 400);
    let refused = client.reserve(reserve("user", 401)).await.unwrap();
    let refused = refused.into_inner();
    assert_eq!(refused.code(), Code::OverLimit);
    assert_eq!(refused.reservation_id, "");
    for _ in 0..2 {
        let sent = commit("user", &reserved.reservation_id, 100);
        client.commit(sent).await.unwrap();
        assert_eq!(left(&service, "user").await, 900);
    }
    let reserved = client.reserve(reserve("user", 600)).await.unwrap();
    let id = reserved.into_inner().reservation_id;
    for _ in 0..2 {
        client.commit(commit("user", &id, 0)).await.unwrap();
        assert_eq!(left(&service, "user").await, 900);
    }
}

#[tokio::test]
async fn an_unknown_or_empty_id_charges_in_full() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    for (id, left_after) in [("", 950), ("", 900), ("foreign", 850), ("other", 800)] {
        client.commit(commit("user", id, 50)).await.unwrap();
        assert_eq!(left(&service, "user").await, left_after, "{id}");
    }
    client.commit(commit("user", "", 2_000)).await.unwrap();
    assert_eq!(left(&service, "user").await, 0);
}

#[tokio::test]
async fn a_ttl_of_0_is_the_default_and_other_bounds_are_kept() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let ttl = |seconds, nanos| ReserveRequest {
        ttl: Some(prost_types::Duration { seconds, nanos }),
        ..reserve("user", 600)
    };
    let reserved = client.reserve(ttl(0, 0)).await.unwrap().into_inner();
    // It expires after 60 s: the commit is that of an unknown id.
    service.clock.advance_us(61 * SECOND);
    let sent = commit("user", &reserved.reservation_id, 100);
    client.commit(sent).await.unwrap();
    assert_eq!(left(&service, "user").await, 300);
    for (seconds, nanos) in [(-1, 0), (0, -1), (86_401, 0), (315_360_000_000, 0)] {
        let status = client.reserve(ttl(seconds, nanos)).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        let bad = status.get_details_bad_request().unwrap();
        assert_eq!(bad.field_violations[0].field, "ttl", "{seconds} {nanos}");
    }
    assert_eq!(left(&service, "user").await, 300);
}

#[tokio::test]
async fn bad_calls_name_the_field_and_take_nothing() {
    let service = Service::start(RULES, &["--on-excess", "error"]).await;
    let mut client = client(&service).await;
    let violated = |status: tonic::Status| {
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
        let bad = status.get_details_bad_request().unwrap();
        bad.field_violations[0].field.clone()
    };
    let status = client.reserve(reserve("user", u64::MAX)).await.unwrap_err();
    assert_eq!(violated(status), "amount");
    let status = client
        .commit(commit("user", "", u64::MAX))
        .await
        .unwrap_err();
    assert_eq!(violated(status), "actual_amount");
    let long = "x".repeat(100_000);
    let status = client.commit(commit("user", &long, 1)).await.unwrap_err();
    assert_eq!(violated(status), "reservation_id");
    let status = client
        .report(request("", vec![hits("user", "ann", 1)]))
        .await;
    assert_eq!(violated(status.unwrap_err()), "domain");
    let status = client.check_rate_limit(request("d", vec![])).await;
    assert_eq!(violated(status.unwrap_err()), "descriptors");
    let status = client.reserve(reserve("log", 1)).await.unwrap_err();
    assert!(status.message().contains("d.log"), "{status}");
    let many = request("d", vec![hits("user", "ann", 1); 10_000]);
    let status = client.report(many).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    assert_eq!(left(&service, "user").await, 1_000);
}

#[tokio::test]
async fn bytes_that_are_no_text_are_kept() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let asked = request("d", vec![descriptor(&[(&b"user"[..], &b"\xff"[..])])]);
    let report = client.report(asked).await.unwrap().into_inner();
    assert_eq!(report.statuses[0].limit_remaining, 999);
}
