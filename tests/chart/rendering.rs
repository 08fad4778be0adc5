//! Runs real helm and parses its renders.
//!
//! How: helm runs without cluster, user settings and cache. PyYAML, which comes with
//! `kubernetes-validate`, parses the YAML, so that no parser of ours is involved.
//!
//! What it deliberately does not do: compare bytes. Helm 3 and 4 differ in blank lines.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tollgate_test_support::child_process::SpawnTied as _;
use tollgate_test_support::components::component;

/// Supported versions of helm.
pub(crate) const HELMS: [&str; 2] = ["3.19.0", "4.3.1"];

/// The version used where both are known to agree.
const HELM: &str = HELMS[1];

/// The name and the namespace of the release.
pub(crate) const RELEASE: [&str; 3] = ["demo", "--namespace", "prod"];

/// Values for tests, as arguments of helm.
pub(crate) const EXAMPLE: &str = "--values=helm/tollgate/ci/minimal-values.yaml";
pub(crate) const ON: &str = "--values=helm/tollgate/ci/everything-on-values.yaml";
pub(crate) const OFF: &str = "--values=helm/tollgate/ci/everything-off-values.yaml";

/// Arguments of Helm on one line, and texts that belong to them.
pub(crate) type Case = (String, Vec<String>);

/// Every object of a render.
pub(crate) struct Rendered(pub(crate) Vec<Value>);

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn chart() -> PathBuf {
    root().join("helm/tollgate")
}

/// A file of the repository.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).expect(path)
}

/// The cases of a file of this folder: arguments on a line, and below them, indented, the texts.
pub(crate) fn text_cases(name: &str) -> Vec<Case> {
    let text = read(&format!("tests/chart/{name}"));
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        if let Some(expected) = line.strip_prefix("    ") {
            let (_, texts) = cases.last_mut().expect("arguments first");
            texts.push(expected.to_owned());
        } else if line.starts_with("--") {
            cases.push((line.to_owned(), Vec::new()));
        } else {
            assert!(line.is_empty() || line.starts_with('#'), "{line}");
        }
    }
    assert!(cases.iter().all(|(_, texts)| !texts.is_empty()), "{name}");
    cases
}

/// Every file of values for tests, as an argument of helm.
pub(crate) fn values_files() -> Vec<String> {
    let folder = std::fs::read_dir(chart().join("ci")).expect("values for tests");
    let names = folder.map(|entry| entry.expect("a file").file_name());
    let files: Vec<_> = names
        .map(|name| format!("--values=helm/tollgate/ci/{}", name.display()))
        .collect();
    for known in [EXAMPLE, ON, OFF] {
        assert!(files.iter().any(|file| file == known), "{known} is gone");
    }
    files
}

/// Objects of renders and their errors, from validate.py.
pub(crate) fn validated(renders: &[(&str, &str)]) -> Vec<(Vec<Value>, Vec<String>)> {
    let renders = renders
        .iter()
        .map(|(kubernetes, text)| serde_json::json!({ "kubernetes": kubernetes, "text": text }));
    let asked = Value::Array(renders.collect()).to_string();
    let script = root().join("tests/chart/validate.py").display().to_string();
    let schemas = component("crds/node_modules").display().to_string();
    let Value::Array(answers) = python(&[&script, &schemas], &asked) else {
        panic!("a list");
    };
    let texts = |list: &Value| serde_json::from_value(list.clone()).expect("texts");
    answers
        .into_iter()
        .map(|answer| {
            let objects = answer["objects"].as_array().expect("objects").clone();
            (objects, texts(&answer["complaints"]))
        })
        .collect()
}

/// Runs helm in the repository's root; returns its output or its error.
pub(crate) fn helm(version: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(component(&format!("helm/{version}/helm")))
        .args(arguments)
        .env_clear()
        .env("HOME", env!("CARGO_TARGET_TMPDIR"))
        .current_dir(root())
        .output()
        .expect("helm runs");
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("helm prints text");
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stdout) + text(&output.stderr).as_str())
    }
}

/// Renders a chart as text.
pub(crate) fn template(version: &str, chart: &Path, arguments: &[&str]) -> Result<String, String> {
    let chart = chart.display().to_string();
    let mut all = vec!["template"];
    all.extend(RELEASE);
    all.push(&chart);
    all.extend(arguments);
    helm(version, &all)
}

/// Renders our chart.
pub(crate) fn rendered(arguments: &[&str]) -> Rendered {
    rendered_by(HELM, arguments)
}

/// Renders our chart with one version of helm.
pub(crate) fn rendered_by(version: &str, arguments: &[&str]) -> Rendered {
    let text = template(version, &chart(), arguments).expect("the chart renders");
    Rendered(yaml(&text))
}

/// Helm's error for invalid values.
pub(crate) fn refusal(version: &str, arguments: &[&str]) -> String {
    match template(version, &chart(), arguments) {
        Ok(_) => panic!("helm {version} took {arguments:?}"),
        Err(said) => said,
    }
}

/// The documents of a YAML text, without empty ones.
pub(crate) fn yaml(text: &str) -> Vec<Value> {
    const READ: &str =
        "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)";
    let Value::Array(documents) = python(&["-c", READ], text) else {
        panic!("a list");
    };
    documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect()
}

/// JSON output of a Python script with this input.
pub(crate) fn python(arguments: &[&str], told: &str) -> Value {
    let mut python = Command::new(component("venv/bin/python"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn_tied()
        .expect("python runs");
    let mut stdin = python.stdin.take().expect("its stdin");
    // A script that ends early prints its own error.
    let _ = stdin.write_all(told.as_bytes());
    drop(stdin);
    let output = python.wait_with_output().expect("it ends");
    assert!(
        output.status.success(),
        "not YAML, or something is missing (run `make deps`):\n{told}"
    );
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// One field of each item of a list.
pub(crate) fn texts<'v>(list: &'v Value, field: &str) -> Vec<&'v str> {
    let list = list.as_array().expect("a list");
    list.iter()
        .map(|item| item[field].as_str().expect(field))
        .collect()
}

// === impl Rendered ===

impl Rendered {
    /// Every object of a kind.
    pub(crate) fn all(&self, kind: &str) -> Vec<&Value> {
        self.0
            .iter()
            .filter(|object| object["kind"] == kind)
            .collect()
    }

    /// The only object of a kind.
    pub(crate) fn only(&self, kind: &str) -> &Value {
        match self.all(kind)[..] {
            [only] => only,
            ref objects => panic!("{} objects are a {kind}", objects.len()),
        }
    }

    /// Spec of the Deployment's pods.
    pub(crate) fn pod(&self) -> &Value {
        &self.only("Deployment")["spec"]["template"]["spec"]
    }

    /// Their container of tollgate.
    pub(crate) fn container(&self) -> &Value {
        let containers = self.pod()["containers"].as_array().expect("containers");
        assert_eq!(containers[0]["name"], "tollgate");
        &containers[0]
    }

    /// Value of a variable; null if it is not set.
    pub(crate) fn variable(&self, name: &str) -> &Value {
        let variables = self.container()["env"].as_array().expect("variables");
        let mut found = variables.iter().filter(|variable| variable["name"] == name);
        let value = found.next().map_or(&Value::Null, |found| &found["value"]);
        assert!(found.next().is_none(), "{name} is set twice");
        value
    }

    /// The `ConfigMap` of rules, if there is one.
    pub(crate) fn rules(&self) -> Option<&Value> {
        let made = self.all("ConfigMap").into_iter();
        let mut rules = made.filter(|made| {
            let name = made["metadata"]["name"].as_str();
            name.is_some_and(|name| name.ends_with("-rules"))
        });
        let found = rules.next();
        assert!(rules.next().is_none(), "one ConfigMap of rules at most");
        found
    }
}
