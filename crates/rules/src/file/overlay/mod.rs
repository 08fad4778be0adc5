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

pub(super) use self::apply::apply;
use self::entry::{Entry, entry};
use crate::file::grammar::OVERLAY;
use crate::file::grammar_overlay;
use crate::file::{Code, FieldPath, FieldPlace, Reader, Span, unfolding_budget};
use crate::path::Source;
use crate::yaml::{Document, Node, YamlError};

/// How many entries an overlay may have. Each limit is compared with each of them.
const ENTRIES_MAX: usize = 1_000;

/// Reads the entries of an overlay, after the rules files.
pub(super) fn read<'s, 'n>(
    reader: &mut Reader<'s>,
    source: &'s Source,
    document: &'n Result<Document, YamlError>,
) -> Vec<Entry<'n>> {
    reader.grammar = &OVERLAY;
    let budget = unfolding_budget(&source.text);
    reader.file(&source.name, &source.text, budget);
    reader.recognize(document);
    let mut entries = Vec::new();
    match document {
        Ok(Document { root, ignored }) => {
            match root {
                Some(root) => entries = read_entries(reader, root),
                None => no_entries(reader, Span::START.into()),
            }
            reader.warn_ignored(*ignored);
        }
        Err(error) => reader.syntax_error(error),
    }
    entries
}

/// Reads the root of an overlay.
fn read_entries<'n>(reader: &mut Reader<'_>, root: &'n Node) -> Vec<Entry<'n>> {
    let Some(fields) = reader.fields(root, FieldPath::ROOT, &grammar_overlay::ROOT) else {
        return Vec::new();
    };
    if fields.get("overlay").is_none() {
        if !fields.is_misspelt("overlay") {
            no_entries(reader, fields.at("overlay"));
        }
        return Vec::new();
    }
    let items = reader.items(&fields, "overlay", "- domain: NAME");
    if items.len() > ENTRIES_MAX {
        let message = format!("an overlay has more than {ENTRIES_MAX} entries");
        let help = "use patterns, or fewer entries";
        reader.error(Code::TooLarge, fields.at_key("overlay"), message, help);
        return Vec::new();
    }
    let entries = items.into_iter().map(|item| entry(reader, item));
    entries.flatten().collect()
}

fn no_entries(reader: &mut Reader<'_>, at: FieldPlace) {
    let help = "add `overlay`, a list of `- domain: NAME` with what is set there";
    reader.error(Code::MissingKey, at, "an overlay without entries", help);
}
