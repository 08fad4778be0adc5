//! The fields `reserve`, `cost` and `budget`: every error with its message and position, and the
//! results of valid forms.
//!
//! How: rows as in `refused`.
//!
//! What it deliberately does not do: test what reservations do (`tests/service/reservations`).

use std::num::NonZeroU32;

use tollgate::rules::file::{LoadedRules, load, load_overlaid};
use tollgate_limiter::{
    ALGORITHMS, Cost, Estimate, EstimateScope, Expiry, OnExpiry, ReserveAmount, ReserveRule,
};

use crate::reading::{APART, MERGED, bad, found, good, only, source, words};
use crate::refused::refused;

refused! {
    a_reserve_of_an_algorithm_that_stores_each_hit:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, algorithm: sliding_log, reserve: {amount: 3}}
" => "FILE: algorithm sliding_log has no reservations
  at FILE:4:75, descriptors[0].rate_limit
  help: remove `reserve`, or set `algorithm` to one of RESERVING"

    a_reserve_of_slots:
"domain: d
descriptors:
  - key: k
    rate_limit: {algorithm: concurrency, requests_per_unit: 9, slot_seconds: 9, reserve: {amount: 3}}
" => "FILE: algorithm concurrency has no reservations
  at FILE:4:81, descriptors[0].rate_limit
  help: remove `reserve`, or set `algorithm` to one of RESERVING"

    an_amount_that_never_passes:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {amount: 10}}
" => "FILE: amount 10 is more than the limit can ever hold, 9: it would never pass
  at FILE:4:69, descriptors[0].rate_limit.reserve
  help: use at most 9, or raise the limit"

    an_amount_above_the_burst:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, algorithm: token_bucket, burst: 4, reserve: {amount: 5}}
" => "FILE: amount 5 is more than the limit can ever hold, 4: it would never pass
  at FILE:4:104, descriptors[0].rate_limit.reserve
  help: use at most 4, or raise the limit"

    an_amount_of_nothing:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {amount: 0}}
" => "FILE: amount is neither a number of at least 1 nor one of p50 to p99
  at FILE:4:69, descriptors[0].rate_limit.reserve
  help: write the hits to reserve, from 1 to 4294967295, or a percentile such as `p95`"

    a_percentile_below_the_half:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {amount: p49}}
" => "FILE: amount is neither a number of at least 1 nor one of p50 to p99
  at FILE:4:69, descriptors[0].rate_limit.reserve
  help: write the hits to reserve, from 1 to 4294967295, or a percentile such as `p95`"

    an_amount_with_a_fraction:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {amount: 2.5}}
" => "FILE: error checking config
  at FILE:4:69, descriptors[0].rate_limit.reserve
  help: put the value of amount in quotes if it is text, or write a whole number"

    a_floor_of_a_fixed_amount:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {amount: 3, floor: 1}}
" => "FILE: 'floor' has no effect without a learnt amount
  at FILE:4:72, descriptors[0].rate_limit.reserve
  help: remove `floor`, or learn the amount, such as `amount: p95`"

    a_ceiling_and_a_scope_without_an_amount:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {ceiling: 1, per: key}}
" => "FILE: 'ceiling' has no effect without a learnt amount
  at FILE:4:61, descriptors[0].rate_limit.reserve
  help: remove `ceiling`, or learn the amount, such as `amount: p95`
FILE: 'per' has no effect without a learnt amount
  at FILE:4:73, descriptors[0].rate_limit.reserve
  help: remove `per`, or learn the amount, such as `amount: p95`"

    a_floor_above_the_ceiling:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {amount: p95, floor: 5, ceiling: 4}}
" => "FILE: floor 5 is above ceiling 4
  at FILE:4:81, descriptors[0].rate_limit.reserve
  help: lower `floor`, or raise `ceiling`"

    a_floor_that_never_passes:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {amount: p95, floor: 10}}
" => "FILE: floor 10 is more than the limit can ever hold, 9: it would never pass
  at FILE:4:81, descriptors[0].rate_limit.reserve
  help: use at most 9, or raise the limit"

    a_ceiling_of_nothing:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {amount: p95, ceiling: 0}}
" => "FILE: ceiling must be at least 1
  at FILE:4:83, descriptors[0].rate_limit.reserve
  help: write 1 or more"

    a_misspelt_scope:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {amount: p95, per: kye}}
" => "FILE: unknown per 'kye'
  at FILE:4:79, descriptors[0].rate_limit.reserve
  help: did you mean `key`? Possible values: rule, key"

    a_misspelt_expiry:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {amount: 3, on_expiry: relase}}
" => "FILE: unknown on_expiry 'relase'
  at FILE:4:83, descriptors[0].rate_limit.reserve
  help: did you mean `release`? Possible values: charge, release"

    an_expiry_below_a_second:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {amount: 3, expires: 500ms}}
" => "FILE: expires 500ms is not from 1s to 24h
  at FILE:4:81, descriptors[0].rate_limit.reserve
  help: write whole milliseconds from 1s to 24h, longer than the slowest request"

    an_expiry_above_a_day:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {amount: 3, expires: 1d1ms}}
" => "FILE: expires 1d1ms is not from 1s to 24h
  at FILE:4:81, descriptors[0].rate_limit.reserve
  help: write whole milliseconds from 1s to 24h, longer than the slowest request"

    an_expiry_without_a_unit:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {amount: 3, expires: 300}}
" => "FILE: expires is not a duration of at most 100 years
  at FILE:4:81, descriptors[0].rate_limit.reserve
  help: write numbers with units, such as 500ms, 1h30m or 28d"

    an_expiry_in_a_strange_unit:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {amount: 3, expires: 5minutes}}
" => "FILE: expires has the unknown unit 'minutes'
  at FILE:4:81, descriptors[0].rate_limit.reserve
  help: use one of us, ms, s, m, h, d, w; a day is 24 hours"

    a_key_without_an_amount:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {key: id}}
" => "FILE: reserve.key without an amount
  at FILE:4:61, descriptors[0].rate_limit.reserve
  help: add `amount`: a request that starts a reservation does not say how much"

    a_misspelt_amount:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {key: id, ammount: 3}}
" => "FILE: config error, unknown key 'ammount'
  at FILE:4:70, descriptors[0].rate_limit.reserve
  help: did you mean `amount`?"

    a_key_that_reserve_does_not_have:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: {amount: 3, whatever: 3}}
" => "FILE: config error, unknown key 'whatever'
  at FILE:4:72, descriptors[0].rate_limit.reserve
  help: the keys of `reserve` are IN_RESERVE"

    a_reserve_that_is_a_number:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, reserve: 800}
" => "FILE: error loading config file: yaml: cannot read 800 as a mapping
  at FILE:4:60, descriptors[0].rate_limit.reserve
  help: write `key: value` pairs here"

    a_reserve_beside_unlimited:
"domain: d
descriptors:
  - key: k
    rate_limit: {unlimited: true, reserve: {amount: 3}}
" => "FILE: 'reserve' has no effect beside unlimited
  at FILE:4:35, descriptors[0].rate_limit
  help: remove `reserve`, or `unlimited`"

    a_price_beside_unlimited:
"domain: d
descriptors:
  - key: k
    rate_limit: {unlimited: true, cost: 2}
" => "FILE: 'cost' has no effect beside unlimited
  at FILE:4:35, descriptors[0].rate_limit
  help: remove `cost`, or `unlimited`"

    a_reserve_beside_the_limit:
"domain: d
descriptors:
  - key: k
    reserve: {amount: 3}
    rate_limit: {unit: day, requests_per_unit: 9}
" => "FILE: 'reserve' has no effect here
  at FILE:4:5, descriptors[0]
  help: move it into `rate_limit`"

    a_reserve_in_a_candidate:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, candidate: {unit: day, reserve: {amount: 3}}}
" => "FILE: 'reserve' has no effect here
  at FILE:4:74, descriptors[0].rate_limit.candidate
  help: move it into `rate_limit`"

    a_price_in_a_candidate:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, candidate: {unit: day, cost: 3}}
" => "FILE: 'cost' has no effect here
  at FILE:4:74, descriptors[0].rate_limit.candidate
  help: move it into `rate_limit`"

    two_ids_on_one_descriptor:
"domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: day, requests_per_unit: 9, reserve: {key: id, amount: 3}}
      - {unit: hour, requests_per_unit: 9, reserve: {key: other, amount: 3}}
" => "FILE: reserve.key 'other' beside reserve.key 'id' on one descriptor
  at FILE:6:9, descriptors[0].rate_limits[1]
  help: use the same reserve.key in all limits of a descriptor"

    an_id_beside_a_holder_of_slots:
"domain: d
descriptors:
  - key: k
    rate_limits:
      - {algorithm: concurrency, requests_per_unit: 9, slot_seconds: 9, holder_key: holder}
      - {unit: hour, requests_per_unit: 9, reserve: {key: id, amount: 3}}
" => "FILE: reserve.key 'id' beside holder_key 'holder' on one descriptor
  at FILE:6:9, descriptors[0].rate_limits[1]
  help: use the same reserve.key in all limits of a descriptor"

    a_level_below_with_the_key_of_the_id:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: hour, requests_per_unit: 9, reserve: {key: id, amount: 3}}
    descriptors:
      - key: id
        descriptors:
          - key: more
            rate_limit: {unit: hour, requests_per_unit: 9}
" => "FILE: 'id' is the reserve.key of the level above
  at FILE:6:14, descriptors[0].descriptors[0]
  help: use another key here or as reserve.key, or remove this descriptor"

    a_cost_that_is_text:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, cost: free}
" => "FILE: cost is not a decimal number
  at FILE:4:57, descriptors[0].rate_limit
  help: write digits and at most one point, such as `cost: 0.25`"

    a_cost_in_quotes:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, cost: '4.0'}
" => "FILE: cost is not a decimal number
  at FILE:4:57, descriptors[0].rate_limit
  help: write digits and at most one point, such as `cost: 0.25`"

    a_cost_with_an_exponent:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, cost: 1.0e3}
" => "FILE: cost is not a decimal number
  at FILE:4:57, descriptors[0].rate_limit
  help: write digits and at most one point, such as `cost: 0.25`"

    a_cost_with_seven_decimals:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, cost: 0.0000001}
" => "FILE: cost has more than six decimals
  at FILE:4:57, descriptors[0].rate_limit
  help: write at most six decimals; for lower prices multiply costs and limit by a thousand"

    a_cost_of_nothing:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, cost: 0.0}
" => "FILE: cost is out of range
  at FILE:4:57, descriptors[0].rate_limit
  help: write a number from 0.000001 to 1000000"

    a_negative_cost:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, cost: -1}
" => "FILE: cost is out of range
  at FILE:4:57, descriptors[0].rate_limit
  help: write a number from 0.000001 to 1000000"

    a_huge_cost:
"domain: d
descriptors:
  - key: k
    rate_limit: {unit: day, requests_per_unit: 9, cost: 1000000.000001}
" => "FILE: cost is out of range
  at FILE:4:57, descriptors[0].rate_limit
  help: write a number from 0.000001 to 1000000"

    two_limits_of_one_descriptor_and_one_budget:
"domain: d
descriptors:
  - key: k
    rate_limits:
      - {unit: day, requests_per_unit: 9, budget: spend}
      - {unit: hour, requests_per_unit: 9, budget: spend, name: other}
" => "FILE: two limits of one descriptor draw on one budget
  at FILE:6:9, descriptors[0].rate_limits[1]
  help: remove one of them, or name another budget"

    a_budget_with_two_limits:
"domain: d
descriptors:
  - key: user
    descriptors:
      - {key: in, rate_limit: {unit: day, requests_per_unit: 9, budget: spend}}
      - {key: out, rate_limit: {unit: day, requests_per_unit: 8, budget: spend}}
" => "FILE: budget 'spend' has limits with another requests_per_unit, and they share one bucket
  at FILE:6:74, descriptors[0].descriptors[1]
  help: give them the same requests_per_unit, or name another budget; only costs may differ"

    a_budget_with_two_reservations:
"domain: d
descriptors:
  - {key: in, rate_limit: {unit: day, requests_per_unit: 9, budget: spend, reserve: {amount: 2}}}
  - {key: out, rate_limit: {unit: day, requests_per_unit: 9, budget: spend, reserve: {amount: 3}}}
" => "FILE: budget 'spend' has limits with another reserve, and they share one bucket
  at FILE:4:70, descriptors[1]
  help: give them the same reserve, or name another budget; only costs may differ"

    a_candidate_beside_a_budget:
"domain: d
descriptors:
  - {key: in, rate_limit: {unit: day, requests_per_unit: 9, budget: spend, candidate: {unit: hour, requests_per_unit: 9}}}
" => "FILE: a candidate beside a budget
  at FILE:3:76, descriptors[0].rate_limit
  help: remove `candidate`: it would have a bucket of its own for each descriptor; try other rules by `--candidate`"
}

// === results ===

fn limits(fields: &str) -> String {
    format!("rate_limit: {{unit: minute, requests_per_unit: 1000, {fields}}}")
}

fn expiry(after_ms: u32, on_expiry: OnExpiry) -> Expiry {
    let after_ms = NonZeroU32::new(after_ms).unwrap();
    Expiry {
        after_ms,
        on_expiry,
    }
}

#[test]
fn each_field_of_reserve_has_a_default() {
    let learnt = |percent, floor, ceiling, scope| {
        Some(ReserveAmount::Learnt(Estimate {
            percent,
            floor,
            ceiling,
            scope,
        }))
    };
    let hits = |hits| Some(ReserveAmount::Hits(hits));
    let minute = expiry(60_000, OnExpiry::Charge);
    let rule = EstimateScope::Rule;
    for (fields, key, amount, expiry) in [
        ("{}", None, None, minute),
        ("~", None, None, minute),
        ("{amount: 800}", None, hits(800), minute),
        ("{amount: 1000}", None, hits(1_000), minute),
        ("{key: id, amount: 0x10}", Some("id"), hits(16), minute),
        ("{amount: p50}", None, learnt(50, 1, 1_000, rule), minute),
        (
            "{amount: p99, floor: 7, ceiling: 7, per: key}",
            None,
            learnt(99, 7, 7, EstimateScope::Key),
            minute,
        ),
        (
            "{amount: 'p75', per: rule, floor: ~}",
            None,
            learnt(75, 1, 1_000, rule),
            minute,
        ),
        (
            "{key: id, amount: 1, expires: 5m, on_expiry: release}",
            Some("id"),
            hits(1),
            self::expiry(300_000, OnExpiry::Release),
        ),
        (
            "{expires: 1500ms, on_expiry: charge}",
            None,
            None,
            self::expiry(1_500, OnExpiry::Charge),
        ),
        (
            "{expires: 24h}",
            None,
            None,
            self::expiry(86_400_000, OnExpiry::Charge),
        ),
        (
            "{expires: 1s}",
            None,
            None,
            self::expiry(1_000, OnExpiry::Charge),
        ),
    ] {
        let read = only(&limits(&format!("reserve: {fields}")));
        let expected = (fields != "~").then(|| {
            Box::new(ReserveRule {
                key: key.map(str::to_owned),
                amount,
                expiry,
            })
        });
        assert_eq!(read.reserve, expected, "{fields}");
        assert_eq!(read.holder_key.as_deref(), key, "{fields}");
    }
}

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
        if algorithm.can_reserve() {
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

#[test]
fn a_limit_of_nothing_may_reserve() {
    let rule = only("rate_limit: {unit: day, requests_per_unit: 0, reserve: {amount: 3}}");
    assert!(
        rule.reserve.is_some(),
        "it refuses everything, and is meant so"
    );
}

#[test]
fn a_cost_is_read_from_its_digits() {
    for (text, millionths) in [
        ("1", 1_000_000),
        ("4.0", 4_000_000),
        ("0.000001", 1),
        // A float of 64 bits has 0.1 + 2⁻⁵⁷ or so, and no exact 999999.999999.
        ("0.1", 100_000),
        ("999999.999999", 999_999_999_999),
        ("1000000", 1_000_000_000_000),
    ] {
        let rule = only(&limits(&format!("cost: {text}")));
        assert_eq!(rule.cost.as_millionths(), millionths, "{text}");
    }
    assert_eq!(only(&limits("cost: ~")).cost, Cost::default());
}

#[test]
fn limits_of_one_budget_may_differ_in_their_costs() {
    let text = "domain: d
descriptors:
  - key: user
    descriptors:
      - {key: in, rate_limit: {unit: day, requests_per_unit: 9, cost: 0.5, name: in, budget: spend}}
      - {key: out, rate_limit: {unit: day, requests_per_unit: 9, cost: 4, name: out, budget: spend}}
  - key: team
    descriptors:
      - {key: in, rate_limit: {unit: day, requests_per_unit: 500, budget: spend}}
  - key: both
    rate_limits:
      - {unit: day, requests_per_unit: 9, budget: by-day}
      - {unit: hour, requests_per_unit: 3, budget: by-hour}
";
    let rules = good(text).rules;
    let budgets: Vec<_> = rules
        .rules()
        .iter()
        .map(|it| it.budget.as_deref())
        .collect();
    let spend = Some("spend");
    assert_eq!(
        budgets,
        [spend, spend, spend, Some("by-day"), Some("by-hour")]
    );
}

#[test]
fn a_budget_in_two_files_names_both_places() {
    let text = |key, requests| {
        format!(
            "domain: d\ndescriptors:\n  - {{key: {key}, rate_limit: {{unit: day, requests_per_unit: {requests}, budget: b}}}}\n"
        )
    };
    let (one, two) = (
        source("one.yaml", &text("a", 1)),
        source("two.yaml", &text("b", 2)),
    );
    let report = load(&[one, two], MERGED).unwrap_err();
    assert_eq!(
        words(&report.errors[0]),
        "two.yaml: budget 'b' has limits with another requests_per_unit, and they share one bucket
  at two.yaml:3:68, descriptors[0]
  help: give them the same requests_per_unit, or name another budget; only costs may differ"
    );
    let printed = report.to_string();
    assert!(printed.contains("one.yaml:3:68"), "{printed}");
    assert!(printed.contains("the first of them"), "{printed}");
}

// === overlays ===

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
