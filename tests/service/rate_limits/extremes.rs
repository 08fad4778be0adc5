//! Amounts, ids and times at the edge of what a reservation can have, over gRPC and Envoy's
//! protocol. `api/extremes` has those of the API's limits.

use prost::Message as _;
use prost_types::Duration;
use tollgate::proto::tollgate::v1::{ExtendRequest, ReleaseRequest, ReserveRequest};
use tollgate_test_support::grpc_client::{
    Code, Descriptor as Stream, RateLimitRequest, descriptor as stream_entries, request,
};
use tollgate_test_support::in_process::Service;
use tonic::Code as Grpc;

use super::{SECOND, check, client, commit, descriptor, left, reserve};
use crate::grpc::raw::{Raw, frame};

/// The largest number of hits in a call of the API.
const HITS_MAX: u64 = 9_007_199_254_740_991;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000, reserve: { key: id, amount: 100 } }
  - key: dear
    rate_limit: { unit: hour, requests_per_unit: 500000, cost: 1000000, reserve: { key: id, amount: 100 } }
  - key: slots
    rate_limit: { requests_per_unit: 1000, algorithm: concurrency, slot_seconds: 60 }
";

fn extend(id: &str, seconds: i64) -> ExtendRequest {
    ExtendRequest {
        domain: "d".to_owned(),
        descriptors: vec![descriptor("user", "ann")],
        reservation: id.to_owned(),
        expires: Some(Duration { seconds, nanos: 0 }),
    }
}

#[tokio::test]
async fn amounts_at_the_edge_are_reserved_refused_or_owed() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let nothing = client.reserve(reserve("user", "nothing", 0)).await.unwrap();
    assert_eq!(nothing.into_inner().hits, 0);
    assert_eq!(left(&service, "user").await, 1_000);
    for (key, hits) in [
        ("user", 1_001),
        ("user", 1 << 39),
        ("user", HITS_MAX),
        // The price of the second is 2^64 and 448384.
        ("dear", 1),
        ("dear", 18_446_744_073_710),
        ("dear", HITS_MAX),
    ] {
        let before = left(&service, key).await;
        let refused = client.reserve(reserve(key, "r", hits)).await.unwrap();
        assert_eq!(refused.into_inner().hits, 0, "{key} {hits}");
        assert_eq!(left(&service, key).await, before, "{key} {hits}");
    }
    for hits in [HITS_MAX + 1, u64::MAX] {
        let error = client.reserve(reserve("user", "r", hits)).await;
        assert_eq!(error.unwrap_err().code(), Grpc::InvalidArgument, "{hits}");
        let error = client.commit(commit("user", "nothing", hits)).await;
        assert_eq!(error.unwrap_err().code(), Grpc::InvalidArgument, "{hits}");
    }
    for (key, id) in [("user", "nothing"), ("dear", "r")] {
        if key == "dear" {
            client.reserve(reserve(key, id, 0)).await.unwrap();
        }
        let settled = client.commit(commit(key, id, HITS_MAX)).await.unwrap();
        let settled = settled.into_inner();
        assert_eq!((settled.reserved, settled.remaining), (0, Some(0)), "{key}");
    }
    service.clock.advance_us(3_600 * SECOND);
    assert_eq!(left(&service, "user").await, 1_000);
    assert_eq!(left(&service, "dear").await, 500_000);
}

#[tokio::test]
async fn ids_are_compared_by_their_bytes_and_bad_ones_change_nothing() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    let longest = "i".repeat(256);
    let ids = [
        "a",
        "A",
        "a\0",
        "\0",
        "\n",
        "é",
        "e\u{301}",
        longest.as_str(),
    ];
    // Amounts that differ, and settles in another order, show which reservation an id finds.
    for (hits, id) in (10..).zip(ids) {
        client.reserve(reserve("user", id, hits)).await.unwrap();
    }
    for (hits, id) in (10..).zip(ids).collect::<Vec<_>>().into_iter().rev() {
        let settled = client.commit(commit("user", id, 1)).await.unwrap();
        assert_eq!(settled.into_inner().reserved, hits, "{id:?}");
    }
    assert_eq!(left(&service, "user").await, 992);
    let error = client.reserve(reserve("user", &"i".repeat(257), 1)).await;
    assert_eq!(error.unwrap_err().code(), Grpc::InvalidArgument);
    // 1 MiB is more than --message-size-max.
    let error = client
        .reserve(reserve("user", &"i".repeat(1 << 20), 1))
        .await;
    assert_eq!(error.unwrap_err().code(), Grpc::OutOfRange);
    // Not UTF-8: no such message.
    let text = reserve("user", "ID", 1).encode_to_vec();
    let place = text.windows(2).position(|two| two == b"ID").unwrap();
    let mut bytes = text;
    bytes[place] = 0xff;
    let mut raw = Raw::connect(service.grpc).await;
    let call = http::Request::post("http://test/tollgate.v1.RateLimits/Reserve")
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    let seen = raw.make(call.body(()).unwrap(), &[frame(&bytes)]).await;
    let mut fields = seen.headers.iter().chain(&seen.trailers);
    let status = fields.find(|(name, _)| name == "grpc-status").unwrap();
    assert_eq!(status.1, i32::from(Grpc::Internal).to_string());
    assert_eq!(left(&service, "user").await, 992);
}

#[tokio::test]
async fn unknown_expired_and_foreign_ids_are_not_found_and_change_nothing() {
    let service = Service::start(RULES, &[]).await;
    let mut client = client(&service).await;
    client.reserve(reserve("user", "mine", 10)).await.unwrap();
    let foreign = |domain: &str, value: &str| ReleaseRequest {
        domain: domain.to_owned(),
        descriptors: vec![descriptor("user", value)],
        reservation: "mine".to_owned(),
    };
    let error = client.release(foreign("d", "bob")).await.unwrap_err();
    assert_eq!(error.code(), Grpc::NotFound);
    // A domain without rules has nothing to settle.
    let settled = client.release(foreign("elsewhere", "ann")).await.unwrap();
    assert_eq!(settled.into_inner().reserved, 0);
    let error = client.extend(extend("never", 60)).await.unwrap_err();
    assert_eq!(error.code(), Grpc::NotFound);
    for seconds in [-1, 0, 86_401, i64::MAX, i64::MIN] {
        let error = client.extend(extend("mine", seconds)).await.unwrap_err();
        assert_eq!(error.code(), Grpc::InvalidArgument, "{seconds}");
    }
    assert_eq!(left(&service, "user").await, 990);
    client.extend(extend("mine", 86_400)).await.unwrap();
    service.clock.advance_us(86_400 * SECOND);
    let error = client.commit(commit("user", "mine", 3)).await.unwrap_err();
    assert_eq!(error.code(), Grpc::NotFound);
    assert_eq!(left(&service, "user").await, 1_000);
    let slots = ReserveRequest {
        hits: None,
        ..reserve("slots", "r", 0)
    };
    for sent in [reserve("slots", "r", 1), slots] {
        let error = client.reserve(sent).await.unwrap_err();
        assert_eq!(error.code(), Grpc::InvalidArgument);
    }
    assert_eq!(left(&service, "slots").await, 1_000);
}

/// A start or an end over Envoy's protocol, by its hits.
async fn stream(service: &mut Service, entries: &[(&[u8], &[u8])], hits: u64) -> Code {
    let descriptor = Stream {
        hits_addend: Some(hits),
        ..stream_entries(entries)
    };
    service
        .ask(request("d", vec![descriptor]))
        .await
        .overall_code()
}

#[tokio::test]
async fn ends_of_any_amount_are_charged_once_up_to_a_bound() {
    let mut service = Service::start(RULES, &[]).await;
    for key in [&b"user"[..], b"dear"] {
        for (id, hits) in [
            (&b"1"[..], u64::MAX),
            (b"2", u64::MAX),
            (b"3", 1 << 39),
            (b"4", HITS_MAX),
        ] {
            let entries = [(key, &b"ann"[..]), (b"id", id)];
            stream(&mut service, &entries, 0).await;
            assert_eq!(
                stream(&mut service, &entries, hits).await,
                Code::Ok,
                "{hits}"
            );
        }
        // The hits of the request are a 32-bit number.
        let whole = RateLimitRequest {
            hits_addend: u32::MAX,
            ..request(
                "d",
                vec![stream_entries(&[(key, &b"ann"[..]), (b"id", b"5")])],
            )
        };
        assert_eq!(service.ask(whole).await.overall_code(), Code::Ok);
    }
    for key in ["user", "dear"] {
        assert_eq!(left(&service, key).await, 0, "{key}");
    }
    service.clock.advance_us(3_600 * SECOND);
    for (key, unused) in [("user", 1_000), ("dear", 500_000)] {
        assert_eq!(left(&service, key).await, unused, "{key}");
    }
    // The service goes on, and a plain check passes.
    service
        .client
        .should_rate_limit(request("d", vec![stream_entries(&[("user", "ann")])]))
        .await
        .unwrap();
    assert_eq!(left(&service, "user").await, 999);
    assert_eq!(
        client(&service)
            .await
            .check(check("user", 9))
            .await
            .unwrap()
            .into_inner()
            .remaining,
        Some(990)
    );
}

#[tokio::test]
async fn every_value_is_an_id_over_envoy_s_protocol_and_too_long_ones_change_nothing() {
    let mut service = Service::start(RULES, &[]).await;
    let long = vec![b'i'; 100_000];
    let ids: [&[u8]; 8] = [
        b"",
        b"\0",
        b"a",
        b"a\0",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"\n",
        &long,
    ];
    // One is open at a time: only its own id settles it, and each other end is charged in full.
    let mut used = 0;
    for id in ids {
        let of = |id| [(&b"user"[..], &b"ann"[..]), (b"id", id)];
        assert_eq!(stream(&mut service, &of(id), 0).await, Code::Ok);
        for other in ids.into_iter().filter(|other| *other != id) {
            assert_eq!(stream(&mut service, &of(other), 1).await, Code::Ok);
            used += 1;
            assert_eq!(left(&service, "user").await, 900 - used);
        }
        assert_eq!(stream(&mut service, &of(id), 1).await, Code::Ok);
        used += 1;
        assert_eq!(left(&service, "user").await, 1_000 - used);
    }
    let longer = vec![b'i'; 1 << 20];
    let start = Stream {
        hits_addend: Some(0),
        ..stream_entries(&[(&b"user"[..], &b"ann"[..]), (b"id", &longer)])
    };
    // Longer than --message-size-max: --on-excess answers.
    let answer = service.ask(request("d", vec![start])).await;
    assert_eq!(answer.overall_code(), Code::OverLimit);
    assert_eq!(left(&service, "user").await, 1_000 - used);
}
