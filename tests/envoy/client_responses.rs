//! Responses of Envoy to clients: the body and headers of a rule's `over_limit`, and the headers of
//! `--response-headers`.
//!
//! How: the clock stands, so that every header is exact. Envoy adds no headers of its own unless a
//! test enables them, since it would add its values to ours.
//!
//! What it deliberately does not do: each rule of these headers (`tests/service/headers.rs`).

use tollgate_test_support::envoy_process::OwnHeaders;

use crate::envoy::edge::{DAY_SECONDS, Edge, until_the_end_of};

#[test]
fn over_limit_responses_have_the_rules_body_and_headers_and_others_do_not() {
    // window: the clock stands.
    let rules = r#"
domain: edge
descriptors:
  - key: day
    over_limit:
      body: '{"error":"more than {limit} in {window}","wait":{retry_after_seconds},"docs":{}}'
      headers:
        content-type: application/problem+json
        x-plan: "{limit} in {window}, again in {retry_after_seconds}"
    rate_limit: { unit: day, requests_per_unit: 1 }
"#;
    let mut edge = Edge::start(rules, &[], OwnHeaders::No);
    let passed = edge.get("/day");
    assert_eq!(passed.status, 200);
    assert_eq!(passed.body, b"nineteen bytes here");
    assert_eq!(passed.header("content-type"), Some("text/plain"));
    assert_eq!(passed.header("x-plan"), None);

    let refused = edge.get("/day");
    assert_eq!(refused.status, 429);
    let wait = until_the_end_of(DAY_SECONDS);
    let body = format!(r#"{{"error":"more than 1 in 1 day","wait":{wait},"docs":{{}}}}"#);
    assert_eq!(String::from_utf8_lossy(&refused.body), body);
    let length = Some(body.len() as u64);
    assert_eq!(refused.number("content-length"), length);
    let content_type = refused.header("content-type");
    assert_eq!(content_type, Some("application/problem+json"));
    let plan = format!("1 in 1 day, again in {wait}");
    assert_eq!(refused.header("x-plan"), Some(plan.as_str()));
    // No rule or setting asks for it.
    assert_eq!(refused.header("retry-after"), None);
}

#[test]
fn a_limit_of_zero_has_a_body_and_no_retry_after() {
    // window: the clock stands.
    let rules = "
domain: edge
descriptors:
  - key: day
    over_limit: { body: 'closed: {limit} in {window}' }
    rate_limit: { unit: day, requests_per_unit: 0 }
";
    let retry_after = ["--response-headers", "retry-after"];
    let mut edge = Edge::start(rules, &retry_after, OwnHeaders::No);
    let mut envoys = Edge::start(rules, &retry_after, OwnHeaders::Yes);
    for _ in 0..2 {
        let refused = edge.get("/day");
        assert_eq!((refused.status, refused.body.as_slice()), CLOSED);
        assert_eq!(refused.header("content-type"), Some("text/plain"));
        assert_eq!(refused.header("retry-after"), None);

        // Envoy adds one to every 429 when its filter is configured to.
        let refused = envoys.get("/day");
        assert_eq!((refused.status, refused.body.as_slice()), CLOSED);
        let wait = until_the_end_of(DAY_SECONDS);
        assert_eq!(refused.number("retry-after"), Some(wait));
    }
}

const CLOSED: (u16, &[u8]) = (429, b"closed: 0 in 1 day");

#[test]
fn headers_of_every_style_reach_the_client() {
    // window: the clock stands.
    let rules = r#"
domain: edge
descriptors:
  - { key: day, rate_limit: { unit: day, requests_per_unit: 10, name: 'a "day", or so; w' } }
  - { key: year, rate_limit: { unit: year, requests_per_unit: 3 } }
"#;
    let styles = "ietf,retry-after,x-ratelimit,reference";
    let mut edge = Edge::start(rules, &["--response-headers", styles], OwnHeaders::No);
    let [day, year] = [DAY_SECONDS, 365 * DAY_SECONDS].map(until_the_end_of);
    let policies = r#""a \"day\", or so; w";q=10;w=86400, "limit-2";q=3;w=31536000"#;
    for (status, day_left, year_left) in [(200, 9, 2), (200, 8, 1), (200, 7, 0), (429, 6, 0)] {
        let answer = edge.get("/two");
        assert_eq!(answer.status, status);
        // The tightest of the two, in every style that has one.
        for style in ["ratelimit", "x-ratelimit"] {
            let number = |part| answer.number(&format!("{style}-{part}"));
            assert_eq!(number("limit"), Some(3), "{answer:?}");
            assert_eq!(number("remaining"), Some(year_left));
            assert_eq!(number("reset"), Some(year));
        }
        // Both, in the style that lists them.
        assert_eq!(answer.header("ratelimit-policy"), Some(policies));
        let levels = format!(
            r#""a \"day\", or so; w";r={day_left};t={day}, "limit-2";r={year_left};t={year}"#
        );
        assert_eq!(answer.header("ratelimit"), Some(levels.as_str()));
        let retry_after = (status == 429).then_some(year);
        assert_eq!(answer.number("retry-after"), retry_after);
    }
}
