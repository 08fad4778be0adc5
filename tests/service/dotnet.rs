//! The features of AspNetCoreRateLimit and System.Threading.RateLimiting that `docs/dotnet.md`
//! documents.
//!
//! Why: the page tells users which rules to write, so each test takes its rules from the snippet
//! under a heading. `dotnet_walks.txt` has most of them: a walk names its snippet and has requests
//! with their answers. `dotnet_page` compares the page with the tests and the walks.
//!
//! What it deliberately does not do: what Envoy does (`tests/envoy`), every case of an algorithm
//! (the laws of `crates/limiter`).

use tollgate_test_support::grpc_client::{
    Code, Descriptor, DescriptorStatus, RateLimitResponse, descriptor, hits, request,
};
use tollgate_test_support::in_process::{START, Service};
use tollgate_test_support::markdown::{Page, arguments};
use tollgate_test_support::polling::until_async;

const DOMAIN: &str = "api";

/// Microseconds in half a second; `START` is 10.5 s into a minute, an hour and a day.
const HALF_US: u64 = 500_000;

const SECOND_US: u64 = 1_000_000;

/// Requests and their answers: walks, each after a line `== NAME: SNIPPET`.
pub(crate) const WALKS: &str = include_str!("dotnet_walks.txt");

/// The rules of that name.
fn snippet(name: &str) -> String {
    Page::read("docs/dotnet.md").snippet(name)
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

/// The headers of an answer as `name: value`.
fn headers(answer: &RateLimitResponse) -> Vec<String> {
    let headers = answer.response_headers_to_add.iter();
    headers
        .map(|header| format!("{}: {}", header.key, header.value))
        .collect()
}

/// A rule's counter; `labels` are its key and value.
fn counted(service: &Service, counter: &str, labels: (&str, &str)) -> u64 {
    let (key1, key2) = labels;
    service.metric(&format!(
        "ratelimit_service_rate_limit_{counter}{{domain=\"{DOMAIN}\",key1=\"{key1}\",key2=\"{key2}\"}}"
    ))
}

/// A descriptor of a walk: `KEY=VALUE, KEY=VALUE`, `*HITS` behind it, `give back` before it.
fn descriptor_of(text: &str) -> Descriptor {
    let (text, is_negative_hits) = match text.strip_prefix("give back ") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let (entries, hits) = match text.split_once(" *") {
        Some((entries, hits)) => (entries, Some(hits.parse().expect(text))),
        None => (text, None),
    };
    let entries = entries.split(", ");
    let entries: Vec<_> = entries
        .map(|entry| entry.split_once('=').expect(text))
        .collect();
    Descriptor {
        hits_addend: hits,
        is_negative_hits,
        ..descriptor(&entries)
    }
}

/// Sends a request of a walk once for each letter of its answer, and returns the answers as the
/// walk writes them: `o` for each that was allowed and `-` for each refused, then as much of the
/// first descriptor's remaining hits and seconds as the walk has. `left` has no letters.
async fn answer(service: &mut Service, asked: &str, expected: &str) -> String {
    let descriptors: Vec<_> = asked.split(" & ").map(descriptor_of).collect();
    let words: Vec<_> = expected.split(' ').collect();
    if words.len() == 1 {
        return all(service, &descriptors, expected.len()).await;
    }
    let answer = service.ask(request(DOMAIN, descriptors)).await;
    let (passed, left, seconds) = said(&answer.statuses[0]);
    let code = match words[0] {
        "left" => "left",
        _ if passed => "o",
        _ => "-",
    };
    let seen = [code.to_owned(), left.to_string(), seconds.to_string()];
    seen[..words.len()].join(" ")
}

/// Microseconds of a number of seconds with up to six decimals.
fn microseconds(text: &str) -> u64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    format!("{whole}{part:0<6}").parse().expect(text)
}

#[tokio::test]
async fn every_walk_has_the_answers_that_are_written() {
    for walk in WALKS.split("\n== ").skip(1) {
        let (head, lines) = walk.split_once('\n').unwrap();
        let (_, snippet) = head.split_once(": ").unwrap();
        let mut service = serve(snippet).await;
        for line in lines.lines() {
            if let Some(seconds) = line.strip_prefix('+') {
                service.clock.advance_us(microseconds(seconds));
            } else if let Some((asked, expected)) = line.split_once(" -> ") {
                let seen = answer(&mut service, asked, expected).await;
                assert_eq!(seen, expected, "{head}: {line}");
            } else {
                assert!(line.is_empty() || line.starts_with('#'), "{head}: {line}");
            }
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
async fn a_client_without_a_limit_is_not_counted() {
    let mut service = serve("client-policies").await;
    assert_eq!(
        asked(&mut service, &[("client_id", "admin")], 20).await,
        "o".repeat(20)
    );
    let status = take(&mut service, "client_id", "admin", 1).await;
    assert_eq!(status.current_limit, None);
    assert_eq!(counted(&service, "total_hits", ("client_id", "")), 0);
}

#[tokio::test]
async fn refused_hits_count_in_the_limit_that_refused() {
    let mut service = serve("client-policies").await;
    assert_eq!(
        asked(&mut service, &[("client_id", "a")], 8).await,
        "ooooo---"
    );
    // Ten instead of five: eight are used, not five.
    let rules = snippet("client-policies").replace("requests_per_unit: 5", "requests_per_unit: 10");
    service.reload(&rules).await;
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
        assert_eq!(headers(&refused), ["content-type: application/json"]);
        let limit = refused.statuses[0].current_limit.as_ref().unwrap();
        assert_eq!(limit.name, "uploads");
        let client = vec![descriptor(&[("client_id", "a")])];
        let refused = service.ask(request(DOMAIN, client)).await;
        assert!(refused.raw_body.starts_with(b"API calls quota exceeded!"));
        assert_eq!(headers(&refused), [""; 0]);
    }
}

#[tokio::test]
async fn headers_have_the_names_that_clients_know() {
    let mut service = serve("headers").await;
    let client = || request(DOMAIN, vec![descriptor(&[("client_id", "a")])]);
    let three = [
        "X-Rate-Limit-Limit: 1",
        "X-Rate-Limit-Remaining: 0",
        "X-Rate-Limit-Reset: 50",
    ];
    assert_eq!(headers(&service.ask(client()).await), three);
    let refused = headers(&service.ask(client()).await);
    assert_eq!(refused[..3], three);
    assert_eq!(refused[3..], ["Retry-After: 50"]);
    // The last part of a second counts as one.
    service.clock.advance_us(49 * SECOND_US + HALF_US - 1);
    let refused = headers(&service.ask(client()).await);
    assert_eq!(refused[3..], ["Retry-After: 1"]);
}

#[tokio::test]
async fn headers_are_off_unless_asked_for() {
    let mut service = serve("general-rules").await;
    for _ in 0..3 {
        let client = vec![descriptor(&[("client_id", "a")])];
        let answer = service.ask(request(DOMAIN, client)).await;
        assert_eq!(headers(&answer), [""; 0]);
    }
}

#[tokio::test]
async fn a_limit_of_zero_refuses_without_a_retry_time() {
    let mut service = serve("ban").await;
    for _ in 0..2 {
        let banned = vec![descriptor(&[("client_id", "banned")])];
        let answer = service.ask(request(DOMAIN, banned)).await;
        assert_eq!(answer.overall_code(), Code::OverLimit);
        assert_eq!(headers(&answer), [""; 0]);
        service.clock.advance_us(86_400 * SECOND_US);
    }
    assert_eq!(asked(&mut service, &[("client_id", "a")], 3).await, "ooo");
}

#[tokio::test]
async fn a_shadow_mode_rule_is_counted_and_allows() {
    let mut service = serve("monitor-mode").await;
    assert_eq!(asked(&mut service, &[("client_id", "a")], 3).await, "ooo");
    for (counter, count) in [("total_hits", 3), ("over_limit", 2), ("shadow_mode", 2)] {
        assert_eq!(counted(&service, counter, ("client_id", "")), count);
    }
}

#[tokio::test]
async fn refusals_are_counted_by_rule() {
    let mut service = serve("global-and-policy").await;
    let uploads = [("global", "all"), ("policy", "uploads")].map(|entry| descriptor(&[entry]));
    assert_eq!(all(&mut service, &uploads, 5).await, "oo---");
    assert_eq!(counted(&service, "within_limit", ("policy_uploads", "")), 2);
    assert_eq!(counted(&service, "over_limit", ("policy_uploads", "")), 3);
    assert_eq!(counted(&service, "over_limit", ("global", "")), 0);
    let decisions = |code| format!("tollgate_decisions_total{{code=\"{code}\"}}");
    assert_eq!(service.metric(&decisions("ok")), 2);
    assert_eq!(service.metric(&decisions("over_limit")), 3);
}

#[tokio::test]
async fn periods_are_units_times_a_multiplier() {
    // START is 10.5 s into each of them but for a second, of which it is half, and 7 days, of which
    // it is the last.
    for (period, left) in [
        ("1s", 1),
        ("15m", 900 - 10),
        ("1.5h", 5_400 - 10),
        ("12h", 43_200 - 10),
        ("7d", 86_400 - 10),
    ] {
        let mut service = serve("periods").await;
        assert_eq!(
            said(&take(&mut service, period, "a", 1).await),
            (true, 0, left),
            "{period}"
        );
        assert_eq!(
            said(&take(&mut service, period, "a", 1).await),
            (false, 0, left)
        );
        let left_us = u64::try_from(left).unwrap() * SECOND_US - HALF_US;
        service.clock.advance_us(left_us - 1);
        assert!(
            !said(&take(&mut service, period, "a", 1).await).0,
            "{period}"
        );
        service.clock.advance_us(1);
        assert!(
            said(&take(&mut service, period, "a", 1).await).0,
            "{period}"
        );
    }
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
    let text = service.metrics.render().unwrap();
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("tollgate_buckets{"));
    let values = lines.map(|line| line.split_once(' ').unwrap().1.parse::<u64>().unwrap());
    values.sum()
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
    // With another policy: eight, of which seven are used.
    service.reload(&rules).await;
    assert_eq!(asked(&mut service, &client, 2).await, "o-");
    // No rules, no limits.
    service.reload("domain: api\n").await;
    assert_eq!(asked(&mut service, &client, 20).await, "o".repeat(20));
}

// System.Threading.RateLimiting

#[tokio::test]
async fn more_permits_than_the_limit_are_refused_without_a_retry_time() {
    let mut service = serve("more-than-the-limit").await;
    let answer = service
        .ask(request(DOMAIN, vec![hits("partition", "a", 5)]))
        .await;
    assert_eq!(answer.overall_code(), Code::OverLimit);
    assert_eq!(headers(&answer), [""; 0]);
    // It took nothing; a request that can pass later has a retry time.
    assert!(said(&take(&mut service, "partition", "a", 4).await).0);
    let answer = service
        .ask(request(DOMAIN, vec![hits("partition", "a", 4)]))
        .await;
    assert_eq!(said(&answer.statuses[0]), (false, 0, 50));
    assert_eq!(headers(&answer), ["Retry-After: 50"]);
}

#[tokio::test]
async fn statistics_are_remaining_hits_and_counters() {
    let mut service = serve("statistics").await;
    assert_eq!(
        asked(&mut service, &[("partition", "a")], 6).await,
        "oooo--"
    );
    assert_eq!(asked(&mut service, &[("partition", "b")], 1).await, "o");
    for (partition, left, successful, failed) in [("a", 0, 4, 2), ("b", 3, 1, 0)] {
        let look = take(&mut service, "partition", partition, 0).await;
        assert_eq!(look.limit_remaining, left);
        let label = format!("partition_{partition}");
        assert_eq!(counted(&service, "within_limit", (&label, "")), successful);
        assert_eq!(counted(&service, "over_limit", (&label, "")), failed);
    }
}

#[tokio::test]
async fn no_limiter_never_refuses() {
    let mut service = serve("no-limiter").await;
    for (partition, codes, left) in [
        ("internal", "ooo", 0),
        ("batch", "ooo", u32::MAX),
        ("a", "o--", 0),
    ] {
        assert_eq!(
            asked(&mut service, &[("partition", partition)], 3).await,
            codes,
            "{partition}"
        );
        let status = take(&mut service, "partition", partition, 0).await;
        assert_eq!(status.limit_remaining, left, "{partition}");
        assert_eq!(status.current_limit.is_some(), partition == "a");
    }
}

#[tokio::test]
async fn a_clock_set_back_gives_nothing_back() {
    let mut service = serve("fixed-window").await;
    let now = START;
    assert_eq!(asked(&mut service, &[("partition", "a")], 5).await, "oooo-");
    // Back into the minute before: another window, but the bucket keeps its own.
    service.clock.set(now.minus_us(30 * SECOND_US));
    assert_eq!(asked(&mut service, &[("partition", "a")], 1).await, "-");
    service.clock.set(now);
    assert_eq!(asked(&mut service, &[("partition", "a")], 1).await, "-");
}

/// A request that takes hits of both.
fn chain(of_tenant: u64, of_user: u64) -> Vec<Descriptor> {
    vec![hits("tenant", "t", of_tenant), hits("user", "u", of_user)]
}

#[tokio::test]
async fn chained_refusals_have_the_longest_wait() {
    let mut service = serve("chained").await;
    assert_eq!(
        service
            .ask(request(DOMAIN, chain(2, 5)))
            .await
            .overall_code(),
        Code::Ok
    );
    let refused = service.ask(request(DOMAIN, chain(2, 5))).await;
    assert_eq!(said(&refused.statuses[0]), (false, 0, 50));
    assert_eq!(said(&refused.statuses[1]), (false, 0, 3_590));
    assert_eq!(headers(&refused), ["Retry-After: 3590"]);
}
