//! Alerts: their metrics exist, each fires on its condition and not otherwise, each has a runbook
//! section.
//!
//! How: Prometheus's promtool checks the file and runs `alerts_test.yaml`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use serde_json::Value;
use tollgate_test_support::components::component;

use crate::guides::exposed_metrics::{SHOWN, unknown};
use crate::guides::guide::{Page, anchor, read, root, yaml};

const FILE: &str = "helm/tollgate/files/alerts.yaml";
const CASES: &str = "tests/guides/alerts_test.yaml";

/// Every alert by name.
fn alerts() -> BTreeMap<String, Value> {
    let file = &yaml(&read(FILE))[0];
    let groups = file["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let alerts: Vec<_> = rules
        .map(|rule| (rule["alert"].as_str().unwrap().to_owned(), rule.clone()))
        .collect();
    let by_name: BTreeMap<_, _> = alerts.iter().cloned().collect();
    assert_eq!(by_name.len(), alerts.len(), "each name once");
    by_name
}

/// Runs promtool in the repository's root; returns whether it succeeded, and its output.
pub(crate) fn promtool(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(component("promtool/promtool"))
        .args(arguments)
        .current_dir(root())
        .output()
        .expect("promtool runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn promtool_accepts_the_alerts() {
    let (good, said) = promtool(&["check", "rules", "--lint=all", "--lint-fatal", FILE]);
    assert!(good, "{said}");
}

#[test]
fn each_alert_fires_on_its_condition_only() {
    let (good, said) = promtool(&["test", "rules", CASES]);
    assert!(good, "{said}");
    // Each alert is expected to fire in one case and not in another.
    let cases = &yaml(&read(CASES))[0];
    let tests = cases["tests"].as_array().unwrap().iter();
    let mut expected: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for asked in tests.flat_map(|test| test["alert_rule_test"].as_array().unwrap()) {
        let fires = usize::from(!asked["exp_alerts"].as_array().unwrap().is_empty());
        let name = asked["alertname"].as_str().unwrap().to_owned();
        expected.entry(name).or_default()[fires] += 1;
    }
    assert_eq!(
        expected.keys().collect::<Vec<_>>(),
        alerts().keys().collect::<Vec<_>>()
    );
    for (name, counts) in expected {
        assert!(counts.iter().all(|count| *count > 0), "{name}: {counts:?}");
    }
}

#[test]
fn every_metric_and_label_of_an_alert_exists() {
    for (name, alert) in alerts() {
        let expression = alert["expr"].as_str().unwrap();
        assert_eq!(unknown(expression), [""; 0], "{name}");
    }
}

#[test]
fn each_alert_has_a_section_and_each_section_an_alert() {
    let guide = Page::guide("alerts.md");
    let sections: BTreeSet<_> = guide
        .headings("###")
        .into_iter()
        .map(str::to_owned)
        .collect();
    let alerts = alerts();
    assert_eq!(sections, alerts.keys().cloned().collect::<BTreeSet<_>>());
    for (name, alert) in &alerts {
        let expected = format!("docs/guides/alerts.md#{}", anchor(name));
        assert_eq!(alert["annotations"]["runbook_url"], expected, "{name}");
        assert!(alert["annotations"]["summary"].is_string(), "{name}");
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(
            guide.text().contains(&format!("| `{severity}` |")),
            "{name}"
        );
        let (_, section) = guide.text().split_once(&format!("\n### {name}\n")).unwrap();
        let section = section.split("\n#").next().unwrap();
        for part in ["**Means**", "**Users feel**"] {
            assert!(section.contains(part), "{name} does not say: {part}");
        }
    }
}

#[test]
fn the_page_names_only_existing_metrics_and_reasons() {
    let guide = Page::guide("alerts.md");
    let quoted: Vec<_> = guide.text().split('`').skip(1).step_by(2).collect();
    for quoted in quoted.iter().filter(|text| !text.contains(' ')) {
        if quoted.starts_with("tollgate_") || quoted.starts_with("ratelimit_") {
            let name = quoted.split('{').next().unwrap();
            assert!(SHOWN.contains_key(name), "{quoted}");
        }
    }
    // Reasons in the tables are label values in the code.
    let metrics = fs::read_dir(root().join("crates/telemetry/src/metrics")).unwrap();
    let metrics = metrics.map(|entry| entry.unwrap().path());
    let sources: String = metrics
        .filter(|path| path.is_file())
        .map(|path| fs::read_to_string(path).unwrap())
        .chain([read("crates/store/src/store_error.rs")])
        .collect();
    let tables = guide
        .text()
        .split("\n\n")
        .filter(|part| part.starts_with("| `reason` |") || part.starts_with("| `err_type` |"));
    let mut words = 0;
    for table in tables {
        for row in table.lines().skip(2) {
            for word in row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2) {
                words += 1;
                assert!(sources.contains(&format!("\"{word}\"")), "{word}");
            }
        }
    }
    assert!(words > 25, "{words}");
}
