//! Ids at the edge of what a reservation can have, over Envoy's protocol. `walks/streams.txt` has
//! amounts, and `api/extremes` both for the API.

use tollgate_test_support::grpc_client::{
    Code, Descriptor as Stream, descriptor as stream_entries, request,
};
use tollgate_test_support::in_process::Service;

use super::left;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000, reserve: { key: id, amount: 100 } }
";

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
