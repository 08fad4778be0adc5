//! The same requests by each way in: the fast path, tonic's routes (gzip) and `/json`.
//!
//! Each way has a test of its own with the answers written out, so a fault in `pipeline::begin` or
//! `pipeline::finish` fails all three.

use prost::Message as _;
use serde_json::{Value, json};
use tollgate_test_support::grpc_client::{RateLimitRequest, RateLimitResponse, hits, request};
use tollgate_test_support::http_client::http;
use tollgate_test_support::in_process::Service;

use super::grpc::gzip::gzipped;
use super::grpc::raw::{Raw, call};

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { unit: hour, requests_per_unit: 2 }
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
    assert_eq!(gzip(without_domain()).await.grpc_status(), Some("3"));
    assert_eq!(service.metric(OVER_LIMIT), 2);
}

#[tokio::test]
async fn json_requests_are_answered_as_written() {
    let service = Service::start(RULES, &[]).await;
    let post = async |domain: &str| {
        let entry = json!({"key": "k", "value": "v"});
        let body = json!({"domain": domain, "descriptors": [{"entries": [entry]}]}).to_string();
        let address = service.http;
        tokio::task::spawn_blocking(move || http(address, "POST", "/json", &body))
            .await
            .unwrap()
    };
    for (code, remaining) in ANSWERS {
        let (status, body) = post("d").await;
        assert_eq!(status, if code == "OK" { 200 } else { 429 });
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(answer["overallCode"], code);
        let left = answer["statuses"][0]["limitRemaining"].as_u64();
        assert_eq!(left.unwrap_or_default(), u64::from(remaining));
    }
    assert_eq!(post("").await.0, 400);
    assert_eq!(service.metric(OVER_LIMIT), 2);
}
