//! Snapshots of the renders of every values file in ci/, so that a change of the chart shows its
//! effect.
//!
//! How: parsed, not as bytes, since helm 3 and 4 differ in blank lines. For the newest Kubernetes
//! in full, for the others only the differences. `make readme` writes them.
//!
//! What it deliberately does not do: store dashboard or alerts twice. Where they are the chart's
//! files, a snapshot has the names of these files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::chart::matrix::{Case, KUBERNETES, cases};
use crate::chart::rendering::{python, read, root, yaml};

fn path(name: &str) -> PathBuf {
    root().join(format!("tests/chart/snapshots/{name}.yaml"))
}

/// A file of the chart, as it renders without a prefix of runbooks: alerts have no `runbook_url`.
fn file(name: &str) -> String {
    let text = read(&format!("helm/tollgate/files/{name}"));
    let lines = text.split_inclusive('\n');
    lines
        .filter(|line| !line.contains(" runbook_url: "))
        .collect()
}

/// Objects by kind and name, without texts that are files of the chart.
fn known(case: &Case) -> BTreeMap<String, Value> {
    let named = case.objects.iter().cloned().map(|mut object| {
        for name in ["alerts.yaml", "dashboard.json"] {
            let file = file(name);
            let texts = object.get_mut("data").and_then(Value::as_object_mut);
            for text in texts.into_iter().flat_map(|texts| texts.values_mut()) {
                if *text == file {
                    *text = json!(format!("files/{name}"));
                }
            }
        }
        if object["kind"] == "PrometheusRule" {
            let ours = yaml(&file("alerts.yaml")).remove(0);
            let ours = ours["groups"].as_array().unwrap();
            let groups = object["spec"]["groups"].as_array_mut().unwrap();
            // Without the chart's groups at their beginning, the snapshot differs.
            if groups.starts_with(ours) {
                groups.splice(..ours.len(), [json!("files/alerts.yaml")]);
            }
        }
        let name = object["metadata"]["name"].as_str().expect("a name");
        let kind = object["kind"].as_str().expect("a kind");
        (format!("{kind} {name}"), object)
    });
    let all: Vec<_> = named.collect();
    let count = all.len();
    let all: BTreeMap<_, _> = all.into_iter().collect();
    assert_eq!(
        all.len(),
        count,
        "{}: two objects are called the same",
        case.name
    );
    all
}

/// Differences of two values, as paths and new values.
fn differences(at: &str, first: &Value, second: &Value, found: &mut BTreeMap<String, Value>) {
    match (first, second) {
        (Value::Object(one), Value::Object(other)) => {
            for name in one
                .keys()
                .chain(other.keys().filter(|name| !one.contains_key(*name)))
            {
                differences(&format!("{at}/{name}"), &first[name], &second[name], found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                differences(&format!("{at}/{index}"), one, other, found);
            }
        }
        _ if first != second => {
            found.insert(at.to_owned(), second.clone());
        }
        _ => {}
    }
}

/// Content of the snapshot files, by values file.
fn made() -> BTreeMap<&'static str, Value> {
    let cases = cases();
    let newest = KUBERNETES[KUBERNETES.len() - 1];
    let mut made: BTreeMap<&str, Value> = BTreeMap::new();
    for case in cases.iter().filter(|case| case.kubernetes == newest) {
        let objects = json!(known(case));
        made.insert(
            case.name,
            json!({ "kubernetes": newest, "objects": objects, "elsewhere": {} }),
        );
    }
    for case in cases.iter().filter(|case| case.kubernetes != newest) {
        let made = made.get_mut(case.name).expect("the newest");
        let mut found = BTreeMap::new();
        differences("", &made["objects"], &json!(known(case)), &mut found);
        made["elsewhere"][case.kubernetes] = json!(found);
    }
    made
}

#[test]
fn renders_match_the_snapshots() {
    let made = made();
    if std::env::var_os("WRITE_README").is_some() {
        const WRITE: &str = "import json, sys, yaml; made = json.load(sys.stdin); \
            json.dump({name: yaml.safe_dump(made[name], default_flow_style=None, width=120) for name in made}, sys.stdout)";
        let texts = python(&["-c", WRITE], &json!(made).to_string());
        for (name, text) in texts.as_object().unwrap() {
            std::fs::write(path(name), text.as_str().unwrap()).unwrap();
        }
    }
    let files = std::fs::read_dir(path("").parent().unwrap()).unwrap();
    assert_eq!(files.count(), made.len(), "a snapshot of nothing");
    let texts = made
        .keys()
        .map(|name| std::fs::read_to_string(path(name)).expect(name));
    let read = yaml(&texts.collect::<Vec<_>>().join("\n---\n"));
    for ((name, made), kept) in made.iter().zip(read) {
        // Only the first difference: a whole render is long.
        let mut found = BTreeMap::new();
        differences("", &kept, made, &mut found);
        assert!(
            found.is_empty(),
            "{name}: `make readme` would write {}",
            json!(found)
        );
    }
}
