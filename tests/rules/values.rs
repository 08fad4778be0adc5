//! `values`, `cidr`, `regex` and `ipv6_prefix`: the results, and each error with its position.
//!
//! What it deliberately does not do: test which of several kinds wins (`tests/laws`).

use std::fmt::Write as _;

use tollgate::rules::file::{LIST_ITEMS_MAX, TEXT_BYTES_MAX, load};
use tollgate_limiter::Values;

use crate::reading::{APART, MERGED, bad, found, good, only, source, words};

/// The printed problems of a file with only this descriptor.
fn printed(descriptor: &str) -> String {
    let problems = bad(&format!(
        "domain: d\ndescriptors:\n  - key: k\n    {descriptor}\n"
    ));
    let printed: Vec<_> = problems.iter().map(words).collect();
    printed.join("\n")
}

/// The printed problems of a file with these descriptors.
fn printed_of(descriptors: &[&str]) -> String {
    let lines = descriptors.iter().map(|one| format!("  - {{{one}}}\n"));
    let lines = lines.collect::<Vec<_>>().concat();
    let problems = bad(&format!("domain: d\ndescriptors:\n{lines}"));
    let printed: Vec<_> = problems.iter().map(words).collect();
    printed.join("\n")
}

/// A printed problem: message, position, path and advice.
fn problem(message: &str, at: &str, path: &str, advice: &str) -> String {
    format!("rules.yaml: {message}\n  at rules.yaml:{at}, {path}\n  help: {advice}")
}

#[test]
fn each_kind_is_read() {
    let values = |written: &str| {
        let rule = only(&format!("{written}\n    rate_limit: {{unit: day}}"));
        (*rule.path[0].values).clone()
    };
    assert_eq!(
        values("values: [free, 12, 1.5, 'yes', é]"),
        Values::List(
            ["free", "12", "1.5", "yes", "é"]
                .map(str::to_owned)
                .to_vec()
        )
    );
    assert_eq!(
        values("regex: '[a-z]+'"),
        Values::Regex("[a-z]+".to_owned())
    );
    assert_eq!(values("regex: 12"), Values::Regex("12".to_owned()));
    let Values::Prefixes(prefixes) = values("cidr: [10.0.0.0/8, \"fd00::/8\", 192.168.0.1]") else {
        panic!("prefixes")
    };
    let prefixes: Vec<_> = prefixes
        .iter()
        .map(|prefix| format!("{prefix:#}"))
        .collect();
    assert_eq!(prefixes, ["10.0.0.0/8", "fd00::/8", "192.168.0.1/32"]);
    let one = values("cidr: 10.0.0.0/8");
    assert_eq!(one, values("cidr: [10.0.0.0/8]"));
    assert_eq!(values("cidr: '::ffff:10.0.0.0/104'"), one);
    for nothing in ["value:", "value: ''", "value: ~"] {
        assert_eq!(values(nothing), Values::Any, "{nothing}");
    }
}

#[test]
fn labels_show_the_values_as_written() {
    let label = |written: &str| {
        let rule = only(&format!("{written}\n    rate_limit: {{unit: day}}"));
        rule.full_name()
    };
    assert_eq!(label("values: [free, trial]"), "d.k_free|trial");
    assert_eq!(label("cidr: [10.0.0.0/8, '::1']"), "d.k_10.0.0.0/8|::1");
    assert_eq!(label("regex: 'a|b'"), "d.k_~a|b");
    let many: Vec<_> = (0..999).map(|n| format!("éé{n}")).collect();
    let long = label(&format!("values: [{}]", many.join(", ")));
    assert!(long.len() < 220 && long.ends_with('…'), "{long}");
    assert!(label(&format!("regex: '{}'", "x".repeat(TEXT_BYTES_MAX))).len() < 220);
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
fn an_invalid_prefix_is_rejected_with_advice() {
    for (written, column, path, message, advice) in [
        (
            "cidr: [10.0.0.0/8, 10.0.0.1/8]",
            "4:24",
            "descriptors[0].cidr[1]",
            "'10.0.0.1/8' has bits set beyond its prefix",
            "write 10.0.0.0/8 for the network, or 10.0.0.1/32 for the one address",
        ),
        (
            "cidr: 'fd00::1/8'",
            "4:11",
            "descriptors[0]",
            "'fd00::1/8' has bits set beyond its prefix",
            "write fd00::/8 for the network, or fd00::1/128 for the one address",
        ),
        (
            "cidr: [10.0.0.0/33]",
            "4:12",
            "descriptors[0].cidr[0]",
            "the length of '10.0.0.0/33' is not a whole number from 0 to 32",
            "write a number from 0 to 32 after the `/`",
        ),
        (
            "cidr: ['::/x']",
            "4:12",
            "descriptors[0].cidr[0]",
            "the length of '::/x' is not a whole number from 0 to 128",
            "write a number from 0 to 128 after the `/`",
        ),
        (
            "cidr: [localhost]",
            "4:12",
            "descriptors[0].cidr[0]",
            "'localhost' is not an address prefix",
            "write a prefix such as 10.0.0.0/8 or \"fd00::/8\", or an address",
        ),
        (
            "cidr: [10.0.0.0/8, {a: b}]",
            "4:24",
            "descriptors[0].cidr[1]",
            "an item is not text",
            "write one value",
        ),
    ] {
        assert_eq!(
            printed(written),
            problem(message, column, path, advice),
            "{written}"
        );
    }
    // Every invalid item is reported.
    let all = printed("cidr: [10.0.0.1/8, 10.0.0.0/8, x, 10.0.0.0/99]");
    assert_eq!(all.matches("help").count(), 3, "{all}");
}

#[test]
fn a_field_without_a_value_is_rejected_and_does_not_match_everything() {
    for (written, name, at) in [
        ("values:", "values", "4:5"),
        ("cidr: ~", "cidr", "4:5"),
        ("regex: null", "regex", "4:5"),
        ("value: ''\n    cidr:", "cidr", "5:5"),
    ] {
        assert_eq!(
            printed(written),
            problem(
                &format!("'{name}' has no value"),
                at,
                "descriptors[0]",
                &format!("write a value, or remove `{name}` to match any value")
            )
        );
    }
}

#[test]
fn advice_depends_on_the_invalid_text() {
    assert_eq!(
        printed("cidr: [10.0.0.0/8, '']"),
        problem(
            "an item is empty",
            "4:24",
            "descriptors[0].cidr[1]",
            "remove it, or write a prefix such as 10.0.0.0/8"
        )
    );
    assert_eq!(
        printed("cidr: '::ffff:0:0/95'"),
        problem(
            "'::ffff:0:0/95' is shorter than the 96 bits that map IPv4 addresses into IPv6",
            "4:11",
            "descriptors[0]",
            "write a length from 96 to 128, 0.0.0.0/0 for all of IPv4, or 0.0.0.0/32 for the one address"
        )
    );
    assert_eq!(
        printed(r"regex: 'a\p{L}'"),
        problem(
            r"regex 'a\p{L}': nothing of Unicode can stand there, the value is bytes, at its character 2",
            "4:12",
            "descriptors[0]",
            r"write letters beyond ASCII outside of brackets, as in `(é|è)`, or `[\x80-\xff]+` for any of them; `\w` and `\d` know ASCII only"
        )
    );
    assert!(printed("regex: '[é]'").contains("'[é]': nothing of Unicode can stand there"));
    good("domain: d\ndescriptors: [{key: k, regex: '(é|è)'}]\n");
    good("domain: d\ndescriptors: [{key: k, regex: '[\\x80-\\xff]+'}]\n");
}

#[test]
fn values_that_are_not_lists_are_rejected() {
    let nothing = "descriptors[0]";
    assert_eq!(
        printed("values: []"),
        problem(
            "values is an empty list and would match nothing",
            "4:13",
            nothing,
            "list values, or remove `values` to match any value"
        )
    );
    assert_eq!(
        printed("cidr: []"),
        problem(
            "cidr is an empty list and would match nothing",
            "4:11",
            nothing,
            "list prefixes, or remove `cidr` to match any value"
        )
    );
    assert_eq!(
        printed("values: free"),
        problem(
            "error loading config file: yaml: values is not a list",
            "4:13",
            nothing,
            "write a list: `values: [free, trial]`"
        )
    );
    assert_eq!(
        printed("cidr: {a: b}"),
        problem(
            "error loading config file: yaml: cidr is not a list",
            "4:11",
            nothing,
            "write a list: `cidr: [10.0.0.0/8, \"fd00::/8\"]`"
        )
    );
    assert_eq!(
        printed("values: [free, 'tri*']"),
        problem(
            "a list holds no patterns, but found 'tri*'",
            "4:20",
            "descriptors[0].values[1]",
            "write a descriptor of its own for the pattern, with `value` or `regex`"
        )
    );
    for empty in ["''", "~", "null"] {
        assert_eq!(
            printed(&format!("values: [free, {empty}]")),
            problem(
                "an item is empty",
                "4:20",
                "descriptors[0].values[1]",
                "remove it; a descriptor without a value matches any value, `regex: ^$` an empty one"
            )
        );
    }
    assert_eq!(
        printed("values: [[free]]"),
        problem(
            "an item is not text",
            "4:14",
            "descriptors[0].values[0]",
            "write one value"
        )
    );
}

#[test]
fn duplicates_among_siblings_are_reported_at_each_item() {
    let advice = "remove one of them: a value belongs to one descriptor of a key";
    assert_eq!(
        printed_of(&["key: k, values: [a, b]", "key: k, values: [c, b, a, c]"]),
        [
            ("4:26", 1, "b", advice),
            ("4:29", 2, "a", advice),
            ("4:32", 3, "c", "remove one of them")
        ]
        .map(|(at, item, value, advice)| problem(
            &format!("duplicate '{value}' in values of key 'k'"),
            at,
            &format!("descriptors[1].values[{item}]"),
            advice
        ))
        .join("\n")
    );
    assert_eq!(
        printed_of(&[
            "key: k, cidr: [10.0.0.0/8]",
            "key: k, cidr: '::ffff:10.0.0.0/104'"
        ]),
        problem(
            "duplicate '::ffff:10.0.0.0/104' in cidr of key 'k'",
            "4:20",
            "descriptors[1]",
            advice
        )
    );
    assert_eq!(
        printed_of(&["key: k, cidr: ['::1', '0::1/128']"]),
        problem(
            "duplicate '0::1/128' in cidr of key 'k'",
            "3:28",
            "descriptors[0].cidr[1]",
            advice
        )
    );
    assert_eq!(
        printed_of(&["key: k, regex: a", "key: k, regex: a"]),
        problem(
            "duplicate 'a' in regex of key 'k'",
            "4:21",
            "descriptors[1]",
            advice
        )
    );
    // A value in a list and the same value as `value` are no duplicates: exact comes first. Neither
    // are equal values of another key or level.
    good(
        "domain: d\ndescriptors: [{key: k, value: a}, {key: k, values: [a], descriptors: [{key: k, values: [a]}]}, {key: l, values: [a]}]\n",
    );
    // The files of a merged domain are one level.
    let file = |name| source(name, "domain: d\ndescriptors: [{key: k, values: [a]}]\n");
    let problems = load(&[file("a.yaml"), file("b.yaml")], MERGED)
        .unwrap_err()
        .errors;
    assert_eq!(problems[0].file, "b.yaml");
    assert_eq!((problems.len(), problems[0].span.at.column), (1, 33));
}

#[test]
fn a_descriptor_has_at_most_one_value_matcher() {
    let advice = "keep one of them, and write a second descriptor for the other";
    assert_eq!(
        printed("value: a\n    values: [b]"),
        problem(
            "'value' and 'values' on one descriptor",
            "5:13",
            "descriptors[0]",
            advice
        )
    );
    assert_eq!(
        printed("values: [b]\n    cidr: '::1'\n    regex: x"),
        [
            problem(
                "'values' and 'cidr' on one descriptor",
                "5:11",
                "descriptors[0]",
                advice
            ),
            problem(
                "'values' and 'regex' on one descriptor",
                "6:12",
                "descriptors[0]",
                advice
            ),
        ]
        .join("\n")
    );
}

#[test]
fn a_key_with_a_star_has_no_value_matcher() {
    for (written, name, at) in [
        ("values: [a]", "values", "3:26"),
        ("cidr: '::1'", "cidr", "3:24"),
        ("regex: a", "regex", "3:25"),
    ] {
        assert_eq!(
            printed_of(&[&format!("key: 'x-*', {written}")]),
            problem(
                &format!("'{name}' needs a key without '*', but found key 'x-*'"),
                at,
                "descriptors[0]",
                "write the key in full, or use `value`"
            )
        );
    }
}

#[test]
fn an_unusable_regex_is_rejected_with_the_reason() {
    let mend = "fix the expression; a `\\` before a character makes it stand for itself";
    for (regex, words) in [
        (
            "'a(b'",
            "regex 'a(b' cannot be read: unclosed group, at its character 2",
        ),
        (
            "'[z-a]'",
            "regex '[z-a]' cannot be read: invalid character class range, the start must be <= the end, at its character 2",
        ),
        (
            "'é(?=a)'",
            "regex 'é(?=a)' cannot be read: look-around, including look-ahead and look-behind, is not supported, at its character 2",
        ),
        (
            "'(a)\\1'",
            "regex '(a)\\1' cannot be read: backreferences are not supported, at its character 4",
        ),
    ] {
        assert_eq!(
            printed(&format!("regex: {regex}")),
            problem(words, "4:12", "descriptors[0]", mend)
        );
    }
    assert_eq!(
        printed("regex: 'a(?iu)\\pL'"),
        problem(
            "regex 'a(?iu)\\pL': Unicode is off, the value is bytes, at its character 5",
            "4:12",
            "descriptors[0]",
            "remove `(?u)`; letters beyond ASCII match as their bytes in UTF-8"
        )
    );
    for huge in [
        "((a{1000}){1000}){1000}",
        "a{100000}",
        "(?:[ab]{99}){99}c{99999}",
    ] {
        assert_eq!(
            printed(&format!("regex: '{huge}'")),
            problem(
                &format!("regex '{huge}' is too large once it is compiled"),
                "4:12",
                "descriptors[0]",
                "repeat less, or use several descriptors"
            )
        );
    }
    assert_eq!(
        printed("regex: ''"),
        problem(
            "regex is empty",
            "4:12",
            "descriptors[0]",
            "remove it to match any value, or write `^$` for an empty one"
        )
    );
    assert_eq!(
        printed("regex: [a]").lines().next().unwrap(),
        "rules.yaml: config error, yaml file contains list of type other than map: a"
    );
}

#[test]
fn ipv6_prefix_is_a_number_of_bits_and_needs_addresses() {
    let at = |line: usize| format!("{line}:18");
    for number in ["0", "129", "4294967295"] {
        assert_eq!(
            printed(&format!("ipv6_prefix: {number}")),
            problem(
                &format!("ipv6_prefix must be from 1 to 128, but is {number}"),
                &at(4),
                "descriptors[0]",
                "write 64 for one bucket per network"
            )
        );
    }
    let beside = "remove ipv6_prefix; it needs `cidr`, or no value at all";
    for (written, name) in [
        ("value: a", "value"),
        ("values: [a]", "values"),
        ("regex: a", "regex"),
    ] {
        assert_eq!(
            printed(&format!("{written}\n    ipv6_prefix: 64")),
            problem(
                &format!("ipv6_prefix has no effect beside {name}"),
                &at(5),
                "descriptors[0]",
                beside
            )
        );
    }
    assert_eq!(
        printed("cidr: 10.0.0.0/8\n    ipv6_prefix: 64"),
        problem(
            "ipv6_prefix has no effect: no prefix of cidr is IPv6",
            &at(5),
            "descriptors[0]",
            "remove ipv6_prefix"
        )
    );
    assert_eq!(
        printed("cidr: ['fd00::/16', 'fe80:1::/80']\n    ipv6_prefix: 64"),
        problem(
            "ipv6_prefix 64 is shorter than the prefix fe80:1::/80 of cidr",
            &at(5),
            "descriptors[0]",
            "write 80 or more"
        )
    );
    assert_eq!(
        printed("cidr: ['fd00::/16']\n    ipv6_prefix: 64\n    share_threshold: true"),
        problem(
            "ipv6_prefix has no effect beside share_threshold",
            &at(5),
            "descriptors[0]",
            "remove one of them"
        )
    );
    good(
        "domain: d\ndescriptors: [{key: 'x-*', ipv6_prefix: 1}, {key: k, cidr: ['fd00::/64', 10.0.0.0/8], ipv6_prefix: 64}]\n",
    );
}

#[test]
fn misplaced_value_matchers_are_rejected() {
    for name in ["values", "cidr", "regex", "ipv6_prefix"] {
        let problems = bad(&format!("domain: d\n{name}: 1\n"));
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].message, format!("'{name}' has no effect here"));
    }
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
        problem(
            "the patterns of key 'k' at this level, of which this is the first, are too large together",
            "6:25",
            "descriptors[0].descriptors[1]",
            "use fewer or shorter patterns; `values` and `cidr` may list many values"
        )
    );
    // Very many stars give the same error, in a bounded time.
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    for n in 0..10_000_u64 {
        let noise = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        writeln!(
            text,
            "- {{key: k, value: '{noise:016x}{noise:016x}{noise:016x}*'}}"
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
        problem(
            "each byte of a value would take too many steps in the patterns of key 'k' at this level, of which this is the first",
            "4:19",
            "descriptors[1]",
            "use fewer or shorter patterns; `values` and `cidr` may list many values"
        )
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
