//! An overlay: a file that adds to rules of another owner what their maker cannot say.
//!
//! Why: control planes such as Envoy Gateway make rules from policies that know fixed windows only,
//! and who owns a rules file may not be who runs the service. The rules are loaded alone first, so
//! a fault of the overlay is never blamed on them. Then each limit gets what the first entry that
//! matches it says, read by the same code as a rules file.
//!
//! An entry lets nothing more pass than the rules unless it says `may_raise: true` (`raise`).
//!
//! | file | what |
//! | --- | --- |
//! | `entry` | one entry: what it matches, what it sets |
//! | `apply` | the entries applied to loaded rules |
//! | `limit` | one limit, changed |
//! | `raise` | what lets more pass |
//!
//! What it deliberately does not do: read files (`path`), or change the levels of rules.

mod apply;
mod entry;
mod limit;
mod raise;

use self::entry::Entry;
use crate::file::code::Code;
use crate::file::diagnostic::{Diagnostic, Span};
use crate::file::field_path::FieldPath;
use crate::file::grammar_overlay;
use crate::file::loader::{Loader, Options};
use crate::file::reader::unfolding_budget;
use crate::file::report::Report;
use crate::path::Source;
use crate::yaml::{Document, Node, YamlError};

/// How many entries an overlay may have. Each limit is compared with each of them.
pub(crate) const ENTRIES_MAX: usize = 1_000;

/// An overlay that has been read.
pub(super) struct Overlay<'s> {
    /// Reads values and records the overlay's diagnostics.
    loader: Loader<'s>,
    entries: Vec<Entry<'s>>,
}

// === impl Overlay ===

impl<'s> Overlay<'s> {
    /// Reads the entries.
    pub(super) fn read(source: &'s Source, document: &'s Result<Document, YamlError>) -> Self {
        let mut loader = Loader::new(Options::default()).of_an_overlay();
        let budget = unfolding_budget(&source.text);
        loader.file(&source.name, &source.text, budget);
        loader.recognize(document);
        let entries = match document {
            Ok(Document { root, ignored }) => {
                let entries = root.as_ref().map(|root| loader.entries(root));
                if entries.is_none() {
                    loader.no_entries(Span::START);
                }
                loader.warn_ignored(*ignored);
                entries.unwrap_or_default()
            }
            Err(error) => {
                loader.syntax_error(error);
                Vec::new()
            }
        };
        Self { loader, entries }
    }

    /// The diagnostics, in the order in which they were found.
    pub(super) fn into_report(self) -> Report {
        self.loader.into_report()
    }
}

// === impl Loader ===

impl Loader<'_> {
    /// Reads the root of an overlay.
    fn entries<'n>(&mut self, root: &'n Node) -> Vec<Entry<'n>> {
        let path = FieldPath::ROOT;
        let Some(fields) = self.fields(root, &path, &grammar_overlay::ROOT) else {
            return Vec::new();
        };
        if fields.get("overlay").is_none() {
            if !fields.is_misspelt("overlay") {
                self.no_entries(fields.span);
            }
            return Vec::new();
        }
        let items = self.items(&fields, &path, "overlay", "- domain: NAME");
        if items.len() > ENTRIES_MAX {
            let message = format!("an overlay has more than {ENTRIES_MAX} entries");
            let help = "use patterns, or fewer entries";
            self.error(
                Code::TooLarge,
                fields.key_span("overlay"),
                &path,
                message,
                help,
            );
            return Vec::new();
        }
        let mut entries = Vec::with_capacity(items.len());
        for (position, item) in items.iter().enumerate() {
            let path = path.item("overlay", position);
            entries.extend(self.entry(item, &path, position));
        }
        entries
    }

    fn no_entries(&mut self, at: Span) {
        let message = "an overlay without entries";
        let error = Diagnostic::error(Code::MissingKey, at, message);
        let help = "add `overlay`, a list of `- domain: NAME` with what is set there";
        self.report(&FieldPath::ROOT, error.help(help));
    }
}
