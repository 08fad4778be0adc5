//! The features of AspNetCoreRateLimit and System.Threading.RateLimiting that `docs/dotnet.md`
//! documents.
//!
//! Why: the page tells users which rules to write, so each test takes its rules from the snippet
//! under a heading, and the page names each test. `dotnet_page` compares the two.
//!
//! What it deliberately does not do: regular expressions, lists and networks (`dotnet_matching`),
//! what Envoy does (`tests/envoy`), every case of an algorithm (`tests/laws`).

use tollgate_test_support::grpc_client::{
    Code, Descriptor, DescriptorStatus, RateLimitResponse, descriptor, hits, request,
};
use tollgate_test_support::in_process::{START, Service};
use tollgate_test_support::markdown::{Page, arguments};

const DOMAIN: &str = "api";

/// Microseconds in half a second; `START` is 10.5 s into a minute, an hour and a day.
const HALF_US: u64 = 500_000;

const SECOND_US: u64 = 1_000_000;

/// The rules of that name.
pub(crate) fn snippet(name: &str) -> String {
    Page::read("docs/dotnet.md").snippet(name)
}

/// A service with the rules of that name and the arguments in the snippet.
pub(crate) async fn serve(name: &str) -> Service {
    let rules = snippet(name);
    Service::start(&rules, &arguments(&rules)).await
}

/// Sends the same request `times` times: `o` for allowed, `-` for refused.
pub(crate) async fn asked(service: &mut Service, entries: &[(&str, &str)], times: usize) -> String {
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

// AspNetCoreRateLimit

#[tokio::test]
async fn general_rules_hold_for_every_client_in_a_bucket_each() {
    let mut service = serve("general-rules").await;
    assert_eq!(asked(&mut service, &[("client_id", "a")], 3).await, "oo-");
    assert_eq!(asked(&mut service, &[("client_id", "b")], 3).await, "oo-");
    service.clock.advance_us(HALF_US);
    assert_eq!(asked(&mut service, &[("client_id", "a")], 3).await, "oo-");
}

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
async fn a_clients_own_policy_is_used_instead_of_the_general_one() {
    let mut service = serve("client-policies").await;
    // A client's policy may also be looser.
    assert_eq!(
        asked(&mut service, &[("client_id", "cl-key-1")], 9).await,
        "oooooooo-"
    );
    assert_eq!(
        asked(&mut service, &[("client_id", "cl-key-2")], 6).await,
        "ooooo-"
    );
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
async fn an_address_has_its_own_policy_or_none() {
    let mut service = serve("ip-policies").await;
    for (address, codes) in [
        ("84.247.85.224", "oooo--"),
        ("84.247.85.225", "oo----"),
        ("::1", "oooooo"),
    ] {
        let entries = [("remote_address", address)];
        assert_eq!(asked(&mut service, &entries, 6).await, codes, "{address}");
    }
}

#[tokio::test]
async fn a_specific_rule_replaces_the_general_one_it_names() {
    let mut service = serve("override-general-rule").await;
    let who = |id| [("any_client", id), ("client_id", id)].map(|entry| descriptor(&[entry]));
    assert_eq!(all(&mut service, &who("cl-key-1"), 5).await, "oooo-");
    assert_eq!(all(&mut service, &who("cl-key-2"), 3).await, "oo-");
    // Rules that it does not name still apply: six a minute.
    service.clock.advance_us(SECOND_US);
    assert_eq!(all(&mut service, &who("cl-key-1"), 3).await, "oo-");
    assert_eq!(all(&mut service, &who("cl-key-2"), 3).await, "oo-");
}

/// Client, path and verb.
fn endpoint<'a>(client: &'a str, path: &'a str, method: &'a str) -> [(&'a str, &'a str); 3] {
    [("client_id", client), ("path", path), ("method", method)]
}

#[tokio::test]
async fn a_rule_of_verb_and_path_counts_only_that() {
    let mut service = serve("endpoints").await;
    for (asked_for, codes) in [
        (endpoint("a", "/api/clients", "GET"), "oo-"),
        (endpoint("a", "/api/clients", "PUT"), "ooo"), // only GET has a rule
        (endpoint("a", "/api/values", "GET"), "ooo"),
        (endpoint("a", "/api/values", "PUT"), "o--"), // any verb, the same bucket
        (endpoint("b", "/api/values", "PUT"), "ooo"),
        (endpoint("b", "/api/clients", "GET"), "oo-"),
    ] {
        assert_eq!(
            asked(&mut service, &asked_for, 3).await,
            codes,
            "{asked_for:?}"
        );
    }
}

#[tokio::test]
async fn a_path_without_a_limit_is_not_counted() {
    let mut service = serve("endpoints").await;
    for path in ["/status", "/"] {
        assert_eq!(
            asked(&mut service, &endpoint("a", path, "GET"), 9).await,
            "o".repeat(9),
            "{path}"
        );
    }
    // It took no hits from the others either.
    assert_eq!(
        asked(&mut service, &endpoint("a", "/other", "GET"), 4).await,
        "ooo-"
    );
}

#[tokio::test]
async fn paths_are_compared_byte_by_byte() {
    let mut service = serve("endpoints").await;
    // None is /status, so all are counted in one bucket.
    let mut codes = String::new();
    for (path, method) in [
        ("/STATUS", "GET"),
        ("/status/", "PUT"),
        ("/status?verbose", "GET"),
        ("/Status", "PUT"),
    ] {
        codes += &asked(&mut service, &endpoint("a", path, method), 1).await;
    }
    assert_eq!(codes, "ooo-");
}

#[tokio::test]
async fn a_pattern_counts_each_path_apart_or_all_together() {
    let mut service = serve("counter-keys").await;
    for (path, codes) in [
        ("/apart/1", "o-"),
        ("/apart/2", "o-"),
        ("/together/1", "o-"),
        ("/together/2", "--"),
        ("/elsewhere", "oo"),
    ] {
        assert_eq!(
            asked(&mut service, &[("path", path)], 2).await,
            codes,
            "{path}"
        );
    }
}

#[tokio::test]
async fn whitelists_allow_without_counting_in_their_order() {
    let mut service = serve("whitelists").await;
    let from = |client, address, path| {
        [
            ("client_id", client),
            ("remote_address", address),
            ("path", path),
        ]
    };
    for (asked_for, codes) in [
        (from("admin", "10.0.0.1", "/"), "oooo"),
        (from("a", "10.0.0.5", "/"), "oooo"),
        (from("a", "10.0.0.1", "/status"), "oooo"),
        // None of them was counted; a client has one bucket for all addresses and paths.
        (from("a", "10.0.0.1", "/"), "oo--"),
        (from("a", "10.0.0.2", "/other"), "----"),
        (from("b", "10.0.0.2", "/other"), "oo--"),
    ] {
        assert_eq!(
            asked(&mut service, &asked_for, 4).await,
            codes,
            "{asked_for:?}"
        );
    }
}

#[tokio::test]
async fn two_middlewares_are_two_descriptors() {
    let mut service = serve("ip-and-client").await;
    let from = |address, client| {
        [("remote_address", address), ("client_id", client)].map(|entry| descriptor(&[entry]))
    };
    // The client's two, then the third of the address; the refused request took nothing from it.
    assert_eq!(all(&mut service, &from("10.0.0.1", "a"), 3).await, "oo-");
    assert_eq!(all(&mut service, &from("10.0.0.1", "b"), 2).await, "o-");
    assert_eq!(all(&mut service, &from("10.0.0.2", "b"), 2).await, "o-");
}

#[tokio::test]
async fn what_the_short_limit_refuses_the_long_one_does_not_count() {
    let mut service = serve("stack-blocked-false").await;
    for codes in ["o--", "o--", "o--", "---"] {
        assert_eq!(asked(&mut service, &[("client_id", "a")], 3).await, codes);
        service.clock.advance_us(SECOND_US);
    }
}

#[tokio::test]
async fn what_the_short_limit_refuses_the_long_one_counts() {
    let mut service = serve("stack-blocked-true").await;
    for codes in ["o--", "---"] {
        assert_eq!(asked(&mut service, &[("client_id", "a")], 3).await, codes);
        service.clock.advance_us(SECOND_US);
    }
    // The debt ends with the hour, however many requests were refused.
    assert_eq!(
        asked(&mut service, &[("client_id", "a")], 50).await,
        "-".repeat(50)
    );
    service.clock.advance_us(3_600 * SECOND_US);
    assert_eq!(asked(&mut service, &[("client_id", "a")], 1).await, "o");
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
async fn hits_are_weighted_by_the_request() {
    let mut service = serve("weights").await;
    for (weight, expected) in [
        (4, (true, 6, 50)),
        (5, (true, 1, 50)),
        (1, (true, 0, 50)),
        (1, (false, 0, 50)),
    ] {
        let status = take(&mut service, "client_id", "a", weight).await;
        assert_eq!(said(&status), expected);
    }
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
async fn windows_are_aligned_and_reset_is_exact() {
    let mut service = serve("client-policies").await;
    // The first hit comes 10.5 s into the minute, and does not begin one of its own.
    assert_eq!(
        said(&take(&mut service, "client_id", "a", 5).await),
        (true, 0, 50)
    );
    service.clock.advance_us(49 * SECOND_US + HALF_US - 1);
    assert_eq!(
        said(&take(&mut service, "client_id", "a", 1).await),
        (false, 0, 1)
    );
    service.clock.advance_us(1);
    assert_eq!(
        said(&take(&mut service, "client_id", "a", 1).await),
        (true, 4, 60)
    );
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
    for _ in 0..2_000 {
        if buckets(service) == count {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    assert_eq!(buckets(service), count);
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
async fn a_partition_is_all_entries_together() {
    let mut service = serve("identity").await;
    for (tenant, user, codes) in [
        ("t", "u", "o-"),
        ("t", "v", "o-"),
        ("s", "u", "o-"),
        ("t", "u", "--"),
    ] {
        let entries = [("tenant", tenant), ("user", user)];
        assert_eq!(asked(&mut service, &entries, 2).await, codes, "{entries:?}");
    }
    // Without a user there is no rule.
    assert_eq!(asked(&mut service, &[("tenant", "t")], 2).await, "oo");
}

#[tokio::test]
async fn permits_are_hits() {
    let mut service = serve("fixed-window").await;
    assert_eq!(
        said(&take(&mut service, "partition", "a", 3).await),
        (true, 1, 50)
    );
    assert_eq!(
        said(&take(&mut service, "partition", "a", 2).await),
        (false, 0, 50)
    );
    // Two exceeded the limit, and neither was taken.
    assert_eq!(
        said(&take(&mut service, "partition", "a", 1).await),
        (true, 0, 50)
    );
}

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
async fn no_permits_only_look() {
    let mut service = serve("fixed-window").await;
    for left in [4, 0] {
        for _ in 0..3 {
            assert_eq!(
                said(&take(&mut service, "partition", "a", 0).await),
                (true, left, 50)
            );
        }
        take(&mut service, "partition", "a", u64::from(left)).await;
    }
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
async fn fixed_window_is_full_again_at_each_edge() {
    let mut service = serve("fixed-window").await;
    // The refused request took nothing, and has a retry time.
    assert_eq!(
        asked(&mut service, &[("partition", "a")], 6).await,
        "oooo--"
    );
    assert_eq!(
        said(&take(&mut service, "partition", "a", 3).await),
        (false, 0, 50)
    );
    service.clock.advance_us(49 * SECOND_US + HALF_US - 1);
    assert_eq!(asked(&mut service, &[("partition", "a")], 1).await, "-");
    service.clock.advance_us(1);
    assert_eq!(asked(&mut service, &[("partition", "a")], 5).await, "oooo-");
    // Unused permits are not kept: two edges later there are four, not eight.
    service.clock.advance_us(120 * SECOND_US);
    assert_eq!(asked(&mut service, &[("partition", "a")], 5).await, "oooo-");
}

#[tokio::test]
async fn fixed_window_lets_twice_as_much_pass_across_an_edge() {
    let mut service = serve("fixed-window").await;
    service.clock.advance_us(49 * SECOND_US);
    assert_eq!(asked(&mut service, &[("partition", "a")], 5).await, "oooo-");
    service.clock.advance_us(HALF_US);
    assert_eq!(asked(&mut service, &[("partition", "a")], 5).await, "oooo-");
    // A sliding window prevents that.
    let mut service = serve("sliding-window").await;
    service.clock.advance_us(49 * SECOND_US);
    assert_eq!(asked(&mut service, &[("partition", "a")], 5).await, "oooo-");
    service.clock.advance_us(HALF_US);
    assert_eq!(asked(&mut service, &[("partition", "a")], 1).await, "-");
}

#[tokio::test]
async fn sliding_window_returns_permits_segment_by_segment() {
    let mut service = serve("sliding-window").await;
    // Segments are 20 s long and begin with the minute; this is 10.5 s into the first.
    assert_eq!(
        said(&take(&mut service, "partition", "a", 3).await),
        (true, 1, 50)
    );
    service.clock.advance_us(20 * SECOND_US);
    assert_eq!(
        said(&take(&mut service, "partition", "a", 1).await),
        (true, 0, 50)
    );
    // Three are freed together when the first segment leaves, in 29.5 s; the fourth one segment
    // later.
    assert_eq!(
        said(&take(&mut service, "partition", "a", 1).await),
        (false, 0, 30)
    );
    assert_eq!(
        said(&take(&mut service, "partition", "a", 4).await),
        (false, 0, 50)
    );
    service.clock.advance_us(29 * SECOND_US + HALF_US - 1);
    assert_eq!(
        said(&take(&mut service, "partition", "a", 1).await),
        (false, 0, 1)
    );
    service.clock.advance_us(1);
    assert_eq!(asked(&mut service, &[("partition", "a")], 4).await, "ooo-");
    service.clock.advance_us(20 * SECOND_US);
    assert_eq!(asked(&mut service, &[("partition", "a")], 2).await, "o-");
}

#[tokio::test]
async fn token_bucket_replenishes_in_steps() {
    let mut service = serve("token-bucket").await;
    // It begins full. Steps are 10 s apart, and the next is 9.5 s away.
    assert_eq!(
        said(&take(&mut service, "partition", "a", 6).await),
        (true, 0, 30)
    );
    for (tokens, seconds) in [(1, 10), (2, 10), (3, 20), (4, 20), (5, 30)] {
        assert_eq!(
            said(&take(&mut service, "partition", "a", tokens).await),
            (false, 0, seconds),
            "{tokens}"
        );
    }
    service.clock.advance_us(9 * SECOND_US + HALF_US - 1);
    assert_eq!(asked(&mut service, &[("partition", "a")], 1).await, "-");
    service.clock.advance_us(1);
    assert_eq!(asked(&mut service, &[("partition", "a")], 3).await, "oo-");
    // Nothing is added between two steps; unused tokens are kept.
    service.clock.advance_us(10 * SECOND_US - 1);
    assert_eq!(asked(&mut service, &[("partition", "a")], 1).await, "-");
    service.clock.advance_us(10 * SECOND_US + 1);
    assert_eq!(asked(&mut service, &[("partition", "a")], 5).await, "oooo-");
}

#[tokio::test]
async fn token_bucket_never_holds_more_than_its_limit() {
    for name in ["token-bucket", "token-bucket-continuous"] {
        let mut service = serve(name).await;
        take(&mut service, "partition", "a", 6).await;
        service.clock.advance_us(3_600 * SECOND_US);
        assert_eq!(
            asked(&mut service, &[("partition", "a")], 7).await,
            "oooooo-",
            "{name}"
        );
    }
}

#[tokio::test]
async fn token_bucket_replenishes_continuously() {
    let mut service = serve("token-bucket-continuous").await;
    assert_eq!(
        said(&take(&mut service, "partition", "a", 6).await),
        (true, 0, 30)
    );
    // One in 5 s; half of one is not enough, but not lost.
    service.clock.advance_us(2 * SECOND_US + HALF_US);
    assert_eq!(
        said(&take(&mut service, "partition", "a", 1).await),
        (false, 0, 3)
    );
    service.clock.advance_us(2 * SECOND_US + HALF_US);
    assert_eq!(asked(&mut service, &[("partition", "a")], 2).await, "o-");
}

/// A descriptor of one partition whose slot this request holds.
fn lease(holder: &str) -> Descriptor {
    descriptor(&[("partition", "a"), ("request_id", holder)])
}

fn disposed(holder: &str) -> Descriptor {
    Descriptor {
        is_negative_hits: true,
        ..lease(holder)
    }
}

#[tokio::test]
async fn concurrency_frees_a_slot_when_its_lease_ends() {
    let mut service = serve("concurrency").await;
    for (holder, left) in [("1", 1), ("2", 0)] {
        let status = service.status(DOMAIN, lease(holder)).await;
        assert_eq!((status.code(), status.limit_remaining), (Code::Ok, left));
    }
    assert_eq!(all(&mut service, &[lease("3")], 2).await, "--");
    all(&mut service, &[disposed("1")], 1).await;
    // The number in flight is the limit minus the remaining hits.
    let look = service.status(DOMAIN, hits("partition", "a", 0)).await;
    let limit = look.current_limit.as_ref().unwrap().requests_per_unit;
    assert_eq!(limit - look.limit_remaining, 1);
    // A second release of a lease has no effect.
    all(&mut service, &[disposed("1")], 1).await;
    assert_eq!(all(&mut service, &[lease("3")], 1).await, "o");
    assert_eq!(all(&mut service, &[lease("4")], 1).await, "-");
}

#[tokio::test]
async fn concurrency_frees_nothing_for_a_lease_that_failed() {
    let mut service = serve("concurrency").await;
    for (holder, codes) in [("1", "o"), ("2", "o"), ("3", "-")] {
        assert_eq!(all(&mut service, &[lease(holder)], 1).await, codes);
    }
    all(&mut service, &[disposed("3")], 1).await;
    assert_eq!(all(&mut service, &[lease("4")], 1).await, "-");
}

#[tokio::test]
async fn concurrency_frees_a_lost_slot_in_time() {
    let mut service = serve("concurrency").await;
    assert_eq!(all(&mut service, &[lease("1")], 1).await, "o");
    service.clock.advance_us(20 * SECOND_US);
    assert_eq!(all(&mut service, &[lease("2")], 1).await, "o");
    let status = service.status(DOMAIN, lease("3")).await;
    assert_eq!(said(&status), (false, 0, 40));
    service.clock.advance_us(40 * SECOND_US - 1);
    assert_eq!(all(&mut service, &[lease("3")], 1).await, "-");
    service.clock.advance_us(1);
    assert_eq!(all(&mut service, &[lease("3")], 1).await, "o");
    assert_eq!(all(&mut service, &[lease("4")], 1).await, "-");
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

#[tokio::test]
async fn partitions_choose_their_limiter() {
    let mut service = serve("partitions").await;
    for (user, codes) in [
        ("premium-1", "oooo-"),
        ("premium-2", "oooo-"),
        ("root", "ooooo"),
        ("a", "o----"),
    ] {
        assert_eq!(
            asked(&mut service, &[("user", user)], 5).await,
            codes,
            "{user}"
        );
    }
    // One is refilled after half a second, the other at the end of the minute.
    service.clock.advance_us(HALF_US - 1);
    assert_eq!(asked(&mut service, &[("user", "premium-1")], 1).await, "-");
    service.clock.advance_us(1);
    assert_eq!(asked(&mut service, &[("user", "premium-1")], 2).await, "o-");
    assert_eq!(asked(&mut service, &[("user", "a")], 1).await, "-");
}

#[tokio::test]
async fn translated_keys_share_a_partition() {
    let mut service = serve("translated-key").await;
    let mut codes = String::new();
    for path in ["/files/1", "/files/2", "/files/3"] {
        codes += &asked(&mut service, &[("path", path)], 1).await;
    }
    assert_eq!(codes, "oo-");
}

/// The remaining hits of tenant and user.
async fn left(service: &mut Service) -> (u32, u32) {
    (
        take(service, "tenant", "t", 0).await.limit_remaining,
        take(service, "user", "u", 0).await.limit_remaining,
    )
}

/// A request that takes hits of both.
fn chain(of_tenant: u64, of_user: u64) -> Vec<Descriptor> {
    vec![hits("tenant", "t", of_tenant), hits("user", "u", of_user)]
}

#[tokio::test]
async fn chained_limiters_take_from_all_or_from_none() {
    let mut service = serve("chained").await;
    for (of_tenant, of_user, code, are_left) in [
        (1, 1, "o", (1, 4)),
        (2, 1, "-", (1, 4)), // the tenant's refuses
        (1, 5, "-", (1, 4)), // the user's
        (1, 1, "o", (0, 3)),
        (1, 1, "-", (0, 3)),
    ] {
        let mut asked_for = chain(of_tenant, of_user);
        asked_for.push(hits("slot", "s", 1));
        assert_eq!(all(&mut service, &asked_for, 1).await, code);
        assert_eq!(left(&mut service).await, are_left);
    }
    let slots = take(&mut service, "slot", "s", 0).await;
    assert_eq!(slots.limit_remaining, 8);
}

#[tokio::test]
async fn independent_limiters_keep_their_hits() {
    let mut service = serve("chained-apart").await;
    for (of_tenant, of_user, code, are_left) in [
        (1, 1, "o", (1, 4)),
        (2, 1, "-", (1, 3)), // the tenant's refuses, and the user's has let it pass
        (1, 4, "-", (0, 3)), // the other way round
    ] {
        assert_eq!(all(&mut service, &chain(of_tenant, of_user), 1).await, code);
        assert_eq!(left(&mut service).await, are_left);
    }
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

#[tokio::test]
async fn the_global_limiter_and_a_policy_both_count() {
    let mut service = serve("global-and-policy").await;
    let [global, policy] =
        [("global", "all"), ("policy", "uploads")].map(|entry| descriptor(&[entry]));
    assert_eq!(
        all(&mut service, &[global.clone(), policy.clone()], 3).await,
        "oo-"
    );
    assert_eq!(
        all(&mut service, std::slice::from_ref(&global), 3).await,
        "oo-"
    );
    // A policy without a rule limits nothing.
    let unknown = descriptor(&[("policy", "downloads")]);
    assert_eq!(all(&mut service, &[unknown], 5).await, "ooooo");
}
