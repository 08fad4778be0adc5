//! Responses to clients when tollgate cannot decide, by tollgate's setting and Envoy's.
//!
//! How: a store full of exhausted keys has no memory for a new key, deterministically.
//!
//! What it deliberately does not do: put the store under load; a full mailbox is answered the same
//! way (`tests/service`).

use tollgate_test_support::envoy_process::{Counts, Envoy, OnError};
use tollgate_test_support::http_client::http;
use tollgate_test_support::http_connection::{HttpConnection, HttpResponse};
use tollgate_test_support::tollgate_process::Tollgate;

/// Buckets of a year are not evicted during a test.
const RULES: &str = "{domain: edge, descriptors: [{key: day, rate_limit: {unit: year, requests_per_unit: 2}}, {key: filler, rate_limit: {unit: year, requests_per_unit: 1}}]}";

#[test]
fn an_error_is_refused_with_envoys_status_when_envoy_denies_on_failure() {
    let (answer, met, overload_answers) = second_key("error", OnError::Deny);
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("x-envoy-ratelimited"), None);
    assert_eq!((met.ok, met.error, met.failure_mode_allowed), (2, 1, 0));
    assert_eq!(overload_answers, 0);
}

#[test]
fn an_error_passes_when_envoy_allows_on_failure() {
    let (answer, met, overload_answers) = second_key("error", OnError::Allow);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.remaining(), None);
    assert_eq!((met.ok, met.error, met.failure_mode_allowed), (2, 1, 1));
    assert_eq!(overload_answers, 0);
}

#[test]
fn allow_passes_regardless_of_envoys_failure_mode() {
    let (answer, met, overload_answers) = second_key("allow", OnError::Deny);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.remaining(), None);
    assert_eq!((met.ok, met.error), (3, 0));
    assert_eq!(overload_answers, 1);
}

#[test]
fn deny_refuses_with_retry_after_regardless_of_envoys_failure_mode() {
    let (answer, met, overload_answers) = second_key("deny", OnError::Allow);
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("x-envoy-ratelimited"), Some("true"));
    assert_eq!(answer.number("retry-after"), Some(1));
    assert_eq!((met.ok, met.over_limit, met.error), (2, 1, 0));
    assert_eq!(overload_answers, 1);
}

/// The response for the key without memory, Envoy's counters, and the counter of the setting.
fn second_key(on_overload: &str, on_error: OnError) -> (HttpResponse, Counts, u64) {
    let bounds = "--memory-max=64KiB --partitions=1 --on-memory-full=error --on-overload";
    let arguments: Vec<_> = bounds.split(' ').chain([on_overload]).collect();
    let tollgate = Tollgate::start(RULES, &arguments);
    let envoy = Envoy::asking(&[&tollgate], on_error);
    let mut caller = HttpConnection::open(envoy.edge);

    let mut first = [(); 2].map(|()| caller.get("/day", b"first"));
    let left = first
        .each_mut()
        .map(|first| (first.status, first.remaining()));
    assert_eq!(left, [(200, Some(1)), (200, Some(0))]);
    fill(&tollgate);
    let (met_before, answers_before) = (envoy.counts(), overload_answers(&tollgate));
    let answer = caller.get("/day", b"second");
    let counts = envoy.counts();
    let overload_answers = overload_answers(&tollgate) - answers_before;
    assert_eq!(met_before.ok, 2);

    // The first key is limited as before.
    assert_eq!(caller.get("/day", b"first").status, 429);
    (answer, counts, overload_answers)
}

fn overload_answers(tollgate: &Tollgate) -> u64 {
    tollgate.metric("tollgate_overload_answers_total")
}

/// Fills the store with exhausted keys until none of three hundred new ones fits: parts of the
/// table fill at different rates.
fn fill(tollgate: &Tollgate) {
    let buckets = || tollgate.metric("tollgate_buckets{partition=\"0\"}");
    let mut in_vain = 0;
    for hundred in 0..100 {
        let before = buckets();
        let keys = (hundred * 100..(hundred + 1) * 100).map(|number| {
            format!("{{\"entries\": [{{\"key\": \"filler\", \"value\": \"{number}\"}}]}}")
        });
        let keys: Vec<_> = keys.collect();
        let body = format!(
            "{{\"domain\": \"edge\", \"descriptors\": [{}]}}",
            keys.join(", ")
        );
        http(tollgate.http, "POST", "/json", &body);
        in_vain = if buckets() > before { 0 } else { in_vain + 1 };
        if in_vain == 3 {
            return;
        }
    }
    panic!("10,000 keys fit in 64 KiB");
}
