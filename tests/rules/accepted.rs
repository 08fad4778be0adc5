//! Valid rules files: the reference's grammar, and YAML 1.1 as the reference's library reads it.
//!
//! Each spelling is compared with its result. A text keeps its source even if it looks like another
//! type; numbers and booleans are read in all the spellings of YAML 1.1.
//!
//! What it deliberately does not do: match requests (`tests/laws`).

use tollgate::rules::file::{Code, load};
use tollgate_limiter::{MetadataValue, Unit};

use crate::reading::{APART, MERGED, found, good, limit, only, read, source, words};

#[test]
fn texts_that_look_like_other_types_keep_their_source() {
    for text in [
        "123",
        "true",
        "yes",
        "0x1F",
        "017",
        "1_000",
        "no",
        "off",
        "2001-12-14",
        "-5",
        "+1",
        "0b1",
        "12:30:45",
        "1.2.3.4",
        "v1.5",
        "a b",
        "=",
        "<",
        "é",
        "🦀",
        "a#b",
        "a:b",
        "*star",
        "9223372036854775807",
        "-9223372036854775808",
    ] {
        // A value may begin with a star only in quotes: without them it is an alias.
        let value = if text.starts_with('*') {
            format!("'{text}'")
        } else {
            text.to_owned()
        };
        let rules = good(&format!(
            "domain: d\ndescriptors: [{{key: k, value: {value}, rate_limit: {{unit: day}}}}]\n"
        ));
        let rule = found(&rules.rules, &[("k", text)]);
        assert_eq!(
            rule.map(|rule| rule.path[0].values.text().to_owned())
                .as_deref(),
            Some(text)
        );
    }
}

#[test]
fn every_text_field_takes_a_number_for_text() {
    let loaded = good(
        "domain: 1\ndescriptors: [{key: 2, value: 3, rate_limit: {unit: day, name: 4, replaces: [{name: 5}]}}]\n",
    );
    let rule = &loaded.rules.rules()[0];
    assert_eq!(
        (rule.full_name().as_str(), rule.name.as_str()),
        ("1.2_3", "4")
    );
    assert_eq!(rule.replaces, ["5"]);
}

#[test]
fn quotes_of_either_kind_and_blocks_are_texts() {
    for (written, value) in [
        ("'1.5'", "1.5"),
        ("\"1e3\"", "1e3"),
        ("\"\\x41\\u00e9\"", "Aé"),
        ("'it''s'", "it's"),
        ("\"\"", ""),
        ("''", ""),
        ("'~'", "~"),
        ("|-\n      two\n      lines", "two\nlines"),
        (">-\n      one\n      line", "one line"),
    ] {
        let rule = only(&format!("value: {written}\n    rate_limit: {{unit: day}}"));
        assert_eq!(rule.path[0].values.text(), value, "{written}");
    }
}

#[test]
fn a_null_or_empty_value_matches_any_value() {
    for nothing in ["", "~", "null", "Null", "NULL", "''"] {
        let rule = only(&format!("value: {nothing}\n    rate_limit: {{unit: day}}"));
        assert_eq!(rule.path[0].values.text(), "", "{nothing}");
    }
}

#[test]
fn booleans_are_spelt_as_in_yaml_1_1() {
    for (spellings, truth) in [
        ("y Y yes Yes YES true True TRUE on On ON", true),
        ("n N no No NO false False FALSE off Off OFF ~ null", false),
    ] {
        for spelling in spellings.split(' ') {
            let rule = only(&format!(
                "shadow_mode: {spelling}\n    rate_limit: {{unit: day}}"
            ));
            assert_eq!(rule.shadow_mode, truth, "{spelling}");
        }
    }
}

#[test]
fn numbers_are_spelt_as_in_yaml_1_1() {
    for (spelling, number) in [
        ("0", 0),
        ("10", 10),
        ("+10", 10),
        ("1_000", 1_000),
        ("0x1F", 31),
        ("0x1f_0", 0x1f0),
        ("0b101", 5),
        ("0o17", 15),
        ("017", 15),
        ("-0", 0),
        ("4294967295", u32::MAX),
        ("0xFFFFFFFF", u32::MAX),
        ("~", 0),
        ("", 0),
    ] {
        let rule = only(&format!(
            "rate_limit:\n      unit: day\n      requests_per_unit: {spelling}"
        ));
        assert_eq!(
            limit(&rule).unwrap().requests_per_unit(),
            number,
            "{spelling}"
        );
    }
}

#[test]
fn units_are_named_in_any_case() {
    for (unit, seconds) in [
        ("second", 1),
        ("Minute", 60),
        ("HOUR", 3_600),
        ("dAy", 86_400),
        ("week", 604_800),
        ("month", 2_592_000),
        ("year", 31_536_000),
    ] {
        let rule = only(&format!(
            "rate_limit: {{unit: {unit}, requests_per_unit: 1}}"
        ));
        assert_eq!(
            limit(&rule).unwrap().window().as_us(),
            seconds * 1_000_000,
            "{unit}"
        );
    }
}

#[test]
fn a_limit_without_a_number_allows_nothing() {
    let rule = only("rate_limit: {unit: second}");
    assert_eq!(limit(&rule).unwrap().requests_per_unit(), 0);
}

#[test]
fn a_null_limit_is_none() {
    for nothing in ["", "~", "null"] {
        let loaded = good(&format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {nothing}}}]\n"
        ));
        assert!(loaded.rules.rules().is_empty(), "{nothing}");
        assert!(loaded.rules.has_domain(b"d"));
    }
}

#[test]
fn unlimited_needs_no_unit_and_ignores_an_invalid_one() {
    for rate_limit in [
        "{unlimited: true}",
        "{unlimited: yes, unit: ''}",
        "{unlimited: true, unit: fortnight}",
        "{unlimited: true, unit: unknown, requests_per_unit: 5}",
        "{unlimited: true, name: n, replaces: [{name: o}]}",
    ] {
        assert_eq!(
            limit(&only(&format!("rate_limit: {rate_limit}"))),
            None,
            "{rate_limit}"
        );
    }
    let rule = only("rate_limit: {unlimited: false, unit: day, requests_per_unit: 5}");
    assert_eq!(limit(&rule).and_then(|limit| limit.unit()), Some(Unit::Day));
}

#[test]
fn empty_lists_of_descriptors_are_legal_everywhere() {
    for text in [
        "domain: d\n",
        "domain: d\ndescriptors:\n",
        "domain: d\ndescriptors: []\n",
        "domain: d\ndescriptors: ~\n",
        "domain: d\ndescriptors: [{key: k, descriptors: []}]\n",
    ] {
        let loaded = good(text);
        assert_eq!(
            (loaded.rules.rules().len(), loaded.rules.domain_count()),
            (0, 1),
            "{text}"
        );
    }
}

#[test]
fn an_alias_expands_to_its_anchor_everywhere() {
    let loaded = good(
        "
domain: &d d
descriptors:
  - key: &k a
    rate_limit: &limit {unit: hour, requests_per_unit: 7}
    descriptors: &below
      - {key: *d, rate_limit: *limit}
  - {key: b, value: *k, rate_limit: *limit, descriptors: *below}
",
    );
    for path in [
        &[("a", "x")][..],
        &[("a", "x"), ("d", "y")],
        &[("b", "a")],
        &[("b", "a"), ("d", "y")],
    ] {
        let rule = found(&loaded.rules, path).unwrap();
        assert_eq!(limit(rule).unwrap().requests_per_unit(), 7, "{path:?}");
    }
}

#[test]
fn merges_add_missing_names_and_explicit_names_win() {
    let loaded = good(
        "
domain: d
descriptors:
  - &one
    key: a
    shadow_mode: true
    rate_limit: &slow {unit: day, requests_per_unit: 1}
  - {<<: *one, key: b}
  - key: c
    rate_limit: {requests_per_unit: 9, <<: *slow}
    <<: *one
  - {<<: [{quota_mode: true, shadow_mode: false}, *one], key: e}
  - {key: f, rate_limit: {<<: {<<: *slow, name: deep}}}
",
    );
    let rule = |key| found(&loaded.rules, &[(key, "x")]).unwrap();
    let per = |key| limit(rule(key)).unwrap().requests_per_unit();
    assert_eq!((rule("b").shadow_mode, per("b")), (true, 1));
    assert_eq!((rule("c").shadow_mode, per("c")), (true, 9));
    assert_eq!(limit(rule("c")).unwrap().unit(), Some(Unit::Day));
    // Among several merged mappings the first wins, as in the reference's library.
    assert_eq!((rule("e").shadow_mode, rule("e").quota_mode), (false, true));
    assert_eq!((rule("f").name.as_str(), per("f")), ("deep", 1));
}

#[test]
fn the_last_value_of_a_duplicate_name_applies() {
    let loaded = good(
        "
domain: other
domain: d
descriptors: [{key: gone}]
descriptors: [{key: k, key: l, rate_limit: {unit: day, unit: hour}}]
",
    );
    assert_eq!(loaded.rules.domains(), ["d"]);
    let rule = found(&loaded.rules, &[("l", "")]).unwrap();
    assert_eq!(limit(rule).unwrap().unit(), Some(Unit::Hour));
}

#[test]
fn only_the_first_document_is_read() {
    let loaded = good("---\ndomain: d\n...\n---\nnonsense: [unread\n");
    assert_eq!(loaded.rules.domains(), ["d"]);
    let loaded = good("%YAML 1.1\n---\ndomain: e\n---\ndomain: f\n");
    assert_eq!(loaded.rules.domains(), ["e"]);
}

#[test]
fn carriage_returns_and_a_byte_order_mark_are_skipped() {
    let loaded =
        good("\u{feff}domain: d\r\ndescriptors:\r\n  - key: k\r\n    rate_limit: {unit: day}\r\n");
    assert!(found(&loaded.rules, &[("k", "")]).is_some());
}

#[test]
fn a_key_may_repeat_with_other_values_and_at_other_levels() {
    let loaded = good(
        "
domain: d
descriptors:
  - {key: k}
  - {key: k, value: v, descriptors: [{key: k}, {key: k, value: v}]}
  - {key: k, value: 'v*'}
  - {key: K}
",
    );
    let warnings = loaded.warnings.iter();
    assert!(
        warnings.clone().all(|one| one.code == Code::NoLimit),
        "{warnings:?}"
    );
}

#[test]
fn metadata_is_free_form() {
    let rule = only(
        "rate_limit: {unit: day}
    metadata:
      text: a
      number: 0x10
      half: 0.5
      truth: yes
      nothing: ~
      quoted: '1'
      list: [1, [a], {unit: fortnight}]
      shadow_mode: {anything: goes, '5': here}
      text: b",
    );
    let text = |text: &str| MetadataValue::Text(text.to_owned());
    let named = |pairs: &[(&str, MetadataValue)]| {
        let pairs = pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()));
        MetadataValue::Map(pairs.collect())
    };
    let list = vec![
        MetadataValue::Number(1.0),
        MetadataValue::List(vec![text("a")]),
        named(&[("unit", text("fortnight"))]),
    ];
    let expected = named(&[
        ("text", text("a")),
        ("number", MetadataValue::Number(16.0)),
        ("half", MetadataValue::Number(0.5)),
        ("truth", MetadataValue::Boolean(true)),
        ("nothing", MetadataValue::Null),
        ("quoted", text("1")),
        ("list", MetadataValue::List(list)),
        (
            "shadow_mode",
            named(&[("anything", text("goes")), ("5", text("here"))]),
        ),
        ("text", text("b")),
    ]);
    assert_eq!(rule.metadata, Some(expected));
}

#[test]
fn metadata_keys_of_any_scalar_type_are_accepted() {
    let rule = only(
        "rate_limit: {unit: day}
    metadata: {1: 2, yes: 3, 0x10: 4, 1.5: 5, ~: 6, 2001-12-14: 7, deep: {5: five, true: {~: 8}}}",
    );
    let Some(MetadataValue::Map(pairs)) = &rule.metadata else {
        panic!("{:?}", rule.metadata)
    };
    let names: Vec<_> = pairs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["1", "yes", "0x10", "1.5", "", "2001-12-14", "deep"]);
    let eight = MetadataValue::Map(vec![(String::new(), MetadataValue::Number(8.0))]);
    let deep = vec![
        ("5".to_owned(), MetadataValue::Text("five".to_owned())),
        ("true".to_owned(), eight),
    ];
    assert_eq!(pairs[6].1, MetadataValue::Map(deep));
    assert_eq!(pairs[0].1, MetadataValue::Number(2.0));
}

#[test]
fn a_pattern_in_the_key_may_share_its_threshold_with_any_value_or_none() {
    for (level, value, other) in [
        ("{key: 'a*', share_threshold: true, ", "v", "w"),
        ("{key: '*', share_threshold: true, ", "v", "w"),
        ("{key: 'a*', value: v, share_threshold: true, ", "v", "v"),
        (
            "{key: 'a*', value: 'v*', share_threshold: true, ",
            "v1",
            "v2",
        ),
    ] {
        let loaded = good(&format!(
            "domain: d\ndescriptors: [{level}rate_limit: {{unit: day}}}}]\n"
        ));
        let buckets = |key, value: &str| {
            let rule = found(&loaded.rules, &[(key, value)]).unwrap();
            format!("{key} {:?}", rule.identity_value(0, value.as_bytes()))
        };
        // The key counts as sent, in the reference too.
        assert_eq!(buckets("ab", value), buckets("ab", other), "{level}");
        assert_ne!(buckets("ab", value), buckets("ac", value), "{level}");
    }
}

/// The reference's library reads a number that fits no type as text. PyYAML, which validates other
/// files against the schema, does not.
#[test]
fn a_number_too_large_for_its_type_is_text() {
    let binary = format!("0b{}", "1".repeat(70));
    for text in [
        binary.as_str(),
        "0xFFFFFFFFFFFFFFFFF",
        "-0X91f17707a18f1100",
        "+0x91f17707a18f1100",
        "1e400",
        "-6_5e400",
        "._5",
        "-.nan",
    ] {
        let file = format!(
            "domain: d\ndescriptors: [{{key: k, value: {text}, rate_limit: {{unit: day}}}}]\n"
        );
        let loaded = load(&[source("a.yaml", &file)], APART).unwrap();
        assert!(found(&loaded.rules, &[("k", text)]).is_some(), "{text}");
        assert!(found(&loaded.rules, &[("k", "other")]).is_none(), "{text}");
    }
}

/// libyaml accepts such tabs. PyYAML, which validates other files against the schema, does not.
#[test]
fn a_tab_may_follow_a_colon() {
    let text = "domain:\td
descriptors:
  - key:\té # a:\tb
    value:\t\tv # \tw
    rate_limit:
      unit:\tday
      name: |
        key:\tv
  - {key:\tl, value: \"a:\tb\", rate_limit: {unit:\tday, name: 'a:\tb'}}
...
[
";
    let loaded = load(&[source("a.yaml", text)], APART).unwrap();
    let rule = found(&loaded.rules, &[("é", "v")]).unwrap();
    assert_eq!(rule.name, "key:\tv\n");
    let rule = found(&loaded.rules, &[("l", "a:\tb")]).unwrap();
    assert_eq!(rule.name, "a:\tb");
    // A problem has its position in the file.
    let text = "domain:\td\ndescriptors:\n  - key:\tk\n   value: v\n";
    let problems = load(&[source("a.yaml", text)], APART).unwrap_err().errors;
    assert_eq!(problems[0].span.at.line, 4, "{}", problems[0]);
}

#[test]
fn files_may_share_a_domain_when_merging_is_enabled() {
    let files = [
        source(
            "a.yaml",
            "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day}}]\n",
        ),
        source(
            "b.yaml",
            "domain: d\ndescriptors: [{key: b, rate_limit: {unit: day}}]\n",
        ),
        source("c.yaml", "domain: e\n"),
    ];
    let loaded = load(&files, MERGED).unwrap();
    assert_eq!(loaded.rules.domains(), ["d", "e"]);
    assert!(found(&loaded.rules, &[("a", "")]).is_some());
    assert!(found(&loaded.rules, &[("b", "")]).is_some());
    assert_eq!(load(&files, APART).unwrap_err().errors.len(), 1);
}

#[test]
fn merging_files_of_a_domain_does_not_merge_descriptors() {
    let below = |child: &str| {
        format!("domain: d\ndescriptors: [{{key: a, descriptors: [{{key: {child}}}]}}]\n")
    };
    let files = [source("a.yaml", &below("x")), source("b.yaml", &below("y"))];
    let problems = load(&files, MERGED).unwrap_err().errors;
    assert_eq!(problems.len(), 1);
    let expected = "b.yaml: duplicate descriptor composite key 'd.a'
  at b.yaml:2:21, descriptors[0]
  help: merge the two descriptors, or give one of them another value";
    assert_eq!(words(&problems[0]), expected);
}

#[test]
fn fields_of_tollgate_combine_with_fields_of_the_reference() {
    let rule = only(
        "rate_limit: {unit: minute, unit_multiplier: 15, requests_per_unit: 10, algorithm: token_bucket, burst: 3}",
    );
    let limit = limit(&rule).unwrap();
    assert_eq!(limit.window().as_us(), 15 * 60 * 1_000_000);
    assert_eq!((limit.requests_per_unit(), limit.burst()), (10, 3));
    assert!(read("domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, algorithm: sliding_window}}]\n").is_ok());
}
