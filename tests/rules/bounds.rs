//! The bounds of one rules file, and the errors when they are exceeded.
//!
//! What it deliberately does not do: measure time (`fuzz`), or test the bound on the number of
//! files (`files`).

use std::fmt::Write as _;

use tollgate::rules::file::{DIAGNOSTICS_MAX, LEVELS_MAX, TEXT_BYTES_MAX, load};

use crate::rules::reading::{APART, bad, found, good, read, source, words};

/// Nested descriptors with `count` levels.
fn levels(count: usize) -> String {
    let mut text = "domain: d\n".to_owned();
    for level in 0..count {
        let indent = "  ".repeat(level);
        writeln!(text, "{indent}descriptors:\n{indent}- key: k").unwrap();
    }
    writeln!(text, "{}rate_limit: {{unit: day}}", "  ".repeat(count)).unwrap();
    text
}

#[test]
fn levels_are_bounded() {
    let loaded = good(&levels(LEVELS_MAX));
    assert!(found(&loaded.rules, &[("k", "v"); LEVELS_MAX]).is_some());
    let problems = bad(&levels(LEVELS_MAX + 1));
    assert_eq!(problems.len(), 1);
    assert_eq!(
        problems[0].message,
        "descriptors nest deeper than 24 levels"
    );
    assert_eq!(problems[0].help, "use fewer levels");
}

#[test]
fn yaml_that_nests_too_deep_is_rejected_at_its_position() {
    let nested = |depth: usize| {
        let (open, shut) = ("[".repeat(depth), "]".repeat(depth));
        format!("domain: d\ndescriptors:\n- key: k\n  metadata: {{a: {open}{shut}}}\n")
    };
    assert!(read(&nested(50)).is_ok());
    for depth in [70, 1_000, 1_000_000] {
        let problems = bad(&nested(depth));
        assert_eq!(problems.len(), 1);
        let problem = &problems[0];
        assert!(
            problem
                .message
                .starts_with("error loading config file: yaml: "),
            "{problem}"
        );
        assert_eq!(problem.span.at.line, 4, "{problem}");
    }
    let block = bad(&format!("{}x\n", "- ".repeat(100_000)));
    assert_eq!(
        block[0].message,
        "error loading config file: yaml: nested deeper than 64 levels"
    );
    assert_eq!((block[0].span.at.line, block[0].span.at.column), (1, 129));
}

#[test]
fn exponential_aliases_are_rejected_once() {
    let mut text =
        "domain: d\ndescriptors:\n- key: k\n  metadata:\n    a0: &a0 [x, x]\n".to_owned();
    for n in 1..50 {
        writeln!(text, "    a{n}: &a{n} [*a{0}, *a{0}]", n - 1).unwrap();
    }
    let problems = bad(&text);
    assert_eq!(problems.len(), 1, "{}", problems[0]);
    assert_eq!(
        problems[0].message,
        "aliases unfold to more than 16 times the file"
    );
    assert_eq!(problems[0].help, "use fewer aliases within aliases");
}

#[test]
fn a_long_text_behind_an_alias_counts_at_each_use() {
    let text = |uses: usize| {
        let long = "x".repeat(15_000);
        let mut text = format!("domain: d\ndescriptors:\n- key: k\n  metadata: &m {{a: {long}}}\n");
        for n in 0..uses {
            writeln!(text, "- {{key: k{n}, metadata: *m}}").unwrap();
        }
        text
    };
    assert!(read(&text(10)).is_ok());
    let problems = bad(&text(1_000));
    assert_eq!(
        problems[0].message,
        "aliases unfold to more than 16 times the file"
    );
}

#[test]
fn aliases_in_usual_numbers_are_far_below_the_bound() {
    let mut text = "domain: d\ndescriptors:\n- &m {key: k, shadow_mode: false, quota_mode: false, detailed_metric: false, value_to_metric: false, rate_limit: &r {unit: minute, requests_per_unit: 100, name: the usual}}\n".to_owned();
    for n in 0..5_000 {
        writeln!(
            text,
            "- {{<<: *m, key: k{n}}}\n- {{key: l{n}, rate_limit: *r}}"
        )
        .unwrap();
    }
    assert_eq!(good(&text).rules.rules().len(), 10_001);
}

#[test]
fn texts_are_bounded() {
    for field in [
        "domain: TEXT",
        "domain: d\ndescriptors: [{key: TEXT}]",
        "domain: d\ndescriptors: [{key: k, value: TEXT}]",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, name: TEXT}}]",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, replaces: [{name: TEXT}]}}]",
        "domain: d\ndescriptors: [{key: k, rate_limit: {algorithm: concurrency, slot_seconds: 1, holder_key: TEXT}}]",
        "domain: d\ndescriptors: [{key: k, over_limit: {body: TEXT}}]",
        "domain: d\ndescriptors: [{key: k, over_limit: {headers: {x-a: TEXT}}}]",
    ] {
        let file = |text: &str| field.replace("TEXT", text) + "\n";
        assert!(read(&file(&"x".repeat(TEXT_BYTES_MAX))).is_ok(), "{field}");
        // Bytes, not characters. A header is ASCII.
        let long = [("x", TEXT_BYTES_MAX + 1), ("é", TEXT_BYTES_MAX / 2 + 1)];
        let kinds = if field.contains("headers") { 1 } else { 2 };
        for (character, count) in &long[..kinds] {
            let problems = bad(&file(&character.repeat(*count)));
            assert_eq!(problems.len(), 1, "{field}");
            assert_eq!(problems[0].message, "a text is longer than 16384 bytes");
        }
    }
}

#[test]
fn no_message_quotes_more_than_a_few_words() {
    let long = "é".repeat(8_000);
    for text in [
        format!("domain: d\n{long}: 1\n"),
        format!("{long}\n"),
        format!("domain: d\ndescriptors: [{long}]\n"),
        format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: {long}}}}}]\n"),
        format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: day, algorithm: {long}}}}}]\n"
        ),
        format!("domain: d\ndescriptors: [{{key: {long}, share_threshold: true}}]\n"),
        format!("domain: d\ndescriptors: [{{key: {long}}}, {{key: {long}}}]\n"),
        format!("domain: d\ndescriptors: [{{{}: 1}}]\n", "1".repeat(900)),
        format!("? [{long}]\n: x\n"),
        format!("domain: !{long}! d\n"),
        format!("domain: *{long}\n"),
        format!(
            "domain: d\ndescriptors: [{{key: k, over_limit: {{headers: {{? {long} : x}}}}}}]\n"
        ),
    ] {
        for problem in bad(&text) {
            let told = words(&problem);
            assert!(told.len() < 800, "{} bytes: {told}", told.len());
        }
    }
}

#[test]
fn the_number_of_reported_problems_and_warnings_is_bounded() {
    for (name, count) in [("nonsense", 150), ("burst", 150)] {
        let text = format!("{name}: 1\n").repeat(count);
        assert_eq!(bad(&format!("domain: d\n{text}")).len(), DIAGNOSTICS_MAX);
    }
    let units: String = (0..150).map(|_| "unit: 1\n").collect();
    assert_eq!(
        good(&format!("domain: d\n{units}")).warnings.len(),
        DIAGNOSTICS_MAX
    );
    // The bound applies to all files together.
    let files: Vec<_> = (0..150).map(|n| source(&format!("{n}.yaml"), "")).collect();
    let problems = load(&files, APART).unwrap_err().errors;
    assert_eq!(
        (problems.len(), problems[99].file.as_str()),
        (DIAGNOSTICS_MAX, "99.yaml")
    );
}
