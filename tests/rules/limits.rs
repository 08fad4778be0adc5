//! The fields of a limit: which algorithms have which, and holders of slots.
//!
//! What it deliberately does not do: errors and results of each field (`cases/`), or what the
//! limits do (`tests/service/limits`).

use tollgate_limiter::{ALGORITHMS, AlgorithmOption, Placeholder};

use crate::rules::reading::{bad, found, good, limit, only};

/// A field, a valid value, and the algorithm option that it sets.
const FIELDS: [(&str, &str, AlgorithmOption); 10] = [
    ("burst", "2", AlgorithmOption::Burst),
    ("segments", "6", AlgorithmOption::Segments),
    ("refill", "interval", AlgorithmOption::Refill),
    ("calendar", "true", AlgorithmOption::Calendar),
    ("time_zone", "UTC", AlgorithmOption::Calendar),
    ("week_start", "sunday", AlgorithmOption::Calendar),
    ("count_refused", "all", AlgorithmOption::CountRefused),
    ("charged", "afterwards", AlgorithmOption::CountRefused),
    ("holder_key", "id", AlgorithmOption::Slots),
    ("slot_seconds", "60", AlgorithmOption::Slots),
];

#[test]
fn each_field_is_accepted_only_with_algorithms_that_have_it() {
    for algorithm in ALGORITHMS {
        let has = |choice| algorithm.facts().options.contains(&choice);
        for (field, value, choice) in FIELDS {
            let mut fields = vec![
                format!("algorithm: {}", algorithm.name()),
                "requests_per_unit: 5".to_owned(),
                format!("{field}: {value}"),
            ];
            let mut needs = |name: &str, value: &str| {
                if field != name {
                    fields.push(format!("{name}: {value}"));
                }
            };
            if has(AlgorithmOption::Slots) {
                needs("slot_seconds", "60");
            } else {
                needs("unit", "week");
            }
            if has(AlgorithmOption::Segments)
                && algorithm
                    .facts()
                    .variant_for(AlgorithmOption::Segments)
                    .is_none()
            {
                needs("segments", "6");
            }
            if has(choice) && choice == AlgorithmOption::Calendar {
                needs("calendar", "true");
            }
            let fields = fields.join(", ");
            let text = format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{fields}}}}}]\n");
            if has(choice) {
                good(&text);
            } else {
                let problems = bad(&text);
                assert_eq!(problems.len(), 1, "{text}");
                let message = format!("algorithm {} has no {field}", algorithm.name());
                assert_eq!(problems[0].message, message, "{text}");
            }
        }
    }
}

#[test]
fn the_last_entry_may_be_the_holder_key_and_needs_no_level() {
    let loaded = good(
        "
domain: d
descriptors:
  - key: route
    rate_limit: {algorithm: concurrency, requests_per_unit: 3, slot_seconds: 5, holder_key: id}
    descriptors:
      - key: user
        rate_limit: {unit: day, requests_per_unit: 7}
",
    );
    let requests = |path: &[(&str, &str)]| {
        let rule = found(&loaded.rules, path)?;
        Some(limit(rule)?.requests())
    };
    assert_eq!(requests(&[("route", "a")]), Some(3));
    assert_eq!(requests(&[("route", "a"), ("id", "7")]), Some(3));
    assert_eq!(requests(&[("route", "a"), ("id", "")]), Some(3));
    assert_eq!(requests(&[("route", "a"), ("user", "b")]), Some(7));
    // Only the last entry may be the holder key.
    assert_eq!(requests(&[("id", "7")]), None);
    assert_eq!(requests(&[("route", "a"), ("id", "7"), ("id", "8")]), None);
    assert_eq!(
        requests(&[("route", "a"), ("user", "b"), ("id", "7")]),
        None
    );
}

#[test]
fn over_limit_fills_the_placeholders_that_it_knows() {
    let rule = only(
        "rate_limit: {unit: day}
    over_limit: {body: '{\"limit\": {limit}, \"in\": \"{window}\", {other} {{limit}} {limit', headers: {x-wait: '{retry_after_seconds}{retry_after_seconds}'}}",
    );
    let filled = |placeholder| match placeholder {
        Placeholder::Limit => "10".to_owned(),
        Placeholder::Window => "1 day".to_owned(),
        Placeholder::RetryAfterSeconds => "7".to_owned(),
    };
    let response = rule.over_limit.unwrap();
    let body = "{\"limit\": 10, \"in\": \"1 day\", {other} {10} {limit";
    assert_eq!(response.body.render(filled), body);
    assert_eq!(response.headers[0].1.render(filled), "77");
}
