//! `tollgate test`: JSON, JUnit and TAP, `--watch`, its schema, the examples of
//! `docs/rule-tests.md`.
//!
//! What it deliberately does not do: hold the texts of diagnostics (`tests/rules/broken_tests`) or
//! results (`sessions/test.txt`), or test what steps do (`src/rule_tests/tests.rs`).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tollgate_test_support::tollgate_process::tollgate_binary;

use crate::python::python;
use crate::running::Running;

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

const BROKEN: &str = "rules: rules.yaml\ntests: [{nam: a, start: today, steps: [{wait: 1s}]}]\n";

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
fn junit_and_tap_are_read_by_parsers() {
    let folder = folder(&[
        ("good.test.yaml", GOOD),
        ("bad.test.yaml", BAD),
        ("broken.test.yaml", BROKEN),
    ]);
    let arguments = [".", "--coverage-min", "90", "--format"];
    let run = |format| test(folder.path(), &[&arguments[..], &[format]].concat()).1;
    // The attributes and elements of JUnit's schema, as Jenkins has it.
    let read = "import sys, xml.etree.ElementTree as tree
root = tree.fromstring(sys.stdin.buffer.read())
assert root.tag == 'testsuites' and set(root.attrib) == {'name', 'tests', 'failures', 'errors'}
for suite in root:
    assert suite.tag == 'testsuite' and set(suite.attrib) == {'name', 'tests', 'failures', 'errors'}
    assert int(suite.get('tests')) == len(suite)
    assert int(suite.get('failures')) == len(suite.findall('testcase/failure'))
    assert int(suite.get('errors')) == len(suite.findall('testcase/error'))
    for case in suite:
        assert case.tag == 'testcase' and set(case.attrib) == {'name', 'classname'}
        print(case.get('name'), [(e.tag, e.get('message')) for e in case])
print([root.get(name) for name in ('tests', 'failures', 'errors')])";
    let cases = python(read, &run("junit"));
    let lines: Vec<_> = cases.lines().collect();
    assert_eq!(
        lines[0],
        "<four> & 'more' # a minute [('failure', 'step 1: ask edge user=ada')]"
    );
    assert_eq!(lines[1], "three a minute []");
    assert!(
        lines[2].starts_with("the file can run [('error', "),
        "{cases}"
    );
    assert!(lines[3].starts_with("the tests reach 90% of the rules [('failure', "));
    assert_eq!(lines[4], "['4', '2', '1']");

    let tap = run("tap");
    let lines: Vec<_> = tap.lines().collect();
    assert_eq!(lines[..2], ["TAP version 14", "1..4"]);
    assert_eq!(
        lines[2],
        "not ok 1 - ./bad.test.yaml: <four> & 'more' \\# a minute"
    );
    let results: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("ok ") || line.starts_with("not ok "))
        .map(|line| line.split(" - ").next().unwrap())
        .collect();
    assert_eq!(results, ["not ok 1", "ok 2", "not ok 3", "not ok 4"]);
    // What follows a failure is YAML.
    let read = "import sys, yaml
blocks = sys.stdin.read().split('  ---\\n')[1:]
print([yaml.safe_load(block.split('  ...\\n')[0])['message'][0] for block in blocks])";
    assert!(python(read, &format!("{tap}\n")).contains("step 1: ask edge user=ada"));
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
