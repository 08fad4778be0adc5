//! Tests of steps that play proxies: what they do, and what a failure shows.

use std::fs;

use super::known_settings;
use crate::rule_tests::{Coverage, LoadFailure, TestFile, TestResult, load, run};

const RULES: &str = "\
domain: edge
descriptors:
  - key: name
    value: api
    rate_limit: {unit: second, requests_per_unit: 300, algorithm: token_bucket, rlqs: true}
    descriptors:
      - key: zone
        rate_limit: {unit: second, requests_per_unit: 100, algorithm: token_bucket, rlqs: true}
  - key: shadow
    shadow_mode: true
    rate_limit: {unit: second, requests_per_unit: 10, algorithm: token_bucket, rlqs: true}
";

/// A file of one test with these steps.
fn file(steps: &str) -> Result<TestFile, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rules.yaml"), RULES).unwrap();
    let halved = RULES.replace("requests_per_unit: 300", "requests_per_unit: 150");
    fs::write(folder.path().join("halved.yaml"), halved).unwrap();
    let gone = RULES.replace("value: api", "value: other");
    fs::write(folder.path().join("gone.yaml"), gone).unwrap();
    let start = "2026-11-23T09:00:00Z";
    let text =
        format!("rules: rules.yaml\ntests:\n  - name: it\n    start: {start}\n    steps:\n{steps}");
    let path = folder.path().join("it.test.yaml");
    fs::write(&path, text).unwrap();
    load(&path, &known_settings()).map_err(|failure| match failure {
        LoadFailure::Read(error) => error.to_string(),
        LoadFailure::Reports { reports, .. } => {
            let reports: Vec<_> = reports.iter().map(|report| report.render(false)).collect();
            reports.join("\n")
        }
    })
}

fn result(steps: &str) -> TestResult {
    let file = file(steps).unwrap_or_else(|error| panic!("{error}"));
    run(&file, &file.tests[0], &mut Coverage::default()).unwrap()
}

#[track_caller]
fn passes(steps: &str) {
    let result = result(steps);
    assert!(result.passed(), "{:#?}", result.failures);
}

/// The differences of steps, as `field: expected, actual`.
fn differences(steps: &str) -> Vec<String> {
    let result = result(steps);
    let all = result.failures.iter().flat_map(|it| &it.differences);
    all.map(|it| format!("{}: {}, {}", it.field, it.expected, it.actual))
        .collect()
}

#[test]
fn demand_moves_proxies_come_and_go_and_the_service_restarts() {
    passes(
        "      - {quota: edge name=api, proxies: {a: 400, b: 50, c: 10}, for: 60s, expect: {passed: {a: 220 to 240, b: 50, c: 10}, total: 280 to 300, highest_total: 0 to 330}}
      - {quota: edge name=api, proxies: {a: 10, b: 50, c: 400}, for: 60s, expect: {passed: {a: 10, b: 50, c: 220 to 240}, highest_total: 0 to 330}}
      - {quota: edge name=api, proxies: {b: 50, c: 400}, for: 60s, expect: {passed: {b: 50, c: 228 to 250}, highest_total: 0 to 330}}
      - {quota: edge name=api, proxies: {b: 50, c: 400, d: 400}, for: 60s, expect: {passed: {b: 50, c: 110 to 125, d: 110 to 125}, highest_total: 0 to 330}}
      - {quota: edge name=api, proxies: {b: 50, c: 400, d: 400}, restart: true, for: 25s, expect: {highest_total: 0 to 330}}
      - {quota: edge name=api, proxies: {b: 50, c: 400, d: 400}, for: 60s, expect: {passed: {b: 50, c: 110 to 125, d: 110 to 125}, highest_total: 0 to 330}}
",
    );
}

#[test]
fn nothing_is_assigned_while_the_service_learns() {
    // Assignments expire within 20 s, and the service assigns again after 22 s.
    passes(
        "      - {quota: edge name=api, proxies: {a: 400}, for: 40s, expect: {total: 200 to 300}}
      - {quota: edge name=api, proxies: {a: 400}, restart: true, for: 20s}
      - {quota: edge name=api, proxies: {a: 400}, for: 1s, expect: {total: 0}}
      - {quota: edge name=api, proxies: {a: 400}, for: 30s, expect: {total: 200 to 300}}
",
    );
}

#[test]
fn shares_are_fair_by_weight() {
    passes(
        "      - quota: edge name=api
        proxies: {a: 400, b: 400}
        weights: {a: 2}
        for: 60s
        expect: {passed: {a: 190 to 200, b: 95 to 100}}
",
    );
}

#[test]
fn proxies_offer_nothing_between_their_steps() {
    let rest = |time: &str| {
        format!(
            "      - {{quota: edge name=api, proxies: {{a: 400, b: 50}}, for: 60s}}
      - after: {time}
      - {{quota: edge name=api, proxies: {{a: 400, b: 50}}, for: 1s, expect: {{total: 0 to 1}}}}
"
        )
    };
    let passed = |time: &str| {
        let result = result(&rest(time));
        let played = result.failures[0].played.as_ref().unwrap();
        played.proxies[0].passed.parse::<f64>().unwrap()
    };
    // An idle proxy keeps its bucket; one that is idle for long begins anew.
    let (soon, later) = (passed("1s"), passed("1h"));
    assert!(soon > later, "{soon} {later}");
    // The same after any longer time.
    assert!((later - passed("30d")).abs() < f64::EPSILON);
}

#[test]
fn an_id_is_that_of_its_rule_in_any_order() {
    passes(
        "      - {quota: 'edge zone=eu,name=api', proxies: {a: 400}, for: 40s, expect: {total: 90 to 100}}
      - {quota: 'edge shadow=x', proxies: {a: 400}, for: 40s, expect: {total: 400, abandoned: false}}
      - {quota: edge name=web, proxies: {a: 5}, for: 1s, expect: {abandoned: true}}
      - {quota: none name=api, proxies: {}, for: 1s, expect: {abandoned: true, total: 0}}
      - {quota: edge name=api, proxies: {a: 0.5}, for: 40s, expect: {total: 0.5}}
      - {quota: edge name=api, proxies: {a: 0}, for: 6m, expect: {abandoned: true}}
",
    );
    let found = differences("      - {quota: edge name=web, proxies: {a: 5}, for: 1s}\n");
    let actual = "true: no rule with `rlqs: true` fits the id";
    assert_eq!(found, [format!("abandoned: false, {actual}")]);
}

#[test]
fn a_reload_changes_the_limit_or_abandons_the_bucket() {
    passes(
        "      - {quota: edge name=api, proxies: {a: 400}, for: 60s, expect: {total: 280 to 300}}
      - reload: halved.yaml
      - {quota: edge name=api, proxies: {a: 400}, for: 60s, expect: {total: 140 to 150}}
      - reload: gone.yaml
      - {quota: edge name=api, proxies: {a: 400}, for: 1s, expect: {abandoned: true, total: 0}}
",
    );
}

#[test]
fn a_request_to_a_quota_gets_the_error_of_the_service() {
    let found = differences("      - {ask: edge name=api}\n");
    assert_eq!(found.len(), 1);
    assert!(
        found[0].starts_with("answer: a decision, an error: ")
            && found[0].contains("rule edge.name_api has rlqs: true"),
        "{found:?}"
    );
}

#[test]
fn a_failure_shows_what_passed_and_is_the_same_each_time() {
    let steps = "      - quota: edge name=api
        proxies: {large: 400, small: 2.5}
        for: 60s
        expect: {passed: {large: 300, small: 2.5}, total: 300 to 310, highest_total: 0, abandoned: true}
";
    let result = result(steps);
    let failure = &result.failures[0];
    assert_eq!(failure.action, "quota edge name=api");
    assert_eq!(failure.time, "2026-11-23T09:01:00Z");
    let fields: Vec<_> = failure.differences.iter().map(|it| &*it.field).collect();
    let expected = ["passed.large", "total", "highest_total", "abandoned"];
    assert_eq!(fields, expected);
    let played = failure.played.as_ref().unwrap();
    assert_eq!(played.proxies[1].name, "small");
    assert_eq!(played.proxies[1].offered, "2.5");
    assert_eq!(played.proxies[1].passed, "2.5");
    assert_eq!(played.total.offered, "402.5");
    assert_eq!(failure.explained.as_ref().unwrap().entries.len(), 1);
    let again = self::result(steps);
    assert_eq!(
        format!("{:?}", again.failures[0].differences),
        format!("{:?}", failure.differences)
    );
    assert_eq!(again.failures[0].played, failure.played);
}

#[test]
fn a_rule_is_reached_by_a_quota() {
    let file = file("      - {quota: edge name=api, proxies: {}, for: 1s}\n").unwrap();
    let mut coverage = Coverage::default();
    run(&file, &file.tests[0], &mut coverage).unwrap();
    assert_eq!((coverage.reached(), coverage.rules()), (1, 3));
    assert_eq!(coverage.unreached()[0].rule, "edge.name_api.zone");
}

#[test]
fn the_time_and_the_number_of_proxies_have_bounds() {
    let error = |steps: &str| file(steps).unwrap_err();
    let long = "      - {quota: edge name=api, proxies: {a: 1, b: 1}, for: 60d}\n";
    assert!(error(long).contains("at most 10000000 seconds of a proxy"));
    let many: Vec<_> = (0..101).map(|at| format!("p{at}: 1")).collect();
    let many = format!(
        "      - {{quota: edge name=api, proxies: {{{}}}, for: 1s}}\n",
        many.join(", ")
    );
    assert!(error(&many).contains("write at most 100 proxies"));
}
