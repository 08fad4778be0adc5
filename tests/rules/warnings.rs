//! Warnings: rules that load, and do not do what their author meant.
//!
//! Every warning has a file that has it, with its place and its words, and a file beside it that
//! does not: a warning must always be true. Which levels are reached is held against random
//! descriptors in `tests/laws/matching/shadowed.rs`.
//!
//! What it deliberately does not do: test misplaced names (`misplaced`), or holders and
//! `over_limit` (`limits`).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tollgate::rules::file::{Code, Diagnostic, load};

use crate::reading::{APART, MERGED, good, limit, source};

/// The warnings of a file.
fn warnings(text: &str) -> Vec<Diagnostic> {
    good(text).warnings
}

/// Code, place, path and message of each warning of a file.
fn told(text: &str) -> Vec<String> {
    let warnings = warnings(text).into_iter();
    let told = warnings.map(|one| {
        let (code, at) = (one.code.name(), one.span.at);
        format!("{code} {at} [{}] {}", one.path, one.message)
    });
    told.collect()
}

/// The warnings of a file with these descriptors, in flow style, each on a line of its own.
fn of_descriptors(descriptors: &[&str]) -> Vec<String> {
    let lines = descriptors.join("\n  - ");
    told(&format!("domain: d\ndescriptors:\n  - {lines}\n"))
}

const LIMIT: &str = "rate_limit: {unit: day, requests_per_unit: 5}";

/// A descriptor of key `k` with a limit.
fn limited(fields: &str) -> String {
    format!("{{key: k, {fields}, {LIMIT}}}")
}

#[test]
fn a_limit_without_requests_is_0_and_a_warning() {
    let text = "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: day}\n";
    assert_eq!(
        told(text),
        [
            "missing-requests-per-unit 4:17 [descriptors[0].rate_limit] requests_per_unit is missing, so the limit is 0"
        ]
    );
    assert_eq!(limit(&good(text).rules.rules()[0]).unwrap().requests(), 0);
    for given in [
        "{unit: day, requests_per_unit: }",
        "{algorithm: concurrency, slot_seconds: 5}",
    ] {
        let told = of_descriptors(&[&format!("{{key: k, rate_limit: {given}}}")]);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("missing-requests-per-unit 3:"),
            "{told:?}"
        );
    }
    for given in [
        "{unit: day, requests_per_unit: 0}",
        "{unlimited: true}",
        "{algorithm: concurrency, slot_seconds: 5, requests_per_unit: 1}",
    ] {
        assert_eq!(
            of_descriptors(&[&format!("{{key: k, rate_limit: {given}}}")]),
            [""; 0]
        );
    }
}

#[test]
fn an_alias_of_a_limit_without_requests_is_one_warning() {
    let text = "domain: d\ndescriptors:\n  - {key: a, rate_limit: &day {unit: day}}\n  - {key: b, rate_limit: *day}\n";
    assert_eq!(
        told(text),
        [
            "missing-requests-per-unit 3:26 [descriptors[0].rate_limit] requests_per_unit is missing, so the limit is 0"
        ]
    );
}

#[test]
fn a_key_that_is_set_twice_is_a_warning_that_cites_the_first() {
    let text = "domain: d\ndescriptors:\n  - key: k\n    value: a\n    value: b\n    rate_limit: {unit: day, requests_per_unit: 1}\n";
    let warnings = warnings(text);
    assert_eq!(
        told(text),
        [
            "duplicate-key 5:5 [descriptors[0]] 'value' is set more than once in one mapping; the last one applies"
        ]
    );
    let first = &warnings[0].related[0];
    assert_eq!((first.span.at.line, first.span.at.column), (4, 5));
    assert_eq!(&text[first.span.start..first.span.end], "value");
    assert_eq!(good(text).rules.rules()[0].path[0].label(), "k_b");
    // In metadata too, where any name is allowed.
    let text = limited("metadata: {a: 1, b: {c: 1, c: 2}, a: 2}");
    let told = of_descriptors(&[&text]);
    assert_eq!(told.len(), 2, "{told:?}");
    // What `<<` merges is not set twice.
    let merged = "domain: d\ndescriptors:\n  - &a {key: a, metadata: &m {x: 1}, rate_limit: {unit: day, requests_per_unit: 1}}\n  - {<<: *a, key: b, metadata: {<<: *m, x: 2}}\n";
    assert_eq!(super::warnings::told(merged), [""; 0]);
}

#[test]
fn a_number_that_begins_with_0_is_octal_and_a_warning() {
    let of = |number: &str| {
        of_descriptors(&[&format!(
            "{{key: k, rate_limit: {{unit: day, requests_per_unit: {number}}}}}"
        )])
    };
    assert_eq!(
        of("010"),
        ["octal-number 3:57 [descriptors[0].rate_limit] '010' is an octal number: 8"]
    );
    assert_eq!(of("0_100").len(), 1);
    for same in ["10", "0", "00", "007", "0o10", "0x10", "0b10"] {
        assert_eq!(of(same), [""; 0], "{same}");
    }
    // A text keeps its source, so nothing is octal there.
    assert_eq!(of_descriptors(&[&limited("value: 010")]), [""; 0]);
    let told = of_descriptors(&[&limited("metadata: {version: 010}")]);
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn replaces_that_names_no_limit_of_the_domain_is_a_warning() {
    let file = |domain: &str, name: &str, replaced: &str| {
        format!(
            "domain: {domain}\ndescriptors:\n  - key: k\n    rate_limit: {{unit: day, requests_per_unit: 1, name: {name}, replaces: [{{name: {replaced}}}]}}\n"
        )
    };
    assert_eq!(
        told(&file("d", "a", "b")),
        [
            "unknown-replaced-name 4:71 [descriptors[0]] replaces names 'b', and no limit of domain 'd' has this name"
        ]
    );
    // The name may be in another file of the domain, and in no other domain.
    let load_two = |second: &str| {
        let files = [
            source("1.yaml", &file("d", "a", "b")),
            source("2.yaml", &file(second, "b", "a")),
        ];
        let told = load(&files, MERGED).unwrap().warnings;
        told.into_iter().map(|one| one.file).collect::<Vec<_>>()
    };
    let two = file("d", "b", "a").replace("key: k", "key: l");
    let files = [
        source("1.yaml", &file("d", "a", "b")),
        source("2.yaml", &two),
    ];
    assert_eq!(load(&files, MERGED).unwrap().warnings, []);
    assert_eq!(load_two("e"), ["1.yaml", "2.yaml"]);
}

#[test]
fn a_file_without_descriptors_is_a_warning() {
    for (text, at) in [
        ("domain: d\n", "1:9"),
        ("domain: d\ndescriptors:\n", "2:12"),
        ("domain: d\ndescriptors: []\n", "2:14"),
    ] {
        assert_eq!(
            told(text),
            [format!(
                "no-descriptors {at} [] no descriptors: this file limits nothing in 'd'"
            )]
        );
    }
    // A file may hold the settings of a domain that other files limit.
    let settings = source("1.yaml", "domain: d\nall_or_nothing: true\n");
    let limits = source(
        "2.yaml",
        &format!("domain: d\ndescriptors: [{{key: k, {LIMIT}}}]\n"),
    );
    assert_eq!(
        load(&[settings.clone(), limits], MERGED).unwrap().warnings,
        []
    );
    assert_eq!(load(&[settings], APART).unwrap().warnings.len(), 1);
}

#[test]
fn a_pattern_after_one_that_matches_more_is_a_warning_that_cites_it() {
    let (wide, narrow) = (limited("value: '/api/*'"), limited("value: '/api/v1/*'"));
    assert_eq!(
        of_descriptors(&[&wide, &narrow]),
        [
            "unreachable 4:21 [descriptors[1]] 'k_/api/v1/*' is reached only by its own text, never as a pattern: 'k_/api/*' is written earlier and matches all its values"
        ]
    );
    assert_eq!(of_descriptors(&[&narrow, &wide]), [""; 0]);
    let text = format!("domain: d\ndescriptors:\n  - {wide}\n  - {narrow}\n");
    let warnings = warnings(&text);
    assert_eq!(warnings[0].code, Code::Unreachable);
    let related = &warnings[0].related[0];
    assert_eq!(&text[related.span.start..related.span.end], "'/api/*'");
    assert_eq!(
        warnings[0].help,
        "move it before the other descriptor, or remove it"
    );
}

#[test]
fn levels_that_siblings_take_are_warnings_with_the_reason() {
    for (descriptors, expected) in [
        (
            [limited("value: '*'"), format!("{{key: k, {LIMIT}}}")],
            "unreachable 4:11 [descriptors[1]] 'k' is never reached: 'k_*' has precedence and matches all its values",
        ),
        (
            [limited("regex: '/v1/.*'"), limited("value: '/*'")],
            "unreachable 3:21 [descriptors[0]] 'k_~/v1/.*' is never reached: 'k_/*' has precedence and matches all its values",
        ),
        (
            [limited("values: [free, trial]"), limited("value: trial")],
            "unreachable 3:29 [descriptors[0]] 'trial' of 'k_free|trial' is never reached: 'k_trial' has precedence and matches it",
        ),
        (
            [
                limited("cidr: 0.0.0.0/0"),
                limited("cidr: [0.0.0.0/1, 128.0.0.0/1]"),
            ],
            "unreachable 3:20 [descriptors[0]] 'k_0.0.0.0/0' is never reached: longer prefixes, as in 'k_0.0.0.0/1|128.0.0.0/1', contain all its addresses",
        ),
    ] {
        let descriptors: Vec<_> = descriptors.iter().map(String::as_str).collect();
        assert_eq!(of_descriptors(&descriptors), [expected]);
    }
}

#[test]
fn a_level_in_another_file_of_the_domain_is_cited_with_its_file() {
    let file = |value: &str| format!("domain: d\ndescriptors:\n  - {}\n", limited(value));
    let files = [
        source("1.yaml", &file("value: '*'")),
        source("2.yaml", &file("value: 'a*'")),
    ];
    let warnings = load(&files, MERGED).unwrap().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].file, "2.yaml");
    assert_eq!(warnings[0].related[0].file.as_deref(), Some("1.yaml"));
}

#[test]
fn a_nested_level_is_told_by_its_whole_path() {
    let below =
        "{key: a, descriptors: [{key: k, value: 'x*', LIMIT}, {key: k, value: 'xy*', LIMIT}]}"
            .replace("LIMIT", LIMIT);
    let told = of_descriptors(&[&limited("value: b"), &below]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("[descriptors[1].descriptors[1]]"),
        "{told:?}"
    );
}

#[test]
fn a_descriptor_without_limit_that_changes_nothing_is_a_warning() {
    assert_eq!(
        of_descriptors(&["{key: k}"]),
        [
            "no-limit 3:11 [descriptors[0]] 'k' has no limit and no descriptors, so it changes nothing"
        ]
    );
    assert_eq!(
        of_descriptors(&["{key: k, value: a}", &limited("value: b")]).len(),
        1
    );
    // It lets a value through that others limit.
    let any = format!("{{key: k, {LIMIT}}}");
    for other in [&any, &limited("value: '*'"), &limited("regex: a.*")] {
        let told = of_descriptors(&["{key: k, value: a}", other]);
        assert_eq!(told, [""; 0]);
    }
    let of_any_key = format!("{{key: '*', {LIMIT}}}");
    assert_eq!(
        of_descriptors(&["{key: k, value: a}", &of_any_key]),
        [""; 0]
    );
}

#[test]
fn modes_of_a_descriptor_without_limit_are_warnings() {
    let below = format!("descriptors: [{{key: l, {LIMIT}}}]");
    for (mode, expected) in [
        ("shadow_mode: true", 1),
        ("quota_mode: true", 1),
        ("detailed_metric: true", 1),
        ("metadata: {a: b}", 1),
        ("shadow_mode: false", 0),
        ("value_to_metric: true", 0),
    ] {
        let told = of_descriptors(&[&format!("{{key: k, {mode}, {below}}}")]);
        assert_eq!(told.len(), expected, "{told:?}");
        let name = mode.split(':').next().unwrap();
        let words = format!("{name} has no effect on a descriptor without a limit");
        assert!(told.iter().all(|one| one.ends_with(&words)), "{told:?}");
        assert_eq!(of_descriptors(&[&limited(mode)]), [""; 0]);
    }
}

#[test]
fn fields_that_another_field_makes_useless_are_warnings() {
    for (descriptor, expected) in [
        (
            limited("value: 'a*', share_threshold: true, value_to_metric: true"),
            "no-effect 3:67 [descriptors[0]] value_to_metric has no effect beside share_threshold",
        ),
        (
            "{key: k, rate_limit: {unlimited: true, requests_per_unit: 5}}".to_owned(),
            "no-effect 3:63 [descriptors[0].rate_limit] requests_per_unit has no effect beside unlimited",
        ),
        (
            "{key: k, rate_limit: {unlimited: true, unit: fortnight}}".to_owned(),
            "no-effect 3:50 [descriptors[0].rate_limit] unit has no effect beside unlimited",
        ),
        (
            "{key: k, rate_limit: {unit: day, requests_per_unit: 5, algorithm: token_bucket, refill: interval, burst: 3}}".to_owned(),
            "small-burst 3:110 [descriptors[0].rate_limit] burst 3 is less than requests_per_unit 5: with `refill: interval` no more than the burst is ever available in a window",
        ),
    ] {
        assert_eq!(of_descriptors(&[&descriptor]), [expected]);
    }
    for fine in [
        "refill: interval, burst: 5",
        "refill: continuous, burst: 3",
        "burst: 3",
    ] {
        let told = of_descriptors(&[&format!(
            "{{key: k, rate_limit: {{unit: day, requests_per_unit: 5, algorithm: token_bucket, {fine}}}}}"
        )]);
        assert_eq!(told, [""; 0], "{fine}");
    }
}

#[test]
fn warnings_are_bounded_together() {
    let all: Vec<_> = (0..300).map(|n| format!("{{key: k{n}}}")).collect();
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    assert_eq!(of_descriptors(&all).len(), 100);
}

#[test]
fn the_page_lists_every_warning_that_a_snapshot_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/rules.md")).unwrap();
    let (_, section) = page.split_once("## Warnings of check\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeSet<_> = rows
        .map(|row| row.split('`').next().unwrap().to_owned())
        .collect();
    let snapshots = fs::read_dir(root.join("tests/rules/broken")).unwrap();
    let texts = snapshots
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "txt"))
        .map(|path| fs::read_to_string(path).unwrap());
    let shown: BTreeSet<_> = texts
        .filter_map(|text| {
            let (_, code) = text.split_once("warning[")?;
            Some(code.split(']').next().unwrap().to_owned())
        })
        .collect();
    assert_eq!(listed, shown);
}
