//! Candidates of single rules: the rule set of only the candidates.

use tollgate_limiter::{DescriptorPlan, Entry, Hits, Plan, Request};

use crate::rules::reading::{found, good, limit};
use tollgate::keyed_hash::KeyedHash;

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
    assert_eq!(limit(tried).unwrap().requests(), 2);
    assert_eq!((tried.name.as_str(), tried.shadow_mode), ("daily", true));
    assert_eq!(tried.candidate, None);
    let live = found(&rules, &[("tried", "x")]).unwrap();
    assert_eq!(limit(live).unwrap().requests(), 9);
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
