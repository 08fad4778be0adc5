//! `action.yml`, the GitHub Action: its metadata has the documented form, and its scripts run.
//!
//! How: a step's variables are filled in as GitHub does it, and its script runs by the command that
//! GitHub documents for `shell: bash`, in a folder with the guide's files.
//!
//! What it deliberately does not do: build tollgate, which takes minutes. There a program in
//! `cargo`'s place installs the binary under test and records how it was called.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tollgate_test_support::components::repository;
use tollgate_test_support::tollgate_process::tollgate_binary;
use tollgate_test_support::yaml::yaml;

use crate::process::testing_rules::{blocks, folder, page};

/// Keys of a step of a composite action, by GitHub's page on the metadata's syntax.
const STEP_KEYS: [&str; 9] = [
    "name",
    "id",
    "if",
    "shell",
    "run",
    "env",
    "working-directory",
    "uses",
    "continue-on-error",
];

/// A run of the action.
struct Action {
    workspace: tempfile::TempDir,
    /// Programs that scripts find besides the system's.
    path: PathBuf,
    inputs: Vec<(&'static str, String)>,
}

fn metadata() -> Value {
    let text = std::fs::read_to_string(repository().join("action.yml")).unwrap();
    yaml(&text).remove(0)
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

fn steps(metadata: &Value) -> &Vec<Value> {
    metadata["runs"]["steps"].as_array().unwrap()
}

/// A script that can be executed.
fn write_program(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

// === impl Action ===

impl Action {
    /// The action with these inputs, others by their defaults, and tollgate on the PATH.
    fn new(inputs: &[(&'static str, &str)]) -> Self {
        let workspace = folder();
        let path = workspace.path().join("programs");
        std::fs::create_dir(&path).unwrap();
        symlink(tollgate_binary(), path.join("tollgate")).unwrap();
        let inputs = inputs
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        Self {
            inputs: inputs.collect(),
            workspace,
            path,
        }
    }

    fn input(&self, metadata: &Value, name: &str) -> String {
        let given = self.inputs.iter().find(|(input, _)| *input == name);
        let default = metadata["inputs"][name]["default"].as_str();
        given.map_or_else(
            || default.unwrap_or_default().to_owned(),
            |(_, value)| value.clone(),
        )
    }

    /// The value of an expression `${{ … }}`.
    fn expression(&self, metadata: &Value, text: &str) -> String {
        let inner = text
            .strip_prefix("${{ ")
            .and_then(|text| text.strip_suffix(" }}"));
        match inner.unwrap_or_else(|| panic!("{text}: not an expression")) {
            "github.action_path" => "/the action's source".to_owned(),
            inner => self.input(metadata, inner.strip_prefix("inputs.").unwrap()),
        }
    }

    /// Runs the steps until one fails. Returns the outputs.
    fn run(&self) -> Vec<Output> {
        let metadata = metadata();
        let mut outputs = Vec::new();
        for step in steps(&metadata) {
            if let Some(condition) = step["if"].as_str() {
                let input = condition.strip_prefix("inputs.").unwrap();
                let input = input.strip_suffix(" != ''").unwrap();
                if self.input(&metadata, input).is_empty() {
                    continue;
                }
            }
            let script = self.workspace.path().join("step.sh");
            std::fs::write(&script, step["run"].as_str().unwrap()).unwrap();
            let variables = step["env"].as_object().unwrap().iter();
            let variables = variables
                .map(|(name, value)| (name, self.expression(&metadata, value.as_str().unwrap())));
            let output = Command::new("bash")
                .args(["--noprofile", "--norc", "-eo", "pipefail"])
                .arg(&script)
                .env_clear()
                .env("PATH", format!("{}:/usr/bin:/bin", self.path.display()))
                .env("RUNNER_TEMP", self.workspace.path())
                .env("GITHUB_PATH", self.workspace.path().join("github_path"))
                .envs(variables)
                .current_dir(self.workspace.path())
                .output()
                .unwrap();
            let failed = !output.status.success();
            outputs.push(output);
            if failed {
                break;
            }
        }
        outputs
    }
}

fn printed(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8(both).unwrap()
}

#[test]
fn the_metadata_has_the_documented_form() {
    let metadata = metadata();
    let known = [
        "name",
        "author",
        "description",
        "inputs",
        "outputs",
        "runs",
        "branding",
    ];
    assert!(keys(&metadata).is_subset(&known.into()), "{metadata}");
    for text in ["name", "description"] {
        assert!(
            metadata[text].as_str().is_some_and(|text| !text.is_empty()),
            "{text}"
        );
    }
    for (name, input) in metadata["inputs"].as_object().unwrap() {
        assert!(
            name.chars().all(|c| c.is_ascii_lowercase() || c == '_'),
            "{name}"
        );
        let known = ["description", "required", "default", "deprecationMessage"];
        assert!(keys(input).is_subset(&known.into()), "{name}");
        assert!(input["description"].is_string(), "{name}");
        let required = input["required"].as_bool().unwrap();
        assert_eq!(input["default"].is_string(), !required, "{name}");
    }
    assert_eq!(metadata["runs"]["using"], "composite");
    assert_eq!(keys(&metadata["runs"]), ["steps", "using"].into());
    for step in steps(&metadata) {
        assert!(keys(step).is_subset(&STEP_KEYS.into()), "{step}");
        assert!(step["run"].is_string() && step["uses"].is_null(), "{step}");
        // A composite action has no default shell.
        assert_eq!(step["shell"], "bash", "{step}");
    }
}

/// An expression in a script would make an input a part of the script.
#[test]
fn inputs_are_variables_and_each_is_used_and_described() {
    let metadata = metadata();
    let mut used = BTreeSet::new();
    for step in steps(&metadata) {
        assert!(!step["run"].as_str().unwrap().contains("${{"), "{step}");
        let values = step["env"].as_object().unwrap().values();
        used.extend(values.map(|value| value.as_str().unwrap().to_owned()));
    }
    let page = page();
    for name in keys(&metadata["inputs"]) {
        assert!(
            used.contains(&format!("${{{{ inputs.{name} }}}}")),
            "{name}"
        );
        assert!(page.contains(&format!("\n| `{name}` | ")), "{name}");
    }
}

#[test]
fn the_workflow_of_the_guide_passes() {
    let workflow = yaml(&blocks(&page(), "yaml")[2]).remove(0);
    let steps = workflow["jobs"]["limits"]["steps"].as_array().unwrap();
    let with = steps.last().unwrap()["with"].as_object().unwrap();
    let metadata = metadata();
    let known = keys(&metadata["inputs"]);
    assert!(
        with.keys().all(|name| known.contains(name.as_str())),
        "{with:?}"
    );
    let input = |name| (name, with[name].as_str().unwrap());
    let action = Action::new(&[input("rules"), input("tests"), input("arguments")]);
    let outputs = action.run();
    assert_eq!(outputs.len(), 3);
    for output in &outputs {
        assert!(output.status.success(), "{}", printed(output));
    }
    assert!(printed(&outputs[2]).contains("test result: ok. 2 passed"));
}

#[test]
fn an_error_in_the_rules_is_an_annotation_and_ends_the_run() {
    let action = Action::new(&[
        ("rules", "rules/shop.yaml\n\nmore rules/extra.yaml\n"),
        ("tests", "rules"),
    ]);
    let more = action.workspace.path().join("more rules");
    std::fs::create_dir(&more).unwrap();
    std::fs::write(
        more.join("extra.yaml"),
        "domain: extra\ndescriptors: [{ key: a, rate_limit: { unit: dya } }]\n",
    )
    .unwrap();
    let outputs = action.run();
    assert_eq!(outputs.len(), 2);
    let text = printed(&outputs[1]);
    assert!(
        text.contains("::error file=more rules/extra.yaml,line=2"),
        "{text}"
    );
}

#[test]
fn a_failing_test_fails_the_run() {
    let action = Action::new(&[("rules", "rules"), ("tests", "rules")]);
    let path = action.workspace.path().join("rules/shop.yaml");
    let rules = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, rules.replace("burst: 40 ", "burst: 30 ")).unwrap();
    let outputs = action.run();
    assert_eq!(outputs.len(), 3);
    let text = printed(&outputs[2]);
    assert_eq!(outputs[2].status.code(), Some(1), "{text}");
}

#[test]
fn inputs_decide_which_steps_run_and_how_the_last_one_ends() {
    let version = env!("CARGO_PKG_VERSION");
    let other = format!("::error::found tollgate {version}, and the input version is 9.9.9");
    let arguments = "--filter midnight --coverage-min 90";
    let low = [("tests", "rules"), ("arguments", arguments)];
    for (inputs, steps, code, words) in [
        // Without tests, only the rules are checked.
        (&[][..], 2, 0, ""),
        (&[("version", version)], 2, 0, ""),
        (&[("version", "9.9.9")], 1, 1, &other),
        (&low, 3, 1, "1 of 2 rules reached"),
    ] {
        let outputs = Action::new(&[&[("rules", "rules")], inputs].concat()).run();
        assert_eq!(outputs.len(), steps, "{inputs:?}");
        let last = outputs.last().unwrap();
        let text = printed(last);
        assert_eq!(last.status.code(), Some(code), "{inputs:?}: {text}");
        assert!(text.contains(words), "{inputs:?}: {text}");
    }
}

#[test]
fn inputs_run_no_commands() {
    let hostile = "$(touch hacked)\n`touch hacked`\n; touch hacked\n--help";
    let action = Action::new(&[("rules", hostile)]);
    let outputs = action.run();
    assert_eq!(outputs.len(), 2);
    assert!(!outputs[1].status.success());
    assert!(!action.workspace.path().join("hacked").exists());
}

#[test]
fn without_tollgate_on_the_path_it_is_built_from_the_actions_source() {
    let action = Action::new(&[("rules", "rules")]);
    std::fs::remove_file(action.path.join("tollgate")).unwrap();
    let cargo = format!(
        "#!/bin/bash\necho \"cargo $*\"\nmkdir -p \"$6/bin\"\nln -s {} \"$6/bin/tollgate\"\n",
        tollgate_binary()
    );
    write_program(&action.path.join("cargo"), &cargo);
    let outputs = action.run();
    let root = action.workspace.path().join("tollgate");
    let text = printed(&outputs[0]);
    let called = format!(
        "cargo install --locked --path /the action's source --root {}\n",
        root.display()
    );
    assert!(
        outputs[0].status.success() && text.starts_with(&called),
        "{text}"
    );
    // Later steps find it there.
    let added = std::fs::read_to_string(action.workspace.path().join("github_path")).unwrap();
    assert_eq!(added, format!("{}\n", root.join("bin").display()));
}
