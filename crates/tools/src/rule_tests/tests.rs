//! Tests of the runner: what steps do, and what is compared.

mod quotas;

use std::fs;
use std::path::Path;

use super::runner::simulation_within;
use super::{
    Coverage, KnownSettings, LoadFailure, ServiceSettings, TestFile, TestResult, load, run, run_on,
};
use tollgate_engine::pipeline::{Config, Headers};

const RULES: &str = "\
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
    over_limit: {body: 'slow down'}
  - key: bucket
    rate_limit: {unit: minute, requests_per_unit: 60, algorithm: token_bucket, burst: 5}
  - key: slot
    rate_limit: {requests_per_unit: 2, algorithm: concurrency, holder_key: id, slot_seconds: 60}
  - key: day
    rate_limit: {unit: day, requests_per_unit: 1, calendar: true, time_zone: Europe/Berlin}
  - key: free
    rate_limit: {unlimited: true}
  - key: closed
    rate_limit: {unit: day, requests_per_unit: 0}
";

/// Every file of tests has these settings.
pub(super) fn known_settings() -> KnownSettings {
    let read = |_| {
        let headers = Headers {
            ietf: true,
            retry_after: true,
            triples: Vec::new(),
            upstream: None,
        };
        Ok(ServiceSettings {
            config: Config {
                headers: Some(headers),
                ..Config::default()
            },
            merge_domains: false,
            quota_ttl_seconds: 20,
        })
    };
    KnownSettings {
        flags: vec!["response-headers".to_owned()],
        defaults: read(Vec::new()).unwrap(),
        read,
    }
}

/// A file of one test with these steps, in a folder with rules.
fn file(start: &str, steps: &str) -> (tempfile::TempDir, TestFile) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rules.yaml"), RULES).unwrap();
    let more = RULES.replace("requests_per_unit: 3", "requests_per_unit: 5");
    fs::write(folder.path().join("more.yaml"), more).unwrap();
    let text = format!(
        "rules: rules.yaml\nsettings: {{response_headers: [ietf, retry-after]}}\ntests:\n  - name: it\n    start: {start}\n    steps:\n{steps}"
    );
    let file = loaded(folder.path(), &text);
    (folder, file)
}

fn loaded(folder: &Path, text: &str) -> TestFile {
    let path = folder.join("it.test.yaml");
    fs::write(&path, text).unwrap();
    match load(&path, &known_settings()) {
        Ok(file) => file,
        Err(LoadFailure::Read(error)) => panic!("{error}"),
        Err(LoadFailure::Reports { reports, .. }) => {
            let reports: Vec<_> = reports.iter().map(|report| report.render(false)).collect();
            panic!("{}", reports.join("\n"))
        }
    }
}

fn result(start: &str, steps: &str) -> TestResult {
    let (_folder, file) = file(start, steps);
    run(&file, &file.tests[0], &mut Coverage::default()).unwrap()
}

/// Panics unless the steps pass.
#[track_caller]
fn passes(start: &str, steps: &str) {
    let result = result(start, steps);
    assert!(result.passed(), "{:#?}", result.failures);
}

/// The differences of steps, as `field: expected, actual`.
fn differences(start: &str, steps: &str) -> Vec<String> {
    let result = result(start, steps);
    let all = result.failures.iter().flat_map(|it| &it.differences);
    all.map(|it| format!("{}: {}, {}", it.field, it.expected, it.actual))
        .collect()
}

const NOON: &str = "2026-01-01T12:00:10Z";

#[test]
fn requests_pass_until_the_limit_and_again_in_the_next_window() {
    passes(
        NOON,
        "      - ask: edge user=ada
        times: 4
        expect: {admitted: 3, verdict: OVER_LIMIT, remaining: 0, rule: edge.user, retry_after: 50s, reset_after: 50}
      - after: 50s
      - {ask: edge user=ada, expect: {admitted: 1, verdict: OK, remaining: 2, retry_after: 0s}}
",
    );
}

#[test]
fn every_difference_is_found_with_what_the_answer_has() {
    let found = differences(
        NOON,
        "      - ask: edge user=ada
        times: 4
        expect:
          admitted: 4
          verdict: OK
          remaining: 1
          rule: edge.users
          retry_after: never
          reset_after: 1m
          headers: {Retry-After: 51, ratelimit: null, X-Other: a}
          body: hurry up
          descriptors: [{verdict: OK, remaining: 7, rule: none, reset_after: never}]
",
    );
    assert_eq!(
        found,
        [
            "admitted: 4, 3",
            "verdict: OK, OVER_LIMIT",
            "remaining: 1, 0",
            "rule: edge.users, edge.user",
            "reset_after: 60s, 50s",
            "retry_after: never, 50s",
            "headers.ratelimit: no header, \"limit-1\";r=0;t=50",
            "headers.retry-after: 51, 50",
            "headers.x-other: a, no header",
            "body: hurry up, slow down",
            "descriptors[0].verdict: OK, OVER_LIMIT",
            "descriptors[0].remaining: 7, 0",
            "descriptors[0].rule: none, edge.user",
            "descriptors[0].reset_after: never, 50s",
        ]
    );
}

#[test]
fn a_failure_has_its_place_and_the_time_of_the_clock_in_its_zone() {
    let result = result(
        "2026-03-29T01:30:00+01:00[Europe/Berlin]",
        "      - after: 1h
      - ask: edge user=ada
        expect: {verdict: OVER_LIMIT}
",
    );
    let failure = &result.failures[0];
    assert_eq!(failure.step, 2);
    assert_eq!(failure.span.at.line, 8);
    assert_eq!(failure.differences[0].span.at.line, 9);
    assert_eq!(failure.action, "ask edge user=ada");
    assert_eq!(failure.time, "2026-03-29T03:30:00+02:00[Europe/Berlin]");
}

#[test]
fn every_moves_the_clock_between_requests_and_not_after_the_last() {
    // A token a second.
    passes(
        NOON,
        "      - {ask: edge bucket=a, times: 20, every: 500ms, expect: {admitted: 14}}
      - {ask: edge bucket=a, hits: 0, expect: {remaining: 0}}
      # 9.5 s have passed since 12:00:10: 40.5 s are left of the minute.
      - {ask: edge user=ada, expect: {reset_after: 41s}}
",
    );
}

#[test]
fn a_calendar_day_is_23_hours_long_when_clocks_go_forward_and_25_when_they_go_back() {
    for (start, hours) in [
        ("2026-03-29T00:00:00+01:00[Europe/Berlin]", 23),
        ("2026-10-25T00:00:00+02:00[Europe/Berlin]", 25),
    ] {
        passes(
            start,
            &format!(
                "      - {{ask: edge day=a, expect: {{verdict: OK, reset_after: {hours}h}}}}
      - {{after: {}h}}
      - {{ask: edge day=a, expect: {{verdict: OVER_LIMIT, retry_after: 1h}}}}
      - {{after: 1h}}
      - {{ask: edge day=a, expect: {{verdict: OK}}}}
",
                hours - 1
            ),
        );
    }
}

#[test]
fn the_clock_may_go_back() {
    passes(
        NOON,
        "      - {ask: edge user=ada, times: 3, expect: {admitted: 3}}
      - {at: 2026-01-01T11:59:10Z}
      - {ask: edge user=ada, expect: {verdict: OVER_LIMIT}}
",
    );
}

#[test]
fn a_reload_keeps_buckets_and_a_reset_forgets_them() {
    passes(
        NOON,
        "      - {ask: edge user=ada, times: 3, expect: {admitted: 3}}
      - reload: more.yaml
      - {ask: edge user=ada, times: 3, expect: {admitted: 2}}
      - reset: edge user=ada
      - {ask: edge user=ada, expect: {remaining: 4}}
",
    );
    let wrong = differences(NOON, "      - reset: edge nothing=a\n");
    assert_eq!(wrong.len(), 1);
    assert!(wrong[0].contains("no rule with a limit"), "{wrong:?}");
}

#[test]
fn refunds_and_holders_free_what_was_taken() {
    passes(
        NOON,
        "      - {ask: edge user=ada, hits: 3, expect: {remaining: 0}}
      - {refund: edge user=ada, hits: 2}
      - {ask: edge user=ada, hits: 0, expect: {remaining: 2}}
      - {ask: 'edge slot=a,id={n}', times: 3, expect: {admitted: 2}}
      - {refund: 'edge slot=a,id=1'}
      - ask:
          domain: edge
          descriptors: [{entries: [{key: slot, value: a}], holder: {key: id, value: new}}]
        expect: {verdict: OK}
      - after: 60s
      - {ask: 'edge slot=a,id=late', expect: {verdict: OK}}
",
    );
}

#[test]
fn a_long_form_has_hits_and_limits_of_its_descriptors() {
    passes(
        NOON,
        "      - ask:
          domain: edge
          descriptors:
            - {entries: [{key: user, value: ada}], hits: 2}
            - entries: [{key: other, value: '1'}]
              limit: {requests_per_unit: 7, unit: hour}
        expect:
          descriptors: [{remaining: 1, rule: edge.user}, {remaining: 6, rule: a limit of the request}]
",
    );
}

#[test]
fn protobuf_json_is_decoded_as_json_of_the_service_is() {
    passes(
        NOON,
        "      - request: {domain: edge, descriptors: [{entries: [{key: user, value: bob}], hits_addend: 2}]}
        expect: {remaining: 1}
      - request: {\"domain\": \"edge\", \"descriptors\": [{\"entries\": [{\"key\": \"user\", \"value\": \"bob\"}], \"isNegativeHits\": true, \"hitsAddend\": \"2\"}]}
      - {ask: edge user=bob, hits: 0, expect: {remaining: 3}}
",
    );
}

#[test]
fn several_descriptors_and_no_rule_are_said() {
    passes(
        NOON,
        "      - ask: edge user=ada; free=x; nothing=y
        expect:
          rule: edge.user
          descriptors: [{rule: edge.user}, {rule: none, verdict: OK}, {rule: none, remaining: 0}]
      - {ask: edge nothing=y, expect: {rule: none, verdict: OK, no_limit: no_rule}}
      - {ask: edge free=x; nothing=y, expect: {no_limit: unlimited}}
      - {ask: elsewhere user=ada, expect: {rule: none, verdict: OK, no_limit: unknown_domain}}
      - {ask: edge closed=a, expect: {verdict: OVER_LIMIT, retry_after: never}}
",
    );
    let wrong = differences(
        NOON,
        "      - {ask: misspelt user=ada, expect: {verdict: OK}}
      - {ask: edge user=ada, expect: {no_limit: no_rule}}
",
    );
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong[0].contains("no rules have this domain"), "{wrong:?}");
    assert!(wrong[1].contains("a limit applied"), "{wrong:?}");
}

#[test]
fn a_step_without_memory_for_its_bucket_fails() {
    let (_folder, file) = file(
        NOON,
        "      - {ask: 'edge user={n}', times: 5000, hits: 3}\n",
    );
    let mut coverage = Coverage::default();
    let test = &file.tests[0];
    assert!(run(&file, test, &mut coverage).unwrap().passed());
    let simulation = simulation_within(16 << 10, &file, test).unwrap();
    let result = run_on(simulation, &file, test, &mut coverage);
    let difference = &result.failures[0].differences[0];
    assert_eq!(difference.field, "answer");
    assert!(difference.actual.contains("memory"), "{difference:?}");
}

#[test]
fn coverage_counts_rules_that_a_request_matched_and_not_those_of_a_reload() {
    let (_folder, file) = file(
        NOON,
        "      - ask: edge user=ada; free=x
      - reload: more.yaml
      - ask: edge bucket=a
",
    );
    let mut coverage = Coverage::default();
    run(&file, &file.tests[0], &mut coverage).unwrap();
    assert_eq!((coverage.reached(), coverage.rules()), (2, 6));
    let unreached = coverage.unreached();
    assert_eq!(unreached.len(), 4);
    assert_eq!(unreached[0].rule, "edge.bucket");
    assert_eq!(unreached[0].limit, "60 per minute");
}

#[test]
fn a_month_needs_no_time() {
    // 28 days of a request a minute.
    passes(
        "2026-02-01T00:00:00Z",
        "      - {ask: edge user=ada, times: 40320, every: 1m, expect: {admitted: 40320}}
      - {at: 2026-02-28T23:59:00Z}
      - {ask: edge user=ada, expect: {remaining: 1}}
",
    );
}

#[test]
fn an_overlay_is_added_to_the_rules_of_the_file_and_of_a_reload() {
    let (folder, _file) = file(NOON, "      - {ask: edge user=ada}\n");
    let overlay = "overlay: [{domain: edge, path: [{key: user}], algorithm: token_bucket, burst: 2, count_refused: blocking}]\n";
    fs::write(folder.path().join("overlay.yaml"), overlay).unwrap();
    let text = "\
rules: rules.yaml
overlay: overlay.yaml
tests:
  - name: it
    start: 2026-01-01T12:00:10Z
    steps:
      - {ask: edge user=ada, times: 3, expect: {admitted: 2}}
      - reload: more.yaml
      - {ask: edge user=bob, times: 5, expect: {admitted: 2}}
";
    let file = loaded(folder.path(), text);
    let result = run(&file, &file.tests[0], &mut Coverage::default()).unwrap();
    assert!(result.passed(), "{:#?}", result.failures);
}
