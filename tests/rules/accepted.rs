//! Valid rules files whose texts a case of `cases/` cannot hold, or that PyYAML reads otherwise.
//!
//! What it deliberately does not do: every spelling (`cases/accepted.yaml`).

use tollgate::rules::file::load;

use crate::rules::reading::{APART, found, good, source};

#[test]
fn carriage_returns_and_a_byte_order_mark_are_skipped() {
    let loaded =
        good("\u{feff}domain: d\r\ndescriptors:\r\n  - key: k\r\n    rate_limit: {unit: day}\r\n");
    assert!(found(&loaded.rules, &[("k", "")]).is_some());
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
