//! Faults that are planted in converted rules, or in Envoy's actions: a random request shows each
//! of them, in one file at least.

use super::decisions::verdicts;
use super::{Case, Origin, envoy_actions};

#[test]
fn planted_faults_change_a_verdict() {
    let faults = [
        (
            "a higher limit",
            "requests_per_unit: 3",
            "requests_per_unit: 4",
        ),
        ("a longer window", "unit: minute", "unit: hour"),
        (
            "a bucket for each value",
            "share_threshold: true",
            "share_threshold: false",
        ),
        (
            "a general limit stays",
            "replaces: [{ name: ip_1m",
            "replaces: [{ name: ip_9m",
        ),
        (
            "a white list is lost",
            "replaces: [{ name: client_1m",
            "replaces: [{ name: client_9m",
        ),
        (
            "an enforced shadow",
            "shadow_mode: true",
            "shadow_mode: false",
        ),
        ("another value", "value: POST", "value: PUT"),
        (
            "a list without an item",
            "values: [admin, monitor]",
            "values: [monitor]",
        ),
        (
            "a shorter prefix",
            "cidr: [10.0.0.0/24",
            "cidr: [10.0.0.0/30",
        ),
        ("a regex of case", "(?i)/api/values", "/api/values"),
        (
            "a refused hit counts in one limit only",
            ", count_refused: all",
            "",
        ),
        ("a negation is lost", "value: paid", "value: other"),
        (
            "refused hits count",
            "count_refused: none",
            "count_refused: all",
        ),
    ];
    for (fault, from, to) in faults {
        let cases = [Origin::Limitador, Origin::AspNetCore].map(Origin::cases);
        // Until a file shows it: the next ones would only take time.
        let found = cases.iter().flatten().any(|case| {
            let mut all = case.conversion.rules.iter();
            all.any(|converted| {
                let rules = converted.text.replace(from, to);
                rules != converted.text && {
                    let actions = envoy_actions(&rules, &Case::key_sources(&rules));
                    let verdicts = verdicts(case, &rules, &actions, &converted.domain);
                    verdicts.first_difference().is_some()
                }
            })
        });
        assert!(found, "{fault}: not found");
    }
    // Actions without the entry for requests without a header.
    let cases = Origin::AspNetCore.cases();
    let case = cases
        .iter()
        .find(|case| case.name.starts_with("06"))
        .unwrap();
    let rules = &case.conversion.rules[0].text;
    let actions = envoy_actions(rules, &Case::key_sources(rules));
    let without = actions.replace("descriptor_value: anon", "descriptor_value: admin");
    assert_ne!(without, actions);
    assert!(
        verdicts(case, rules, &without, "api")
            .first_difference()
            .is_some()
    );
}
