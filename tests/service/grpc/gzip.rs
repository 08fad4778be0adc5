//! Requests that are compressed with gzip.
//!
//! What it deliberately does not do: compare case by case with tonic (`cases`), or measure the
//! memory that a gzip bomb costs (`tests/memory/gzip.rs`).

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::Request;
use prost::Message as _;
use tollgate_test_support::grpc_client::{Code, request};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::raw::{Raw, Seen, call};
use super::{one, service};

/// A gRPC frame whose message gzip compressed.
pub(crate) fn gzipped(message: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(message).unwrap();
    let compressed = encoder.finish().unwrap();
    let length = u32::try_from(compressed.len()).unwrap().to_be_bytes();
    [&[1], &length[..], &compressed].concat()
}

fn encoded(encoding: &str) -> Request<()> {
    let head = call().header("grpc-encoding", encoding);
    head.body(()).unwrap()
}

fn header<'s>(seen: &'s Seen, name: &str) -> Option<&'s str> {
    let found = seen.headers.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.as_str())
}

#[tokio::test]
async fn a_gzip_request_gets_the_uncompressed_answer_of_a_plain_one() {
    let service = service(&[]).await;
    let mut raw = Raw::connect(service.grpc).await;
    let body = [gzipped(&one("x", 1).encode_to_vec())];
    let seen = raw.make(encoded("gzip"), &body).await;
    assert_eq!(seen.left(), 999_999);
    assert_eq!(header(&seen, "grpc-encoding"), None);
    assert_eq!(raw.ask(&one("x", 1)).await.left(), 999_998);
    // Clients that compress do that for every service.
    let check = Request::post("http://test/grpc.health.v1.Health/Check")
        .header("content-type", "application/grpc")
        .header("grpc-encoding", "gzip");
    let message = HealthCheckRequest {
        service: "ratelimit".to_owned(),
    };
    let body = [gzipped(&message.encode_to_vec())];
    let seen = raw.make(check.body(()).unwrap(), &body).await;
    assert_eq!(seen.grpc_status(), Some("0"));
    let health = HealthCheckResponse::decode(&seen.body[5..]).unwrap();
    assert_eq!(health.status, 1);
}

#[tokio::test]
async fn the_bound_on_messages_holds_for_what_gzip_expands() {
    let long = one(&"x".repeat(100_000), 1).encode_to_vec();
    let bound = long.len().to_string();
    let longer = one(&"x".repeat(100_001), 1).encode_to_vec();
    assert!(gzipped(&longer).len() < 1_000);
    for (on_excess, status) in [("deny", "0"), ("error", "8")] {
        let bounds = ["--message-size-max", &bound, "--on-excess", on_excess];
        let service = service(&bounds).await;
        let mut raw = Raw::connect(service.grpc).await;
        let excess = || service.metric("tollgate_excess_total{bound=\"message_size\"}");
        let seen = raw.make(encoded("gzip"), &[gzipped(&long)]).await;
        assert_eq!(seen.left(), 999_999);
        assert_eq!(excess(), 0);
        let seen = raw.make(encoded("gzip"), &[gzipped(&longer)]).await;
        assert_eq!(seen.grpc_status(), Some(status));
        assert_eq!(excess(), 1);
        if on_excess == "deny" {
            assert_eq!(seen.answer().overall_code(), Code::OverLimit);
        }
    }
}

#[tokio::test]
async fn an_error_of_another_bound_does_not_count_as_a_message_too_long() {
    let bounds = ["--descriptors-max", "1", "--on-excess", "error"];
    let service = service(&bounds).await;
    let mut raw = Raw::connect(service.grpc).await;
    let two = request(
        "d",
        [one("x", 1).descriptors, one("y", 1).descriptors].concat(),
    );
    let body = [gzipped(&two.encode_to_vec())];
    let seen = raw.make(encoded("gzip"), &body).await;
    assert_eq!(seen.grpc_status(), Some("8"));
    let excess = |bound| service.metric(&format!("tollgate_excess_total{{bound=\"{bound}\"}}"));
    assert_eq!((excess("message_size"), excess("descriptors")), (0, 1));
}

#[tokio::test]
async fn another_encoding_is_refused_with_the_encodings_that_are_accepted() {
    let service = service(&[]).await;
    let mut raw = Raw::connect(service.grpc).await;
    let body = [gzipped(&one("x", 1).encode_to_vec())];
    for encoding in ["deflate", "zstd", "snappy"] {
        let seen = raw.make(encoded(encoding), &body).await;
        assert_eq!(seen.grpc_status(), Some("12"), "{encoding}");
        let accepted = header(&seen, "grpc-accept-encoding");
        assert_eq!(accepted, Some("gzip,identity"), "{encoding}");
    }
}
