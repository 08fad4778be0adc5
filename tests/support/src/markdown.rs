//! A page of the documentation: its headings, its blocks, and the rows of its tables.
//!
//! Why: a test takes a block from the page, because a copy of it could differ from the page. A
//! heading is a line that begins with `#`, a row one that begins with `|`.

use std::path::Path;

use crate::components::repository;

/// A page.
pub struct Page {
    text: String,
}

/// A fenced block.
pub struct Block<'p> {
    /// The heading above it.
    pub heading: &'p str,
    /// Its language.
    pub language: &'p str,
    /// Its lines.
    pub text: String,
}

// === impl Page ===

impl Page {
    /// The page at this path below the repository's root.
    pub fn read(path: impl AsRef<Path>) -> Self {
        let path = repository().join(path);
        let text = std::fs::read_to_string(&path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { text }
    }

    /// The guide of that name.
    pub fn guide(name: &str) -> Self {
        Self::read(Path::new("docs/guides").join(name))
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its headings of a level, such as `###`, without those in blocks.
    pub fn headings(&self, level: &str) -> Vec<&str> {
        let outside = self.text.split("\n```").step_by(2);
        let prefix = format!("{level} ");
        outside
            .flat_map(str::lines)
            .filter_map(|line| line.strip_prefix(&prefix))
            .collect()
    }

    /// Its fenced blocks, in order.
    pub fn blocks(&self) -> Vec<Block<'_>> {
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
    pub fn under(&self, heading: &str, language: &str) -> Vec<String> {
        let blocks = self.blocks().into_iter();
        let found: Vec<_> = blocks
            .filter(|block| block.heading == heading && block.language == language)
            .map(|block| block.text)
            .collect();
        assert!(!found.is_empty(), "no {language} under `{heading}`");
        found
    }

    /// The only block of a language under a heading.
    pub fn only(&self, heading: &str, language: &str) -> String {
        let mut found = self.under(heading, language);
        assert_eq!(found.len(), 1, "{language} under `{heading}`");
        found.remove(0)
    }

    /// The headings that have a snippet.
    pub fn snippets(&self) -> Vec<&str> {
        let mut headings = self.headings("###");
        headings.retain(|name| name.chars().all(|c| c == '-' || c.is_ascii_lowercase()));
        headings
    }

    /// The cells of each row of each table, without the tables' heads.
    pub fn rows(&self) -> Vec<Vec<&str>> {
        let lines: Vec<_> = self.text.lines().collect();
        let rows = lines.iter().enumerate().filter(|(at, line)| {
            let head = lines
                .get(at + 1)
                .is_some_and(|next| next.starts_with("| ---"));
            line.starts_with('|') && !line.starts_with("| ---") && !head
        });
        rows.map(|(_, line)| line.trim_matches('|').split('|').map(str::trim).collect())
            .collect()
    }

    /// The targets of the page's links to itself.
    pub fn anchors(&self) -> Vec<&str> {
        let links = self.text.split("](#").skip(1);
        links
            .map(|link| link.split(')').next().expect("its end"))
            .collect()
    }
}

/// The arguments that a snippet gives the service, in lines that begin with `# serve with`.
pub fn arguments(snippet: &str) -> Vec<&str> {
    let lines = snippet
        .lines()
        .filter_map(|line| line.strip_prefix("# serve with "));
    lines.flat_map(str::split_whitespace).collect()
}

/// The parts of a cell between backticks.
pub fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}
