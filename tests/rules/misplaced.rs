//! Known names in wrong places, and several errors in one run.
//!
//! The reference accepts each of its names anywhere but reads it in one place, so a misplaced limit
//! does not apply. tollgate loads such rules too, with a warning. A misplaced name of tollgate is
//! an error.
//!
//! What it deliberately does not do: test unknown names (`refused`).

use tollgate::rules::file::load;
use tollgate_test_support::rules_grammar::with_names;

use crate::reading::{APART, bad, found, good, source, words};

/// The only warning of a file.
fn warned(text: &str) -> String {
    let loaded = good(text);
    assert_eq!(loaded.warnings.len(), 1, "{:?}", loaded.warnings);
    words(&loaded.warnings[0])
}

#[test]
fn a_unit_beside_the_limit_is_ignored_with_a_warning() {
    let text = "domain: d\ndescriptors:\n  - key: k\n    unit: day\n";
    assert_eq!(
        warned(text),
        with_names(
            "rules.yaml: 'unit' has no effect here and is ignored
  at rules.yaml:4:5, descriptors[0]
  help: move it into `rate_limit`"
        )
    );
    assert!(found(&good(text).rules, &[("k", "")]).is_none());
}

#[test]
fn shadow_mode_within_the_limit_is_ignored_with_a_warning() {
    let text = "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: day, shadow_mode: true, requests_per_unit: 1}\n";
    assert!(warned(text).starts_with("rules.yaml: 'shadow_mode' has no effect here and is ignored\n  at rules.yaml:4:29, descriptors[0].rate_limit\n"));
    assert!(!good(text).rules.rules()[0].shadow_mode);
}

#[test]
fn a_misplaced_name_of_the_reference_is_a_warning() {
    for name in [
        "key",
        "value",
        "rate_limit",
        "unit",
        "requests_per_unit",
        "unlimited",
        "shadow_mode",
        "quota_mode",
        "name",
        "replaces",
        "detailed_metric",
        "value_to_metric",
        "share_threshold",
        "metadata",
    ] {
        let said = warned(&format!("domain: d\n{name}: {{key: [{{unit: 5}}]}}\n"));
        assert!(
            said.starts_with(&format!("rules.yaml: '{name}' has no effect here")),
            "{said}"
        );
    }
    for name in ["domain", "descriptors"] {
        let text = format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: day, {name}: 1, requests_per_unit: 1}}}}]\n"
        );
        let said = warned(&text);
        assert!(
            said.starts_with(&format!("rules.yaml: '{name}' has no effect here")),
            "{said}"
        );
    }
}

#[test]
fn misplaced_names_of_tollgate_are_rejected() {
    let root = "AT: 2\ndomain: d\n";
    let descriptor = "domain: d\ndescriptors: [{AT: 2, key: k}]\n";
    let limit = "domain: d\ndescriptors: [{key: k, rate_limit: {AT: 2, unit: day}}]\n";
    let item = "domain: d\ndescriptors: [{key: k, rate_limits: [{AT: 2, unit: day}]}]\n";
    let over_limit = "domain: d\ndescriptors: [{key: k, over_limit: {AT: 2}}]\n";
    let of_a_limit = [
        "unit_multiplier",
        "algorithm",
        "burst",
        "segments",
        "refill",
        "calendar",
        "time_zone",
        "week_start",
        "count_refused",
        "holder_key",
        "slot_seconds",
    ];
    let of_a_limit = of_a_limit.map(|name| (name, vec![root, descriptor, over_limit]));
    let of_others = [
        ("rate_limits", vec![root, limit, item, over_limit]),
        ("over_limit", vec![root, limit, item, over_limit]),
        ("body", vec![root, descriptor, limit, item]),
        ("headers", vec![root, descriptor, limit, item]),
        ("all_or_nothing", vec![descriptor, limit, item, over_limit]),
        (
            "on_store_failure",
            vec![descriptor, limit, item, over_limit],
        ),
    ];
    for (name, texts) in of_a_limit.into_iter().chain(of_others) {
        for text in texts {
            let text = text.replace("AT", name);
            let problems = bad(&text);
            assert_eq!(problems.len(), 1, "{text}");
            assert_eq!(problems[0].message, format!("'{name}' has no effect here"));
            assert!(problems[0].help.starts_with("move it into "));
        }
    }
}

#[test]
fn a_merged_anchor_warns_at_the_anchors_text() {
    let text = "domain: d\ndescriptors:\n  - &a {key: a, unit: day, rate_limit: {unlimited: true}}\n  - {<<: *a, key: b}\n";
    let warnings = good(text).warnings;
    let lines: Vec<_> = warnings
        .iter()
        .map(|warning| warning.span.at.line)
        .collect();
    assert_eq!(lines, [3], "once, however often the anchor is used");
}

#[test]
fn ignored_misplaced_mappings_are_validated_as_in_the_reference() {
    // The reference rejects each of these, so they are errors.
    for (inside, expected) in [
        ("unit: 1.5", "error checking config"),
        ("value: {typo: 1}", "config error, unknown key 'typo'"),
        (
            "value: [1]",
            "config error, yaml file contains list of type other than map: 1",
        ),
    ] {
        let text = format!("domain: d\ndescriptors: [{{key: k, shadow_mode: no, {inside}}}]\n");
        let text = text.replace("value:", "domain:");
        let problems = load(&[source("rules.yaml", &text)], APART)
            .unwrap_err()
            .errors;
        assert_eq!(problems[0].message, expected, "{text}");
    }
    // Free-form metadata is not checked.
    let text = "domain: d\nmetadata: {anything: [1, 1.5]}\n";
    assert!(load(&[source("rules.yaml", text)], APART).is_ok());
}

#[test]
fn every_problem_of_every_file_is_reported_in_one_run_with_its_position() {
    let files = [
        source("a/good.yaml", "domain: good\n"),
        source(
            "a/two.yaml",
            "domain: two\ndescriptors:\n  - key: k\n    rate_limit: {unit: x}\n  - key: k\n    valve: 1\n",
        ),
        source("b.yaml", "domain: [\n"),
        source("c.yaml", "domain: good\ndescriptors: [{}]\n"),
        source(
            "d.yml",
            "descriptors:\n  - key: k\n    rate_limit:\n      unit: 5\n",
        ),
    ];
    let problems = load(&files, APART).unwrap_err().errors;
    let told: Vec<_> = problems
        .iter()
        .map(|problem| {
            format!(
                "{}:{} {} [{}]",
                problem.file, problem.span.at, problem.message, problem.path
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            "a/two.yaml:4:24 invalid rate limit unit 'x' [descriptors[0].rate_limit]",
            "a/two.yaml:5:10 duplicate descriptor composite key 'two.k' [descriptors[1]]",
            "a/two.yaml:6:5 config error, unknown key 'valve' [descriptors[1]]",
            "b.yaml:2:1 error loading config file: yaml: while parsing a node, did not find expected node content []",
            // A duplicate domain hides what is below it, because another domain may be intended.
            "c.yaml:1:9 duplicate domain 'good' in config file []",
            "d.yml:1:1 config file cannot have empty domain []",
            "d.yml:4:13 invalid rate limit unit '5' [descriptors[0].rate_limit]",
        ]
    );
}
