//! The features of AspNetCoreRateLimit and System.Threading.RateLimiting that `docs/dotnet.md`
//! documents.
//!
//! Why: the page tells users which rules to write, so each test takes its rules from the snippet
//! under a heading. `walks/dotnet.txt` has most of them: a walk names its snippet. `dotnet_page`
//! compares the page with the tests and the walks.
//!
//! What it deliberately does not do: test what Envoy does (`tests/envoy`), every case of an
//! algorithm (the laws of `crates/limiter`).

use tollgate_test_support::grpc_client::{
    Code, Descriptor, DescriptorStatus, descriptor, hits, request,
};
use tollgate_test_support::in_process::Service;
use tollgate_test_support::markdown::{Page, arguments};
use tollgate_test_support::metrics_text::series_sum;
use tollgate_test_support::polling::until_async;

use crate::service::headers_of;
use crate::service::walks::Walk;

const DOMAIN: &str = "api";

const SECOND_US: u64 = 1_000_000;

/// Requests and their answers: walks, each after a line `== NAME: SNIPPET`.
pub(crate) const WALKS: &str = include_str!("walks/dotnet.txt");

/// The rules of that name.
fn snippet(name: &str) -> String {
    Page::read("docs/dotnet.md").only(name, "yaml")
}

/// A service with the rules of that name and the arguments in the snippet.
async fn serve(name: &str) -> Service {
    let rules = snippet(name);
    Service::start(&rules, &arguments(&rules)).await
}

/// Sends the same request `times` times: `o` for allowed, `-` for refused.
async fn asked(service: &mut Service, entries: &[(&str, &str)], times: usize) -> String {
    all(service, &[descriptor(entries)], times).await
}

/// Sends the same descriptors `times` times.
async fn all(service: &mut Service, descriptors: &[Descriptor], times: usize) -> String {
    let mut codes = String::new();
    for _ in 0..times {
        let answer = service.ask(request(DOMAIN, descriptors.to_vec())).await;
        codes.push(match answer.overall_code() {
            Code::Ok => 'o',
            _ => '-',
        });
    }
    codes
}

/// Takes `count` hits at once.
async fn take(service: &mut Service, key: &str, value: &str, count: u64) -> DescriptorStatus {
    service.status(DOMAIN, hits(key, value, count)).await
}

/// Whether it passed, the remaining hits, and the seconds in the status.
fn said(status: &DescriptorStatus) -> (bool, u32, i64) {
    let seconds = status.duration_until_reset.as_ref();
    (
        status.code() == Code::Ok,
        status.limit_remaining,
        seconds.map_or(-1, |duration| duration.seconds),
    )
}

#[tokio::test]
async fn every_walk_has_the_answers_that_are_written() {
    for walk in WALKS.split("\n== ").skip(1) {
        let (head, steps) = walk.split_once('\n').unwrap();
        let (name, from) = head.split_once(": ").unwrap();
        let rules = snippet(from);
        let mut walk = Walk::start(&rules, &arguments(&rules)).await;
        for line in steps.lines() {
            walk.step(name, line).await;
        }
    }
}

// AspNetCoreRateLimit

#[tokio::test]
async fn every_limit_is_checked_and_the_tightest_is_reported() {
    let written = snippet("general-rules");
    let (first, second) = written.split_at(written.find("      - {").unwrap());
    let mut limits: Vec<_> = second.lines().collect();
    limits.reverse();
    let reversed = format!("{first}{}\n", limits.join("\n"));
    assert_ne!(written, reversed);
    for rules in [written, reversed] {
        let mut service = Service::start(&rules, &[]).await;
        // Less remains of 2 a second than of 100 in 15 minutes.
        assert_eq!(
            said(&take(&mut service, "client_id", "a", 1).await),
            (true, 1, 1)
        );
        assert_eq!(
            said(&take(&mut service, "client_id", "a", 2).await),
            (false, 0, 1)
        );
        // 99 of the 100; then the last, and then the longer wait is reported.
        for _ in 0..48 {
            service.clock.advance_us(SECOND_US);
            take(&mut service, "client_id", "a", 2).await;
        }
        service.clock.advance_us(SECOND_US);
        for expected in [(true, 0, 900 - 59), (false, 0, 900 - 59)] {
            let status = take(&mut service, "client_id", "a", 1).await;
            assert_eq!(said(&status), expected);
        }
    }
}

#[tokio::test]
async fn limits_of_one_duration_however_written_are_alike() {
    let mut service = serve("general-rules").await;
    let same =
        snippet("general-rules").replace("unit: second, ", "unit: second, unit_multiplier: 900, ");
    service.reload(&same).await;
    assert_eq!(service.metric("ratelimit_service_config_load_error"), 1);
    // A name distinguishes them.
    let named = same.replace("requests_per_unit: 2 ", "requests_per_unit: 2, name: few ");
    service.reload(&named).await;
    assert_eq!(service.metric("ratelimit_service_config_load_error"), 1);
    assert_eq!(asked(&mut service, &[("client_id", "a")], 3).await, "oo-");
}

#[tokio::test]
async fn a_refusal_has_its_rules_response() {
    let mut service = serve("over-limit").await;
    let client = || request(DOMAIN, vec![descriptor(&[("client_id", "a")])]);
    assert_eq!(service.ask(client()).await.raw_body, b""[..]);
    let refused = service.ask(client()).await;
    assert_eq!(
        refused.raw_body,
        b"API calls quota exceeded! maximum admitted 1 per 1 minute."[..]
    );
    let limit = refused.statuses[0].current_limit.as_ref().unwrap();
    assert_eq!(limit.requests_per_unit, 1);
}

#[tokio::test]
async fn each_rule_keeps_its_own_refusal() {
    let mut service = serve("over-limit").await;
    for _ in 0..2 {
        asked(&mut service, &[("client_id", "a")], 2).await;
        asked(&mut service, &[("upload", "a")], 1).await;
        let upload = vec![descriptor(&[("upload", "a")])];
        let refused = service.ask(request(DOMAIN, upload)).await;
        // START is 10.5 s into its hour.
        assert_eq!(
            refused.raw_body,
            br#"{"error":"too many uploads","retry_after":3590}"#[..]
        );
        assert_eq!(headers_of(&refused), ["content-type: application/json"]);
        let limit = refused.statuses[0].current_limit.as_ref().unwrap();
        assert_eq!(limit.name, "uploads");
        let client = vec![descriptor(&[("client_id", "a")])];
        let refused = service.ask(request(DOMAIN, client)).await;
        assert!(refused.raw_body.starts_with(b"API calls quota exceeded!"));
        assert_eq!(headers_of(&refused), [""; 0]);
    }
}

#[tokio::test]
async fn headers_are_off_unless_asked_for() {
    let mut service = serve("general-rules").await;
    for _ in 0..3 {
        let client = vec![descriptor(&[("client_id", "a")])];
        let answer = service.ask(request(DOMAIN, client)).await;
        assert_eq!(headers_of(&answer), [""; 0]);
    }
}

#[tokio::test]
async fn a_limit_of_zero_refuses_without_a_retry_time() {
    let mut service = serve("ban").await;
    for _ in 0..2 {
        let banned = vec![descriptor(&[("client_id", "banned")])];
        let answer = service.ask(request(DOMAIN, banned)).await;
        assert_eq!(answer.overall_code(), Code::OverLimit);
        assert_eq!(headers_of(&answer), [""; 0]);
        service.clock.advance_us(86_400 * SECOND_US);
    }
    assert_eq!(asked(&mut service, &[("client_id", "a")], 3).await, "ooo");
}

#[tokio::test]
async fn domains_keep_their_buckets_apart() {
    let mut service = serve("client-policies").await;
    assert_eq!(
        asked(&mut service, &[("client_id", "a")], 6).await,
        "ooooo-"
    );
    let rules = snippet("client-policies");
    service
        .reload(&rules.replace("domain: api", "domain: other"))
        .await;
    let status = service.status("other", hits("client_id", "a", 1)).await;
    assert_eq!(said(&status), (true, 4, 50));
    service.reload(&rules).await;
    assert_eq!(asked(&mut service, &[("client_id", "a")], 1).await, "-");
}

#[tokio::test]
async fn one_service_decides_exactly_for_many_callers() {
    let service = serve("client-policies").await;
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let mut client = Service::connect(service.grpc).await;
        callers.spawn(async move {
            let mut passed = 0;
            for _ in 0..20 {
                let asked = request(DOMAIN, vec![descriptor(&[("client_id", "a")])]);
                let answer = client.should_rate_limit(asked).await.unwrap();
                passed += u32::from(answer.get_ref().overall_code() == Code::Ok);
            }
            passed
        });
    }
    assert_eq!(callers.join_all().await.into_iter().sum::<u32>(), 5);
}

/// Number of buckets.
fn buckets(service: &Service) -> u64 {
    series_sum(&service.metrics.render().unwrap(), "tollgate_buckets{")
}

/// Waits until there are `count` buckets. A partition updates its metrics after the answers of its
/// turn were sent.
async fn becomes(service: &Service, count: u64) {
    let look = async || {
        let now = buckets(service);
        (now == count).then_some(()).ok_or(now)
    };
    until_async(&format!("there are {count} buckets"), look).await;
}

#[tokio::test]
async fn idle_buckets_are_freed_and_nothing_is_lost() {
    let mut service = serve("fixed-window").await;
    for n in 0..100 {
        take(&mut service, "partition", &n.to_string(), 4).await;
    }
    becomes(&service, 100).await;
    // Buckets with consumed hits are not idle: they are scanned repeatedly and kept.
    service.clock.advance_us(30 * SECOND_US);
    for n in 0..200 {
        take(&mut service, "partition", &format!("{}", n % 100), 0).await;
    }
    becomes(&service, 100).await;
    assert!(!said(&take(&mut service, "partition", "7", 1).await).0);
    // The buckets are full again, and so idle.
    service.clock.advance_us(120 * SECOND_US);
    for _ in 0..200 {
        take(&mut service, "partition", "one", 0).await;
        take(&mut service, "partition", "two", 0).await;
        take(&mut service, "partition", "three", 0).await;
    }
    assert!(buckets(&service) < 100, "{}", buckets(&service));
    assert_eq!(
        said(&take(&mut service, "partition", "7", 1).await).1,
        3,
        "it is full again, as it would be anyway"
    );
}

#[tokio::test]
async fn policies_change_at_run_time_and_buckets_stay() {
    let rules = snippet("client-policies");
    let before = rules.replace("cl-key-1", "cl-key-2");
    let mut service = Service::start(&before, &[]).await;
    let client = [("client_id", "cl-key-1")];
    assert_eq!(asked(&mut service, &client, 6).await, "ooooo-");
    // Invalid rules change nothing.
    service.reload(&rules.replace("minute", "fortnight")).await;
    assert_eq!(service.metric("ratelimit_service_config_load_error"), 1);
    assert_eq!(asked(&mut service, &client, 1).await, "-");
    // With another policy: eight, of which five are used.
    service.reload(&rules).await;
    assert_eq!(asked(&mut service, &client, 4).await, "ooo-");
    // No rules, no limits.
    service.reload("domain: api\n").await;
    assert_eq!(asked(&mut service, &client, 20).await, "o".repeat(20));
}

// System.Threading.RateLimiting
