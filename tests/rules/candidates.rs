//! Candidates of single rules: the field, its errors, and the rule set of only the candidates.

use tollgate_limiter::{Allowance, DescriptorPlan, Entry, Hits, Plan, Request};

use crate::reading::{bad, found, good, limit, only, words};
use tollgate::keyed_hash::KeyedHash;

#[test]
fn a_limit_may_have_a_candidate_of_any_algorithm() {
    let rule = only(
        "rate_limit: {unit: minute, requests_per_unit: 100, name: calls, candidate: {algorithm: token_bucket, unit: second, requests_per_unit: 2, burst: 5}}",
    );
    assert_eq!(limit(&rule).unwrap().requests_per_unit(), 100);
    let candidate = rule.candidate.unwrap();
    let Allowance::Limited { limit, algorithm } = candidate.allowance else {
        panic!("it has a limit");
    };
    assert_eq!((limit.requests_per_unit(), limit.burst()), (2, 5));
    assert_eq!(algorithm.name(), "token_bucket");
    let rule = only(
        "rate_limit: {unlimited: true, candidate: {algorithm: concurrency, requests_per_unit: 3, slot_seconds: 9, holder_key: id}}",
    );
    assert_eq!(rule.allowance, Allowance::Unlimited);
    assert_eq!(rule.holder_key, None);
    assert_eq!(
        rule.candidate.unwrap().holder_key.as_deref(),
        Some("id"),
        "a limit can be tried where there is none"
    );
    let rule = only("rate_limit: {unit: day, requests_per_unit: 1, candidate: {unlimited: true}}");
    assert_eq!(rule.candidate.unwrap().allowance, Allowance::Unlimited);
    let rule = only("rate_limit: {unit: day, requests_per_unit: 1, candidate: ~}");
    assert_eq!(rule.candidate, None);
}

#[test]
fn an_invalid_candidate_is_reported_at_its_place() {
    let cases = [
        (
            "{unit: fortnight, requests_per_unit: 1}",
            "rules.yaml: invalid rate limit unit 'fortnight'
  at rules.yaml:5:18, descriptors[0].rate_limit.candidate
  help: use one of second, minute, hour, day, week, month, year",
        ),
        (
            "{unit: day, burst: 3}",
            "rules.yaml: algorithm fixed_window has no burst
  at rules.yaml:5:18, descriptors[0].rate_limit.candidate
  help: remove `burst`, or set ",
        ),
        (
            "{unit: day, candidate: {unit: day}}",
            "rules.yaml: 'candidate' has no effect here
  at rules.yaml:5:18, descriptors[0].rate_limit.candidate
  help: move it into `rate_limit`",
        ),
        (
            "{unit: day, reqests_per_unit: 3}",
            "rules.yaml: config error, unknown key 'reqests_per_unit'
  at rules.yaml:5:18, descriptors[0].rate_limit.candidate
  help: did you mean `requests_per_unit`?",
        ),
        (
            "[{unit: day}]",
            "rules.yaml: error loading config file: yaml: cannot read a list as a mapping
  at rules.yaml:5:18, descriptors[0].rate_limit.candidate",
        ),
    ];
    for (candidate, expected) in cases {
        let text = format!(
            "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{unit: day, requests_per_unit: 1,\n      candidate: {candidate}}}\n"
        );
        let errors = bad(&text);
        assert_eq!(errors.len(), 1, "{text}\n{errors:#?}");
        let found = words(&errors[0]);
        // The column differs from case to case.
        let place = |text: &str| {
            let lines: Vec<_> = text.lines().map(str::to_owned).collect();
            let at = lines[1].split(", ").nth(1).map(str::to_owned);
            (
                lines[0].clone(),
                at,
                lines.get(2).cloned().unwrap_or_default(),
            )
        };
        let (found, expected) = (place(&found), place(expected));
        assert_eq!((&found.0, &found.1), (&expected.0, &expected.1));
        assert!(found.2.starts_with(&expected.2), "{}", found.2);
    }
}

#[test]
fn a_misplaced_candidate_belongs_into_a_limit() {
    for text in [
        "candidate: {}\ndomain: d\n",
        "domain: d\ndescriptors: [{key: k, candidate: {unit: day}}]\n",
    ] {
        let errors = bad(text);
        assert_eq!(errors[0].message, "'candidate' has no effect here");
        assert_eq!(errors[0].help, "move it into `rate_limit`");
    }
}

#[test]
fn two_candidates_of_a_descriptor_cannot_share_a_bucket() {
    let text = "domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: hour, requests_per_unit: 9, candidate: {unit: minute, requests_per_unit: 1}}
      - {unit: day, requests_per_unit: 50, candidate: {unit: minute, requests_per_unit: 2}}
";
    let errors = bad(text);
    assert_eq!(errors.len(), 1);
    assert_eq!(
        errors[0].message,
        "two candidates with the same algorithm, window and name would share one bucket"
    );
    assert_eq!(errors[0].path, "descriptors[0].rate_limits[1].candidate");
}

const TREE: &str = "
domain: d
descriptors:
  - key: plain
    rate_limit: {unit: day, requests_per_unit: 1}
  - key: tried
    shadow_mode: true
    rate_limits:
      - {unit: hour, requests_per_unit: 9, name: hourly, replaces: [{name: other}]}
      - {unit: day, requests_per_unit: 50, name: daily, candidate: {unit: minute, requests_per_unit: 2}}
  - key: other
    rate_limit: {unit: day, requests_per_unit: 1, name: other, candidate: {unit: day, requests_per_unit: 2}}
  - key: keeps
    rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: other}]}
";

#[test]
fn only_candidates_are_limits_of_the_candidate_set() {
    let rules = good(TREE).rules;
    let set = rules.candidates().unwrap();
    assert!(found(&set, &[("plain", "x")]).is_none());
    let tried = found(&set, &[("tried", "x")]).unwrap();
    assert_eq!(limit(tried).unwrap().requests_per_unit(), 2);
    assert_eq!((tried.name.as_str(), tried.shadow_mode), ("daily", true));
    assert_eq!(tried.candidate, None);
    let live = found(&rules, &[("tried", "x")]).unwrap();
    assert_eq!(limit(live).unwrap().requests_per_unit(), 9);
    assert!(set.candidates().is_none());
    let none = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day}}]\n";
    assert!(good(none).rules.candidates().is_none());
}

#[test]
fn what_a_rule_without_a_candidate_replaces_is_replaced_in_the_candidate_set() {
    let set = good(TREE).rules.candidates().unwrap();
    let entry = |key: &'static str| {
        [Entry {
            key: key.as_bytes(),
            value: b"x",
        }]
    };
    for (keys, checks) in [
        (vec!["other"], 1),
        (vec!["tried", "other"], 1),
        (vec!["keeps", "other"], 0),
    ] {
        let mut request = Request::new(b"d");
        for key in &keys {
            request.push_descriptor(entry(key), Hits::Take(1), None);
        }
        let plan = Plan::new(&set, &request, &KeyedHash::with_secret([1; 16]));
        assert_eq!(plan.checks().len(), checks, "{keys:?}");
        assert!(matches!(
            plan.descriptors().last(),
            Some(DescriptorPlan::NoLimit | DescriptorPlan::Checks(_))
        ));
    }
}
