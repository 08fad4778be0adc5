//! A page of the documentation: its snippets by heading, and the rows of its tables.
//!
//! Why: a test takes a snippet from the page, because a copy of it could differ from the page. A
//! heading is a line that begins with `#`, a row one that begins with `|`.

use crate::components::repository;

/// A page.
pub struct Page {
    text: String,
}

impl Page {
    /// The page at this path below the repository's root.
    pub fn read(path: &str) -> Self {
        let text = std::fs::read_to_string(repository().join(path)).expect("the page");
        Self { text }
    }

    /// The first fenced block under the heading of that name.
    pub fn snippet(&self, name: &str) -> String {
        let heading = format!("\n### {name}\n");
        let (_, section) = self
            .text
            .split_once(&heading)
            .unwrap_or_else(|| panic!("no heading `{name}`"));
        let section = section.split("\n### ").next().expect("a section");
        let (_, block) = section
            .split_once("```yaml\n")
            .unwrap_or_else(|| panic!("no snippet under `{name}`"));
        block.split("```").next().expect("a snippet").to_owned()
    }

    /// The headings that have a snippet.
    pub fn snippets(&self) -> Vec<&str> {
        let headings = self
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("### "));
        let snippets =
            headings.filter(|name| name.chars().all(|c| c == '-' || c.is_ascii_lowercase()));
        snippets.collect()
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
