//! Known names in wrong places.
//!
//! The reference accepts each of its names anywhere but reads it in one place, so a misplaced limit
//! does not apply. tollgate loads such rules too, with a warning. A misplaced name of tollgate is
//! an error.
//!
//! What it deliberately does not do: each warning (`cases/misplaced.yaml`).

use tollgate::rules::file::load;

use crate::rules::reading::{APART, bad, source};

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
        "charged",
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
