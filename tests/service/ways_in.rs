//! The same requests by each way in: the fast path, tonic's routes (gzip) and `/json`.
//!
//! Each way has a test of its own with the answers written out, so a fault in `pipeline::begin` or
//! `pipeline::finish` fails all three.

use prost::Message as _;
use serde_json::{Value, json};
use tollgate_test_support::grpc_client::{
    Descriptor, RateLimitRequest, RateLimitResponse, descriptor, hits, request,
};
use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::Service;

use super::grpc::gzip::gzipped;
use super::grpc::raw::{Raw, call};

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1000, reserve: { key: id, amount: 400 } }
";

/// Code and remaining hits of four requests in a row for one key: two pass, two are refused.
const ANSWERS: [(&str, u32); 4] = [("OK", 1), ("OK", 0), ("OVER_LIMIT", 0), ("OVER_LIMIT", 0)];

/// The counter of refused hits after [`ANSWERS`].
const OVER_LIMIT: &str = r#"ratelimit_service_rate_limit_over_limit{domain="d",key1="k",key2=""}"#;

fn asked() -> RateLimitRequest {
    request("d", vec![hits("k", "v", 1)])
}

fn without_domain() -> RateLimitRequest {
    request("", vec![hits("k", "v", 1)])
}

/// Starts (0), ends and plain checks (without hits) under ids, with code and remaining hits. The
/// last number is the hits of the request.
#[allow(clippy::type_complexity)] // a table
const STREAMS: [(&str, Option<u64>, u32, (&str, u32)); 10] = [
    ("1", Some(0), 0, ("OK", 600)),
    ("2", Some(0), 0, ("OK", 200)),
    ("3", Some(0), 0, ("OVER_LIMIT", 0)),
    // A refused id is remembered, and its end ignored once.
    ("3", Some(70), 0, ("OK", 200)),
    ("1", Some(100), 0, ("OK", 500)),
    // The hits of the request end, and those of the descriptor come first.
    ("2", None, 150, ("OK", 750)),
    ("4", Some(50), 9, ("OK", 700)),
    ("5", Some(0), 9, ("OK", 300)),
    ("5", None, 0, ("OK", 299)),
    ("5", Some(5_000), 0, ("OK", 0)),
];

fn of_stream((id, own, of_request, _): (&str, Option<u64>, u32, (&str, u32))) -> RateLimitRequest {
    RateLimitRequest {
        hits_addend: of_request,
        ..request(
            "d",
            vec![Descriptor {
                hits_addend: own,
                ..descriptor(&[("user", "v"), ("id", id)])
            }],
        )
    }
}

fn code_and_remaining(response: &RateLimitResponse) -> (&'static str, u32) {
    let code = response.overall_code().as_str_name();
    (code, response.statuses[0].limit_remaining)
}

#[tokio::test]
async fn the_fast_path_answers_as_written() {
    let service = Service::start(RULES, &[]).await;
    let mut raw = Raw::connect(service.grpc).await;
    for expected in ANSWERS {
        let seen = raw.ask(&asked()).await;
        let response = RateLimitResponse::decode(&seen.body[5..]).unwrap();
        assert_eq!(code_and_remaining(&response), expected);
    }
    for stream in STREAMS {
        let seen = raw.ask(&of_stream(stream)).await;
        let response = RateLimitResponse::decode(&seen.body[5..]).unwrap();
        assert_eq!(code_and_remaining(&response), stream.3, "{stream:?}");
    }
    assert_eq!(service.metric(OVER_LIMIT), 2);
    assert_eq!(raw.ask(&without_domain()).await.grpc_status(), Some("3"));
}

#[tokio::test]
async fn unusual_grpc_calls_are_answered_as_written() {
    let service = Service::start(RULES, &[]).await;
    let mut raw = Raw::connect(service.grpc).await;
    let mut gzip = async |message: RateLimitRequest| {
        let head = call().header("grpc-encoding", "gzip").body(()).unwrap();
        raw.make(head, &[gzipped(&message.encode_to_vec())]).await
    };
    for expected in ANSWERS {
        let seen = gzip(asked()).await;
        let response = RateLimitResponse::decode(&seen.body[5..]).unwrap();
        assert_eq!(code_and_remaining(&response), expected);
    }
    for stream in STREAMS {
        let seen = gzip(of_stream(stream)).await;
        let response = RateLimitResponse::decode(&seen.body[5..]).unwrap();
        assert_eq!(code_and_remaining(&response), stream.3, "{stream:?}");
    }
    assert_eq!(gzip(without_domain()).await.grpc_status(), Some("3"));
    assert_eq!(service.metric(OVER_LIMIT), 2);
}

#[tokio::test]
async fn json_requests_are_answered_as_written() {
    let service = Service::start(RULES, &[]).await;
    let send = async |body: Value| {
        let (address, body) = (service.http, body.to_string());
        tokio::task::spawn_blocking(move || http(address, "POST", "/json", &body))
            .await
            .unwrap()
    };
    let post = async |domain: &str| {
        let entry = json!({"key": "k", "value": "v"});
        send(json!({"domain": domain, "descriptors": [{"entries": [entry]}]})).await
    };
    let written = |status: u16, body: &str, (code, remaining): (&str, u32), of: &str| {
        assert_eq!(status, if code == "OK" { 200 } else { 429 }, "{of}");
        let answer: Value = serde_json::from_str(body).unwrap();
        assert_eq!(answer["overallCode"], code, "{of}");
        let left = answer["statuses"][0]["limitRemaining"].as_u64();
        assert_eq!(left.unwrap_or_default(), u64::from(remaining), "{of}");
    };
    for expected in ANSWERS {
        let (status, body) = post("d").await;
        written(status, &body, expected, "d");
    }
    for (id, own, of_request, expected) in STREAMS {
        let entries = json!([{"key": "user", "value": "v"}, {"key": "id", "value": id}]);
        let mut body = json!({"domain": "d", "descriptors": [{"entries": entries}]});
        if let Some(own) = own {
            body["descriptors"][0]["hitsAddend"] = json!(own.to_string());
        }
        if of_request > 0 {
            body["hitsAddend"] = json!(of_request);
        }
        let (status, answer) = send(body).await;
        written(status, &answer, expected, id);
    }
    assert_eq!(post("").await.0, 400);
    assert_eq!(service.metric(OVER_LIMIT), 2);
}
