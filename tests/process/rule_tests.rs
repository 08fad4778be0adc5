//! `tollgate test`: `--watch`, and the example of `docs/rule-tests.md`.
//!
//! What it deliberately does not do: hold the texts of diagnostics (`tests/rules/broken_tests`) or
//! results (`sessions/test.txt`), or test what steps do (`crates/tools/src/rule_tests/tests.rs`).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tollgate_test_support::tollgate_process::tollgate_binary;

use crate::process::running::Running;

// window: `tollgate test` has a clock of its own.
const RULES: &str = "\
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: path
    rate_limit: {unit: hour, requests_per_unit: 9}
";

const GOOD: &str = "\
rules: rules.yaml
tests:
  - name: three a minute
    start: 2026-01-01T12:00:10Z
    steps:
      - {ask: edge user=ada, times: 4, expect: {admitted: 3}}
";

const BAD: &str = "\
rules: rules.yaml
tests:
  - name: \"<four> & 'more' # a minute\"
    start: 2026-01-01T13:00:10+01:00[Europe/Berlin]
    steps:
      - {ask: edge user=ada, times: 4, expect: {admitted: 4, remaining: 1}}
";

/// A folder with rules and these files of tests.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("rules.yaml"), RULES).unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Runs `test` with a folder's file, and gives its code, stdout and stderr.
fn test(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(tollgate_binary())
        .arg("test")
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn watch_runs_again_when_tests_or_rules_change_and_survives_errors() {
    let folder = folder(&[("it.test.yaml", GOOD)]);
    let watching = Running::with_stdout(
        Command::new(tollgate_binary())
            .args(["test", "it.test.yaml", "--watch"])
            .current_dir(folder.path())
            .env_clear()
            .stderr(Stdio::null()),
    );
    let next = || watching.line_with("test result: ");
    assert!(next().starts_with("test result: ok. 1 passed; 0 failed"));
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("rules.yaml", &RULES.replace("unit: 3", "unit: 2"));
    assert!(next().starts_with("test result: FAILED. 0 passed; 1 failed"));
    write("rules.yaml", "domain: [");
    assert!(next().ends_with("1 file cannot run"));
    write("rules.yaml", RULES);
    assert!(next().starts_with("test result: ok. 1 passed; 0 failed"));
    write("it.test.yaml", BAD);
    assert!(next().starts_with("test result: FAILED. 0 passed; 1 failed"));
}

#[test]
fn the_example_of_the_page_runs_as_it_says() {
    let page = fs::read_to_string("docs/rule-tests.md").unwrap();
    let block = |after: &str, language: &str| {
        let rest = page.split_once(after).expect(after).1;
        let rest = rest.split_once(&format!("```{language}\n")).unwrap().1;
        rest.split_once("```").unwrap().0.to_owned()
    };
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("rules.yaml", &block("`rules.yaml`", "yaml"));
    write("rules.test.yaml", &block("`rules.test.yaml`", "yaml"));
    let (code, stdout, stderr) = test(folder.path(), &["rules.test.yaml"]);
    assert_eq!((code, stderr.as_str()), (0, ""), "{stdout}");
    assert_eq!(
        format!("$ tollgate test rules.test.yaml\n{stdout}"),
        block("### Output", "console")
    );
}
