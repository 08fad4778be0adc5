//! What `convert` prints, compared with the files beside its input: `NAME.rules.yaml`,
//! `NAME.envoy.yaml` and `NAME.stderr.txt`. `WRITE_SNAPSHOTS=1` writes them; read them as a
//! newcomer.

use std::fmt::Write as _;

use tollgate::convert::envoy_actions::KeySources;

use super::{Case, Origin, envoy_actions, loaded};
use crate::rules::snapshots::{Differences, folder};

fn outputs(case: &Case) -> Vec<(&'static str, String)> {
    let mut rules = String::new();
    let mut envoy = String::new();
    for (index, converted) in case.conversion.rules.iter().enumerate() {
        if index > 0 {
            rules.push_str("---\n");
            envoy.push_str("---\n");
        }
        rules.push_str(&converted.text);
        let sources = Case::key_sources(&converted.text);
        envoy.push_str(&envoy_actions(&converted.text, &sources));
    }
    let mut stderr = String::new();
    for finding in &case.conversion.findings {
        writeln!(stderr, "{finding}").unwrap();
    }
    let exit = if case.conversion.is_complete() { 0 } else { 6 };
    writeln!(stderr, "exit code {exit}").unwrap();
    vec![
        ("rules.yaml", rules),
        ("envoy.yaml", envoy),
        ("stderr.txt", stderr),
    ]
}

#[test]
fn every_file_is_converted_as_its_snapshots_say() {
    let mut differences = Differences::default();
    for origin in [Origin::Limitador, Origin::AspNetCore] {
        let cases = origin.cases();
        assert!(cases.len() >= 30, "{} files of {origin:?}", cases.len());
        for case in cases {
            for (kind, printed) in outputs(&case) {
                differences.compare(&case.path.with_extension(kind), &printed);
            }
        }
    }
    differences.assert_none();
}

#[test]
fn the_actions_of_every_kind_of_key_are_as_the_snapshot_says() {
    let folder = folder("convert/actions");
    let rules = std::fs::read_to_string(folder.join("every_key.yaml")).unwrap();
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let sources = KeySources {
        headers: vec![pair("user", "x-login")],
        absent: vec![pair("user", "nobody"), pair("Tenant ID", "none")],
    };
    let mut differences = Differences::default();
    let printed = envoy_actions(&rules, &sources);
    differences.compare(&folder.join("every_key.envoy.yaml"), &printed);
    differences.assert_none();
}

#[test]
fn more_descriptors_than_the_default_bound_are_pointed_out() {
    let keys = |count: usize| {
        let level = |number| {
            format!("  - {{ key: k{number}, rate_limit: {{ unit: day, requests_per_unit: 1 }} }}")
        };
        let levels: Vec<_> = (0..count).map(level).collect();
        let rules = format!("domain: d\ndescriptors:\n{}\n", levels.join("\n"));
        envoy_actions(&rules, &KeySources::default())
    };
    assert!(!keys(512).contains("--descriptors-max"));
    assert!(keys(513).contains("# 513 descriptors a request: set --descriptors-max"));
}

#[test]
fn converted_rules_load_without_a_warning_and_twice_the_same() {
    for origin in [Origin::Limitador, Origin::AspNetCore] {
        for case in origin.cases() {
            for converted in &case.conversion.rules {
                let warnings = loaded(&converted.text).warnings;
                assert!(
                    warnings.is_empty(),
                    "{}: {warnings:?}\n{}",
                    case.name,
                    converted.text
                );
            }
            let again = origin.convert(&case.name, &case.text);
            assert_eq!(again, case.conversion, "{}", case.name);
        }
    }
}

#[test]
fn every_finding_has_its_line_and_what_to_do() {
    for origin in [Origin::Limitador, Origin::AspNetCore] {
        for case in origin.cases() {
            for finding in &case.conversion.findings {
                let lines = case.text.lines().count();
                assert!((1..=lines).contains(&finding.at.line), "{finding}");
                assert!(!finding.help.is_empty(), "{finding}");
            }
        }
    }
}
