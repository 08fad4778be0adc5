//! `docs/dotnet.md` compared with its tests and walks: every option has a row, every row a test or
//! a reason, every test a row, every snippet a test. `dotnet_coverage.txt` names the tests of each
//! row.
//!
//! What it deliberately does not do: run the named tests. It reads their files.

use std::collections::BTreeSet;

use tollgate_test_support::markdown::{Page, quoted};

use crate::service::dotnet::WALKS;

/// The files with the page's tests, and their names in `COVERAGE`.
const FILES: [(&str, &str); 2] = [
    ("dotnet", include_str!("dotnet.rs")),
    ("envoy/dotnet", include_str!("../envoy/dotnet.rs")),
];

/// The test that takes all walks. Rows name the walks.
const OF_WALKS: &str = "dotnet::every_walk_has_the_answers_that_are_written";

/// The walks: their names, and the snippets that they use.
fn walks() -> impl Iterator<Item = (&'static str, &'static str)> {
    let heads = WALKS.lines().filter_map(|line| line.strip_prefix("== "));
    heads.map(|head| head.split_once(": ").expect("a name and a snippet"))
}

/// The tests of each row of the page.
const COVERAGE: &str = include_str!("dotnet_coverage.txt");

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

/// The tests of all files, by their names in `COVERAGE`.
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
    let mut tests: BTreeSet<_> = FILES.iter().flat_map(of_file).collect();
    assert!(tests.remove(OF_WALKS));
    tests.extend(walks().map(|(name, _)| format!("dotnet::{name}")));
    tests
}

/// Lines of `dotnet_coverage.txt`: the first cell of a row, and the tests of that row.
fn coverage() -> Vec<(&'static str, Vec<&'static str>)> {
    let lines = COVERAGE.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.map(|line| {
        let (row, tests) = line.split_once(" -> ").expect("a row and its tests");
        (row, tests.split(", ").collect())
    });
    rows.collect()
}

#[test]
fn the_coverage_names_every_test_and_only_existing_ones() {
    let coverage = coverage();
    let named: BTreeSet<String> = coverage
        .iter()
        .flat_map(|(_, tests)| tests)
        .map(|test| (*test).to_owned())
        .collect();
    let tests = tests();
    assert!(tests.len() > 50, "{}", tests.len());
    assert_eq!(named, tests);
}

#[test]
fn every_row_has_a_test_or_a_reason() {
    let page = page();
    let mut covered: BTreeSet<&str> = coverage().into_iter().map(|(row, _)| row).collect();
    assert_eq!(covered.len(), coverage().len(), "a row has two lines");
    for row in page.rows() {
        let [option, meaning, here, difference] = row[..] else {
            panic!("{row:?} has not four cells");
        };
        assert!(!option.is_empty() && !meaning.is_empty() && !here.is_empty());
        assert!(!difference.is_empty(), "{option}");
        if !covered.remove(option) {
            assert!(here.starts_with("not available"), "{option}: no test");
        }
        if here.starts_with("not available") {
            assert_ne!(difference, "–", "{option}: a reason is missing");
        }
    }
    let own_tests = covered
        .iter()
        .filter(|row| row.starts_with("own test: "))
        .count();
    assert_eq!(own_tests, 8);
    covered.retain(|row| !row.starts_with("own test: "));
    assert!(covered.is_empty(), "no such row: {covered:?}");
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
        let run = FILES.iter().any(|(_, text)| text.contains(&asked_for))
            || walks().any(|(_, snippet)| snippet == name);
        assert!(run, "no test runs `{name}`");
    }
}
