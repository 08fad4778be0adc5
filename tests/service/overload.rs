//! Overload: responses follow the settings, and work for cancelled requests is dropped.
//!
//! A queue for one check is full for any request with two checks in the same partition, so overload
//! is deterministic.

use tollgate_test_support::grpc_client::{
    Code, DescriptorStatus, RateLimitRequest, descriptor, hits, request,
};
use tollgate_test_support::in_process::Service;
use tonic::Code as Grpc;

use crate::service::{flags, remaining};

const RULES: &str = "
domain: d
descriptors:
  - key: a
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: b
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: watched
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: filler
    rate_limit: { unit: year, requests_per_unit: 1 }
";

async fn overloaded(answer: &str) -> Service {
    let bounds = flags("--partitions 1 --mailbox-checks-max 1 --on-overload");
    Service::start(RULES, &[&bounds[..], &[answer]].concat()).await
}

fn two_checks() -> RateLimitRequest {
    request("d", vec![hits("a", "x", 1), hits("b", "x", 1)])
}

#[tokio::test]
async fn overload_is_an_error_with_advice() {
    let mut service = overloaded("error").await;
    let error = service
        .client
        .should_rate_limit(two_checks())
        .await
        .unwrap_err();
    assert_eq!(error.code(), Grpc::Unavailable);
    assert!(
        error.message().contains("--mailbox-checks-max"),
        "{}",
        error.message()
    );
    assert_eq!(
        service.metric("tollgate_shed_total{reason=\"mailbox_full\"}"),
        2
    );
    // The request was shed as a whole: neither bucket changed, and the queue has space for one.
    assert_eq!(remaining(&mut service, "a", "x", 1).await, 9);
    assert_eq!(remaining(&mut service, "b", "x", 1).await, 9);
}

#[tokio::test]
async fn overload_may_deny_except_in_shadow_mode() {
    let mut service = overloaded("deny").await;
    let asked = vec![
        hits("a", "x", 1),
        hits("watched", "x", 1),
        descriptor(&[("c", "x")]),
    ];
    let answer = service.ask(request("d", asked)).await;
    assert_eq!(answer.overall_code(), Code::OverLimit);
    let codes: Vec<_> = answer.statuses.iter().map(tollgate_code).collect();
    assert_eq!(codes, [Code::OverLimit, Code::Ok, Code::Ok]);
    assert_eq!(answer.statuses[0].duration_until_reset.unwrap().seconds, 1);
    let watched = vec![hits("watched", "x", 1), hits("watched", "y", 1)];
    assert_eq!(
        service.ask(request("d", watched)).await.overall_code(),
        Code::Ok
    );
}

fn tollgate_code(status: &DescriptorStatus) -> Code {
    status.code()
}

/// The smallest memory limit.
const LITTLE: [&str; 6] = [
    "--partitions",
    "1",
    "--memory-max",
    "64KiB",
    "--on-memory-full",
    "error",
];

/// Fills the service with keys over their limits, in a rule named `filler`, until three hundred new
/// keys in a row find no memory: parts of the table fill at different rates.
async fn fill(service: &mut Service) {
    let mut in_vain = 0;
    for hundred in 0..100 {
        let before = service.metric("tollgate_buckets{partition=\"0\"}");
        let keys = hundred * 100..(hundred + 1) * 100;
        let keys = keys.map(|number| hits("filler", &number.to_string(), 1));
        let asked = request("d", keys.collect());
        // Without memory the response may be an error.
        drop(service.client.should_rate_limit(asked).await);
        // A partition updates the number after its answers, and before it decides what comes next.
        service.status("d", hits("filler", "a look", 0)).await;
        let after = service.metric("tollgate_buckets{partition=\"0\"}");
        in_vain = if after > before { 0 } else { in_vain + 1 };
        if in_vain == 3 {
            return;
        }
    }
    panic!("10,000 keys fit in 64 KiB");
}

/// A service full of keys over their limits, except for `a` of `x`.
async fn full(arguments: &[&str]) -> Service {
    let arguments = [&LITTLE[..4], arguments].concat();
    let mut service = Service::start(RULES, &arguments).await;
    let first = service.status("d", hits("a", "x", 10)).await;
    assert_eq!(first.code(), Code::Ok);
    fill(&mut service).await;
    service
}

#[tokio::test]
async fn a_full_store_keeps_the_keys_it_has_and_new_ones_of_a_rule_share_a_bucket() {
    let mut service = full(&[]).await;
    let shared = "tollgate_no_room_total{answer=\"share\"}";
    let before = service.metric(shared);
    let mut left = Vec::new();
    for value in ["p", "q", "r"] {
        left.push(service.status("d", hits("a", value, 4)).await);
    }
    let left = left
        .iter()
        .map(|status| (status.code(), status.limit_remaining));
    let expected = [(Code::Ok, 6), (Code::Ok, 2), (Code::OverLimit, 0)];
    assert!(left.eq(expected));
    assert_eq!(service.metric(shared), before + 3);
    // Another rule has another shared bucket; a key with its own bucket is still over.
    let other = service.status("d", hits("b", "p", 1)).await;
    assert_eq!((other.code(), other.limit_remaining), (Code::Ok, 9));
    let first = service.status("d", hits("a", "x", 1)).await;
    assert_eq!(first.code(), Code::OverLimit);
    assert_eq!(service.metric("tollgate_buckets_forgotten_total"), 0);
}

#[tokio::test]
async fn a_full_store_may_allow_or_deny_new_keys() {
    for (answer, code) in [("allow", Code::Ok), ("deny", Code::OverLimit)] {
        let mut service = full(&["--on-memory-full", answer]).await;
        for _ in 0..20 {
            let status = service.status("d", hits("a", "new", 1)).await;
            assert_eq!(status.code(), code);
            assert!(status.current_limit.is_some() && status.duration_until_reset.is_some());
        }
        let counted = format!("tollgate_no_room_total{{answer=\"{answer}\"}}");
        assert!(service.metric(&counted) > 20);
        let known = service.status("d", hits("a", "x", 1)).await;
        assert_eq!(known.code(), Code::OverLimit);
    }
}

#[tokio::test]
async fn a_full_store_may_answer_with_the_overload_error() {
    let mut service = full(&LITTLE[4..]).await;
    let before = service.metric("tollgate_shed_total{reason=\"memory_full\"}");
    let asked = request("d", vec![hits("a", "new", 1)]);
    let error = service.client.should_rate_limit(asked).await.unwrap_err();
    assert_eq!(error.code(), Grpc::Unavailable);
    assert!(error.message().contains("--memory-max"), "{error}");
    let after = service.metric("tollgate_shed_total{reason=\"memory_full\"}");
    assert_eq!(after, before + 1);
    let known = service.status("d", hits("a", "x", 1)).await;
    assert_eq!(known.code(), Code::OverLimit);
    assert!(service.metric("tollgate_memory_bytes{partition=\"0\"}") <= 64 << 10);
    assert_eq!(service.metric("tollgate_memory_max_bytes"), 64 << 10);
}

#[tokio::test]
async fn buckets_under_their_limits_are_evicted_for_new_keys_and_counted() {
    let mut service = Service::start(RULES, &LITTLE).await;
    assert_eq!(remaining(&mut service, "a", "x", 1).await, 9);
    let forgotten = "tollgate_buckets_forgotten_total";
    for number in 0..3_000 {
        let status = service.status("d", hits("b", &number.to_string(), 1)).await;
        assert_eq!((status.code(), status.limit_remaining), (Code::Ok, 9));
    }
    assert!(service.metric(forgotten) > 1_000);
    assert_eq!(
        service.metric("tollgate_shed_total{reason=\"memory_full\"}"),
        0
    );
}

#[tokio::test]
async fn a_rule_that_refuses_everything_refuses_when_the_store_is_full_too() {
    let rules = RULES.replace(
        "key: b\n    rate_limit: { unit: minute, requests_per_unit: 10",
        "key: banned\n    rate_limit: { unit: minute, requests_per_unit: 0",
    );
    for answer in ["error", "allow", "deny"] {
        let arguments = [&LITTLE[..], &["--on-overload", answer]].concat();
        let mut service = Service::start(&rules, &arguments).await;
        fill(&mut service).await;
        let before = service.metric("tollgate_overload_answers_total");
        for (key, count) in [("banned", 1), ("a", 11)] {
            let status = service.status("d", hits(key, "new", count)).await;
            assert_eq!(status.code(), Code::OverLimit, "{answer}");
            assert!(status.current_limit.is_some());
        }
        let after = service.metric("tollgate_overload_answers_total");
        assert_eq!(after, before);
    }
}

const REMEMBERING: &str = "
domain: d
descriptors:
  - key: log
    rate_limit: { unit: minute, requests_per_unit: 100, algorithm: sliding_log }
  - key: slots
    rate_limit: { algorithm: concurrency, requests_per_unit: 100, slot_seconds: 60 }
  - key: small
    rate_limit: { unit: minute, requests_per_unit: 1, algorithm: sliding_log }
  - key: filler
    rate_limit: { unit: minute, requests_per_unit: 1 }
";

/// A service without memory for another mark.
async fn remembering(answer: &str) -> Service {
    let arguments = [&LITTLE[..], &["--on-overload", answer]].concat();
    let mut service = Service::start(REMEMBERING, &arguments).await;
    let first = service.status("d", hits("small", "x", 1)).await;
    assert_eq!(first.code(), Code::Ok);
    fill(&mut service).await;
    service
}

#[tokio::test]
async fn without_memory_for_marks_overload_answers_with_advice() {
    let full = "tollgate_shed_total{reason=\"memory_full\"}";
    for key in ["log", "slots"] {
        let mut service = remembering("error").await;
        let asked = request("d", vec![hits(key, "x", 1)]);
        let error = service.client.should_rate_limit(asked).await.unwrap_err();
        assert_eq!(error.code(), Grpc::Unavailable);
        assert!(error.message().contains("--memory-max"), "{error}");
        let mut service = remembering("allow").await;
        let status = service.status("d", hits(key, "x", 1)).await;
        assert_eq!(status.current_limit, None);
        let mut service = remembering("deny").await;
        let before = service.metric(full);
        let status = service.status("d", hits(key, "x", 1)).await;
        assert_eq!(status.code(), Code::OverLimit);
        assert_eq!(status.duration_until_reset.unwrap().seconds, 1);
        assert_eq!(service.metric(full), before + 1);
    }
}

#[tokio::test]
async fn without_memory_for_marks_other_limits_still_work() {
    let mut service = remembering("error").await;
    let left = async |service: &mut Service, key: &str, count: u64| {
        let status = service.status("d", hits(key, "x", count)).await;
        (status.code(), status.limit_remaining)
    };
    assert_eq!(left(&mut service, "log", 0).await, (Code::Ok, 100));
    assert_eq!(left(&mut service, "small", 1).await, (Code::OverLimit, 0));
    assert!(service.metric("tollgate_marks{partition=\"0\"}") > 0);
    // Once the old buckets are idle there is memory again, at once.
    service.clock.advance_us(60_000_000);
    assert_eq!(left(&mut service, "log", 1).await, (Code::Ok, 99));
}

#[tokio::test]
async fn work_whose_deadline_has_passed_is_not_done() {
    // A deadline of 0 has passed whenever the worker looks.
    let mut service = Service::start(RULES, &["--on-overload", "allow"]).await;
    let mut late = tonic::Request::new(request("d", vec![hits("a", "x", 1)]));
    late.metadata_mut()
        .insert("grpc-timeout", "0u".parse().unwrap());
    let error = service.client.should_rate_limit(late).await.unwrap_err();
    assert!(
        matches!(error.code(), Grpc::DeadlineExceeded | Grpc::Cancelled),
        "{error}"
    );
    assert_eq!(remaining(&mut service, "a", "x", 1).await, 9);
}

#[tokio::test]
async fn a_known_refusal_holds_when_another_check_finds_no_memory() {
    // Otherwise a client over one limit could add a new value to another descriptor, and Envoy
    // would allow the request because of the error.
    let mut service = full(&[&LITTLE[4..], &["--on-overload", "error"]].concat()).await;
    let both = vec![hits("a", "x", 1), hits("b", "fresh", 1)];
    let answer = service.ask(request("d", both)).await;
    assert_eq!(answer.overall_code(), Code::OverLimit);
    assert_eq!(answer.statuses[0].code(), Code::OverLimit);
    let total = "ratelimit_service_rate_limit_total_hits{domain=\"d\",key1=\"a\",key2=\"\"}";
    assert_eq!(service.metric(total), 11);
    // Without a refusing limit the answer is the error; the hits that were taken are counted.
    service.clock.advance_us(60_000_000);
    let both = vec![hits("a", "x", 10), hits("b", "fresh", 1)];
    let error = service
        .client
        .should_rate_limit(request("d", both))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Grpc::Unavailable);
    assert_eq!(service.metric(total), 21);
    // Peeks and refunds need no memory.
    assert_eq!(remaining(&mut service, "b", "fresh", 0).await, 10);
}

#[tokio::test]
async fn in_shadow_mode_a_request_beyond_a_bound_passes_too() {
    let mut service =
        Service::start(RULES, &["--shadow-mode", "true", "--descriptors-max", "1"]).await;
    assert_eq!(service.ask(two_checks()).await.overall_code(), Code::Ok);
    assert_eq!(
        service.metric("tollgate_excess_total{bound=\"descriptors\"}"),
        1
    );
}
