//! Guides by name, and what holds for all of them: their links resolve, and their blocks parse.

use std::path::Path;

pub(crate) use tollgate_test_support::markdown::Page;
pub(crate) use tollgate_test_support::yaml::{of_a_year, yaml};

/// Every guide by its name in `docs/guides`.
pub(crate) fn names() -> Vec<String> {
    let folder = std::fs::read_dir(root().join("docs/guides")).expect("the guides");
    let mut names: Vec<_> = folder
        .map(|entry| {
            entry
                .expect("a file")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .collect();
    names.sort();
    names
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A file of the repository.
pub(crate) fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Anchor of a heading.
pub(crate) fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_'))
        .collect()
}

#[test]
fn every_link_of_a_guide_resolves() {
    for name in names() {
        let guide = Page::guide(&name);
        let outside: String = guide.text().split("\n```").step_by(2).collect();
        for link in outside.split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let path = if file.is_empty() { name.as_str() } else { file };
            let path = root().join("docs/guides").join(path);
            assert!(path.is_file(), "{name}: {link}");
            if path.extension().is_some_and(|ending| ending == "png") {
                continue;
            }
            let linked = Page::read(&path);
            let found = ["#", "##", "###", "####"]
                .iter()
                .flat_map(|level| linked.headings(level))
                .any(|found| anchor(found) == heading);
            assert!(
                heading.is_empty() || found,
                "{name}: {link}: no such heading"
            );
        }
    }
}

/// Pages with a test that runs their commands.
const RUN_PAGES: [&str; 5] = [
    "candidates.md",
    "change-a-limit.md",
    "exports-in-flight.md",
    "llm-budgets.md",
    "on-call.md",
];

#[test]
fn every_block_names_its_language_and_yaml_parses() {
    for name in names() {
        let guide = Page::guide(&name);
        for block in guide.blocks() {
            match block.language {
                "yaml" => assert!(!yaml(&block.text).is_empty(), "{name}: {}", block.heading),
                // Blocks of `sh` are run by the tests of these pages, so there are none elsewhere.
                "sh" if RUN_PAGES.contains(&&*name) => {}
                "text" | "python" => {}
                other => panic!("{name}: {}: {other:?}", block.heading),
            }
        }
    }
}
