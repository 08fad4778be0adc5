//! The field `limits_from` of a descriptor: a file with a limit for each of very many values.
//!
//! | file | what |
//! | --- | --- |
//! | `csv_lines`, `json_lines` | the two formats |
//! | `reader` | lines to a table: forms by the grammar of rules files, errors with line numbers |
//!
//! What it deliberately does not do: look a value up (`limiter`), keep
//! tables between loads (`limit_files`), or watch files (`reload`).

mod csv_lines;
mod json_lines;
mod reader;

use std::path::Path;
use std::sync::Arc;

use crate::excerpt::excerpt;
use crate::file::code::Code;
use crate::file::diagnostic::{Diagnostic, Position, Span};
use crate::file::field_path::FieldPath;
use crate::file::fields::Fields;
use crate::file::limit_files::{LineError, LoadedTable, ReadTable, TableErrors};
use crate::file::loader::Loader;
use crate::file::rate_limit::algorithms_that_reserve;
use tollgate_limiter::{Allowance, LimitTable, LineForm, Rule};

pub use self::reader::LINE_FIELDS;
use self::reader::TableReader;

/// Fields of a descriptor under which several values share a bucket, and what else a table
/// excludes.
const EXCLUDED: [(&str, &str); 6] = [
    ("rate_limits", "use `rate_limit`: a line has one limit"),
    (
        "share_threshold",
        "remove it: each value of the file has its own bucket",
    ),
    (
        "cidr",
        "match the addresses as text: a file has no prefixes",
    ),
    (
        "ipv6_prefix",
        "remove it: each value of the file has its own bucket",
    ),
    (
        "detailed_metric",
        "remove it: a value of the file is no label of a metric",
    ),
    (
        "value_to_metric",
        "remove it: a value of the file is no label of a metric",
    ),
];

/// Fields of the limit beside a table that would need the same limit for all values.
const EXCLUDED_IN_LIMIT: [&str; 3] = ["budget", "rlqs", "candidate"];

/// Reads a table from the bytes of a file: JSON lines if its name ends in `.jsonl`, else CSV.
///
/// # Errors
///
/// The bad lines, in order.
pub fn read_table(file: &str, bytes: &[u8]) -> ReadTable {
    let mut table = TableReader::new(file, bytes);
    let extension = Path::new(file).extension();
    if extension.is_some_and(|extension| extension == "jsonl") {
        json_lines::read(bytes, &mut table);
    } else {
        csv_lines::read(bytes, &mut table);
    }
    table.finish(file)
}

// === impl Loader ===

impl Loader<'_> {
    /// Reads the table that a descriptor names. None when there is none, or when it is invalid.
    pub(super) fn limits_from(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        rules: &[Rule],
    ) -> Option<Arc<LimitTable>> {
        fields.given("limits_from")?;
        let errors_before = self.error_count();
        let name = self.text(fields, path, "limits_from");
        let span = fields.span_of("limits_from");
        if name.is_empty() {
            if self.error_count() == errors_before {
                let help = "name a .csv or .jsonl file, relative to this file";
                self.error(
                    Code::MissingKey,
                    span,
                    path,
                    "limits_from names no file",
                    help,
                );
            }
            return None;
        }
        self.check_beside_table(fields, path, rules);
        let Some(files) = self.options.limit_files.clone() else {
            let message = "limits_from needs rules in a file";
            let help = "remove it: these rules have no folder in which the file could be";
            self.error(Code::ConflictingKeys, span, path, message, help);
            return None;
        };
        let rules_file = self.files.last().copied().unwrap_or_default();
        let read = match files.read(rules_file, name, read_table) {
            Ok(table) => Some(table),
            Err(errors) => {
                self.table_errors(&errors, span, path);
                None
            }
        };
        let table = read?;
        self.check_reservations(&table, rules, (span, path));
        (self.error_count() == errors_before).then(|| {
            self.tables.push(table.clone());
            table.table
        })
    }

    fn check_beside_table(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>, rules: &[Rule]) {
        let first = fields.key_span("limits_from");
        for (name, help) in EXCLUDED {
            let given = fields.given(name);
            if given.is_some_and(|node| node.boolean() != Some(false)) {
                let message = format!("'{name}' and 'limits_from' on one descriptor");
                let span = fields.key_span(name);
                let error = Diagnostic::error(Code::ConflictingKeys, span, message);
                let error = error.related(first, "`limits_from` is set here");
                self.report(path, error.help(help));
            }
        }
        for rule in rules {
            let given = [rule.budget.is_some(), rule.rlqs, rule.candidate.is_some()];
            for (name, _) in EXCLUDED_IN_LIMIT.iter().zip(given).filter(|(_, is)| *is) {
                let message = format!("'{name}' beside 'limits_from'");
                let span = fields.key_span("rate_limit");
                let error = Diagnostic::error(Code::ConflictingKeys, span, message);
                let error = error.related(first, "`limits_from` is set here");
                let help = format!("remove `{name}`: the lines of the file have other limits");
                self.report(path, error.help(help));
            }
        }
    }

    /// Checks that each algorithm of the lines has the reservations of the rule.
    fn check_reservations(
        &mut self,
        table: &LoadedTable,
        rules: &[Rule],
        (span, path): (Span, &FieldPath<'_>),
    ) {
        if rules.iter().all(|rule| rule.reserve.is_none()) {
            return;
        }
        for form in table.table.forms() {
            if let Allowance::Limited { algorithm, .. } = form.allowance
                && !algorithm.can_reserve()
            {
                let message = format!(
                    "lines of {} have the algorithm {}, which has no reservations",
                    excerpt(table.table.source()),
                    algorithm.name()
                );
                let help = format!(
                    "remove `reserve`, or set `algorithm` in those lines to one of {}",
                    algorithms_that_reserve()
                );
                self.error(Code::ConflictingKeys, span, path, message, help);
            }
        }
    }

    fn table_errors(&mut self, errors: &TableErrors, span: Span, path: &FieldPath<'_>) {
        match errors {
            TableErrors::File { message, help } => {
                self.error(Code::UnreadableFile, span, path, message.clone(), *help);
            }
            TableErrors::Lines {
                file,
                errors,
                omitted,
            } => {
                for LineError {
                    line,
                    code,
                    message,
                    help,
                } in errors
                {
                    let span = Span {
                        at: Position {
                            line: *line,
                            column: 1,
                        },
                        ..Span::default()
                    };
                    let error = Diagnostic::error(*code, span, message.clone());
                    self.report_of_file(file, path, error.help(help.clone()));
                }
                for _ in 0..*omitted {
                    self.count_error();
                }
            }
        }
    }
}

/// The rules of the forms of a table: those of the descriptor with the limit of a form.
pub(super) fn rules_of_forms(table: &LimitTable, rule: &Rule) -> Vec<Rule> {
    let of_form = |form: &LineForm| {
        let mut rule = rule.clone();
        rule.allowance = form.allowance;
        rule.shadow_mode = form.shadow_mode.unwrap_or(rule.shadow_mode);
        if form.allowance == Allowance::Unlimited {
            // As in a rules file: nothing is counted, so nothing is held or reserved.
            rule.reserve = None;
            rule.holder_key = None;
        }
        rule
    };
    table.forms().iter().map(of_form).collect()
}
