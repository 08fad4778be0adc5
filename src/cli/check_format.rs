//! The output of `tollgate check`: text, JSON, or annotations of a GitHub workflow.
//!
//! The schema of the JSON form is made here, from the same table of codes.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::rules::file::{Code, Diagnostic, Edit, Label, Report, Span};
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
            "limits": self.rules.as_ref().map(|rules| rules.rules().len()),
            "diagnostics": diagnostics.into_iter().map(diagnostic_json).collect::<Vec<_>>(),
        })
    }
}

/// `3 limits in 1 domain`
fn summary(rules: &RuleSet) -> String {
    let limits = count(rules.rules().len(), "limit");
    format!("{limits} in {}", count(rules.domain_count(), "domain"))
}

fn diagnostic_json(diagnostic: &Diagnostic) -> Value {
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
    json!({
        "file": file,
        "line": span.at.line,
        "column": span.at.column,
        "start": span.start,
        "end": span.end,
    })
}

/// The JSON Schema of the JSON form.
pub(super) fn schema() -> Value {
    let codes: Vec<_> = Code::ALL.iter().map(|code| code.name()).collect();
    let abouts = Code::ALL.iter();
    let abouts: Vec<_> = abouts
        .map(|code| format!("{}: {}", code.name(), code.about()))
        .collect();
    let count = |about: &str| json!({"type": "integer", "minimum": 0, "description": about});
    let total =
        |about: &str| json!({"type": ["integer", "null"], "minimum": 0, "description": about});
    let text = |about: &str| json!({"type": "string", "description": about});
    let object = |about: &str, required: &[&str], properties: Value| {
        json!({
            "type": "object",
            "description": about,
            "required": required,
            "additionalProperties": false,
            "properties": properties,
        })
    };
    let place = object(
        "A place in a file. Only `file` is set where there is no text.",
        &["file"],
        json!({
            "file": text("The path as it was given, or <stdin>."),
            "line": {"type": "integer", "minimum": 1, "description": "Line, from 1."},
            "column": {"type": "integer", "minimum": 1, "description": "Column in characters, from 1."},
            "start": count("Offset of the first byte."),
            "end": count("Offset of the byte after the last one."),
        }),
    );
    let fix = object(
        "A replacement of bytes of the file. Offsets are those of the file as it was checked.",
        &["start", "end", "replacement"],
        json!({
            "start": count("Offset of the first byte to replace."),
            "end": count("Offset of the byte after the last one; equal to start for an insertion."),
            "replacement": text("The new text."),
        }),
    );
    let related = object(
        "Another place that matters.",
        &["label", "place"],
        json!({"label": text("What is there."), "place": {"$ref": "#/$defs/place"}}),
    );
    let diagnostic = object(
        "One error or warning.",
        &[
            "severity", "code", "message", "place", "label", "rule", "help", "related", "fixes",
        ],
        json!({
            "severity": {"enum": ["error", "warning"], "description": "Errors make the rules invalid."},
            "code": {"enum": codes, "description": abouts.join(" ")},
            "message": text("What is wrong."),
            "place": {"$ref": "#/$defs/place"},
            "label": text("A few words at the place; may be empty."),
            "rule": text("The rule, as descriptors[0].rate_limit; empty at the root."),
            "help": text("What to do."),
            "related": {"type": "array", "items": {"$ref": "#/$defs/related"}, "description": "Other places, such as the first of two duplicates."},
            "fixes": {"type": "array", "items": {"$ref": "#/$defs/fix"}, "description": "Edits that correct it, to be applied together; empty when there is more than one way."},
        }),
    );
    let mut schema = object(
        "The output of `tollgate check --format json`.",
        &[
            "valid",
            "errors",
            "warnings",
            "omitted",
            "domains",
            "limits",
            "diagnostics",
        ],
        json!({
            "valid": {"type": "boolean", "description": "Whether tollgate would use the rules."},
            "errors": count("Number of errors."),
            "warnings": count("Number of warnings."),
            "omitted": count("Number of errors and warnings that are not listed."),
            "domains": total("Number of domains of valid rules."),
            "limits": total("Number of limits of valid rules."),
            "diagnostics": {"type": "array", "items": {"$ref": "#/$defs/diagnostic"}, "description": "In the order of the files."},
        }),
    );
    if let Some(schema) = schema.as_object_mut() {
        let draft = "https://json-schema.org/draft/2020-12/schema";
        schema.insert("$schema".to_owned(), draft.into());
        schema.insert("title".to_owned(), "tollgate check".into());
        let parts =
            json!({"place": place, "fix": fix, "related": related, "diagnostic": diagnostic});
        schema.insert("$defs".to_owned(), parts);
    }
    schema
}

/// A workflow command that annotates a line of a pull request.
fn annotation(diagnostic: &Diagnostic) -> String {
    let mut properties = format!("file={}", property(&diagnostic.file));
    if diagnostic.span.at.line > 0 {
        let at = diagnostic.span.at;
        properties.push_str(&format!(",line={},col={}", at.line, at.column));
    }
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
