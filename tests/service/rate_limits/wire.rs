//! The bytes of each RPC's request and answer are those of `wire.txt`.
//!
//! Set `WRITE_SNAPSHOTS=1` to write the file again after an intended change.

use std::fmt::Write as _;
use std::path::Path;

use prost::Message;
use prost_types::Duration;
use tollgate::proto::kuadrant::service::ratelimit::v1 as kuadrant;
use tollgate::proto::tollgate::v1::call::Call as Sent;
use tollgate::proto::tollgate::v1::{
    BatchRequest, Call, ExtendRequest, LeaseRequest, ReleaseRequest, ReturnRequest,
};
use tollgate_test_support::grpc_client::{descriptor as envoy_descriptor, request};
use tollgate_test_support::in_process::Service;

use super::{RULES, check, commit, descriptor, reserve};
use crate::service::grpc::raw::{Raw, frame};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// The RPCs with their messages. The order matters: one settles what another reserved.
fn calls() -> Vec<(&'static str, Vec<u8>)> {
    let user = || vec![descriptor("user", "ann")];
    let envoy = || vec![envoy_descriptor(&[("team", "bob")])];
    let tagged = |tag, call| Call {
        tag,
        call: Some(call),
    };
    let batch = BatchRequest {
        calls: vec![
            tagged(1, Sent::Peek(check("user", 1))),
            tagged(2, Sent::Commit(commit("user", "never", 1))),
        ],
    };
    let extend = ExtendRequest {
        domain: "d".to_owned(),
        descriptors: user(),
        reservation: "r".to_owned(),
        expires: Some(Duration {
            seconds: 90,
            nanos: 0,
        }),
    };
    let release = ReleaseRequest {
        domain: "d".to_owned(),
        descriptors: user(),
        reservation: "r".to_owned(),
    };
    let kuadrant_reserve = kuadrant::ReserveRequest {
        domain: "d".into(),
        descriptors: envoy(),
        amount: 40,
        ttl: Some(Duration {
            seconds: 30,
            nanos: 0,
        }),
    };
    let kuadrant_commit = kuadrant::CommitRequest {
        domain: "d".into(),
        descriptors: envoy(),
        reservation_id: "foreign".to_owned(),
        actual_amount: 5,
    };
    let refused = kuadrant::ReserveRequest {
        amount: 101,
        ..kuadrant_reserve.clone()
    };
    // Other ids are random.
    let lease = LeaseRequest {
        domain: "unknown".to_owned(),
        descriptors: user(),
        hits: Some(100),
        lease: String::new(),
        admitted: Some(7),
        refused: Some(1),
    };
    let give_back = ReturnRequest {
        domain: "d".to_owned(),
        descriptors: user(),
        lease: format!("9.1.{}", "0".repeat(32)),
        unused: 5,
        admitted: None,
        refused: None,
    };
    vec![
        ("RateLimits/Check", check("user", 5).encode_to_vec()),
        ("RateLimits/Peek", check("user", 5).encode_to_vec()),
        (
            "RateLimits/Reserve",
            reserve("user", "r", 800).encode_to_vec(),
        ),
        ("RateLimits/Extend", extend.encode_to_vec()),
        (
            "RateLimits/Commit",
            commit("user", "r", 300).encode_to_vec(),
        ),
        ("RateLimits/Release", release.encode_to_vec()),
        ("RateLimits/Batch", batch.encode_to_vec()),
        (
            "RateLimits/Stream",
            tagged(3, Sent::Check(check("user", 1))).encode_to_vec(),
        ),
        ("RateLimits/Check", check("", 5).encode_to_vec()),
        ("RateLimits/Lease", lease.encode_to_vec()),
        ("RateLimits/Return", give_back.encode_to_vec()),
        (
            "RateLimitService/CheckRateLimit",
            request("d", envoy()).encode_to_vec(),
        ),
        (
            "RateLimitService/Report",
            request("d", envoy()).encode_to_vec(),
        ),
        ("RateLimitService/Reserve", kuadrant_reserve.encode_to_vec()),
        ("RateLimitService/Reserve", refused.encode_to_vec()),
        ("RateLimitService/Commit", kuadrant_commit.encode_to_vec()),
    ]
}

/// The answer with the id that the service made replaced by zeros.
fn without_made_id(name: &str, mut body: Vec<u8>) -> Vec<u8> {
    if name == "RateLimitService/Reserve"
        && let Some(id) = body.len().checked_sub(32)
    {
        body[id..].fill(b'0');
    }
    body
}

#[tokio::test]
async fn the_bytes_of_every_rpc_are_the_committed_ones() {
    let service = Service::start(RULES, &[]).await;
    let mut raw = Raw::connect(service.grpc).await;
    let mut text = String::new();
    for (name, message) in calls() {
        let package = match name.split('/').next().unwrap() {
            "RateLimits" => "tollgate.v1",
            _ => "kuadrant.service.ratelimit.v1",
        };
        let head = http::Request::post(format!("http://test/{package}.{name}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let sent = frame(&message);
        let seen = raw
            .make(head.body(()).unwrap(), std::slice::from_ref(&sent))
            .await;
        let mut trailers = seen.headers.iter().chain(&seen.trailers);
        let (_, status) = trailers.find(|(name, _)| name == "grpc-status").unwrap();
        let answer = hex(&without_made_id(name, seen.body.clone()));
        writeln!(text, "{package}.{name}\n  {}\n  {answer}", hex(&sent)).unwrap();
        writeln!(text, "  grpc-status {status}").unwrap();
        let details = seen.headers.iter().chain(&seen.trailers);
        for (_, value) in details.filter(|(name, _)| name == "grpc-status-details-bin") {
            writeln!(text, "  grpc-status-details-bin {value}").unwrap();
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/service/rate_limits/wire.txt");
    if std::env::var_os("WRITE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}
