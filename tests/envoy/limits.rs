//! Limits behind Envoy: responses to limited requests, and the features of Envoy's configuration.
//!
//! How: the routes of `bootstrap.yaml` and the rules below. At the end of each test Envoy must have
//! counted no error.
//!
//! What it deliberately does not do: wait for a time. Calls that Envoy sends after a response are
//! awaited in tollgate's metrics.

use tollgate_test_support::envoy_process::{Counts, Envoy, OnError};
use tollgate_test_support::http_connection::{HttpConnection, HttpResponse};
use tollgate_test_support::polling::{PATIENCE, wait_for};
use tollgate_test_support::tollgate_process::Tollgate;

const RULES: &str = "
domain: edge
descriptors:
  - key: day
    rate_limit: { unit: day, requests_per_unit: 10 }
  - key: minute
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: year
    rate_limit: { unit: year, requests_per_unit: 3 }
  - key: postpaid
    rate_limit: { unit: day, requests_per_unit: 40 }
  - key: refunded
    rate_limit: { unit: day, requests_per_unit: 10 }
";

const DAY_SECONDS: u64 = 86_400;

/// A tollgate, an Envoy in front of it, and a client of that Envoy.
struct Edge {
    tollgate: Tollgate,
    envoy: Envoy,
    caller: HttpConnection,
}

#[test]
fn an_allowed_request_has_limit_remaining_and_reset_headers() {
    let mut edge = Edge::start();
    for remaining in [9, 8] {
        let answer = edge.caller.get("/day", b"a");
        assert_eq!(answer.status, 200);
        assert_eq!(answer.body, b"nineteen bytes here");
        assert_eq!(answer.header("x-ratelimit-limit"), Some("10, 10;w=86400"));
        assert_eq!(answer.remaining(), Some(remaining));
        let reset = answer.number("x-ratelimit-reset").unwrap();
        assert!((1..=DAY_SECONDS).contains(&reset), "{answer:?}");
        assert_eq!(answer.header("retry-after"), None);
        assert_eq!(answer.header("x-envoy-ratelimited"), None);
    }
    edge.met(2, 0);
}

#[test]
fn the_eleventh_request_is_refused_with_all_headers() {
    let mut edge = Edge::start();
    for remaining in (0..10).rev() {
        let answer = edge.caller.get("/day", b"a");
        assert_eq!((answer.status, answer.remaining()), (200, Some(remaining)));
    }
    let answer = edge.caller.get("/day", b"a");
    assert_refused(&answer, "10, 10;w=86400", DAY_SECONDS);
    assert_eq!(answer.body, b"");

    // The bucket of another key is fresh.
    assert_eq!(edge.caller.get("/day", b"b").remaining(), Some(9));
    edge.met(11, 1);
}

#[test]
fn a_limit_per_minute_refuses_with_retry_after_within_a_minute() {
    let mut edge = Edge::start();
    // Up to twenty pass if the minute turns in between.
    let answers = (0..21).map(|_| edge.caller.get("/minute", b"a"));
    let refused = answers.into_iter().find(|answer| answer.status != 200);
    assert_refused(&refused.expect("a refusal"), "10, 10;w=60", 60);
    assert_eq!(edge.envoy.counts().error, 0);
}

#[test]
fn one_of_two_descriptors_over_its_limit_refuses_and_the_tightest_is_reported() {
    let mut edge = Edge::start();
    for remaining in (0..3).rev() {
        let answer = edge.caller.get("/two", b"a");
        assert_eq!((answer.status, answer.remaining()), (200, Some(remaining)));
    }
    let both = "3, 10;w=86400, 3;w=31536000";
    assert_refused(&edge.caller.get("/two", b"a"), both, 365 * DAY_SECONDS);
    // The other one is within its limit.
    assert_eq!(edge.caller.get("/day", b"a").status, 200);
    edge.met(4, 1);
}

#[test]
fn a_header_that_is_not_utf_8_is_limited() {
    let mut edge = Edge::start();
    for remaining in (0..10).rev() {
        let answer = edge.caller.get("/day", b"a\xff\xfeb");
        assert_eq!((answer.status, answer.remaining()), (200, Some(remaining)));
    }
    assert_eq!(edge.caller.get("/day", b"a\xff\xfeb").status, 429);
    // Values that are not UTF-8 do not share a bucket either.
    assert_eq!(edge.caller.get("/day", b"a\xfe\xffb").remaining(), Some(9));
    edge.met(11, 1);
}

#[test]
fn a_cost_that_the_route_sets_is_taken_at_once() {
    let mut edge = Edge::start();
    let answers = [0; 3].map(|_| edge.caller.get("/cost/fixed", b"a"));
    assert_eq!(
        answers.each_ref().map(|answer| answer.status),
        [200, 200, 429]
    );
    assert_eq!(
        answers.map(|answer| answer.remaining()),
        [Some(6), Some(2), Some(0)]
    );
    edge.met(2, 1);
}

#[test]
fn a_cost_that_a_header_sets_is_taken_at_once() {
    let mut edge = Edge::start();
    let mut spend = |cost: &[u8]| {
        let headers = [("x-key", b"a".as_slice()), ("x-cost", cost)];
        let answer = edge.caller.get_with("/cost/header", &headers);
        (answer.status, answer.remaining())
    };
    assert_eq!(spend(b"7"), (200, Some(3)));
    assert_eq!(spend(b"0"), (200, Some(3)));
    assert_eq!(spend(b"3"), (200, Some(0)));
    assert_eq!(spend(b"1"), (429, Some(0)));
    edge.met(3, 1);
}

#[test]
fn hits_of_the_request_apply_to_descriptors_without_their_own() {
    let mut edge = Edge::start();
    let mut take = |path: &str| {
        let headers = [("x-key", b"a".as_slice()), ("x-hits", b"3")];
        edge.caller.get_with(path, &headers).remaining()
    };
    assert_eq!(take("/day"), Some(7));
    assert_eq!(take("/cost/fixed"), Some(3));
    assert_eq!(take("/day"), Some(0));
    edge.met(3, 0);
}

#[test]
fn a_charge_after_the_response_is_seen_by_later_requests() {
    let mut edge = Edge::start();
    let charged =
        r#"ratelimit_service_rate_limit_total_hits{domain="edge",key1="postpaid",key2=""}"#;
    // The limit is 40 and each response has 19 bytes: the third request is checked at 38 and
    // exceeds it.
    for (remaining, charge) in [(40, 19), (21, 38), (2, 57)] {
        let answer = edge.caller.get("/postpaid", b"a");
        assert_eq!((answer.status, answer.remaining()), (200, Some(remaining)));
        edge.wait_for_metric(charged, charge);
    }
    assert_refused(
        &edge.caller.get("/postpaid", b"a"),
        "40, 40;w=86400",
        DAY_SECONDS,
    );
    edge.met(3, 1);
}

#[test]
fn a_refund_after_the_response_can_be_taken_again() {
    let mut edge = Edge::start();
    let refunded = r#"ratelimit_service_rate_limit_total_negative_hits{domain="edge",key1="refunded",key2=""}"#;
    // Takes five of ten and refunds three each time: without refunds the third would be refused.
    for (remaining, refund) in [(5, 3), (3, 6), (1, 9)] {
        let answer = edge.caller.get("/refunded", b"a");
        assert_eq!((answer.status, answer.remaining()), (200, Some(remaining)));
        edge.wait_for_metric(refunded, refund);
    }
    assert_eq!(edge.caller.get("/refunded", b"a").status, 429);
    edge.met(3, 1);
}

#[test]
fn a_static_override_has_its_limit_and_a_bucket_of_its_own() {
    let mut edge = Edge::start();
    edge.has_its_own_bucket("/override/static", 2, "2, 2;w=86400", DAY_SECONDS);
}

#[test]
fn an_override_from_dynamic_metadata_has_its_limit_and_a_bucket_of_its_own() {
    let mut edge = Edge::start();
    edge.has_its_own_bucket("/override/metadata", 3, "3, 3;w=2592000", 30 * DAY_SECONDS);
}

#[test]
fn an_override_may_be_of_any_unit_that_envoy_knows() {
    let mut edge = Edge::start();
    let answer = edge.caller.get("/override/units", b"");
    let limits = "3, 41;w=1, 42;w=60, 43;w=3600, 44;w=86400, 3;w=2592000, 46;w=31536000";
    assert_eq!(answer.header("x-ratelimit-limit"), Some(limits));
    assert_eq!(answer.remaining(), Some(2));
    edge.met(1, 0);
}

/// Asserts a 429 with every header that Envoy derives from the answer, the last status being the
/// refused one.
fn assert_refused(answer: &HttpResponse, limits: &str, retry_seconds_max: u64) {
    assert_eq!(answer.status, 429, "{answer:?}");
    assert_eq!(answer.header("x-envoy-ratelimited"), Some("true"));
    assert_eq!(answer.header("x-ratelimit-limit"), Some(limits));
    assert_eq!(answer.remaining(), Some(0));
    let retry = answer.number("retry-after").expect("retry-after");
    assert!((1..=retry_seconds_max).contains(&retry), "{answer:?}");
    assert_eq!(answer.number("x-ratelimit-reset"), Some(retry));
}

// === impl Edge ===

impl Edge {
    fn start() -> Self {
        let tollgate = Tollgate::start(RULES, &[]);
        let envoy = Envoy::asking(&[&tollgate], OnError::Deny);
        let caller = HttpConnection::open(envoy.edge);
        Self {
            tollgate,
            envoy,
            caller,
        }
    }

    /// Asserts Envoy's counters, without errors.
    fn met(&self, ok: u64, over_limit: u64) {
        let met = Counts {
            ok,
            over_limit,
            ..Counts::default()
        };
        assert_eq!(self.envoy.counts(), met);
    }

    /// Waits for calls that Envoy sends without awaiting the answer.
    fn wait_for_metric(&self, series: &str, value: u64) {
        wait_for(PATIENCE, || {
            (self.tollgate.metric(series) >= value).then_some(())
        });
        assert_eq!(self.tollgate.metric(series), value, "{series}");
    }

    /// Asserts that `path` overrides the limit of ten of the descriptor of `/day` with `requests`.
    fn has_its_own_bucket(&mut self, path: &str, requests: u64, limits: &str, window_seconds: u64) {
        for _ in 0..10 {
            assert_eq!(self.caller.get("/day", b"a").status, 200);
        }
        for remaining in (0..requests).rev() {
            let answer = self.caller.get(path, b"a");
            assert_eq!((answer.status, answer.remaining()), (200, Some(remaining)));
            assert_eq!(answer.header("x-ratelimit-limit"), Some(limits));
        }
        assert_refused(&self.caller.get(path, b"a"), limits, window_seconds);
        assert_refused(
            &self.caller.get("/day", b"a"),
            "10, 10;w=86400",
            DAY_SECONDS,
        );
        self.met(10 + requests, 2);
    }
}
