//! Dashboard: every query is valid PromQL over existing metrics, and every panel has a position.
//!
//! What it deliberately does not do: render it. Grafana is in no registry.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use crate::guides::alerts::promtool;
use crate::guides::exposed_metrics::unknown;
use crate::guides::guide::read;
use crate::guides::promql;

fn dashboard() -> Value {
    serde_json::from_str(&read("helm/tollgate/files/dashboard.json")).expect("JSON")
}

fn panels(dashboard: &Value) -> &[Value] {
    dashboard["panels"].as_array().expect("panels")
}

/// Every query with the title of its panel.
fn queries(dashboard: &Value) -> Vec<(&str, &str)> {
    let queries = panels(dashboard).iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().map_or(&[][..], Vec::as_slice);
        let title = panel["title"].as_str().expect("a title");
        targets
            .iter()
            .map(move |target| (title, target["expr"].as_str().expect("a query")))
    });
    queries.collect()
}

#[test]
fn every_metric_and_label_of_a_panel_exists() {
    let dashboard = dashboard();
    let queries = queries(&dashboard);
    assert!(queries.len() > 40, "{}", queries.len());
    for (title, query) in queries {
        assert_eq!(unknown(query), [""; 0], "{title}: {query}");
        // Every query uses the variables of the dashboard.
        for named in promql::metrics(query) {
            let chosen = |name: &str| {
                let wanted = (name.to_owned(), "=~".to_owned(), format!("${name}"));
                named.labels.contains(&wanted)
            };
            assert!(
                chosen("namespace") && chosen("job"),
                "{title}: {}",
                named.metric
            );
        }
    }
}

#[test]
fn every_query_is_promql() {
    let dashboard = dashboard();
    let mut rules = "groups:\n- name: dashboard\n  rules:\n".to_owned();
    for (number, (_, query)) in queries(&dashboard).into_iter().enumerate() {
        let query = query.replace("$__rate_interval", "5m");
        let query = Value::from(query);
        let _ = writeln!(rules, "  - {{ record: \"panel:{number}\", expr: {query} }}");
    }
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), &rules).expect("the rules");
    let (good, said) = promtool(&["check", "rules", file.path().to_str().expect("a path")]);
    assert!(good, "{said}");
}

#[test]
fn every_legend_uses_a_label_of_its_query() {
    let dashboard = dashboard();
    for panel in panels(&dashboard) {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().expect("a query");
            let legend = target["legendFormat"].as_str().expect("a legend");
            let groups = promql::grouped_by(query);
            for label in legend.split("{{").skip(1) {
                let label = label.split("}}").next().expect("its end");
                // Without aggregation a series has all its labels, and those of the scrape.
                let has = groups.contains(label) || (!query.contains("sum") && groups.is_empty());
                assert!(has, "{legend}: {query}");
            }
        }
    }
}

#[test]
fn panels_have_positions_and_data_sources() {
    let dashboard = dashboard();
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in panels(&dashboard) {
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{panel}");
        let at = |field: &str| panel["gridPos"][field].as_u64().expect(field);
        assert!(at("x") + at("w") <= 24, "{panel}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "two panels at {x}, {y}: {panel}");
            }
        }
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        }
    }
    let variables = dashboard["templating"]["list"]
        .as_array()
        .expect("variables");
    let names: Vec<_> = variables
        .iter()
        .map(|variable| variable["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["datasource", "namespace", "job"]);
}
