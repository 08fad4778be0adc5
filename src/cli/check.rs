//! `tollgate check RULES…`: reports every error and warning of rules files at once.
//!
//! Several paths are checked together, as one directory with all their files would be.
//!
//! What it deliberately does not do: change files. A JSON report has the edits.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use super::check_format::{Checked, Format};
use super::{Exit, rules_argument};
use crate::rules::file::{Code, Diagnostic, Report, Span};
use crate::rules::path::{ReadError, RulesPath, Source, read_all, read_one};
use crate::rules::reload;
use crate::settings::RulesSettings;

/// The name of standard input, as an argument and in messages.
const STDIN: (&str, &str) = ("-", "<stdin>");

/// Arguments of `check`.
#[derive(Args, Debug)]
pub(super) struct Check {
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

// === impl Check ===

impl Check {
    pub(super) fn run(self) -> Exit {
        let paths = self.paths();
        if paths.is_empty() {
            eprintln!("{}", rules_argument::NO_RULES);
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
        RulesPath::Path(path) if path == Path::new(STDIN.0) => {
            let source = read_all(Path::new(STDIN.1), std::io::stdin().lock())?;
            Ok(vec![source])
        }
        path => path.read(),
    }
}

/// An error of reading as a diagnostic, so that every format reports it.
fn diagnostic(error: &ReadError) -> Diagnostic {
    let (code, file, message, help) = match error {
        ReadError::Io { path, error } => (
            Code::UnreadableFile,
            path,
            format!("{path}: {error}"),
            "check the path and its permissions",
        ),
        ReadError::NotText { path, .. } => (
            Code::NotUtf8,
            path,
            "not UTF-8 text".to_owned(),
            "save the file as UTF-8; is it a rules file?",
        ),
        ReadError::Empty { path } => (
            Code::NoFiles,
            path,
            "no rules file in this directory".to_owned(),
            "put a .yaml file there, or name a file",
        ),
        ReadError::LimitExceeded { path, what } => (
            Code::TooLarge,
            path,
            what.clone(),
            "use fewer or smaller files",
        ),
    };
    let mut span = Span::default();
    if let ReadError::NotText { at, offset, .. } = error {
        span = Span {
            at: *at,
            start: *offset,
            end: *offset,
        };
    }
    let mut diagnostic = Diagnostic::error(code, span, message).help(help);
    file.clone_into(&mut diagnostic.file);
    diagnostic
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
