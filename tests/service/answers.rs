//! Responses: what they contain besides codes, what settings switch off, and requests that are too
//! large.
//!
//! What it deliberately does not do: overload (`overload`), metadata (`modes`).

use std::fmt::Write as _;

use tollgate_test_support::grpc_client::{
    Code, Descriptor, RateLimitRequest, descriptor, hits, request,
};
use tollgate_test_support::in_process::Service;
use tonic::Code as Grpc;

use crate::service::{flags, headers_of, override_of, remaining};

const RULES: &str = "
domain: d
descriptors:
  - key: ten
    rate_limit: { unit: minute, requests_per_unit: 10 }
";

#[tokio::test]
async fn a_request_override_has_headers() {
    let mut service = Service::start(RULES, &["--limit-response-headers-enabled", "true"]).await;
    let asked = Descriptor {
        limit: override_of(3, 1),
        ..hits("ten", "a", 1)
    };
    let answer = service.ask(request("d", vec![asked])).await;
    assert_eq!(
        headers_of(&answer),
        [
            "RateLimit-Limit: 3",
            "RateLimit-Remaining: 2",
            "RateLimit-Reset: 1"
        ]
    );
}

fn given_back(key: &str, count: u64) -> Descriptor {
    Descriptor {
        is_negative_hits: true,
        ..hits(key, "a", count)
    }
}

#[tokio::test]
async fn disabled_negative_hits_only_peek() {
    let left = async |arguments: &[&str]| {
        let mut service = Service::start(RULES, arguments).await;
        service.status("d", hits("ten", "a", 6)).await;
        let refunded = service.status("d", given_back("ten", 4)).await;
        assert_eq!(refunded.code(), Code::Ok);
        remaining(&mut service, "ten", "a", 0).await
    };
    assert_eq!(left(&[]).await, 8);
    assert_eq!(left(&["--negative-hits", "false"]).await, 4);
}

#[tokio::test]
async fn with_overrides_disabled_the_rule_applies() {
    let mut service = Service::start(RULES, &["--overrides", "false"]).await;
    let asked = Descriptor {
        limit: override_of(1_000, 6),
        ..hits("ten", "a", 1)
    };
    let status = service.status("d", asked).await;
    assert_eq!(
        (
            status.current_limit.unwrap().requests_per_unit,
            status.limit_remaining
        ),
        (10, 9)
    );
    assert_eq!(service.metric("tollgate_overrides_not_obeyed_total"), 1);
}

/// A request that exceeds each bound, and the label of the metric that counts it.
fn excesses() -> [(&'static str, RateLimitRequest); 3] {
    let entries: Vec<_> = (0..65).map(|n| (n.to_string(), "v")).collect();
    [
        ("descriptors", request("d", vec![hits("ten", "a", 1); 513])),
        (
            "entries",
            request("d", vec![hits("ten", "a", 1), descriptor(&entries)]),
        ),
        (
            "message_size",
            request("d", vec![hits("ten", &"x".repeat(1 << 20), 1)]),
        ),
    ]
}

fn excess(service: &Service, bound: &str) -> u64 {
    service.metric(&format!("tollgate_excess_total{{bound=\"{bound}\"}}"))
}

#[tokio::test]
async fn excess_is_denied_by_default_and_takes_nothing() {
    for (arguments, code) in [
        (&[][..], Code::OverLimit),
        (&["--on-excess", "deny"], Code::OverLimit),
        (&["--on-excess", "allow"], Code::Ok),
    ] {
        let mut service = Service::start(RULES, arguments).await;
        for (bound, asked) in excesses() {
            let answer = service.ask(asked).await;
            assert_eq!(answer.overall_code(), code, "{bound}, {arguments:?}");
            assert!(answer.statuses.is_empty(), "no descriptor was decided");
            assert_eq!(excess(&service, bound), 1, "{bound}");
        }
        assert_eq!(remaining(&mut service, "ten", "a", 1).await, 9);
        assert_eq!(
            service.metric("ratelimit_service_should_rate_limit_error{err_type=\"service_error\"}"),
            0
        );
    }
}

#[tokio::test]
async fn excess_may_be_an_error_with_advice() {
    let mut service = Service::start(RULES, &["--on-excess", "error"]).await;
    for (bound, asked) in excesses() {
        let error = service.client.should_rate_limit(asked).await.unwrap_err();
        let (code, words) = match bound {
            "descriptors" => (
                Grpc::ResourceExhausted,
                "a request may have 512 descriptors; raise --descriptors-max",
            ),
            "entries" => (
                Grpc::ResourceExhausted,
                "a descriptor may have 64 entries; raise --entries-max",
            ),
            _ => (Grpc::OutOfRange, ""),
        };
        assert_eq!(error.code(), code, "{bound}: {error}");
        assert!(error.message().contains(words), "{bound}: {error}");
        assert_eq!(excess(&service, bound), 1, "{bound}");
    }
    assert_eq!(remaining(&mut service, "ten", "a", 1).await, 9);
}

#[tokio::test]
async fn bounds_are_settings_and_inclusive() {
    let bounds = flags("--descriptors-max 2 --entries-max 1 --message-size-max 200");
    let mut service = Service::start(RULES, &bounds).await;
    let ten = || hits("ten", "a", 1);
    assert_eq!(
        service
            .ask(request("d", vec![ten(), ten()]))
            .await
            .statuses
            .len(),
        2
    );
    for (bound, asked) in [
        ("descriptors", request("d", vec![ten(), ten(), ten()])),
        (
            "entries",
            request("d", vec![descriptor(&[("ten", "a"), ("b", "")])]),
        ),
        (
            "message_size",
            request("d", vec![hits("ten", &"x".repeat(200), 1)]),
        ),
    ] {
        assert_eq!(
            service.ask(asked).await.overall_code(),
            Code::OverLimit,
            "{bound}"
        );
        assert_eq!(excess(&service, bound), 1, "{bound}");
    }
}

/// Keys with stars that all match the key of [`long_matches`], each with a pattern for the value.
fn many_matches() -> String {
    let mut rules = "domain: d\ndescriptors:\n".to_owned();
    let limit = "rate_limit: {unit: day, requests_per_unit: 10}";
    for n in 1..=60 {
        let key = "k".repeat(n);
        writeln!(rules, "- {{key: '{key}*', value: '*never{n}*', {limit}}}").unwrap();
    }
    writeln!(rules, "- {{key: ten, {limit}}}").unwrap();
    rules
}

/// A request of `descriptors`, where each byte of a value is matched against sixty patterns.
fn long_matches(descriptors: usize) -> RateLimitRequest {
    let long = hits(&"k".repeat(60), &"x".repeat(2_000), 1);
    let mut all = vec![hits("ten", "a", 1)];
    all.extend(vec![long; descriptors]);
    request("d", all)
}

#[tokio::test]
async fn a_request_that_takes_too_many_steps_to_match_is_answered_as_excess_and_takes_nothing() {
    let rules = many_matches();
    for (verdict, code) in [("deny", Code::OverLimit), ("allow", Code::Ok)] {
        let mut service = Service::start(&rules, &["--on-excess", verdict]).await;
        // 120,000 steps a descriptor: 30 of them are within the bound of 4,000,000, and 40 are not.
        let within = service.ask(long_matches(30)).await;
        assert_eq!(within.statuses.len(), 31);
        assert_eq!(excess(&service, "matching_steps"), 0);
        for count in 1..=3 {
            let beyond = service.ask(long_matches(40)).await;
            assert_eq!(beyond.overall_code(), code, "{verdict}");
            assert!(beyond.statuses.is_empty(), "no descriptor was decided");
            assert_eq!(excess(&service, "matching_steps"), count);
        }
        let status = service.status("d", hits("ten", "a", 1)).await;
        assert_eq!(status.limit_remaining, 8, "only two of five were taken");
    }
    let mut service = Service::start(&rules, &["--on-excess", "error"]).await;
    let asked = long_matches(40);
    let error = service.client.should_rate_limit(asked).await.unwrap_err();
    assert_eq!(error.code(), Grpc::ResourceExhausted);
    let words = "takes more than 4000000 steps; send shorter values";
    assert!(error.message().contains(words), "{error}");
    assert_eq!(excess(&service, "matching_steps"), 1);
}
