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
//! | `grammar`, `grammar_limit`, `grammar_overlay` | the tables of mappings and fields; the loader and the JSON Schema read them |
//! | `grammar_field` | the types of these tables |
//! | `schema` | the JSON Schema |
//! | `reader` | diagnostics and their bounds; also for other files |
//! | `fields`, `misplaced` | one mapping: its fields by name and type, and names that are wrong |
//! | `loader` | the state of one load |
//! | `document`, `descriptor` | the root, and one level of the tree |
//! | `values` | the values that a descriptor matches |
//! | `rate_limit` | limits |
//! | `plans` | limits by name |
//! | `limits_from`, `limit_files` | limits by value, from files |
//! | `requests` | descriptors of HTTP requests |
//! | `response` | the response on a refusal, and free-form metadata |
//! | `overlay` | what a file of another owner adds to the rules |
//! | `rule_origin` | where each rule was written |
//! | `agreement`, `unreachable` | what is wrong between rules, once all files are read |
//! | `foreign_format` | files of other programs |
//! | `diagnostic`, `code`, `field_path` | what is reported, and where |
//! | `report` | the text of a report, with snippets |
//! | `corrections` | `did you mean`, and edits that correct a mistake |
//!
//! What it deliberately does not do: read files (`path`), or compare rules of different
//! domains.

mod agreement;
mod code;
mod corrections;
mod descriptor;
mod diagnostic;
mod document;
mod field_path;
mod fields;
mod foreign_format;
#[rustfmt::skip] // A field has a line.
mod grammar;
mod grammar_field;
#[rustfmt::skip]
mod grammar_limit;
#[rustfmt::skip]
mod grammar_overlay;
mod limit_files;
mod limits_from;
mod loader;
mod misplaced;
mod overlay;
mod plans;
mod rate_limit;
mod reader;
mod report;
mod requests;
mod response;
mod rule_origin;
mod schema;
mod unreachable;
mod values;

use std::sync::Arc;

use self::loader::Loader;
use crate::path::Source;
use crate::yaml::{self, Node};

pub use self::corrections::nearest;
pub use self::field_path::{FieldPath, FieldPlace};
pub use self::fields::{Fields, Item, Pair};
pub use self::grammar_field::{
    ANY_NUMBER, Field, Grammar, Kind, LARGE_NUMBER, Mapping, RATE_MAX, one_of, tollgate,
};
pub use self::reader::{Reader, unfolding_budget};
pub use self::schema::{none_of, schema_of};
pub use crate::yaml::kind;

pub use self::code::Code;
pub use self::descriptor::LEVELS_MAX;
pub use self::diagnostic::{DIAGNOSTICS_MAX, Diagnostic, Edit, Label, Position, Severity, Span};
pub use self::limit_files::{
    LINE_ERRORS_MAX, LimitFiles, LineError, LoadedTable, ReadTable, TableErrors, TableStamp,
};
pub use self::limits_from::{LINE_FIELDS, read_table};
pub use self::loader::{LoadedRules, Options, Plans, RequestMappings};
pub use self::plans::read_limits;
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
    let mut loader = Loader::new(&grammar::RULES, options);
    for (file, source) in sources.iter().enumerate() {
        // What is wrong with the text is reported when the file is read.
        if source.text.contains("plans")
            && let Ok(document) = yaml::parse(&source.text)
            && let Some(root) = document.root
        {
            plans::note_plans(&mut loader, file, &root);
        }
    }
    for source in sources {
        let budget = reader::unfolding_budget(&source.text);
        loader.reader.file(&source.name, &source.text, budget);
        document::text_document(&mut loader);
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
    let options = Options {
        limit_files,
        ..options
    };
    let mut loader = Loader::new(&grammar::RULES, options);
    let documents: Vec<_> = documents.into_iter().collect();
    for (file, (_, root)) in documents.iter().enumerate() {
        plans::note_plans(&mut loader, file, root);
    }
    for (name, root) in documents {
        loader.reader.file(name, "", usize::MAX);
        document::document(&mut loader, root);
    }
    finish(loader, &[], overlay)
}

/// Checks what the rules have together, applies the overlay to rules that are valid, and gives the
/// rules or the errors.
fn finish<'s>(
    mut loader: Loader<'s>,
    sources: &[Source],
    overlay: Option<&'s Source>,
) -> Result<LoadedRules, Report> {
    values::compile(&mut loader);
    let are_valid = loader.reader.report.errors.is_empty()
        && agreement::check_budgets(&mut loader)
        && agreement::check_quotas(&mut loader);
    if are_valid {
        unreachable::warn_unreachable_nodes(&mut loader);
    }
    let document = overlay.map(|overlay| yaml::parse(&overlay.text));
    if let Some((overlay, document)) = overlay.zip(document.as_ref()) {
        let entries = overlay::read(&mut loader.reader, overlay, document);
        if are_valid {
            overlay::apply(&mut loader, &entries);
        }
    }
    if are_valid {
        agreement::warn_unknown_replaced_names(&mut loader);
    }
    let Loader {
        reader,
        mut origins,
        ..
    } = loader;
    let overlay_name = overlay.map(|overlay| &*overlay.name);
    origins.name_files(&reader.files, overlay_name);
    let sources: Vec<_> = sources.iter().chain(overlay).collect();
    let mut report = reader.into_report(&sources);
    if !report.errors.is_empty() {
        report.only_overlay = are_valid;
        return Err(report);
    }
    Ok(LoadedRules {
        rules: loader.rules,
        warnings: report.warnings,
        warnings_omitted: report.warnings_omitted,
        origins,
        tables: loader.tables,
        requests: Arc::new(loader.requests),
        refused_domains: Vec::new(),
        plans: Arc::new(loader.read_plans),
    })
}
