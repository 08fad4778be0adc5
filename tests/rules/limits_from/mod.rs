//! Files of limits by value (`limits_from`): what a line means, and which limit a value gets.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `bad_lines` | errors, each with its line |
//! | `changes` | changes of such files, seen by polling |
//! | `agreement` | a line means what `rate_limit` means, and what it costs in memory |
//!
//! What it deliberately does not do: start a service (`tests/service/limits_from.rs`).

mod agreement;
mod bad_lines;
mod changes;

use std::fmt::Write as _;
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;

use tempfile::TempDir;
use tollgate::rules::file::{LimitFiles, LoadedRules, Options, Report};
use tollgate::rules::path::RulesPath;
use tollgate::rules::reload::{LoadError, load};
use tollgate_limiter::{Allowance, Entry, Limit, Match, Rule, RuleSet, Unit};

/// A rule with a file beside it, and ten a minute for other values.
pub(crate) const RULES: &str = "
domain: d
descriptors:
  - key: tenant
    limits_from: tenants.csv
    rate_limit: {unit: minute, requests_per_unit: 10}
";

pub(crate) fn options() -> Options {
    Options {
        limit_files: Some(LimitFiles::default()),
        ..Options::default()
    }
}

/// A directory with these files.
pub(crate) fn directory(files: &[(&str, &[u8])]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(directory.path().join(name), bytes).unwrap();
    }
    directory
}

/// Loads `rules.yaml` of a directory.
pub(crate) fn read(directory: &Path) -> Result<LoadedRules, Report> {
    match load(&RulesPath::Path(directory.join("rules.yaml")), options()) {
        Ok(rules) => Ok(rules.loaded),
        Err(LoadError::Diagnostics(report)) => Err(report),
        Err(error) => panic!("{error}"),
    }
}

/// The rules with this file of limits.
pub(crate) fn with_table(rules: &str, table: &[u8]) -> Result<LoadedRules, Report> {
    let directory = directory(&[("rules.yaml", rules.as_bytes()), ("tenants.csv", table)]);
    read(directory.path())
}

/// The rule of a value, with its limit; none if no limit applies.
pub(crate) fn of_value(rules: &RuleSet, value: &[u8]) -> Option<Rule> {
    let entries = [Entry {
        key: b"tenant",
        value,
    }];
    match rules.find(b"d", &entries) {
        Match::Rules(matched) => matched.as_applied().into_iter().next(),
        Match::None | Match::UnknownDomain => None,
    }
}

/// The number of requests of a value; none without a limit.
pub(crate) fn requests(rules: &RuleSet, value: &[u8]) -> Option<u64> {
    match of_value(rules, value)?.allowance {
        Allowance::Limited { limit, .. } => Some(limit.requests()),
        Allowance::Unlimited => None,
    }
}

#[test]
fn a_value_in_the_file_has_the_limit_of_its_line_and_others_that_of_the_rule() {
    let table = b"value,unit,requests_per_unit\nacme,second,500\nsmall,minute,3\n";
    let rules = with_table(RULES, table).unwrap().rules;
    assert_eq!(requests(&rules, b"acme"), Some(500));
    assert_eq!(requests(&rules, b"small"), Some(3));
    assert_eq!(requests(&rules, b"other"), Some(10));
    assert_eq!(requests(&rules, b""), Some(10));
}

#[test]
fn lines_have_limits_beyond_32_bits() {
    let table = b"value,unit,requests_per_unit,algorithm,burst\n\
        large,day,9007199254740991,,\nsmall,day,4294967295,,\n\
        burst,day,7,token_bucket,5000000000\nwide,day,4294967296,,\n";
    let rules = with_table(RULES, table).unwrap().rules;
    let limit = |value: &[u8]| match of_value(&rules, value).unwrap().allowance {
        Allowance::Limited { limit, .. } => limit,
        Allowance::Unlimited => panic!("no limit"),
    };
    let per_day = |requests| Limit::per(requests, Unit::Day, NonZeroU32::MIN);
    for (value, requests) in [
        (&b"large"[..], (1 << 53) - 1),
        (b"small", (1 << 32) - 1),
        (b"wide", 1 << 32),
    ] {
        assert_eq!(limit(value), per_day(requests));
    }
    assert_eq!(limit(b"burst"), per_day(7).with_requests(7, 5_000_000_000));
    for number in ["9007199254740992", "18446744073709551616", "-1", "1.5"] {
        let table = format!("value,unit,requests_per_unit\na,day,1\nb,day,{number}\n");
        let report = with_table(RULES, table.as_bytes()).unwrap_err();
        let first = report.errors[0].to_string();
        assert!(first.contains("tenants.csv:3"), "{first}");
    }
}

#[test]
fn without_a_limit_of_the_rule_other_values_have_none() {
    let rules = "domain: d\ndescriptors: [{key: tenant, limits_from: tenants.csv}]\n";
    let loaded = with_table(rules, b"value,unit,requests_per_unit\nacme,second,5\n").unwrap();
    assert_eq!(requests(&loaded.rules, b"acme"), Some(5));
    assert_eq!(of_value(&loaded.rules, b"other"), None);
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}

#[test]
fn values_are_literal_text() {
    let mut table = b"value,unit,requests_per_unit\n".to_vec();
    for (value, requests) in [
        (&b"*"[..], 1),
        (b"a*", 2),
        (b"\"x,\"\"y\"\" z\"", 3),
        (b" spaced ", 4),
        (b"\x01", 5),
        ("é".as_bytes(), 6),
    ] {
        table.extend_from_slice(value);
        table.extend_from_slice(format!(",second,{requests}\r\n").as_bytes());
    }
    let rules = with_table(RULES, &table).unwrap().rules;
    assert_eq!(requests(&rules, b"*"), Some(1));
    assert_eq!(requests(&rules, b"anything"), Some(10), "no pattern");
    assert_eq!(requests(&rules, b"a*"), Some(2));
    assert_eq!(requests(&rules, b"ab"), Some(10), "no pattern");
    assert_eq!(requests(&rules, b"x,\"y\" z"), Some(3));
    assert_eq!(requests(&rules, b" spaced "), Some(4));
    assert_eq!(requests(&rules, b"spaced"), Some(10));
    assert_eq!(requests(&rules, b"\x01"), Some(5));
    assert_eq!(requests(&rules, "é".as_bytes()), Some(6));
}

#[test]
fn json_lines_mean_what_csv_means() {
    let rules = RULES.replace("tenants.csv", "tenants.jsonl");
    let table = "\u{feff}{\"value\": \"acme\", \"unit\": \"second\", \"requests_per_unit\": 500}\r\n\n\
        {\"value\": \"a\\\"b\\u00e9\", \"unlimited\": true}\n\
        {\"value\": \"two\\nlines\", \"unit\": \"hour\", \"requests_per_unit\": 9}\n\
        {\"value\": \"s\", \"unit\": \"DAY\", \"requests_per_unit\": 7, \"calendar\": true, \"shadow_mode\": true}";
    let files = directory(&[
        ("rules.yaml", rules.as_bytes()),
        ("tenants.jsonl", table.as_bytes()),
    ]);
    let rules = read(files.path()).unwrap().rules;
    assert_eq!(requests(&rules, b"acme"), Some(500));
    let unlimited = of_value(&rules, "a\"bé".as_bytes()).unwrap();
    assert_eq!(unlimited.allowance, Allowance::Unlimited);
    assert_eq!(requests(&rules, b"two\nlines"), Some(9));
    let shadowed = of_value(&rules, b"s").unwrap();
    assert!(shadowed.shadow_mode);
    assert!(!of_value(&rules, b"acme").unwrap().shadow_mode);
}

#[test]
fn a_line_keeps_what_the_rule_has_besides_its_limit() {
    let rules = "
domain: d
descriptors:
  - key: tenant
    limits_from: tenants.csv
    shadow_mode: true
    over_limit: {body: no}
    rate_limit: {name: plan, unit: minute, requests_per_unit: 10, cost: 2, replaces: [{name: all}]}
  - key: all
    rate_limit: {name: all, unit: minute, requests_per_unit: 1}
";
    let table = b"value,unit,requests_per_unit,shadow_mode\nacme,second,5,\nloud,second,5,false\n";
    let loaded = with_table(rules, table).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let (acme, loud) = (
        of_value(&loaded.rules, b"acme").unwrap(),
        of_value(&loaded.rules, b"loud").unwrap(),
    );
    assert_eq!((acme.name.as_str(), loud.name.as_str()), ("plan", "plan"));
    assert!(acme.shadow_mode, "the rule's");
    assert!(!loud.shadow_mode, "the line's");
    assert!(acme.over_limit.is_some());
    assert_eq!(acme.cost.to_string(), "2");
    assert_eq!(*acme.replaces, ["all"]);
}

#[test]
fn a_table_is_one_rule_however_many_lines_and_forms_it_has() {
    let mut table = "value,unit,requests_per_unit\n".to_owned();
    for (index, unit) in (0..900).zip(["second", "minute", "hour"].iter().cycle()) {
        writeln!(table, "t{index},{unit},{index}").unwrap();
    }
    let loaded = with_table(RULES, table.as_bytes()).unwrap();
    let rules = &loaded.rules;
    assert_eq!(rules.rules().len(), 4, "the rule and three forms");
    let written: Vec<_> = rules.written_rules().collect();
    assert_eq!(written.len(), 1);
    assert_eq!(written[0].1.unwrap().len(), 900);
    let labels: Vec<_> = rules.rules().iter().map(Rule::labels).collect();
    assert!(labels.iter().all(|label| label == &["tenant"]), "no value");
    for index in 0..900 {
        let value = format!("t{index}");
        assert_eq!(requests(rules, value.as_bytes()), Some(index));
    }
}

#[test]
fn deeper_levels_and_holders_find_the_limit_of_the_level_above() {
    let rules = "
domain: d
descriptors:
  - key: tenant
    limits_from: tenants.csv
    rate_limit: {algorithm: concurrency, requests_per_unit: 1, slot_seconds: 60, holder_key: id}
    descriptors:
      - key: path
        limits_from: tenants.csv
";
    let table = b"value,algorithm,requests_per_unit,slot_seconds\nacme,concurrency,50,9\n/a,concurrency,4,9\n";
    let rules = with_table(rules, table).unwrap().rules;
    let find = |pairs: &[(&str, &str)]| {
        let entries: Vec<_> = pairs
            .iter()
            .map(|(key, value)| Entry {
                key: key.as_bytes(),
                value: value.as_bytes(),
            })
            .collect();
        match rules.find(b"d", &entries) {
            Match::Rules(matched) => matched.as_applied().pop().map(|rule| {
                let Allowance::Limited { limit, .. } = rule.allowance else {
                    panic!("{rule:?}");
                };
                (limit.requests(), matched.entries)
            }),
            _ => None,
        }
    };
    assert_eq!(find(&[("tenant", "acme")]), Some((50, 1)));
    assert_eq!(find(&[("tenant", "acme"), ("id", "7")]), Some((50, 1)));
    assert_eq!(find(&[("tenant", "other"), ("id", "7")]), Some((1, 1)));
    assert_eq!(find(&[("tenant", "acme"), ("path", "/a")]), Some((4, 2)));
    assert_eq!(find(&[("tenant", "other"), ("path", "/a")]), Some((4, 2)));
    assert_eq!(find(&[("tenant", "acme"), ("path", "/b")]), None);
}
