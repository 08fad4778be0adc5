//! What a client gets when tollgate cannot decide, by tollgate's setting and Envoy's.
//!
//! How: a store with room for one bucket has none for the second key, at once and every time.
//!
//! What it deliberately does not do: put a store under load; a full mailbox is answered the same way (`src/service`).

use crate::caller::{Answer, Caller};
use crate::proxy::{Counts, Envoy, OnError};
use crate::running::Tollgate;

/// The year's bucket is not swept out while a test runs.
const RULES: &str =
    "{domain: edge, descriptors: [{key: day, rate_limit: {unit: year, requests_per_unit: 10}}]}";

#[test]
fn an_error_is_refused_with_envoys_status_where_envoy_denies_on_failure() {
    let (answer, met, overload_answers) = second_key("error", OnError::Deny);
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("x-envoy-ratelimited"), None);
    assert_eq!((met.ok, met.error, met.failure_mode_allowed), (1, 1, 0));
    assert_eq!(overload_answers, 0);
}

#[test]
fn an_error_lets_the_request_through_where_envoy_allows_on_failure() {
    let (answer, met, overload_answers) = second_key("error", OnError::Allow);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.remaining(), None);
    assert_eq!((met.ok, met.error, met.failure_mode_allowed), (1, 1, 1));
    assert_eq!(overload_answers, 0);
}

#[test]
fn allow_lets_the_request_through_whatever_envoy_does_on_failure() {
    let (answer, met, overload_answers) = second_key("allow", OnError::Deny);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.remaining(), None);
    assert_eq!((met.ok, met.error), (2, 0));
    assert_eq!(overload_answers, 1);
}

#[test]
fn deny_refuses_and_says_to_retry_soon_whatever_envoy_does_on_failure() {
    let (answer, met, overload_answers) = second_key("deny", OnError::Allow);
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("x-envoy-ratelimited"), Some("true"));
    assert_eq!(answer.number("retry-after"), Some(1));
    assert_eq!((met.ok, met.over_limit, met.error), (1, 1, 0));
    assert_eq!(overload_answers, 1);
}

/// The answer to the key that finds no room, what Envoy met, and how often the setting answered.
fn second_key(on_overload: &str, on_error: OnError) -> (Answer, Counts, u64) {
    let bounds = ["--buckets-max", "1", "--partitions", "1"];
    let arguments = [bounds.as_slice(), &["--on-overload", on_overload]].concat();
    let tollgate = Tollgate::start(RULES, &arguments);
    let envoy = Envoy::asking(&[&tollgate], on_error);
    let mut caller = Caller::of(envoy.edge);

    let first = caller.get("/day", b"first");
    assert_eq!((first.status, first.remaining()), (200, Some(9)));
    let answer = caller.get("/day", b"second");
    let counts = envoy.counts();

    // The first key is limited as before.
    let first = caller.get("/day", b"first");
    assert_eq!((first.status, first.remaining()), (200, Some(8)));
    let overload_answers = tollgate.metric("tollgate_overload_answers_total");
    (answer, counts, overload_answers)
}
