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
use crate::file::limit_files::{LoadedTable, ReadTable, TableErrors};
use crate::file::loader::Loader;
use crate::file::plans::rules_of_plan;
use crate::file::rate_limit::algorithms_that_reserve;
use crate::file::{Code, Diagnostic, FieldPlace, Fields, Position, Reader, Span};
use tollgate_limiter::{Allowance, LimitTable, LineForm, Rule};

pub use self::reader::LINE_FIELDS;
use self::reader::TableReader;

/// What to do about fields under which values share a bucket, and about labels of metrics.
const OWN_BUCKET: &str = "remove it: each value of the file has its own bucket";
const NO_LABEL: &str = "remove it: a value of the file is no label of a metric";

/// The fields of a descriptor that a table excludes, and what to do.
const EXCLUDED: [(&str, &str); 6] = [
    ("rate_limits", "use `rate_limit`: a line has one limit"),
    ("share_threshold", OWN_BUCKET),
    (
        "cidr",
        "match the addresses as text: a file has no prefixes",
    ),
    ("ipv6_prefix", OWN_BUCKET),
    ("detailed_metric", NO_LABEL),
    ("value_to_metric", NO_LABEL),
];

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

/// Reads the table that a descriptor names. None when there is none, or when it is invalid.
pub(super) fn limits_from(
    loader: &mut Loader<'_>,
    fields: &Fields<'_>,
    rules: &[Rule],
) -> Option<Arc<LimitTable>> {
    fields.given("limits_from")?;
    let reader = &mut loader.reader;
    let errors_before = reader.error_count();
    let name = reader.text(fields, "limits_from");
    let at = fields.at("limits_from");
    if name.is_empty() {
        if reader.error_count() == errors_before {
            let help = "name a .csv or .jsonl file, relative to this file";
            reader.error(Code::MissingKey, at, "limits_from names no file", help);
        }
        return None;
    }
    check_beside_table(reader, fields, rules);
    let Some(files) = &loader.options.limit_files else {
        let message = "limits_from needs rules in a file";
        let help = "remove it: these rules have no folder in which the file could be";
        reader.error(Code::ConflictingKeys, at, message, help);
        return None;
    };
    let rules_file = reader.files.last().copied().unwrap_or_default();
    let table = files.read(rules_file, name, read_table);
    let table = table
        .map_err(|errors| table_errors(reader, errors, at.clone()))
        .ok()?;
    check_reservations(reader, &table, rules, &at);
    (reader.error_count() == errors_before).then(|| {
        loader.tables.push(table.clone());
        table.table
    })
}

fn check_beside_table(reader: &mut Reader<'_>, fields: &Fields<'_>, rules: &[Rule]) {
    let first = fields.key_span("limits_from");
    let mut conflict = |field: &str, message: String, help: String| {
        let error = Diagnostic::error(Code::ConflictingKeys, fields.at_key(field), message);
        let error = error.related(first, "`limits_from` is set here");
        reader.report(error.help(help));
    };
    for (name, help) in EXCLUDED {
        let given = fields.given(name);
        if given.is_some_and(|node| node.boolean() != Some(false)) {
            let message = format!("'{name}' and 'limits_from' on one descriptor");
            conflict(name, message, help.to_owned());
        }
    }
    for rule in rules {
        for (name, _) in not_by_line(rule)
            .into_iter()
            .filter(|(_, is_given)| *is_given)
        {
            let message = format!("'{name}' beside 'limits_from'");
            let help = format!("remove `{name}`: the lines of the file have other limits");
            conflict("rate_limit", message, help);
        }
    }
}

/// Checks that each algorithm of the lines has the reservations of the rule.
fn check_reservations(
    reader: &mut Reader<'_>,
    table: &LoadedTable,
    rules: &[Rule],
    at: &FieldPlace,
) {
    if rules.iter().all(|rule| rule.reserve.is_none()) {
        return;
    }
    for form in table.table.forms() {
        if let Allowance::Limited { algorithm, .. } = form.allowance
            && !algorithm.facts().can_reserve
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
            reader.error(Code::ConflictingKeys, at.clone(), message, help);
        }
    }
}

fn table_errors(reader: &mut Reader<'_>, errors: TableErrors, at: FieldPlace) {
    let (file, errors, omitted) = match errors {
        TableErrors::File { message, help } => {
            return reader.error(Code::UnreadableFile, at, message, help);
        }
        TableErrors::Lines {
            file,
            errors,
            omitted,
        } => (file, errors, omitted),
    };
    for error in errors {
        let span = Span {
            at: Position {
                line: error.line,
                column: 1,
            },
            ..Span::default()
        };
        let diagnostic = Diagnostic::error(error.code, at.path.at(span), error.message);
        reader.report(Diagnostic {
            file: file.clone(),
            ..diagnostic.help(error.help)
        });
    }
    for _ in 0..omitted {
        reader.count_error();
    }
}

/// The rules of the forms of a table: `of_line`, the first of the descriptor, with the limit of a
/// form; or those of a plan, made from `bare`, which has no limit.
pub(super) fn rules_of_forms(
    loader: &mut Loader<'_>,
    table: &LimitTable,
    [of_line, bare]: [&Rule; 2],
    at: &FieldPlace,
) -> Vec<Vec<Rule>> {
    let of_form = |(index, form): (usize, &LineForm)| {
        if let Some(plan) = &form.plan {
            let mut rule = bare.clone();
            rule.shadow_mode = form.shadow_mode.unwrap_or(rule.shadow_mode);
            let rules = rules_of_plan(loader, plan, at, &rule);
            check_plan(&mut loader.reader, table, index, &rules, at);
            return rules;
        }
        let mut rule = of_line.clone();
        rule.allowance = form.allowance;
        rule.shadow_mode = form.shadow_mode.unwrap_or(rule.shadow_mode);
        if form.allowance == Allowance::Unlimited {
            // As in a rules file: nothing is counted, so nothing is held or reserved.
            rule.reserve = None;
            rule.holder_key = None;
        }
        vec![rule]
    };
    table.forms().iter().enumerate().map(of_form).collect()
}

/// Reports what the limits of a plan may not have where lines name it.
fn check_plan(
    reader: &mut Reader<'_>,
    table: &LimitTable,
    form: usize,
    rules: &[Rule],
    at: &FieldPlace,
) {
    for (name, _) in rules
        .iter()
        .flat_map(not_by_line)
        .filter(|(_, is_given)| *is_given)
    {
        let plan = table
            .forms()
            .get(form)
            .and_then(|form| form.plan.as_deref());
        let message = format!(
            "{} names the plan '{}', which has '{name}'",
            excerpt(table.source()),
            excerpt(plan.unwrap_or_default()),
        );
        let help = format!("remove `{name}` from the plan, or give the lines another plan");
        reader.error(Code::ConflictingKeys, at.clone(), message, help);
    }
}

/// What needs one limit for all values, and whether a rule has it.
fn not_by_line(rule: &Rule) -> [(&'static str, bool); 3] {
    [
        ("budget", rule.budget.is_some()),
        ("rlqs", rule.rlqs),
        ("candidate", rule.candidate.is_some()),
    ]
}
