//! Parser of a guide: headings, fenced blocks, links, and YAML and JSON in blocks.
//!
//! What it deliberately does not do: parse Markdown beyond lines.

use std::path::Path;

pub(crate) use tollgate_test_support::yaml::yaml;

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

/// Rules with a year as each unit, so that no window turns while the real clock runs. They may be
/// JSON.
pub(crate) fn of_a_year(rules: &str) -> String {
    let units = ["second", "minute", "hour", "day"];
    units.iter().fold(rules.to_owned(), |rules, unit| {
        let in_json = format!("\"unit\":\"{unit}\"");
        rules
            .replace(&format!("unit: {unit}"), "unit: year")
            .replace(&in_json, "\"unit\":\"year\"")
    })
}

/// A page.
pub(crate) struct Guide {
    text: String,
}

/// A fenced block: the heading above it, its language, its text.
pub(crate) struct Block<'g> {
    pub(crate) heading: &'g str,
    pub(crate) language: &'g str,
    pub(crate) text: String,
}

// === impl Guide ===

impl Guide {
    /// Reads the guide of that name.
    pub(crate) fn of(name: &str) -> Self {
        Self::at(&format!("docs/guides/{name}"))
    }

    /// Reads a page of the repository.
    pub(crate) fn at(path: &str) -> Self {
        Self { text: read(path) }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Its headings of a level, such as `###`, without those in blocks.
    pub(crate) fn headings(&self, level: &str) -> Vec<&str> {
        let outside = self.text.split("\n```").step_by(2);
        let prefix = format!("{level} ");
        outside
            .flat_map(str::lines)
            .filter_map(|line| line.strip_prefix(&prefix))
            .collect()
    }

    /// Its fenced blocks, in order.
    pub(crate) fn blocks(&self) -> Vec<Block<'_>> {
        let mut blocks: Vec<Block<'_>> = Vec::new();
        let (mut heading, mut inside) = ("", false);
        for line in self.text.lines() {
            if let Some(language) = line.strip_prefix("```") {
                inside = !inside;
                if inside {
                    blocks.push(Block {
                        heading,
                        language,
                        text: String::new(),
                    });
                }
            } else if inside {
                let block = blocks.last_mut().expect("it has begun");
                block.text.extend([line, "\n"]);
            } else if line.starts_with('#') {
                heading = line.trim_start_matches('#').trim();
            }
        }
        assert!(!inside, "a block has no end");
        blocks
    }

    /// The blocks of a language under a heading.
    pub(crate) fn under(&self, heading: &str, language: &str) -> Vec<String> {
        let blocks = self.blocks().into_iter();
        let found: Vec<_> = blocks
            .filter(|block| block.heading == heading && block.language == language)
            .map(|block| block.text)
            .collect();
        assert!(!found.is_empty(), "no {language} under `{heading}`");
        found
    }

    /// The only block of a language under a heading.
    pub(crate) fn only(&self, heading: &str, language: &str) -> String {
        let mut found = self.under(heading, language);
        assert_eq!(found.len(), 1, "{language} under `{heading}`");
        found.remove(0)
    }
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
        let guide = Guide::of(&name);
        let outside: String = guide.text().split("\n```").step_by(2).collect();
        for link in outside.split("](").skip(1) {
            let link = link.split(')').next().unwrap();
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let path = if file.is_empty() { name.as_str() } else { file };
            let path = root().join("docs/guides").join(path);
            if path.extension().is_some_and(|ending| ending == "png") {
                assert!(path.is_file(), "{name}: {link}");
                continue;
            }
            let text = std::fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{name}: {link}: {error}"));
            let linked = Guide { text };
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
        let guide = Guide::of(&name);
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
