//! YAML, parsed by PyYAML in the tests' virtual environment.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::child_process::SpawnTied as _;
use crate::components::component;
use serde_json::Value;

/// The documents of a YAML text, without the empty ones.
pub fn yaml(text: &str) -> Vec<Value> {
    const READ: &str =
        "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)";
    let mut python = Command::new(component("venv/bin/python"))
        .args(["-c", READ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn_tied()
        .expect("python runs");
    let mut stdin = python.stdin.take().expect("its stdin");
    stdin.write_all(text.as_bytes()).expect("it reads");
    drop(stdin);
    let output = python.wait_with_output().expect("it ends");
    assert!(output.status.success(), "not YAML:\n{text}");
    let documents: Vec<Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    documents.into_iter().filter(|it| !it.is_null()).collect()
}

/// Rules with a year as each unit, so that no window turns while the real clock runs. They may be
/// JSON.
pub fn of_a_year(rules: &str) -> String {
    let units = ["second", "minute", "hour", "day"];
    units.iter().fold(rules.to_owned(), |rules, unit| {
        let in_json = format!("\"unit\":\"{unit}\"");
        rules
            .replace(&format!("unit: {unit}"), "unit: year")
            .replace(&in_json, "\"unit\":\"year\"")
    })
}
