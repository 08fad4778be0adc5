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
fn a_key_without_memory_is_answered_as_both_settings_say() {
    for (on_overload, on_error, status, retry_after, counts, overload_answers) in [
        ("error", OnError::Deny, 503, None, (2, 0, 1, 0), 0),
        ("error", OnError::Allow, 200, None, (2, 0, 1, 1), 0),
        // These answers are none of Envoy's failures.
        ("allow", OnError::Deny, 200, None, (3, 0, 0, 0), 1),
        ("deny", OnError::Allow, 429, Some(1), (2, 1, 0, 0), 1),
    ] {
        let case = format!("{on_overload} {on_error:?}");
        let (answer, found, answers) = second_key(on_overload, on_error);
        assert_eq!(answer.status, status, "{case}");
        assert_eq!(answer.number("retry-after"), retry_after, "{case}");
        let ratelimited = answer.header("x-envoy-ratelimited");
        assert_eq!(ratelimited.is_some(), status == 429, "{case}");
        if status == 200 {
            assert_eq!(answer.remaining(), None, "{case}");
        }
        let (ok, over_limit, error, failure_mode_allowed) = counts;
        let expected = Counts {
            ok,
            over_limit,
            error,
            failure_mode_allowed,
        };
        assert_eq!((found, answers), (expected, overload_answers), "{case}");
    }
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
