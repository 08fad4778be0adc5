//! The output of `tollgate check`: text, JSON, or annotations of a GitHub workflow.
//!
//! What it deliberately does not do: describe the JSON form (`check_schema`).

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::rules::file::{Diagnostic, Edit, Label, Report, Span};
use tollgate_limiter::RuleSet;

/// An output format.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum Format {
    /// For people
    Text,
    /// For programs, as `tollgate schema --for check` describes
    Json,
    /// Annotations of a GitHub workflow
    Github,
}

/// What was checked, and the result.
pub(super) struct Checked {
    /// What was checked.
    pub(super) name: String,
    pub(super) report: Report,
    /// The rules, if they are valid.
    pub(super) rules: Option<RuleSet>,
    pub(super) deny_warnings: bool,
}

/// Whether stderr shows colours: only a terminal does, and not with `NO_COLOR`.
pub(super) fn stderr_is_coloured() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !no_color && std::io::stderr().is_terminal()
}

/// `3 errors`
fn count(number: usize, one: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {one}{plural}")
}

// === impl Checked ===

impl Checked {
    pub(super) fn is_accepted(&self) -> bool {
        self.rules.is_some() && !(self.deny_warnings && self.warnings() > 0)
    }

    fn errors(&self) -> usize {
        let report = &self.report;
        report.errors.len().saturating_add(report.errors_omitted)
    }

    fn warnings(&self) -> usize {
        let report = &self.report;
        let omitted = report.warnings_omitted;
        report.warnings.len().saturating_add(omitted)
    }

    pub(super) fn print(&self, format: Format) {
        match format {
            Format::Text => {
                let text = self.report.render(stderr_is_coloured());
                if !text.is_empty() {
                    eprintln!("{text}\n");
                }
                self.print_summary();
            }
            Format::Json => print_line!("{:#}", self.json()),
            Format::Github => {
                for diagnostic in self.report.diagnostics() {
                    print_line!("{}", annotation(diagnostic));
                }
                self.print_summary();
            }
        }
    }

    fn print_summary(&self) {
        let warnings = self.warnings();
        let found = match (self.errors(), warnings) {
            (errors, 0) => count(errors, "error"),
            (0, warnings) => count(warnings, "warning"),
            (errors, warnings) => {
                format!("{}, {}", count(errors, "error"), count(warnings, "warning"))
            }
        };
        match &self.rules {
            None => eprintln!("{found}; the rules are invalid"),
            Some(_) if !self.is_accepted() => {
                eprintln!("{found}; --deny-warnings treats warnings as errors");
            }
            Some(rules) => print_line!("{}: good, {}", self.name, summary(rules)),
        }
    }

    fn json(&self) -> Value {
        let report = &self.report;
        let diagnostics = report.diagnostics();
        json!({
            "valid": self.rules.is_some(),
            "errors": self.errors(),
            "warnings": self.warnings(),
            "omitted": report.errors_omitted.saturating_add(report.warnings_omitted),
            "domains": self.rules.as_ref().map(RuleSet::domain_count),
            "limits": self.rules.as_ref().map(|rules| rules.written_rules().count()),
            "limits_from": self.rules.as_ref().map(tables_json),
            "diagnostics": diagnostics.into_iter().map(diagnostic_json).collect::<Vec<_>>(),
        })
    }
}

/// `3 limits in 1 domain`
fn summary(rules: &RuleSet) -> String {
    let limits = count(rules.written_rules().count(), "limit");
    let mut summary = format!("{limits} in {}", count(rules.domain_count(), "domain"));
    for table in rules.limit_tables() {
        // Writing to a string does not fail.
        let _ = write!(
            summary,
            "; {} from {}",
            count(table.len(), "limit"),
            table.source()
        );
    }
    summary
}

/// The files of limits, each with its lines.
fn tables_json(rules: &RuleSet) -> Value {
    let tables = rules.limit_tables();
    let tables = tables.map(|table| json!({"file": &**table.source(), "limits": table.len()}));
    tables.collect()
}

/// A diagnostic as JSON.
pub(super) fn diagnostic_json(diagnostic: &Diagnostic) -> Value {
    let related = diagnostic.related.iter();
    let related = related.map(|label| label_json(label, &diagnostic.file));
    let edit = |edit: &Edit| json!({"start": edit.start, "end": edit.end, "replacement": edit.replacement});
    json!({
        "severity": diagnostic.severity.name(),
        "code": diagnostic.code.name(),
        "message": diagnostic.message,
        "place": place_json(&diagnostic.file, diagnostic.span),
        "label": diagnostic.label,
        "rule": diagnostic.path,
        "help": diagnostic.help,
        "related": related.collect::<Vec<_>>(),
        "fixes": diagnostic.edits.iter().map(edit).collect::<Vec<_>>(),
    })
}

fn label_json(label: &Label, file: &str) -> Value {
    let file = label.file.as_deref().unwrap_or(file);
    json!({"label": label.text, "place": place_json(file, label.span)})
}

fn place_json(file: &str, span: Span) -> Value {
    if span.at.line == 0 {
        return json!({ "file": file });
    }
    // A line of a file of limits has no offsets.
    if (span.start, span.end) == (0, 0) && span.at.line > 1 {
        return json!({ "file": file, "line": span.at.line, "column": span.at.column });
    }
    json!({
        "file": file,
        "line": span.at.line,
        "column": span.at.column,
        "start": span.start,
        "end": span.end,
    })
}

/// A workflow command that annotates a line of a pull request.
fn annotation(diagnostic: &Diagnostic) -> String {
    let at = diagnostic.span.at;
    let place = match at.line {
        0 => String::new(),
        line => format!(",line={line},col={}", at.column),
    };
    let properties = format!("file={}{place}", property(&diagnostic.file));
    let title = property(diagnostic.code.name());
    let message = data(&format!(
        "{}\nhelp: {}",
        diagnostic.message, diagnostic.help
    ));
    format!(
        "::{} {properties},title={title}::{message}",
        diagnostic.severity.name()
    )
}

/// Escapes the message of a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A")
}

/// Escapes a property of a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
