//! The fields `reserve`, `lease`, `cost`, `budget` and `penalty`: with every algorithm, an id, and
//! overlays.
//!
//! What it deliberately does not do: errors and results of each field (`cases/`), or what
//! reservations do (`tests/service/walks/streams.txt`).

use tollgate::rules::file::{LoadedRules, load_overlaid};
use tollgate_limiter::{ALGORITHMS, Allowance, ReserveAmount};

use crate::rules::reading::{APART, bad, found, good, source, words};

#[test]
fn every_algorithm_takes_reserve_or_rejects_it() {
    for algorithm in ALGORITHMS {
        let options = match algorithm.name() {
            "concurrency" => "slot_seconds: 9",
            "sliding_window_segments" => "unit: day, segments: 2",
            "token_bucket_interval" => "unit: day, refill: interval",
            _ => "unit: day",
        };
        let name = match algorithm.name() {
            "token_bucket_interval" => "token_bucket",
            name => name,
        };
        let text = format!(
            "domain: d\ndescriptors:\n  - {{key: k, rate_limit: {{{options}, algorithm: {name}, requests_per_unit: 9, reserve: {{amount: 1}}}}}}\n"
        );
        if algorithm.facts().can_reserve {
            assert!(good(&text).rules.rules()[0].reserve.is_some(), "{name}");
        } else {
            let errors = bad(&text);
            assert!(
                words(&errors[0]).contains(" has no reservations\n"),
                "{name}"
            );
        }
    }
}

#[test]
fn the_last_entry_may_be_the_id() {
    let text = "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: day, requests_per_unit: 9, reserve: {key: id, amount: 3}}\n";
    let rules = good(text).rules;
    assert!(found(&rules, &[("k", "v")]).is_some());
    assert!(found(&rules, &[("k", "v"), ("id", "7")]).is_some());
    assert!(found(&rules, &[("k", "v"), ("other", "7")]).is_none());
    assert!(found(&rules, &[("k", "v"), ("id", "7"), ("id", "7")]).is_none());
}

fn overlaid(limit: &str, entry: &str) -> Result<LoadedRules, String> {
    let rules = format!(
        "domain: d\ndescriptors:\n  - {{key: k, rate_limit: {limit}}}\n  - {{key: l, rate_limit: {limit}}}\n"
    );
    let overlay = source(
        "over.yaml",
        &format!("overlay:\n  - {{domain: d, {entry}}}\n"),
    );
    load_overlaid(&[source("rules.yaml", &rules)], Some(&overlay), APART)
        .map_err(|report| words(&report.errors[0]))
}

#[test]
fn an_overlay_leaves_reservations_that_fit() {
    let limit = "{unit: day, requests_per_unit: 900, cost: 2, reserve: {key: id, amount: 300}}";
    let loaded = overlaid(limit, "requests_per_unit: 300").unwrap();
    let rule = &loaded.rules.rules()[0];
    let reserve = rule.reserve.as_ref().unwrap();
    assert_eq!(reserve.amount, Some(ReserveAmount::Hits(300)));
    assert_eq!(rule.holder_key.as_deref(), Some("id"));
    assert_eq!(rule.cost.to_string(), "2");
    let refused = overlaid(limit, "requests_per_unit: 299").unwrap_err();
    assert_eq!(
        refused,
        "over.yaml: the limit would hold 299, and its reserve.amount is 300
  at over.yaml:2:36, overlay[0], applied to d.k
  help: allow at least 300, or 0 to refuse everything"
    );
    assert!(overlaid(limit, "requests_per_unit: 0").is_ok());
    let refused = overlaid(limit, "algorithm: sliding_log").unwrap_err();
    assert!(refused.starts_with("over.yaml: algorithm sliding_log has no reservations\n  at over.yaml:2:28, overlay[0], applied to d.k\n"), "{refused}");
    let learnt = "{unit: day, requests_per_unit: 900, reserve: {amount: p95, floor: 20}}";
    let loaded = overlaid(learnt, "requests_per_unit: 100").unwrap();
    let amount = loaded.rules.rules()[0].reserve.as_ref().unwrap().amount;
    let Some(ReserveAmount::Learnt(estimate)) = amount else {
        panic!("it is learnt");
    };
    assert_eq!((estimate.floor, estimate.ceiling), (20, 100));
    assert!(overlaid(learnt, "requests_per_unit: 19").is_err());
    let refused = overlaid(limit, "reserve: {amount: 3}").unwrap_err();
    assert!(
        refused.starts_with("over.yaml: the rules reserve otherwise, so more may start at once\n"),
        "{refused}"
    );
}

#[test]
fn an_overlay_may_end_leases_and_needs_permission_to_allow_them() {
    for (limit, set, is_leased) in [
        ("", "false", false),
        (", lease: false", "false", false),
        ("", "true", true),
    ] {
        let limit = format!("{{unit: day, requests_per_unit: 9{limit}}}");
        let loaded = overlaid(&limit, &format!("lease: {set}")).unwrap();
        assert_eq!(loaded.rules.rules()[0].leases, is_leased, "{limit} {set}");
    }
    let limit = "{unit: day, requests_per_unit: 9, lease: false}";
    assert!(!overlaid(limit, "burst: ~").unwrap().rules.rules()[0].leases);
    let refused = overlaid(limit, "lease: true").unwrap_err();
    assert!(
        refused.starts_with("over.yaml: callers could lease hits, which the limit excludes\n"),
        "{refused}"
    );
    let loaded = overlaid(limit, "lease: true, may_raise: true").unwrap();
    assert!(loaded.rules.rules()[0].leases);
}

#[test]
fn an_overlay_changes_all_limits_of_a_budget_or_none() {
    let limit = "{unit: day, requests_per_unit: 900, budget: spend}";
    assert!(overlaid(limit, "requests_per_unit: 300").is_ok());
    for key in ["k", "l"] {
        let entry = format!("path: [{{key: {key}}}], requests_per_unit: 300");
        assert_eq!(
            overlaid(limit, &entry).unwrap_err(),
            format!(
                "over.yaml: the other limits of its budget have another requests_per_unit
  at over.yaml:2:5, overlay[0], applied to d.{key}
  help: let the entry match all limits of the budget, or none"
            )
        );
    }
}

#[test]
fn an_overlay_keeps_a_penalty_and_adds_nothing_that_excludes_one() {
    let limit = "{unit: day, requests_per_unit: 9, penalty: {after: 3, within: 10m, block: 15m}}";
    for set in [
        "requests_per_unit: 5",
        "algorithm: token_bucket",
        "shadow_mode: true",
    ] {
        let loaded = overlaid(limit, &format!("{set}, may_raise: true")).unwrap();
        let Allowance::Limited { limit, .. } = loaded.rules.rules()[0].allowance else {
            panic!("it is limited");
        };
        assert_eq!(limit.penalty().unwrap().block_s, 900, "{set}");
    }
    for (set, name) in [
        ("reserve: {amount: 3}", "reserve"),
        ("charged: afterwards", "charged"),
    ] {
        let refused = overlaid(limit, &format!("{set}, may_raise: true")).unwrap_err();
        let expected = format!("over.yaml: a penalty beside {name}\n");
        assert!(refused.starts_with(&expected), "{refused}");
    }
}
