//! What a client gets when tollgate cannot decide, by tollgate's setting and Envoy's.
//!
//! How: a store full of keys over their limits has no room for a new key, at once and every time.
//!
//! What it deliberately does not do: put a store under load; a full mailbox is answered the same way (`src/service`).

use tollgate_test_support::envoy_process::{Counts, Envoy, OnError};
use tollgate_test_support::http_client::http;
use tollgate_test_support::http_connection::{HttpConnection, HttpResponse};
use tollgate_test_support::tollgate_process::Tollgate;

/// A year's bucket is not swept out while a test runs.
const RULES: &str = "{domain: edge, descriptors: [{key: day, rate_limit: {unit: year, requests_per_unit: 2}}, {key: filler, rate_limit: {unit: year, requests_per_unit: 1}}]}";

#[test]
fn an_error_is_refused_with_envoys_status_where_envoy_denies_on_failure() {
    let (answer, met, overload_answers) = second_key("error", OnError::Deny);
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("x-envoy-ratelimited"), None);
    assert_eq!((met.ok, met.error, met.failure_mode_allowed), (2, 1, 0));
    assert_eq!(overload_answers, 0);
}

#[test]
fn an_error_lets_the_request_through_where_envoy_allows_on_failure() {
    let (answer, met, overload_answers) = second_key("error", OnError::Allow);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.remaining(), None);
    assert_eq!((met.ok, met.error, met.failure_mode_allowed), (2, 1, 1));
    assert_eq!(overload_answers, 0);
}

#[test]
fn allow_lets_the_request_through_whatever_envoy_does_on_failure() {
    let (answer, met, overload_answers) = second_key("allow", OnError::Deny);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.remaining(), None);
    assert_eq!((met.ok, met.error), (3, 0));
    assert_eq!(overload_answers, 1);
}

#[test]
fn deny_refuses_and_says_to_retry_soon_whatever_envoy_does_on_failure() {
    let (answer, met, overload_answers) = second_key("deny", OnError::Allow);
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("x-envoy-ratelimited"), Some("true"));
    assert_eq!(answer.number("retry-after"), Some(1));
    assert_eq!((met.ok, met.over_limit, met.error), (2, 1, 0));
    assert_eq!(overload_answers, 1);
}

/// The answer to the key that finds no room, what Envoy met, and how often the setting answered.
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

/// Fills it with keys over their limits until of three hundred new ones none finds room: a part of the table is full sooner
/// than another.
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
    panic!("10,000 keys find room in 64 KiB");
}
