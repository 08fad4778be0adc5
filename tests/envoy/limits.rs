//! Limits behind Envoy: responses to limited requests, and the features of Envoy's configuration.
//!
//! How: the routes of Envoy's bootstrap and the rules below. At the end of each test Envoy must
//! have counted no error. Calls that Envoy sends after a response are awaited in tollgate's
//! metrics.

use std::fs;

use tollgate_test_support::envoy_process::OwnHeaders;
use tollgate_test_support::http_connection::HttpResponse;
use tollgate_test_support::redis_server::RedisServer;

use crate::envoy::edge::{DAY_SECONDS, Edge, until_the_end_of};

// window: the clock stands.
const RULES: &str = "
domain: edge
descriptors:
  - key: day
    rate_limit: { unit: day, requests_per_unit: 10 }
  - key: year
    rate_limit: { unit: year, requests_per_unit: 3 }
  - key: postpaid
    rate_limit: { unit: day, requests_per_unit: 40 }
  - key: refunded
    rate_limit: { unit: day, requests_per_unit: 10 }
";

const DAY_LIMIT: &str = "10, 10;w=86400";

fn start() -> Edge {
    Edge::start(RULES, &[], OwnHeaders::Yes)
}

#[test]
fn ten_requests_pass_and_the_eleventh_is_refused_with_all_headers() {
    let mut edge = start();
    for remaining in (0..10).rev() {
        let answer = edge.get("/day");
        assert_eq!((answer.status, answer.remaining()), (200, Some(remaining)));
        assert_eq!(answer.body, b"nineteen bytes here");
        assert_eq!(answer.header("x-ratelimit-limit"), Some(DAY_LIMIT));
        let reset = until_the_end_of(DAY_SECONDS);
        assert_eq!(answer.number("x-ratelimit-reset"), Some(reset));
        assert_eq!(answer.header("retry-after"), None);
        assert_eq!(answer.header("x-envoy-ratelimited"), None);
    }
    let answer = edge.get("/day");
    assert_refused(&answer, DAY_LIMIT, DAY_SECONDS);
    assert_eq!(answer.body, b"");

    // The bucket of another key is fresh.
    assert_eq!(edge.caller.get("/day", b"b").remaining(), Some(9));
    edge.assert_counts(11, 1);
}

#[test]
fn one_of_two_descriptors_over_its_limit_refuses_and_the_tightest_is_reported() {
    let mut edge = start();
    for remaining in (0..3).rev() {
        let answer = edge.get("/two");
        assert_eq!((answer.status, answer.remaining()), (200, Some(remaining)));
    }
    let both = "3, 10;w=86400, 3;w=31536000";
    assert_refused(&edge.get("/two"), both, 365 * DAY_SECONDS);
    // The other one is within its limit.
    assert_eq!(edge.get("/day").status, 200);
    edge.assert_counts(4, 1);
}

#[test]
fn hits_are_counted_by_the_limit_that_refused_them() {
    let rules = "
domain: edge
descriptors:
  - key: day
    limit_from_request: replace
    rate_limits:
      - { name: s, unit: year, requests_per_unit: 2 }
      - { name: h, unit: year, requests_per_unit: 100 }
  - key: year
    shadow_mode: true
    rate_limit: { unit: year, requests_per_unit: 1 }
";
    let mut edge = Edge::start(rules, &[], OwnHeaders::Yes);
    let statuses = [200, 200, 429, 429, 429];
    assert_eq!(statuses.map(|_| edge.get("/two").status), statuses);
    let statuses = [200, 200, 429];
    let overridden = statuses.map(|_| edge.get("/override/static").status);
    assert_eq!(overridden, statuses);
    let outcomes = ["admitted", "refused", "would_refuse", "overruled"];
    for (rule, limit, hits) in [
        ("edge.day", "s", [2, 3, 0, 0]),
        ("edge.day", "h", [2, 0, 0, 3]),
        ("edge.year", "year", [1, 0, 4, 0]),
        ("(override)", "", [2, 1, 0, 0]),
    ] {
        for (outcome, hits) in outcomes.iter().zip(hits) {
            let labels = format!("limit=\"{limit}\",outcome=\"{outcome}\",rule=\"{rule}\"");
            let series = format!("tollgate_limit_hits_total{{domain=\"edge\",{labels}}}");
            edge.wait_for_metric(&series, hits);
        }
    }
    edge.assert_counts(4, 4);
}

#[test]
fn a_header_that_is_not_utf_8_is_limited() {
    let mut edge = start();
    for remaining in (0..10).rev() {
        let answer = edge.caller.get("/day", b"a\xff\xfeb");
        assert_eq!((answer.status, answer.remaining()), (200, Some(remaining)));
    }
    assert_eq!(edge.caller.get("/day", b"a\xff\xfeb").status, 429);
    // Values that are not UTF-8 do not share a bucket either.
    assert_eq!(edge.caller.get("/day", b"a\xfe\xffb").remaining(), Some(9));
    edge.assert_counts(11, 1);
}

#[test]
fn a_cost_of_the_route_a_header_or_the_request_is_taken_at_once() {
    let mut edge = start();
    for (key, path, header, status, remaining) in [
        (b"route", "/cost/fixed", None, 200, 6),
        (b"route", "/cost/fixed", None, 200, 2),
        (b"route", "/cost/fixed", None, 429, 0),
        (b"heads", "/cost/header", Some(("x-cost", b"7")), 200, 3),
        (b"heads", "/cost/header", Some(("x-cost", b"0")), 200, 3),
        (b"heads", "/cost/header", Some(("x-cost", b"3")), 200, 0),
        (b"heads", "/cost/header", Some(("x-cost", b"1")), 429, 0),
        // Hits of the request are for descriptors that have none of their own.
        (b"whole", "/day", Some(("x-hits", b"3")), 200, 7),
        (b"whole", "/cost/fixed", Some(("x-hits", b"3")), 200, 3),
        (b"whole", "/day", Some(("x-hits", b"3")), 200, 0),
    ] {
        let mut headers = vec![("x-key", key.as_slice())];
        headers.extend(header.map(|(name, value)| (name, value.as_slice())));
        let answer = edge.caller.get_with(path, &headers);
        let found = (answer.status, answer.remaining());
        assert_eq!(found, (status, Some(remaining)), "{path} {headers:?}");
    }
    edge.assert_counts(8, 2);
}

#[test]
fn a_charge_after_the_response_is_seen_by_later_requests() {
    let mut edge = start();
    let charged =
        r#"ratelimit_service_rate_limit_total_hits{domain="edge",key1="postpaid",key2=""}"#;
    // The limit is 40 and each response has 19 bytes: the third request is checked at 38 and
    // exceeds it.
    for (remaining, charge) in [(40, 19), (21, 38), (2, 57)] {
        let answer = edge.get("/postpaid");
        assert_eq!((answer.status, answer.remaining()), (200, Some(remaining)));
        edge.wait_for_metric(charged, charge);
    }
    assert_refused(&edge.get("/postpaid"), "40, 40;w=86400", DAY_SECONDS);
    edge.assert_counts(3, 1);
}

#[test]
fn a_refund_after_the_response_can_be_taken_again() {
    let mut edge = start();
    let refunded = r#"ratelimit_service_rate_limit_total_negative_hits{domain="edge",key1="refunded",key2=""}"#;
    // Takes five of ten and refunds three each time: without refunds the third would be refused.
    for (remaining, refund) in [(5, 3), (3, 6), (1, 9)] {
        let answer = edge.get("/refunded");
        assert_eq!((answer.status, answer.remaining()), (200, Some(remaining)));
        edge.wait_for_metric(refunded, refund);
    }
    assert_eq!(edge.get("/refunded").status, 429);
    edge.assert_counts(3, 1);
}

#[test]
fn an_override_has_its_limit_and_a_bucket_of_its_own() {
    let mut edge = start();
    for _ in 0..10 {
        assert_eq!(edge.get("/day").status, 200);
    }
    for (path, requests, limits, window_seconds) in [
        ("/override/static", 2, "2, 2;w=86400", DAY_SECONDS),
        ("/override/metadata", 3, "3, 3;w=2592000", 30 * DAY_SECONDS),
    ] {
        for remaining in (0..requests).rev() {
            let answer = edge.get(path);
            assert_eq!((answer.status, answer.remaining()), (200, Some(remaining)));
            assert_eq!(answer.header("x-ratelimit-limit"), Some(limits));
        }
        assert_refused(&edge.get(path), limits, window_seconds);
        assert_refused(&edge.get("/day"), DAY_LIMIT, DAY_SECONDS);
    }
    edge.assert_counts(15, 4);

    // Of any unit that Envoy knows.
    let answer = edge.get("/override/units");
    let limits = "3, 41;w=1, 42;w=60, 43;w=3600, 44;w=86400, 3;w=2592000, 46;w=31536000";
    assert_eq!(answer.header("x-ratelimit-limit"), Some(limits));
    assert_eq!(answer.remaining(), Some(2));
    edge.assert_counts(16, 4);
}

#[test]
fn an_override_adjusts_a_rule_and_one_with_an_overlay() {
    // window: the clock stands.
    let rules = "
domain: edge
descriptors:
  - key: day
    rate_limit: { unit: day, requests_per_unit: 10, algorithm: token_bucket, name: daily }
    over_limit: { body: 'at most {limit} in {window}' }
";
    let mut edge = Edge::start(rules, &[], OwnHeaders::Yes);
    for (path, requests, body) in [
        ("/override/static", 2, "at most 2 in 1 day"),
        ("/override/metadata", 3, "at most 3 in 1 month"),
    ] {
        for _ in 0..requests {
            assert_eq!(edge.get(path).status, 200);
        }
        let answer = edge.get(path);
        assert_eq!((answer.status, answer.body), (429, body.into()));
    }
    edge.assert_counts(5, 2);

    // As from an xDS server: rules of the reference, and what an overlay makes of them.
    let directory = tempfile::tempdir().unwrap();
    let overlay = directory.path().join("overlay.yaml");
    let entry = "overlay: [{ domain: edge, shadow_mode: true, may_raise: true }]";
    fs::write(&overlay, entry).unwrap();
    let arguments = ["--overlay", overlay.to_str().unwrap()];
    let mut edge = Edge::start(RULES, &arguments, OwnHeaders::Yes);
    let statuses = [200; 3];
    assert_eq!(
        statuses.map(|_| edge.get("/override/static").status),
        statuses
    );
    let labels = "limit=\"day\",outcome=\"would_refuse\",rule=\"edge.day\"";
    let series = format!("tollgate_limit_hits_total{{domain=\"edge\",{labels}}}");
    edge.wait_for_metric(&series, 1);
    edge.assert_counts(3, 0);
}

/// Asserts a 429 with every header that Envoy derives from the answer, the last status being the
/// refused one.
fn assert_refused(answer: &HttpResponse, limits: &str, window_seconds: u64) {
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(answer.header("x-envoy-ratelimited"), Some("true"));
    assert_eq!(answer.header("x-ratelimit-limit"), Some(limits));
    assert_eq!(answer.remaining(), Some(0));
    let wait = Some(until_the_end_of(window_seconds));
    assert_eq!(answer.number("retry-after"), wait);
    assert_eq!(answer.number("x-ratelimit-reset"), wait);
}

/// Envoy looks first, and charges the bytes of the response when the stream is done.
#[test]
fn a_charge_after_the_response_is_lost_in_no_store_where_the_limit_says_so() {
    let charged =
        r#"ratelimit_service_rate_limit_total_hits{domain="edge",key1="postpaid",key2=""}"#;
    let lost = r#"tollgate_lost_charge_hits_total{domain="edge",key1="postpaid",key2=""}"#;
    let redis = RedisServer::start(&[]);
    let url = redis.url();
    let store = ["--store", &url, "--store-deadline-ms", "20000"];
    let leased = [&store[..], &["--store-mode", "leased"]].concat();
    // Of the limit of 40 two charges of 19 bytes leave 2.
    for (mode, limit, passes, lost_hits) in [
        (&[][..], "algorithm: sliding_window", 8, 6 * 19),
        (&[], "algorithm: sliding_window, charged: afterwards", 3, 0),
        (&leased, "name: fixed", 3, 0),
        (&leased, "algorithm: token_bucket", 8, 6 * 19),
        (
            &leased,
            "algorithm: token_bucket, name: after, charged: afterwards",
            3,
            0,
        ),
    ] {
        let rules = format!(
            "domain: edge\ndescriptors:\n- key: postpaid\n  rate_limit: {{ unit: year, requests_per_unit: 40, {limit} }}\n"
        );
        let mut edge = Edge::start(&rules, mode, OwnHeaders::Yes);
        if !mode.is_empty() {
            edge.wait_for_metric("tollgate_store_up", 1);
        }
        let mut passed = 0;
        for _ in 0..8 {
            if edge.get("/postpaid").status == 200 {
                passed += 1;
                edge.wait_for_metric(charged, passed * 19);
            }
        }
        assert_eq!(passed, passes, "{mode:?} {limit}");
        edge.wait_for_metric(lost, lost_hits);
        edge.assert_counts(passes, 8 - passes);
    }
}
