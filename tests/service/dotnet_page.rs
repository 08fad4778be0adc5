//! `docs/dotnet.md` compared with its tests: every option has a row, every row a test or a reason,
//! every test a row, every snippet a test.
//!
//! What it deliberately does not do: run the named tests. It reads their files.

use std::collections::BTreeSet;

use tollgate_test_support::markdown::{Page, quoted};

/// The files with the page's tests, and their names on the page.
const FILES: [(&str, &str); 3] = [
    ("dotnet", include_str!("dotnet.rs")),
    ("dotnet_matching", include_str!("dotnet_matching.rs")),
    ("envoy/dotnet", include_str!("../envoy/dotnet.rs")),
];

/// The options in the documentation of the two libraries and of ASP.NET's middleware.
const OPTIONS: &str = "
GeneralRules EndpointWhitelist ClientWhitelist IpWhitelist ClientIdHeader RealIpHeader HttpStatusCode QuotaExceededMessage
QuotaExceededResponse RateLimitCounterPrefix StackBlockedRequests EnableEndpointRateLimiting EnableRegexRuleMatching
DisableRateLimitHeaders RequestBlockedBehaviorAsync IpPolicyPrefix ClientPolicyPrefix
Endpoint Period PeriodTimespan Limit MonitorMode Ip Rules ClientId IpRules[] ClientRules[] RateIncrementer
X-Rate-Limit-Limit X-Rate-Limit-Remaining X-Rate-Limit-Reset Retry-After
AsyncKeyLockProcessingStrategy RedisProcessingStrategy IIpPolicyStore IClientPolicyStore GetAsync SetAsync SeedAsync
FixedWindowRateLimiter SlidingWindowRateLimiter TokenBucketRateLimiter ConcurrencyLimiter NoLimiter
PermitLimit Window SegmentsPerWindow TokenLimit TokensPerPeriod ReplenishmentPeriod AutoReplenishment TryReplenish()
IsAutoReplenishing QueueLimit QueueProcessingOrder OldestFirst NewestFirst RetryAfter
AttemptAcquire AcquireAsync RateLimitLease.IsAcquired MetadataName.RetryAfter MetadataName.ReasonPhrase
MetadataNames TryGetMetadata GetAllMetadata RateLimitLease.Dispose() GetStatistics().CurrentAvailablePermits
.CurrentQueuedCount .TotalSuccessfulLeases .TotalFailedLeases IdleDuration Dispose()
PartitionedRateLimiter.Create RateLimitPartition.GetFixedWindowLimiter GetSlidingWindowLimiter GetTokenBucketLimiter
GetConcurrencyLimiter GetNoLimiter RateLimitPartition.Get WithTranslatedKey CreateChained
AddRateLimiter UseRateLimiter GlobalLimiter AddPolicy RequireRateLimiting [EnableRateLimiting] [DisableRateLimiting]
RejectionStatusCode OnRejected aspnetcore.rate_limiting.requests …active_request_leases …request_lease.duration
…queued_requests …request.time_in_queue
";

fn page() -> Page {
    Page::read("docs/dotnet.md")
}

/// The tests of all files, by the names that the page gives them.
fn tests() -> BTreeSet<String> {
    let of_file = |(name, text): &(&str, &str)| -> Vec<String> {
        let lines: Vec<_> = text.lines().collect();
        let pairs = lines.windows(2);
        let tests = pairs.filter(|pair| matches!(pair[0], "#[test]" | "#[tokio::test]"));
        let functions = tests.map(|pair| {
            let (_, rest) = pair[1].split_once("fn ").expect("a function");
            format!("{name}::{}", rest.split('(').next().unwrap())
        });
        functions.collect()
    };
    FILES.iter().flat_map(of_file).collect()
}

#[test]
fn every_test_that_the_page_names_exists_and_it_names_every_test() {
    let page = page();
    let rows = page.rows();
    let named: BTreeSet<String> = rows
        .iter()
        .flat_map(|row| quoted(row.last().unwrap()))
        .map(str::to_owned)
        .collect();
    let tests = tests();
    assert!(tests.len() > 50, "{}", tests.len());
    assert_eq!(named, tests);
}

#[test]
fn every_row_has_a_test_or_a_reason() {
    for row in page().rows() {
        let [option, meaning, here, difference, test] = row[..] else {
            panic!("{row:?} has not five cells");
        };
        assert!(!option.is_empty() && !meaning.is_empty() && !here.is_empty());
        assert!(!difference.is_empty() && !test.is_empty(), "{option}");
        if test == "–" {
            assert!(here.starts_with("not there"), "{option}: a test is missing");
        }
        if here.starts_with("not there") {
            assert_ne!(difference, "–", "{option}: a reason is missing");
        }
    }
}

#[test]
fn every_option_has_a_row() {
    let page = page();
    let rows = page.rows();
    let options: BTreeSet<_> = rows.iter().flat_map(|row| quoted(row[0])).collect();
    for option in OPTIONS.split_whitespace() {
        assert!(options.contains(option), "no row for {option}");
    }
}

#[test]
fn every_snippet_is_linked_and_run_and_every_link_resolves() {
    let page = page();
    let snippets: BTreeSet<_> = page.snippets().into_iter().collect();
    assert!(snippets.len() > 30, "{}", snippets.len());
    let linked: BTreeSet<_> = page.anchors().into_iter().collect();
    assert_eq!(linked, snippets);
    for name in snippets {
        let asked_for = format!("\"{name}\"");
        let run = FILES.iter().any(|(_, text)| text.contains(&asked_for));
        assert!(run, "no test runs `{name}`");
    }
}
