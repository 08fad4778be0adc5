//! The README's table of values, generated from `values.yaml`: text after `# --` describes the key
//! below.
//!
//! Why not helm-docs: the table is part of a page, and `make readme` writes the other tables the
//! same way.
//!
//! What it deliberately does not do: parse YAML. Keys and descriptions are lines; PyYAML reads the
//! defaults.

use std::fmt::Write as _;

use serde_json::Value;

use crate::chart::rendering::{read, root, yaml};

const PAGE: &str = "helm/tollgate/README.md";

/// Descriptions by path of the key.
fn said() -> Vec<(String, String)> {
    let text = read("helm/tollgate/values.yaml");
    let mut path: Vec<&str> = Vec::new();
    let mut found = Vec::new();
    let mut words = None;
    for line in text.lines() {
        let bare = line.trim_start();
        if let Some(said) = bare.strip_prefix("# -- ") {
            assert_eq!(
                words.replace(said),
                None,
                "two say something of one key: {said}"
            );
        } else if let Some((key, _)) = bare
            .split_once(':')
            .filter(|_| !bare.starts_with(['#', '-']))
        {
            path.truncate((line.len() - bare.len()) / 2);
            path.push(key);
            if let Some(said) = words.take() {
                found.push((path.join("."), said.to_owned()));
            }
        }
    }
    found
}

/// Every leaf, and every map that has a description.
fn leaves(path: &str, value: &Value, said: &[(String, String)], found: &mut Vec<String>) {
    match value {
        Value::Object(inner) if !said.iter().any(|(name, _)| name == path) => {
            for (name, value) in inner {
                let dot = if path.is_empty() { "" } else { "." };
                leaves(&format!("{path}{dot}{name}"), value, said, found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

fn table() -> String {
    let values = yaml(&read("helm/tollgate/values.yaml")).remove(0);
    let said = said();
    let mut all = Vec::new();
    leaves("", &values, &said, &mut all);
    let mut named: Vec<_> = said.iter().map(|(name, _)| name.clone()).collect();
    named.sort();
    all.sort();
    assert_eq!(
        named, all,
        "values.yaml: `# --` is missing, or is not above a value"
    );
    let mut table = String::from("| value | default | what |\n| --- | --- | --- |\n");
    for (name, said) in &said {
        let value = values.pointer(&format!("/{}", name.replace('.', "/")));
        let value = value.expect(name);
        assert!(!said.contains('|'), "{said}");
        let _ = writeln!(table, "| `{name}` | `{value}` | {said} |");
    }
    table
}

/// `make readme` writes it; otherwise this test compares it.
#[test]
fn the_table_of_values_matches_values_yaml() {
    let (begin, end) = ("<!-- values -->\n", "<!-- /values -->");
    let text = read(PAGE);
    let (before, rest) = text.split_once(begin).unwrap();
    let (shown, after) = rest.split_once(end).unwrap();
    if std::env::var_os("WRITE_README").is_some() {
        let written = format!("{before}{begin}{}{end}{after}", table());
        std::fs::write(root().join(PAGE), written).unwrap();
    } else {
        for (shown, made) in shown.lines().zip(table().lines()) {
            assert_eq!(shown, made, "run `make readme`");
        }
        assert_eq!(shown.len(), table().len(), "run `make readme`");
    }
}

/// Every value is in the schema, down to the last map, and the schema has no other.
#[test]
fn the_schema_covers_exactly_the_values() {
    fn known(path: &str, value: &Value, schema: &Value, found: &mut Vec<String>) {
        let Some(properties) = schema["properties"].as_object() else {
            return;
        };
        for (name, schema) in properties {
            let path = format!("{path}/{name}");
            match value.get(name) {
                Some(value) if value.as_object().is_some_and(|map| !map.is_empty()) => {
                    known(&path, value, schema, found);
                }
                Some(_) => {}
                None => found.push(path),
            }
        }
        if path.is_empty() || schema["additionalProperties"] == false {
            for name in value.as_object().unwrap().keys() {
                assert!(
                    properties.contains_key(name),
                    "the schema has no {path}/{name}"
                );
            }
        }
    }
    let schema: Value = serde_json::from_str(&read("helm/tollgate/values.schema.json")).unwrap();
    let values = yaml(&read("helm/tollgate/values.yaml")).remove(0);
    let mut missing = Vec::new();
    known("", &values, &schema, &mut missing);
    // Maps that Kubernetes defines further, and values without defaults.
    missing.retain(|path| {
        ![
            // Only a parent chart has it.
            "/enabled",
            "/securityContext/",
            "/podSecurityContext/",
            "/readinessProbe/",
        ]
        .iter()
        .any(|known| path.starts_with(known))
    });
    assert_eq!(missing, [""; 0]);
}
