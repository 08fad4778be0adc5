//! Limits that come with requests and meet rules: what is the request's, and what is the rule's.

use std::fs;

use tollgate_test_support::grpc_client::{Code, Descriptor, RateLimitResponse, hits, request};
use tollgate_test_support::in_process::Service;

use crate::service::{override_of, until_metric};

const HOUR: i32 = 3;
const DAY: i32 = 4;
const MINUTE_US: u64 = 60_000_000;

const RULES: &str = "
domain: d
descriptors:
  - key: bucket
    rate_limit: { unit: hour, requests_per_unit: 2, algorithm: token_bucket, name: t }
    over_limit: { body: 'at most {limit}' }
  - key: shadow
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: two
    rate_limits:
      - { unit: minute, requests_per_unit: 2 }
      - { unit: day, requests_per_unit: 20 }
  - key: log
    rate_limit: { unit: hour, requests_per_unit: 2, algorithm: sliding_log }
  - key: reserved
    rate_limit: { unit: hour, requests_per_unit: 2, reserve: { key: id, amount: 2, expires: 1m } }
  - key: old
    limit_from_request: replace
    rate_limit: { unit: hour, requests_per_unit: 2, algorithm: token_bucket }
    over_limit: { body: 'at most {limit}' }
  - key: free
    rate_limit: { unlimited: true }
";

/// Takes one hit under a limit that comes along.
async fn hit(service: &mut Service, key: &str, (requests, unit): (u32, i32)) -> RateLimitResponse {
    let along = Descriptor {
        limit: override_of(requests, unit),
        ..hits(key, "v", 1)
    };
    service.ask(request("d", vec![along])).await
}

/// The name of the limit, its requests, and what is left.
fn limit_of(answer: &RateLimitResponse) -> (&str, u32, u32) {
    let status = &answer.statuses[0];
    let limit = status.current_limit.as_ref().unwrap();
    (&limit.name, limit.requests_per_unit, status.limit_remaining)
}

fn body(answer: &RateLimitResponse) -> &str {
    std::str::from_utf8(&answer.raw_body).unwrap()
}

#[tokio::test]
async fn the_number_is_the_requests_and_all_else_the_rules() {
    let mut service = Service::start(RULES, &[]).await;
    for left in (0..5).rev() {
        let answer = hit(&mut service, "bucket", (5, HOUR)).await;
        assert_eq!(limit_of(&answer), ("t", 5, left));
    }
    let answer = hit(&mut service, "bucket", (5, HOUR)).await;
    assert_eq!(
        (answer.overall_code(), body(&answer)),
        (Code::OverLimit, "at most 5")
    );
    // A token comes back in a fifth of an hour: the algorithm is the rule's.
    service.clock.advance_us(12 * MINUTE_US);
    assert_eq!(
        hit(&mut service, "bucket", (5, HOUR)).await.overall_code(),
        Code::Ok
    );
    // The bucket is the rule's, too, as long as the window is.
    let own = service
        .ask(request("d", vec![hits("bucket", "v", 1)]))
        .await;
    assert_eq!(
        (own.overall_code(), body(&own)),
        (Code::OverLimit, "at most 2")
    );
    let answer = hit(&mut service, "bucket", (5, DAY)).await;
    assert_eq!(limit_of(&answer), ("t", 5, 4));
    for _ in 0..4 {
        let answer = hit(&mut service, "shadow", (1, HOUR)).await;
        assert_eq!(answer.overall_code(), Code::Ok);
    }
    let labels = "domain=\"d\",limit=\"hour\",outcome=\"would_refuse\",rule=\"d.shadow\"";
    let series = format!("tollgate_limit_hits_total{{{labels}}}");
    until_metric(&service, &series, 3).await;
}

#[tokio::test]
async fn of_several_limits_the_one_with_the_same_window_has_the_number() {
    let mut service = Service::start(RULES, &[]).await;
    let answer = hit(&mut service, "two", (1, DAY)).await;
    assert_eq!(limit_of(&answer), ("", 1, 0));
    assert_eq!(
        hit(&mut service, "two", (1, DAY)).await.overall_code(),
        Code::OverLimit
    );
    // None has hours: the first one gives way, and the day still counts.
    let answer = hit(&mut service, "two", (9, HOUR)).await;
    assert_eq!(limit_of(&answer), ("", 9, 8));
}

#[tokio::test]
async fn a_reservation_is_made_under_the_limit_of_the_request() {
    let mut service = Service::start(RULES, &[]).await;
    let start = |id: &str| Descriptor {
        limit: override_of(5, HOUR),
        ..tollgate_test_support::grpc_client::descriptor(&[("reserved", "v"), ("id", id)])
    };
    for (id, left, code) in [
        ("a", 3, Code::Ok),
        ("b", 1, Code::Ok),
        ("c", 0, Code::OverLimit),
    ] {
        let start = Descriptor {
            hits_addend: Some(0),
            ..start(id)
        };
        let status = service.status("d", start).await;
        assert_eq!((status.limit_remaining, status.code()), (left, code));
    }
}

#[tokio::test]
async fn a_number_that_the_algorithm_cannot_count_is_ignored_and_counted() {
    let mut service = Service::start(RULES, &[]).await;
    let answer = hit(&mut service, "log", (10_001, HOUR)).await;
    assert_eq!(limit_of(&answer), ("", 2, 1));
    assert_eq!(service.metric("tollgate_overrides_not_obeyed_total"), 1);
}

#[tokio::test]
async fn it_replaces_a_rule_that_says_so_and_one_without_a_limit() {
    let mut service = Service::start(RULES, &[]).await;
    for key in ["old", "free"] {
        assert_eq!(
            limit_of(&hit(&mut service, key, (1, HOUR)).await),
            ("", 1, 0)
        );
        // No token comes back before the window ends, and the response is not the rule's.
        service.clock.advance_us(30 * MINUTE_US);
        let answer = hit(&mut service, key, (1, HOUR)).await;
        assert_eq!(
            (answer.overall_code(), body(&answer)),
            (Code::OverLimit, "")
        );
        service.clock.advance_us(30 * MINUTE_US);
    }
}

#[tokio::test]
async fn a_file_of_the_reference_is_replaced_unless_an_overlay_changes_its_limit() {
    let rules = "
domain: d
descriptors:
  - key: k
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 2 }
";
    let directory = tempfile::tempdir().unwrap();
    let overlay = directory.path().join("overlay.yaml");
    for (entry, expected) in [
        (None, Code::OverLimit),
        (Some("over_limit: { body: b }"), Code::Ok),
        (Some("limit_from_request: adjust, name: n"), Code::Ok),
        (
            Some("limit_from_request: replace, name: n"),
            Code::OverLimit,
        ),
    ] {
        let text = entry.map(|set| format!("overlay: [{{ domain: d, {set} }}]"));
        fs::write(&overlay, text.clone().unwrap_or_default()).unwrap();
        let overlay = overlay.to_str().unwrap();
        let arguments = text.as_ref().map(|_| vec!["--overlay", overlay]);
        let mut service = Service::start(rules, &arguments.unwrap_or_default()).await;
        hit(&mut service, "k", (1, HOUR)).await;
        let answer = hit(&mut service, "k", (1, HOUR)).await;
        assert_eq!(answer.overall_code(), expected, "{entry:?}");
    }
}
