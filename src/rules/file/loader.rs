//! The state of one load: the rules and diagnostics so far, and the budget of the current file.
//!
//! The other files of this folder add the methods that read each part of a file.

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use crate::rules::file::bounds::{DIAGNOSTICS_MAX, ERRORS_COUNTED_MAX};
use crate::rules::file::code::Code;
use crate::rules::file::diagnostic::{Diagnostic, Found, Phase, Severity, Span};
use crate::rules::file::field_path::FieldPath;
use crate::rules::file::node_origin::{FilePlace, NodeOrigin, ReplacedName};
use crate::rules::file::report::Report;
use crate::rules::file::rule_origin::RuleOrigins;
use crate::rules::path::Source;
use crate::rules::patterns::Automata;
use crate::rules::yaml::Node;
use crate::settings::RulesSettings;
use tollgate_limiter::RuleSet;

/// How long a domain, key, value or name may be, in bytes.
pub const TEXT_BYTES_MAX: usize = 16 << 10;

/// How much is walked for each byte of a file, aliases unfolded, and how much at least. A byte of
/// text counts 1.
const UNFOLDING_PER_BYTE: usize = 16;
const UNFOLDING_MIN: usize = 100_000;

/// What a node counts, without its text.
const UNFOLDING_OF_A_NODE: usize = 4;

/// How several files are combined, and what is added to them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Options {
    /// Several files may hold rules of one domain.
    pub merge_domains: bool,
    /// The file of an overlay.
    pub overlay: Option<PathBuf>,
}

/// The result of loading files.
#[derive(Clone, Debug)]
pub struct LoadedRules {
    /// The rules.
    pub rules: RuleSet,
    /// Warnings, which do not prevent the load.
    pub warnings: Vec<Diagnostic>,
    /// How many more warnings there are.
    pub warnings_omitted: usize,
    /// Where the rules were written.
    pub origins: RuleOrigins,
}

/// Walks rules files and collects rules and diagnostics.
pub(super) struct Loader<'s> {
    pub(super) options: Options,
    /// The file is an overlay.
    pub(super) is_overlay: bool,
    pub(super) rules: RuleSet,
    pub(super) origins: RuleOrigins,
    pub(super) report: Report,
    /// How many diagnostics there are so far.
    found: usize,
    /// The names of the files so far; the last one is the current file.
    files: Vec<&'s str>,
    /// The text of the current file; empty when it is no text.
    pub(super) text: &'s str,
    /// How much more of the current file may be walked; none when the budget is used up.
    pub(super) unfolding_left: Option<usize>,
    pub(super) automata: Automata,
    /// Regular expressions that are valid, so that each is checked once, and their words.
    pub(super) valid_regexes: HashMap<String, Option<Vec<Vec<u8>>>>,
    /// Where nodes were written, by their index: for what is found when all files are read.
    pub(super) nodes: Vec<NodeOrigin>,
    /// The places of the items of lists, by the index of the node.
    pub(super) items: HashMap<usize, Box<[Span]>>,
    /// The places of the names in `replaces`, in the order of the rules.
    pub(super) replaced_names: Vec<ReplacedName>,
    /// Where domains and their settings were written.
    pub(super) domains: HashMap<String, DomainOrigin>,
}

/// Where a domain was written first, and its settings last.
#[derive(Clone, Copy, Debug)]
pub(super) struct DomainOrigin {
    pub(super) name: FilePlace,
    pub(super) all_or_nothing: Option<FilePlace>,
    pub(super) on_store_failure: Option<FilePlace>,
}

/// How much may be walked of a file with this text.
pub(super) fn unfolding_budget(text: &str) -> usize {
    let walked = text.len().saturating_mul(UNFOLDING_PER_BYTE);
    walked.max(UNFOLDING_MIN)
}

// === impl Options ===

impl From<&RulesSettings> for Options {
    fn from(settings: &RulesSettings) -> Self {
        Self {
            merge_domains: settings.merge_domain_config,
            overlay: settings.overlay.clone(),
        }
    }
}

// === impl Loader ===

impl<'s> Loader<'s> {
    pub(super) fn new(options: Options) -> Self {
        Self {
            options,
            is_overlay: false,
            rules: RuleSet::default(),
            origins: RuleOrigins::default(),
            report: Report::default(),
            found: 0,
            files: Vec::new(),
            text: "",
            unfolding_left: None,
            automata: Automata::default(),
            valid_regexes: HashMap::new(),
            nodes: Vec::new(),
            items: HashMap::new(),
            replaced_names: Vec::new(),
            domains: HashMap::new(),
        }
    }

    /// Begins a file with this name and text, of which so much may be walked.
    pub(super) fn file(&mut self, name: &'s str, text: &'s str, budget: usize) {
        self.files.push(name);
        self.text = text;
        self.unfolding_left = Some(budget);
    }

    /// Reads an overlay, not rules.
    pub(super) fn of_an_overlay(self) -> Self {
        Self {
            is_overlay: true,
            ..self
        }
    }

    /// The diagnostics, in the order in which they were found.
    pub(super) fn into_report(self) -> Report {
        self.report
    }

    /// Compiles the patterns of all files. Gives whether the rules are valid.
    pub(super) fn complete(&mut self) -> bool {
        self.compile();
        let are_valid = self.report.errors.is_empty();
        if are_valid {
            self.warn_unreachable_nodes();
        }
        are_valid
    }

    /// The rules, or the errors; with the report of an overlay, and its name.
    pub(super) fn into_result(
        mut self,
        sources: &[&Source],
        overlay: Option<(Report, &str)>,
    ) -> Result<LoadedRules, Report> {
        let name = overlay.as_ref().map(|(_, name)| *name);
        self.origins.name_files(&self.files, name);
        let mut report = self.report;
        if let Some((of_overlay, _)) = overlay {
            let are_valid = report.errors.is_empty();
            report.append(of_overlay, self.files.len());
            report.only_overlay = are_valid && !report.errors.is_empty();
        }
        report.complete(sources);
        if report.errors.is_empty() {
            Ok(LoadedRules {
                rules: self.rules,
                warnings: report.warnings,
                warnings_omitted: report.warnings_omitted,
                origins: self.origins,
            })
        } else {
            Err(report)
        }
    }

    /// How many errors there are so far.
    pub(super) fn error_count(&self) -> usize {
        let report = &self.report;
        report.errors.len().saturating_add(report.errors_omitted)
    }

    /// Whether there are so many errors that the rest of the files is not walked.
    pub(super) fn gives_up(&self) -> bool {
        self.error_count() >= ERRORS_COUNTED_MAX
    }

    /// Whether further errors are only counted.
    pub(super) fn only_counts(&self) -> bool {
        self.report.errors.len() >= DIAGNOSTICS_MAX
    }

    /// Counts an error that is not shown: to describe it would cost time.
    pub(super) fn count_error(&mut self) {
        let omitted = &mut self.report.errors_omitted;
        *omitted = omitted.saturating_add(1);
    }

    /// A place in the current file.
    pub(super) fn place(&self, span: Span) -> FilePlace {
        let file = self.files.len().saturating_sub(1);
        FilePlace { file, span }
    }

    /// Adds a place of any file to a diagnostic of the current one.
    pub(super) fn cite(&self, diagnostic: Diagnostic, place: FilePlace, label: &str) -> Diagnostic {
        match self.files.get(place.file) {
            // A document that is not text has no places.
            _ if place.span.at.line == 0 => diagnostic,
            Some(file) if place.file.saturating_add(1) != self.files.len() => {
                diagnostic.related_in(*file, place.span, label)
            }
            _ => diagnostic.related(place.span, label),
        }
    }

    /// Takes nodes and their texts off the budget. Reports once that the budget is used up.
    pub(super) fn spend<'n>(
        &mut self,
        nodes: impl IntoIterator<Item = &'n Rc<Node>>,
        at: Span,
        path: &FieldPath<'_>,
    ) -> bool {
        let Some(left) = self.unfolding_left else {
            return false;
        };
        self.unfolding_left = nodes.into_iter().try_fold(left, |left, node| {
            let text = node.text().map_or(0, str::len);
            left.checked_sub(UNFOLDING_OF_A_NODE)?.checked_sub(text)
        });
        if self.unfolding_left.is_none() {
            let message =
                format!("aliases unfold to more than {UNFOLDING_PER_BYTE} times the file");
            let help = "use fewer aliases within aliases";
            self.error(Code::TooLarge, at, path, message, help);
        }
        self.unfolding_left.is_some()
    }

    /// Whether a text keeps its bound; reports it if not.
    pub(super) fn check_length(&mut self, text: &str, at: Span, path: &FieldPath<'_>) -> bool {
        let fits = text.len() <= TEXT_BYTES_MAX;
        if !fits {
            let message = format!("a text is longer than {TEXT_BYTES_MAX} bytes");
            self.error(Code::TooLarge, at, path, message, "shorten it");
        }
        fits
    }

    /// Records an error.
    pub(super) fn error(
        &mut self,
        code: Code,
        span: Span,
        path: &FieldPath<'_>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.report(path, Diagnostic::error(code, span, message).help(help));
    }

    /// Records an error of a type, which the reference finds when it decodes.
    pub(super) fn type_error(&mut self, path: &FieldPath<'_>, mut error: Diagnostic) {
        error
            .message
            .insert_str(0, "error loading config file: yaml: ");
        self.report_in(Phase::Types, path, error);
    }

    /// Records a diagnostic of the current file about the rule at `path`.
    pub(super) fn report(&mut self, path: &FieldPath<'_>, diagnostic: Diagnostic) {
        self.report_in(Phase::Meaning, path, diagnostic);
    }

    /// Records a diagnostic that the reference finds in this phase.
    pub(super) fn report_in(&mut self, phase: Phase, path: &FieldPath<'_>, diagnostic: Diagnostic) {
        let file = self.files.len().saturating_sub(1);
        self.record(file, phase, diagnostic, || path.to_string());
    }

    /// Records a diagnostic of a file.
    pub(super) fn record(
        &mut self,
        file: usize,
        phase: Phase,
        mut diagnostic: Diagnostic,
        path: impl FnOnce() -> String,
    ) {
        let report = &mut self.report;
        let (all, omitted) = match diagnostic.severity {
            Severity::Error => (&mut report.errors, &mut report.errors_omitted),
            Severity::Warning => (&mut report.warnings, &mut report.warnings_omitted),
        };
        if all.len() >= DIAGNOSTICS_MAX {
            *omitted = omitted.saturating_add(1);
            return;
        }
        diagnostic.found = Found {
            file,
            phase,
            number: self.found,
        };
        self.found = self.found.saturating_add(1);
        let name = self.file_name(file);
        name.clone_into(&mut diagnostic.file);
        diagnostic.path = path();
        match diagnostic.severity {
            Severity::Error => self.report.errors.push(diagnostic),
            Severity::Warning => self.report.warnings.push(diagnostic),
        }
    }

    /// The name of a file by its index.
    pub(super) fn file_name(&self, file: usize) -> &'s str {
        self.files.get(file).copied().unwrap_or_default()
    }

    /// Whether a warning of the current file is to be recorded: not beyond the bound, and once,
    /// although an alias is walked each time it is used.
    pub(super) fn is_new_warning(&mut self, code: Code, span: Span) -> bool {
        let file = self.files.len().saturating_sub(1);
        let is_same = |one: &Diagnostic| {
            one.code == code && one.span == span && span.at.line > 0 && one.found.file == file
        };
        if self.report.warnings.iter().any(is_same) {
            return false;
        }
        let is_full = self.warnings_are_full();
        if is_full {
            self.omit_warnings(1);
        }
        !is_full
    }

    /// Whether further warnings are only counted.
    pub(super) fn warnings_are_full(&self) -> bool {
        self.report.warnings.len() >= DIAGNOSTICS_MAX
    }

    /// Counts warnings that are not reported.
    pub(super) fn omit_warnings(&mut self, number: usize) {
        let omitted = &mut self.report.warnings_omitted;
        *omitted = omitted.saturating_add(number);
    }

    /// Whether there is a warning of the rule at this path of a file.
    pub(super) fn has_warning(&self, file: usize, path: &str) -> bool {
        let mut warnings = self.report.warnings.iter();
        warnings.any(|one| one.found.file == file && one.path == path)
    }
}
