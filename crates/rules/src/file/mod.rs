//! Rules files: YAML text in, a [`RuleSet`](tollgate_limiter::RuleSet) or every diagnostic out.
//!
//! The grammar is that of Envoy's reference service. A message is the reference's, where it has
//! one; file, line, column, a snippet, the path of the rule and what to do follow. A known name in
//! a wrong place, which the reference ignores silently, is a warning. One invalid file rejects them
//! all: a rule set is loaded whole or not at all.
//!
//! Each file is walked once. An error is recorded and the walk continues, so that one run reports
//! them all. Aliases are walked each time they are used, against a budget of nodes and bytes that
//! grows with the file, so the cost of a file that unfolds is bounded by its size.
//!
//! | file | what |
//! | --- | --- |
//! | `grammar` | the table of mappings and fields; the loader and the JSON Schema read it |
//! | `grammar_field` | the types of that table |
//! | `grammar_limit` | the table of limits, candidates and lines of files of limits |
//! | `grammar_overlay` | the table of an overlay file |
//! | `schema` | the JSON Schema |
//! | `reader` | nodes read by a grammar, diagnostics, and their bounds; also for other files |
//! | `loader` | the state of one load |
//! | `fields`, `misplaced` | one mapping: its fields by name and type, and names that are wrong |
//! | `document`, `descriptor` | the root, and one level of the tree |
//! | `values`, `cidr`, `patterns` | the values that a descriptor matches |
//! | `rate_limit` | limits |
//! | `limits_from`, `limit_files` | limits by value, from files |
//! | `budgets` | limits that share a bucket |
//! | `over_limit`, `metadata` | the response on a refusal, and free-form metadata |
//! | `overlay` | what a file of another owner adds to the rules |
//! | `node_diagnostics` | diagnostics of a descriptor that is already read |
//! | `rule_origin` | where each rule was written |
//! | `unreachable`, `replaced_names`, `unused_fields` | warnings of valid rules that cannot work |
//! | `foreign_format` | files of other programs |
//! | `diagnostic`, `code`, `field_path` | what is reported, and where |
//! | `report` | the text of a report, with snippets |
//! | `nearest`, `corrections` | `did you mean`, and edits that correct a mistake |
//!
//! What it deliberately does not do: read files (`path`), or compare rules of different
//! domains.

mod budgets;
mod cidr;
mod code;
mod corrections;
mod descriptor;
mod diagnostic;
mod document;
mod field_path;
mod fields;
mod foreign_format;
mod grammar;
mod grammar_field;
mod grammar_limit;
mod grammar_overlay;
mod limit_files;
mod limits_from;
mod loader;
mod metadata;
mod misplaced;
mod nearest;
mod node_diagnostics;
mod over_limit;
mod overlay;
mod patterns;
mod quotas;
mod rate_limit;
mod reader;
mod replaced_names;
mod report;
mod rule_origin;
mod schema;
mod unreachable;
mod unused_fields;
mod values;

use self::loader::Loader;
use self::overlay::Overlay;
use crate::path::Source;
use crate::yaml::{self, Node};

pub use self::field_path::FieldPath;
pub use self::fields::Fields;
pub use self::grammar_field::{ANY_NUMBER, Field, Grammar, Kind, Mapping, RATE_MAX, tollgate};
pub use self::nearest::nearest;
pub use self::reader::{Reader, unfolding_budget};
pub use self::schema::{object_of, reference};
pub use crate::yaml::kind;

pub use self::code::Code;
pub use self::descriptor::LEVELS_MAX;
pub use self::diagnostic::{DIAGNOSTICS_MAX, Diagnostic, Edit, Label, Position, Severity, Span};
pub use self::limit_files::{
    LINE_ERRORS_MAX, LimitFiles, LineError, LoadedTable, ReadTable, TableErrors, TableStamp,
};
pub use self::limits_from::{LINE_FIELDS, read_table};
pub use self::loader::{LoadedRules, Options};
pub use self::reader::TEXT_BYTES_MAX;
pub use self::report::Report;
pub use self::rule_origin::{RuleOrigin, RuleOrigins};
pub use self::schema::{overlay_schema, schema};
pub use self::values::LIST_ITEMS_MAX;

/// Loads the rule set that `sources` describe. [`Options::overlay`] is not read.
///
/// # Errors
///
/// Every error of every file, at most [`DIAGNOSTICS_MAX`], and the warnings.
pub fn load(sources: &[Source], options: Options) -> Result<LoadedRules, Report> {
    load_overlaid(sources, None, options)
}

/// Loads the rule set that `sources` describe, with an overlay.
///
/// # Errors
///
/// As for [`load`]; the overlay's errors come last.
pub fn load_overlaid(
    sources: &[Source],
    overlay: Option<&Source>,
    options: Options,
) -> Result<LoadedRules, Report> {
    let mut loader = Loader::new(options);
    for source in sources {
        let budget = reader::unfolding_budget(&source.text);
        loader.file(&source.name, &source.text, budget);
        loader.text_document();
    }
    finish(loader, sources, overlay)
}

/// Loads documents that are no text, each with its name, with an overlay. They have no aliases, so
/// nothing unfolds.
pub(crate) fn load_documents<'d>(
    documents: impl IntoIterator<Item = (&'d str, &'d Node)>,
    overlay: Option<&Source>,
    options: Options,
) -> Result<LoadedRules, Report> {
    // A resource has no folder, and its maker is not to read files here.
    let limit_files = None;
    let mut loader = Loader::new(Options {
        limit_files,
        ..options
    });
    for (name, root) in documents {
        loader.file(name, "", usize::MAX);
        loader.document(root);
    }
    finish(loader, &[], overlay)
}

/// Applies the overlay to rules that are valid, and gives the rules or the errors.
fn finish(
    mut loader: Loader<'_>,
    sources: &[Source],
    overlay: Option<&Source>,
) -> Result<LoadedRules, Report> {
    let are_valid = loader.complete();
    let applied = overlay.map(|overlay| {
        let document = yaml::parse(&overlay.text);
        let mut read = Overlay::read(overlay, &document);
        if are_valid {
            read.apply(&mut loader.rules, &mut loader.origins);
        }
        (read.into_report(), &*overlay.name)
    });
    if are_valid {
        loader.warn_unknown_replaced_names();
    }
    let sources: Vec<_> = sources.iter().chain(overlay).collect();
    loader.into_result(&sources, applied)
}
