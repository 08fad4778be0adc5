//! `docs/testing-rules.md`: every command of the page runs, on the page's own files, and prints
//! what the page shows.
//!
//! What it deliberately does not do: the workflow (`action`).

use std::path::Path;
use std::process::{Command, Output, Stdio};

use tollgate_test_support::components::repository;
use tollgate_test_support::tollgate_process::tollgate_binary;

use crate::process::running::Running;

pub(crate) fn page() -> String {
    std::fs::read_to_string(repository().join("docs/testing-rules.md")).unwrap()
}

/// The fenced blocks of a language.
pub(crate) fn blocks(page: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    let blocks = page.split(&opening).skip(1);
    blocks
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

/// Rules with a year as each unit, so that no window turns while the real clock runs.
pub(crate) fn of_a_year(rules: &str) -> String {
    let units = ["second", "minute", "hour", "day"];
    units.iter().fold(rules.to_owned(), |rules, unit| {
        rules.replace(&format!("unit: {unit}"), "unit: year")
    })
}

/// A folder with the page's rules and tests.
pub(crate) fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let files = blocks(&page(), "yaml");
    std::fs::create_dir(folder.path().join("rules")).unwrap();
    std::fs::write(folder.path().join("rules/shop.yaml"), &files[0]).unwrap();
    std::fs::write(folder.path().join("rules/shop.test.yaml"), &files[1]).unwrap();
    folder
}

/// Runs a command of the page.
fn run(folder: &Path, command: &str) -> Output {
    let arguments = command.strip_prefix("tollgate ").unwrap();
    Command::new(tollgate_binary())
        .args(arguments.split(' '))
        .current_dir(folder)
        .output()
        .unwrap()
}

fn change(folder: &Path, from: &str, to: &str) {
    let path = folder.join("rules/shop.yaml");
    let rules = std::fs::read_to_string(&path).unwrap();
    assert!(rules.contains(from), "{rules}");
    std::fs::write(&path, rules.replace(from, to)).unwrap();
}

#[test]
fn every_command_of_the_page_runs_and_prints_what_it_shows() {
    let folder = folder();
    let mut ran = 0;
    for block in blocks(&page(), "console") {
        let commands = block.lines().filter_map(|line| line.strip_prefix("$ "));
        let shown: Vec<_> = block
            .lines()
            .filter(|line| !line.starts_with("$ "))
            .collect();
        for command in commands.filter(|command| !command.contains("--watch")) {
            let output = run(folder.path(), command);
            let printed = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{command}: {output:?}");
            if !shown.is_empty() {
                assert_eq!(printed.lines().collect::<Vec<_>>(), shown, "{command}");
            }
            ran += 1;
        }
    }
    assert_eq!(ran, 5);
    // In the text.
    for command in [
        "tollgate convert --envoy rules/shop.yaml",
        "tollgate schema --for rule-tests",
    ] {
        assert!(page().contains(&format!("`{command}`")), "{command}");
        assert!(run(folder.path(), command).status.success(), "{command}");
    }
}

#[test]
fn a_changed_rule_fails_as_the_page_shows_and_so_does_a_rule_without_a_test() {
    let folder = folder();
    change(folder.path(), "burst: 40 ", "burst: 30 ");
    let output = run(folder.path(), "tollgate test rules");
    assert_eq!(output.status.code(), Some(1));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let shown = &blocks(&page(), "text")[0];
    assert!(printed.contains(shown.as_str()), "{printed}");
    assert!(printed.contains("rule shop.user\n"), "{printed}");

    change(folder.path(), "burst: 30 ", "burst: 40 ");
    // window: `tollgate test` has a clock of its own.
    let with_another =
        "descriptors:\n  - { key: other, rate_limit: { unit: day, requests_per_unit: 1 } }";
    change(folder.path(), "descriptors:", with_another);
    assert!(run(folder.path(), "tollgate test rules").status.success());
    let output = run(folder.path(), "tollgate test --coverage-min 100 rules");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn watching_runs_the_tests_again_when_the_rule_changes() {
    let folder = folder();
    let command = "tollgate test --watch rules";
    assert!(page().contains(&format!("$ {command}\n")));
    let watching = Running::with_stdout(
        Command::new(tollgate_binary())
            .args(["test", "--watch", "rules"])
            .current_dir(folder.path())
            .stderr(Stdio::null()),
    );
    watching.line_with("test result: ok.");
    change(folder.path(), "burst: 40 ", "burst: 30 ");
    watching.line_with("test result: FAILED.");
}

/// Tests beside rules are not read as rules.
#[test]
fn rules_and_tests_may_share_a_folder() {
    let folder = folder();
    let output = run(folder.path(), "tollgate check --deny-warnings rules");
    assert!(output.status.success(), "{output:?}");
}
