//! `tollgate check RULES…`: reports every error and warning of rules files at once.
//!
//! Several paths are checked together, as one directory with all their files would be.
//!
//! The output is text, JSON, or annotations of a GitHub workflow.
//!
//! What it deliberately does not do: change files. A JSON report has the edits.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tollgate_limiter::RuleSet;

use super::arguments::{STDIN, read_file};
use crate::cli::Exit;
use crate::cli::output::{counted, stderr_is_coloured};
use crate::rules::file::{Code, Diagnostic, Edit, Label, Report, Span};
use crate::rules::path::{ReadError, RulesPath, Source, read_one};
use crate::rules::reload;
use crate::settings::RulesSettings;

/// The error when no rules are named.
const NO_RULES: &str =
    "error: no rules given; pass a file or a directory, or set TOLLGATE_RULES or RUNTIME_ROOT";

/// Arguments of `check`.
#[derive(Args, Debug)]
pub(crate) struct Check {
    /// Rules files, or directories of them; - reads standard input
    #[arg(env = "TOLLGATE_RULES")]
    rules: Vec<PathBuf>,

    /// Output format; github writes annotations for a pull request
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,

    /// Exit with code 1 when there are warnings
    #[arg(long)]
    deny_warnings: bool,

    #[command(flatten)]
    settings: RulesSettings,
}

/// An output format.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs, as `tollgate schema --for check` describes
    Json,
    /// Annotations of a GitHub workflow
    Github,
}

/// What was checked, and the result.
struct Checked {
    /// What was checked.
    name: String,
    report: Report,
    /// The rules, if they are valid.
    rules: Option<RuleSet>,
    deny_warnings: bool,
}

// === impl Check ===

impl Check {
    pub(super) fn run(self) -> Exit {
        let paths = self.paths();
        if paths.is_empty() {
            eprintln!("{NO_RULES}");
            return Exit::Usage;
        }
        let mut sources = Vec::new();
        let mut unreadable = Vec::new();
        let mut empty = Vec::new();
        for path in &paths {
            match read(path) {
                Ok(read) => {
                    empty.extend(reload::no_files(path, &read));
                    sources.extend(read);
                }
                Err(error) => unreadable.push(diagnostic(&error)),
            }
        }
        without_repeated(&mut sources);
        let overlay = self.settings.overlay.as_deref();
        let overlay = overlay.and_then(|path| match read_one(path) {
            Ok(read) => Some(read),
            Err(error) => {
                unreadable.push(diagnostic(&error));
                None
            }
        });
        let options = (&self.settings).into();
        let (mut report, rules) = match reload::load_overlaid(&sources, overlay.as_ref(), options) {
            Ok(rules) => {
                let loaded = rules.loaded;
                let report = Report {
                    warnings: loaded.warnings,
                    warnings_omitted: loaded.warnings_omitted,
                    ..Report::default()
                };
                (report, Some(loaded.rules))
            }
            Err(report) => (report, None),
        };
        let readable = unreadable.is_empty();
        report.errors.splice(0..0, unreadable);
        report.warnings.extend(empty);
        let checked = Checked {
            name: name(&paths),
            report,
            rules: rules.filter(|_| readable),
            deny_warnings: self.deny_warnings,
        };
        checked.print(self.format);
        if checked.is_accepted() {
            Exit::Success
        } else {
            Exit::Failure
        }
    }

    /// The paths that are given, or the one of the settings.
    fn paths(&self) -> Vec<RulesPath> {
        if self.rules.is_empty() {
            return self.settings.path(None).into_iter().collect();
        }
        self.rules.iter().cloned().map(RulesPath::Path).collect()
    }
}

fn read(path: &RulesPath) -> Result<Vec<Source>, ReadError> {
    match path {
        RulesPath::Path(path) if path == Path::new(STDIN.0) => Ok(vec![read_file(path)?]),
        path => path.read(),
    }
}

/// An error of reading as a diagnostic, so that every format reports it.
fn diagnostic(error: &ReadError) -> Diagnostic {
    let of = |code, span, file: &str, message: String, help: &str| {
        let mut diagnostic = Diagnostic::error(code, span, message).help(help);
        file.clone_into(&mut diagnostic.file);
        diagnostic
    };
    let nowhere = Span::default();
    match error {
        ReadError::Io { path, error } => {
            let message = format!("{path}: {error}");
            let help = "check the path and its permissions";
            of(Code::UnreadableFile, nowhere, path, message, help)
        }
        ReadError::NotText { path, at, offset } => {
            let span = Span {
                at: *at,
                start: *offset,
                end: *offset,
            };
            let help = "save the file as UTF-8; is it a rules file?";
            of(Code::NotUtf8, span, path, "not UTF-8 text".to_owned(), help)
        }
        ReadError::Empty { path } => {
            let message = "no rules file in this directory".to_owned();
            let help = "put a .yaml file there, or name a file";
            of(Code::NoFiles, nowhere, path, message, help)
        }
        ReadError::LimitExceeded { path, what } => {
            let help = "use fewer or smaller files";
            of(Code::TooLarge, nowhere, path, what.clone(), help)
        }
    }
}

/// Removes files that an earlier path names as well.
fn without_repeated(sources: &mut Vec<Source>) {
    let mut seen = HashSet::new();
    sources.retain(|source| {
        // What has no path, such as standard input, is itself.
        let path = fs::canonicalize(&source.name).unwrap_or_else(|_| (&source.name).into());
        seen.insert(path)
    });
}

/// What is checked, for the summary.
fn name(paths: &[RulesPath]) -> String {
    match paths {
        [RulesPath::Path(path)] if path == Path::new(STDIN.0) => STDIN.1.to_owned(),
        [RulesPath::Path(path)] => path.display().to_string(),
        [RulesPath::Runtime { directory, .. }] => directory.display().to_string(),
        several => format!("{} paths", several.len()),
    }
}

// === impl Checked ===

impl Checked {
    fn is_accepted(&self) -> bool {
        self.rules.is_some() && !(self.deny_warnings && self.warnings() > 0)
    }

    fn errors(&self) -> usize {
        self.report.errors.len() + self.report.errors_omitted
    }

    fn warnings(&self) -> usize {
        self.report.warnings.len() + self.report.warnings_omitted
    }

    fn print(&self, format: Format) {
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
            (errors, 0) => counted(errors, "error"),
            (0, warnings) => counted(warnings, "warning"),
            (errors, warnings) => {
                format!(
                    "{}, {}",
                    counted(errors, "error"),
                    counted(warnings, "warning")
                )
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
            "omitted": report.errors_omitted + report.warnings_omitted,
            "domains": self.rules.as_ref().map(RuleSet::domain_count),
            "limits": self.rules.as_ref().map(|rules| rules.written_rules().count()),
            "limits_from": self.rules.as_ref().map(tables_json),
            "diagnostics": diagnostics.into_iter().map(diagnostic_json).collect::<Vec<_>>(),
        })
    }
}

/// `3 limits in 1 domain`
fn summary(rules: &RuleSet) -> String {
    let limits = counted(rules.written_rules().count(), "limit");
    let mut summary = format!("{limits} in {}", counted(rules.domain_count(), "domain"));
    for table in rules.limit_tables() {
        let limits = counted(table.len(), "limit");
        // Writing to a string does not fail.
        let _ = write!(summary, "; {limits} from {}", table.source());
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
    let (message, help) = (&diagnostic.message, &diagnostic.help);
    let message = data(&format!("{message}\nhelp: {help}"));
    let severity = diagnostic.severity.name();
    format!("::{severity} {properties},title={title}::{message}")
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
