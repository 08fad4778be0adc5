//! The state of one load: the rules so far, and the reader with its diagnostics.
//!
//! The other files of this folder add the methods that read each part of a file.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;

use crate::file::diagnostic::{Diagnostic, FilePlace, Span};
use crate::file::grammar::{OVERLAY, RULES};
use crate::file::grammar_field::Grammar;
use crate::file::limit_files::{LimitFiles, LoadedTable};
use crate::file::reader::Reader;
use crate::file::report::Report;
use crate::file::rule_origin::RuleOrigins;
use crate::path::Source;
use crate::patterns::Automata;
use tollgate_limiter::{Level, Parent, RuleSet};

/// How several files are combined, and what is added to them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Options {
    /// Several files may hold rules of one domain.
    pub merge_domains: bool,
    /// The file of an overlay.
    pub overlay: Option<PathBuf>,
    /// Reads the files that `limits_from` names; none where rules are no files.
    pub limit_files: Option<LimitFiles>,
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
    /// The files of limits.
    pub tables: Vec<LoadedTable>,
}

/// Walks rules files and collects rules and diagnostics.
pub(super) struct Loader<'s> {
    pub(super) options: Options,
    pub(super) rules: RuleSet,
    pub(super) origins: RuleOrigins,
    reader: Reader<'s>,
    pub(super) automata: Automata,
    /// Regular expressions that are valid, so that each is checked once, and their words.
    pub(super) valid_regexes: HashMap<String, Option<Vec<Vec<u8>>>>,
    /// Where nodes were written, by their index: for what is found when all files are read.
    pub(super) nodes: Vec<NodeOrigin>,
    /// The places of the items of lists, by the index of the node.
    pub(super) items: HashMap<usize, Box<[Span]>>,
    /// The places of the names in `replaces`, in the order of the rules.
    pub(super) replaced_names: Vec<LimitFieldOrigin>,
    /// The places of the budgets that limits name, in the order of the rules.
    pub(super) budgets: Vec<LimitFieldOrigin>,
    /// The places of the limits with `rlqs`, in the order of the rules.
    pub(super) quotas: Vec<LimitFieldOrigin>,
    /// Where domains and their settings were written.
    pub(super) domains: HashMap<String, DomainOrigin>,
    /// The files of limits, in the order of the rules.
    pub(super) tables: Vec<LoadedTable>,
}

/// Where the level of a node was written. There can be very many, so its path is formatted only
/// for a diagnostic.
#[derive(Clone, Debug)]
pub(super) struct NodeOrigin {
    /// The node above; none at the root of a domain.
    pub(super) parent: Option<usize>,
    pub(super) domain: Arc<str>,
    pub(super) level: Arc<Level>,
    /// The place of its values, or of its key.
    pub(super) place: FilePlace,
    /// Its index in the list of descriptors.
    pub(super) index: usize,
}

/// Where a limit has a field that is compared with other limits. The rest is in the rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitFieldOrigin {
    /// The limit's node.
    pub(super) node: usize,
    pub(super) place: FilePlace,
}

/// Where a domain was written first, and its settings last.
#[derive(Clone, Copy, Debug)]
pub(super) struct DomainOrigin {
    pub(super) name: FilePlace,
    pub(super) all_or_nothing: Option<FilePlace>,
    pub(super) on_store_failure: Option<FilePlace>,
}

// === impl Loader ===

impl Loader<'_> {
    pub(super) fn new(options: Options) -> Self {
        Self {
            options,
            rules: RuleSet::default(),
            origins: RuleOrigins::default(),
            reader: Reader::new(&RULES),
            automata: Automata::default(),
            valid_regexes: HashMap::new(),
            nodes: Vec::new(),
            items: HashMap::new(),
            replaced_names: Vec::new(),
            budgets: Vec::new(),
            quotas: Vec::new(),
            domains: HashMap::new(),
            tables: Vec::new(),
        }
    }

    /// Reads an overlay, not rules.
    pub(super) fn of_an_overlay(mut self) -> Self {
        self.read_by(&OVERLAY);
        self
    }

    /// Reads files of another grammar.
    pub(super) fn read_by(&mut self, grammar: &'static Grammar) {
        self.reader.grammar = grammar;
    }

    /// The errors so far. They do not count any more, and neither do warnings.
    pub(super) fn take_errors(&mut self) -> Vec<Diagnostic> {
        std::mem::take(&mut self.reader.report).errors
    }

    /// The diagnostics, in the order in which they were found.
    pub(super) fn into_report(self) -> Report {
        self.reader.report
    }

    /// A field of a limit of the newest node.
    pub(super) fn limit_field(&self, span: Span) -> LimitFieldOrigin {
        LimitFieldOrigin {
            node: self.nodes.len().saturating_sub(1),
            place: self.place(span),
        }
    }

    /// Compiles the patterns of all files. Gives whether the rules are valid.
    pub(super) fn complete(&mut self) -> bool {
        self.compile();
        let are_valid =
            self.report.errors.is_empty() && self.check_budgets() && self.check_quotas();
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
        self.origins.name_files(&self.reader.files, name);
        let files = self.files.len();
        let mut report = self.reader.report;
        if let Some((of_overlay, _)) = overlay {
            let are_valid = report.errors.is_empty();
            report.append(of_overlay, files);
            report.only_overlay = are_valid && !report.errors.is_empty();
        }
        report.complete(sources);
        if report.errors.is_empty() {
            Ok(LoadedRules {
                rules: self.rules,
                warnings: report.warnings,
                warnings_omitted: report.warnings_omitted,
                origins: self.origins,
                tables: self.tables,
            })
        } else {
            Err(report)
        }
    }

    /// How many errors and warnings there are.
    pub(super) fn mark(&self) -> (usize, usize) {
        (self.report.errors.len(), self.report.warnings.len())
    }

    /// Completes what was reported since a mark: an error without a place gets this one, a warning
    /// without a place and what was reported before are removed, and each gets the path.
    pub(super) fn place_since(&mut self, (errors, warnings): (usize, usize), at: Span, path: &str) {
        let report = &mut self.report;
        report.warnings = without_repeats(&mut report.warnings, warnings, |warning| {
            warning.span.at.line > 0
        });
        for error in report.errors.iter_mut().skip(errors) {
            if error.span.at.line == 0 {
                error.span = at;
            }
            error.related.retain(|related| related.span.at.line > 0);
        }
        report.errors = without_repeats(&mut report.errors, errors, |_| true);
        let later = report.errors.iter_mut().skip(errors);
        for one in later.chain(report.warnings.iter_mut().skip(warnings)) {
            path.clone_into(&mut one.path);
        }
    }
}

impl<'s> Deref for Loader<'s> {
    type Target = Reader<'s>;

    fn deref(&self) -> &Self::Target {
        &self.reader
    }
}

impl DerefMut for Loader<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.reader
    }
}

/// The diagnostics without those after the first `known` that are not kept or repeat another.
fn without_repeats(
    all: &mut Vec<Diagnostic>,
    known: usize,
    keep: impl Fn(&Diagnostic) -> bool,
) -> Vec<Diagnostic> {
    let mut later = all.split_off(known.min(all.len()));
    later.retain(&keep);
    let mut kept = std::mem::take(all);
    for one in later {
        let is_same = |other: &Diagnostic| {
            (other.code, other.span, &other.message) == (one.code, one.span, &one.message)
        };
        if !kept.iter().any(is_same) {
            kept.push(one);
        }
    }
    kept
}

/// The index of a parent; none for a domain.
pub(super) fn node_of(parent: Parent<'_>) -> Option<usize> {
    match parent {
        Parent::Domain(_) => None,
        Parent::Node(node) => Some(node),
    }
}
