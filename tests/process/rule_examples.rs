//! Every rules file that a page shows has a file of tests, which `tollgate test` runs.
//!
//! The tests of the example under a heading are `PAGE/HEADING.test.yaml` in
//! `tests/rule_tests/examples`. They name the rules as `rules/HEADING.yaml`, where this module
//! writes the example, so no copy of it can differ from the page.
//!
//! What it deliberately does not do: run a page's commands (`readme`), or YAML of other programs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tollgate_test_support::components::repository;
use tollgate_test_support::tollgate_process::tollgate_binary;

/// Where tests are.
const TESTS: &str = "tests/rule_tests/examples";

/// A page and a heading of it, as in the path of a file of tests.
type Name = (String, String);

/// The pages that show rules: the README, and those of `docs` and `docs/guides`.
fn pages() -> Vec<PathBuf> {
    let folder = |name: &str| {
        let entries = std::fs::read_dir(repository().join(name)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut pages: Vec<_> = paths
            .filter(|path| path.extension().is_some_and(|it| it == "md"))
            .collect();
        pages.sort();
        pages
    };
    let mut pages = vec![repository().join("README.md")];
    pages.extend(folder("docs"));
    pages.extend(folder("docs/guides"));
    pages
}

/// A heading as a link has it.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let words = words.replace(' ', "-");
    words
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
        .collect()
}

/// The rules in a YAML block: the mapping that has both `domain` and `descriptors`, at any depth. A
/// request also has both; its descriptors have entries.
fn rules_in(block: &str) -> Option<String> {
    let lines: Vec<_> = block.lines().collect();
    let is_at = |line: &str, indent: usize, key: &str| {
        let is_blank = line
            .get(..indent)
            .is_some_and(|start| start.trim().is_empty());
        is_blank && line.get(indent..).is_some_and(|rest| rest.starts_with(key))
    };
    let (first, indent) = lines.iter().enumerate().find_map(|(number, line)| {
        let indent = line.len() - line.trim_start().len();
        let has_descriptors = lines.iter().any(|line| is_at(line, indent, "descriptors:"));
        (is_at(line, indent, "domain:") && has_descriptors).then_some((number, indent))
    })?;
    if block.contains("entries:") {
        return None;
    }
    if indent == 0 {
        return Some(block.to_owned());
    }
    let rules = lines[first..]
        .iter()
        .map(|line| line.get(indent..).unwrap_or_default());
    Some(rules.collect::<Vec<_>>().join("\n"))
}

/// Every example of a page's text.
fn examples(page: &str, text: &str) -> BTreeMap<Name, String> {
    let mut examples = BTreeMap::new();
    let mut heading = String::new();
    let mut block: Option<(bool, String)> = None;
    for line in text.lines() {
        match (&mut block, line.trim_start().strip_prefix("```")) {
            (Some((is_yaml, inside)), Some(_)) => {
                if let Some(rules) = rules_in(inside).filter(|_| *is_yaml) {
                    let name = (page.to_owned(), heading.clone());
                    let earlier = examples.insert(name, rules);
                    assert_eq!(
                        earlier, None,
                        "{page}#{heading}: two examples under a heading"
                    );
                }
                block = None;
            }
            (Some((_, inside)), None) => inside.extend([line, "\n"]),
            (None, Some(language)) => block = Some((language == "yaml", String::new())),
            (None, None) if line.starts_with('#') => heading = anchor(line),
            (None, None) => {}
        }
    }
    examples
}

fn all_examples() -> BTreeMap<Name, String> {
    let of_page = |path: PathBuf| {
        let page = path.file_stem().unwrap().to_str().unwrap().to_lowercase();
        examples(&page, &std::fs::read_to_string(path).unwrap())
    };
    pages().into_iter().flat_map(of_page).collect()
}

/// The files of tests.
fn tests() -> BTreeMap<Name, PathBuf> {
    let mut tests = BTreeMap::new();
    for page in std::fs::read_dir(repository().join(TESTS)).unwrap() {
        let page = page.unwrap().path();
        for file in std::fs::read_dir(&page).unwrap() {
            let file = file.unwrap().path();
            let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
            let heading = name(&file);
            let heading = heading.strip_suffix(".test.yaml");
            let heading = heading.unwrap_or_else(|| panic!("{}: no .test.yaml", file.display()));
            tests.insert((name(&page), heading.to_owned()), file);
        }
    }
    tests
}

/// Runs `tollgate test` on files. Each must reach every limit of its rules.
fn run(files: &[PathBuf]) -> Output {
    Command::new(tollgate_binary())
        .args(["test", "--coverage-min", "100"])
        .args(files)
        .output()
        .unwrap()
}

/// Writes an example, and its tests beside it. Returns the path of the tests.
fn write(folder: &Path, (page, heading): &Name, rules: &str, tests: &str) -> PathBuf {
    let folder = folder.join(page);
    std::fs::create_dir_all(folder.join("rules")).unwrap();
    let rules_file = folder.join("rules").join(format!("{heading}.yaml"));
    std::fs::write(rules_file, rules).unwrap();
    let file = folder.join(format!("{heading}.test.yaml"));
    std::fs::write(&file, tests).unwrap();
    file
}

#[test]
fn every_example_has_tests_and_all_tests_an_example() {
    let examples: BTreeSet<_> = all_examples().into_keys().collect();
    let tests: BTreeSet<_> = tests().into_keys().collect();
    assert!(examples.len() > 40, "{}", examples.len());
    let without: Vec<_> = examples.difference(&tests).collect();
    assert!(
        without.is_empty(),
        "examples without {TESTS}/PAGE/HEADING.test.yaml: {without:?}"
    );
    let without: Vec<_> = tests.difference(&examples).collect();
    assert!(
        without.is_empty(),
        "tests whose page shows no such example: {without:?}"
    );
}

#[test]
fn every_example_does_what_its_page_says() {
    let folder = tempfile::tempdir().unwrap();
    let examples = all_examples();
    let files: Vec<_> = tests()
        .into_iter()
        .filter_map(|(name, path)| {
            let tests = std::fs::read_to_string(path).unwrap();
            let rules = format!("rules: rules/{}.yaml\n", name.1);
            assert!(tests.starts_with(&rules), "{name:?}: begin with `{rules}`");
            Some(write(folder.path(), &name, examples.get(&name)?, &tests))
        })
        .collect();
    let output = run(&files);
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    assert!(printed.contains("test result: ok."), "{printed}");
}

/// An example that changes without its tests is found: each of its numbers, one at a time.
#[test]
fn another_number_in_an_example_fails_its_tests() {
    let folder = tempfile::tempdir().unwrap();
    let tests = tests();
    let mut changed = 0;
    for (name, rules) in all_examples() {
        let Some(tests) = tests.get(&name) else {
            continue;
        };
        let tests = std::fs::read_to_string(tests).unwrap();
        for key in [
            "requests_per_unit: ",
            "burst: ",
            "unit_multiplier: ",
            "slot_seconds: ",
        ] {
            for (at, _) in rules.match_indices(key) {
                let (before, after) = rules.split_at(at + key.len());
                // A candidate is never enforced, so no answer shows its numbers.
                let line = before.lines().next_back().unwrap();
                let is_silent = line.contains('#') || line.contains("candidate:");
                let digits = after.chars().take_while(char::is_ascii_digit).count();
                let number: u32 = after[..digits].parse().unwrap();
                let other = format!("{before}{}{}", number + 1, &after[digits..]);
                if is_silent {
                    continue;
                }
                let file = write(folder.path(), &name, &other, &tests);
                let output = run(&[file]);
                assert_eq!(output.status.code(), Some(1), "{name:?}:\n{other}");
                changed += 1;
            }
        }
    }
    assert!(changed > 80, "{changed}");
}

/// These files name rules of their own.
#[test]
fn the_tests_of_algorithms_and_changes_pass() {
    let folders =
        ["algorithms", "changes"].map(|it| repository().join("tests/rule_tests").join(it));
    let output = run(&folders);
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
}

#[test]
fn rules_are_found_at_any_depth() {
    let nested = "rules:\n  edge.yaml:\n    domain: edge\n    descriptors:\n      - key: a\n";
    let found = rules_in(nested).unwrap();
    assert_eq!(found, "domain: edge\ndescriptors:\n  - key: a");
    assert_eq!(rules_in("domain: edge\ntimeout: 1s\n"), None);
    let request = "- ask:\n    domain: edge\n    descriptors:\n      - entries: []\n";
    assert_eq!(rules_in(request), None);
    assert_eq!(
        anchor("## What Envoy sends, and why"),
        "what-envoy-sends-and-why"
    );
}
