//! `values`, `cidr`, `regex` and `ipv6_prefix`: what matches, and the bounds of lists and patterns.
//!
//! What it deliberately does not do: errors of each field (`cases/`), or which of several kinds
//! wins (`tests/matching`).

use std::fmt::Write as _;

use crate::rules::reading::{APART, bad, found, good, only, source, words};
use tollgate::rules::file::{LIST_ITEMS_MAX, TEXT_BYTES_MAX, load};

/// The printed problems of a file with only this descriptor.
fn printed(descriptor: &str) -> String {
    let problems = bad(&format!(
        "domain: d\ndescriptors:\n  - key: k\n    {descriptor}\n"
    ));
    let printed: Vec<_> = problems.iter().map(words).collect();
    printed.join("\n")
}

#[test]
fn value_matchers_match_and_may_share_a_threshold() {
    let loaded = good(
        "
domain: d
descriptors:
  - {key: plan, values: &plans [free, trial], share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1, name: plans}}
  - {key: other, values: *plans, rate_limit: {unit: day, requests_per_unit: 1, name: other}}
  - {key: ip, cidr: [10.0.0.0/8], share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1, name: ten}}
  - {key: ip, cidr: '::/0', ipv6_prefix: 64, rate_limit: {unit: day, requests_per_unit: 1, name: six}}
  - {key: ip, ipv6_prefix: 48, rate_limit: {unit: day, requests_per_unit: 1, name: any}}
  - {key: path, regex: '/v\\d+/.*', share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1, name: path}}
  - key: path
    value: /x
    descriptors:
      - {key: deep, values: [a], rate_limit: {unit: day, requests_per_unit: 1, name: deep}}
",
    );
    assert!(loaded.warnings.is_empty());
    let name = |path: &[(&str, &str)]| {
        found(&loaded.rules, path)
            .map_or("", |rule| rule.name.as_str())
            .to_owned()
    };
    for (key, value, expected) in [
        ("plan", "trial", "plans"),
        ("plan", "paid", ""),
        ("other", "free", "other"),
        ("ip", "10.9.8.7", "ten"),
        ("ip", "::ffff:10.9.8.7", "ten"),
        ("ip", "2001:db8::1", "six"),
        ("ip", "11.0.0.1", "any"),
        ("ip", "bob", "any"),
        ("path", "/v2/\n", "path"),
        ("path", "x/v2/", ""),
    ] {
        assert_eq!(name(&[(key, value)]), expected, "{key}={value}");
    }
    assert_eq!(name(&[("path", "/x"), ("deep", "a")]), "deep");
}

#[test]
fn a_label_of_many_or_long_values_is_cut() {
    let label =
        |written: &str| only(&format!("{written}\n    rate_limit: {{unit: day}}")).full_name();
    let many: Vec<_> = (0..999).map(|n| format!("éé{n}")).collect();
    let long = label(&format!("values: [{}]", many.join(", ")));
    assert!(long.len() < 220 && long.ends_with('…'), "{long}");
    assert!(label(&format!("regex: '{}'", "x".repeat(TEXT_BYTES_MAX))).len() < 220);
}

#[test]
fn lists_and_their_texts_are_bounded() {
    let list = |count: usize| {
        let items: Vec<_> = (0..count).map(|n| format!("v{n}")).collect();
        let items = items.join(",");
        format!("domain: d\ndescriptors:\n- key: k\n  values: [{items}]\n")
    };
    good(&list(LIST_ITEMS_MAX));
    let problems = bad(&list(LIST_ITEMS_MAX + 1));
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].message, "values has more than 10000 items");
    assert_eq!(
        (problems[0].span.at.line, problems[0].span.at.column),
        (4, 3)
    );

    let long = "x".repeat(TEXT_BYTES_MAX + 1);
    for (written, at) in [
        (format!("values: [a, {long}]"), 17),
        (format!("regex: {long}"), 12),
    ] {
        let problems = bad(&format!(
            "domain: d\ndescriptors:\n  - key: k\n    {written}\n"
        ));
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].message, "a text is longer than 16384 bytes");
        assert_eq!(
            (problems[0].span.at.line, problems[0].span.at.column),
            (4, at)
        );
    }
    // The message about a long text is short.
    let long = "(".repeat(9_000);
    for written in [
        format!("regex: '{long}'"),
        format!("cidr: ['{long}']"),
        format!("values: ['*{long}']"),
        format!("values: ['{long}', '{long}']"),
    ] {
        let printed = printed(&written);
        assert!(printed.len() < 900, "{printed}");
    }
}

#[test]
fn lists_count_toward_the_bound_on_expanded_aliases() {
    let mut text = "domain: d\ndescriptors:\n- key: k\n  values: &v [".to_owned();
    for n in 0..2_000 {
        write!(text, "v{n},").unwrap();
    }
    text.push_str("]\n");
    for n in 0..2_000 {
        writeln!(text, "- {{key: k{n}, values: *v}}").unwrap();
    }
    let problems = bad(&text);
    assert_eq!(problems.len(), 1);
    assert_eq!(
        problems[0].message,
        "aliases unfold to more than 16 times the file"
    );
}

#[test]
fn patterns_too_large_together_are_reported_at_the_first() {
    // Each of these exceeds the bound on DFA states, and has too many NFA states to match without a
    // DFA.
    let text = "domain: d
descriptors:
  - key: a
    descriptors:
      - {key: k, values: [x]}
      - {key: k, regex: 'b+'}
      - {key: k, regex: '(?:a|b)*a(?:a|b){2000}'}
  - {key: l, value: 'l*'}
";
    let problems = bad(text);
    assert_eq!(problems.len(), 1);
    assert_eq!(
        words(&problems[0]),
        "rules.yaml: the patterns of key 'k' at this level, of which this is the first, are too large together
  at rules.yaml:6:25, descriptors[0].descriptors[1]
  help: use fewer or shorter patterns; `values` and `cidr` may list many values"
    );
    // Very many stars give the same error, in a bounded time.
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for n in 0..10_000_u64 {
        let noise = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        writeln!(
            text,
            "- {{key: k, value: '*{noise:016x}{noise:016x}{noise:016x}*'}}"
        )
        .unwrap();
    }
    let problems = bad(&text);
    assert_eq!(problems.len(), 1, "{}", problems[0]);
    assert_eq!(
        (problems[0].span.at.line, problems[0].span.at.column),
        (3, 19)
    );
    // Ten thousand patterns of usual size are accepted.
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for n in 0..10_000 {
        writeln!(
            text,
            "- {{key: k, value: 'tenant-{n}-*', rate_limit: {{unit: day, name: n{n}}}}}"
        )
        .unwrap();
    }
    let loaded = good(&text);
    let rule = found(&loaded.rules, &[("k", "tenant-1234-x")]).unwrap();
    assert_eq!(rule.name, "n1234");
    good(&text.replace("tenant", "*"));
}

#[test]
fn patterns_with_too_many_steps_per_byte_are_reported_at_the_first() {
    // None gets a table; without one each byte may take a step in each of its states.
    let rules = |count: usize| {
        let mut text = "domain: d\ndescriptors:\n- {key: k, values: [x]}\n".to_owned();
        for n in 0..count {
            writeln!(
                text,
                "- {{key: k, regex: '(?:a|b)*a(?:a|b){{180}}c{{{n}}}'}}"
            )
            .unwrap();
        }
        text
    };
    good(&rules(3));
    let problems = bad(&rules(24));
    assert_eq!(problems.len(), 1);
    assert_eq!(
        words(&problems[0]),
        "rules.yaml: each byte of a value would take too many steps in the patterns of key 'k' at this level, of which this is the first
  at rules.yaml:4:19, descriptors[1]
  help: use fewer or shorter patterns; `values` and `cidr` may list many values"
    );
    // Stars are matched in one pass, however many there are.
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for n in 0..5_000 {
        writeln!(
            text,
            "- {{key: k, value: '*v{n}.*x*', rate_limit: {{unit: day, name: n{n}}}}}"
        )
        .unwrap();
    }
    let loaded = good(&text);
    let rule = found(&loaded.rules, &[("k", "x/v4321./x")]).unwrap();
    assert_eq!(rule.name, "n4321");
}

#[test]
fn patterns_of_all_files_together_are_bounded() {
    // No pattern fits a table, and the memory for patterns without a table runs out.
    let file = |name: &str, key: &str| {
        let mut text = format!("domain: {name}\ndescriptors:\n");
        for n in 0..20 {
            writeln!(
                text,
                "- {{key: {key}{n}, regex: '(?:a|b)*a(?:a|b){{18}}c{{{n}}}'}}"
            )
            .unwrap();
        }
        source(&format!("{name}.yaml"), &text)
    };
    assert!(load(&[file("a", "k")], APART).is_ok());
    // The same expressions again cost nothing.
    assert!(load(&[file("a", "k"), file("b", "l")], APART).is_ok());
    let other = source("b.yaml", &file("b", "l").text.replace("}c{", "}d{"));
    let problems = load(&[file("a", "k"), other], APART).unwrap_err().errors;
    assert!(
        problems[0]
            .message
            .starts_with("all patterns together are too large; shorten those of key 'l"),
        "{}",
        problems[0]
    );
    assert_eq!(problems[0].file, "b.yaml");
}
