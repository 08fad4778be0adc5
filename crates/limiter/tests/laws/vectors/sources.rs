//! Fingerprints: which checks share a bucket when the store has no memory for one each.
//!
//! What it deliberately does not do: look at buckets (`store` does).

use std::num::NonZeroU32;

use tollgate_limiter::{
    Check, Entry, Hits, Level, Limit, Override, Parent, Plan, Request, Rule, RuleSet, Unit,
};

use tollgate_test_model::fixtures::{TwoHashes, called, limited};

/// Rules with that name for two keys, and so many requests.
fn rules(name: &str, requests: u64) -> RuleSet {
    let mut rules = RuleSet::default();
    rules.add_domain("d");
    for key in ["a", "b"] {
        let level = Level::new(key, "");
        let rule = Rule {
            path: vec![level.clone().into()],
            ..called(name, limited(requests, Unit::Minute))
        };
        let node = rules.add_node(Parent::Domain("d"), level);
        rules.set_rules(node.unwrap(), [rule]);
    }
    rules
}

/// The fingerprint of a check for this key and value, of a rule or of an override.
fn source(rules: &RuleSet, key: &str, value: &str, limit: Option<Limit>) -> u64 {
    let mut request = Request::new(b"d");
    let entry = Entry {
        key: key.as_bytes(),
        value: value.as_bytes(),
    };
    request.push_descriptor([entry], Hits::Take(1), limit.map(Override::Limit));
    let plan = Plan::new(rules, &request, &TwoHashes);
    let checks = plan.checks();
    let [
        Check {
            fingerprint: source,
            shared_bucket: shared,
            ..
        },
    ] = checks[..]
    else {
        panic!("one check");
    };
    assert!(!shared);
    source
}

#[test]
fn a_rule_has_one_value_source_and_sibling_rules_may_differ() {
    let (before, after) = (rules("", 1), rules("", 1_000));
    for key in ["a", "b"] {
        let first = source(&before, key, "x", None);
        assert_eq!(first, source(&before, key, "y", None));
        // A reload that changes the number of requests changes no bucket, and not this one.
        assert_eq!(first, source(&after, key, "x", None));
        assert_ne!(first, source(&rules("other", 1), key, "x", None));
    }
    assert_ne!(
        source(&before, "a", "x", None),
        source(&before, "b", "x", None)
    );
}

#[test]
fn limits_that_come_along_are_of_one_source_when_they_are_the_same() {
    let rules = rules("", 1);
    let per = |requests, unit| Some(Limit::per(requests, unit, NonZeroU32::MIN));
    let of = |key, limit| source(&rules, key, "x", limit);
    let one = of("a", per(5, Unit::Minute));
    assert_eq!(one, of("b", per(5, Unit::Minute)));
    for other in [per(6, Unit::Minute), per(5, Unit::Hour), None] {
        assert_ne!(one, of("a", other));
    }
}
