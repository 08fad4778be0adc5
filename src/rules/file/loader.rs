//! The state of one load: the rules and diagnostics so far, and the budget of the current file.
//!
//! The other files of this folder add the methods that read each part of a file.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use crate::rules::file::code::Code;
use crate::rules::file::diagnostic::{Diagnostic, Severity, Span};
use crate::rules::file::field_path::FieldPath;
use crate::rules::file::node_origin::NodeOrigins;
use crate::rules::file::replaced_names::ReplacedName;
use crate::rules::patterns::Automata;
use crate::rules::yaml::Node;
use crate::settings::RulesSettings;
use tollgate_limiter::RuleSet;

/// How many errors, and how many warnings, are reported in one run.
pub const DIAGNOSTICS_MAX: usize = 100;

/// How long a domain, key, value or name may be, in bytes.
pub const TEXT_BYTES_MAX: usize = 16 << 10;

/// How much is walked for each byte of a file, aliases unfolded, and how much at least. A byte of
/// text counts 1.
const UNFOLDING_PER_BYTE: usize = 16;
const UNFOLDING_MIN: usize = 100_000;

/// What a node counts, without its text.
const UNFOLDING_OF_A_NODE: usize = 4;

/// How several files are combined.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Options {
    /// Several files may hold rules of one domain.
    pub merge_domains: bool,
}

/// The result of loading files.
#[derive(Clone, Debug)]
pub struct LoadedRules {
    /// The rules.
    pub rules: RuleSet,
    /// Warnings, which do not prevent the load.
    pub warnings: Vec<Diagnostic>,
}

/// The pass over a file in which the reference finds an error. It stops at the first pass that
/// finds one; here the errors of earlier passes come first, so that the first line is the same.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Phase {
    /// Names, and values that no name may have.
    Names,
    /// Types.
    Types,
    /// Meaning.
    Meaning,
}

/// Walks rules files and collects rules and diagnostics.
pub(super) struct Loader<'s> {
    pub(super) options: Options,
    pub(super) rules: RuleSet,
    pub(super) errors: Vec<(Phase, Diagnostic)>,
    pub(super) warnings: Vec<Diagnostic>,
    /// The name of the current file.
    pub(super) file: &'s str,
    /// How much more of the current file may be walked; none when the budget is used up.
    pub(super) unfolding_left: Option<usize>,
    pub(super) automata: Automata,
    /// Regular expressions that are valid, so that each is checked once, and their words.
    pub(super) valid_regexes: HashMap<String, Option<Vec<Vec<u8>>>>,
    /// Where each node of the rules was written.
    pub(super) origins: NodeOrigins<'s>,
    /// The places of the names in `replaces`, in the order of the rules.
    pub(super) replaced_names: Vec<ReplacedName>,
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
        }
    }
}

// === impl Loader ===

impl<'s> Loader<'s> {
    pub(super) fn new(options: Options) -> Self {
        Self {
            options,
            rules: RuleSet::default(),
            errors: Vec::new(),
            warnings: Vec::new(),
            file: "",
            unfolding_left: None,
            automata: Automata::default(),
            valid_regexes: HashMap::new(),
            origins: NodeOrigins::default(),
            replaced_names: Vec::new(),
        }
    }

    /// Loads one file, and sorts its errors into the reference's order.
    pub(super) fn file<'f>(&mut self, name: &'f str, budget: usize, load: impl FnOnce(&mut Self))
    where
        'f: 's,
    {
        self.file = name;
        self.unfolding_left = Some(budget);
        let before = self.errors.len();
        load(self);
        if let Some(new) = self.errors.get_mut(before..) {
            new.sort_by_key(|(phase, _)| *phase);
        }
    }

    /// Compiles the patterns of all files, and gives the rules or the errors.
    pub(super) fn finish(mut self) -> Result<LoadedRules, Vec<Diagnostic>> {
        self.compile();
        if self.errors.is_empty() {
            self.warn_unreachable_nodes();
            self.warn_unknown_replaced_names();
            Ok(LoadedRules {
                rules: self.rules,
                warnings: self.warnings,
            })
        } else {
            let errors = self.errors.into_iter();
            Err(errors.map(|(_, error)| error).collect())
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
            self.error(at, path, message, "use fewer aliases within aliases");
        }
        self.unfolding_left.is_some()
    }

    /// Whether a text keeps its bound; reports it if not.
    pub(super) fn check_length(&mut self, text: &str, at: Span, path: &FieldPath<'_>) -> bool {
        let fits = text.len() <= TEXT_BYTES_MAX;
        if !fits {
            let message = format!("a text is longer than {TEXT_BYTES_MAX} bytes");
            self.error(at, path, message, "shorten it");
        }
        fits
    }

    pub(super) fn error(&mut self, at: Span, path: &FieldPath<'_>, message: String, advice: &str) {
        self.error_in(Phase::Meaning, at, path, message, advice);
    }

    pub(super) fn error_in(
        &mut self,
        phase: Phase,
        at: Span,
        path: &FieldPath<'_>,
        message: String,
        advice: &str,
    ) {
        let error = Diagnostic::error(Code::Invalid, at, message).help(advice);
        self.report_in(phase, path, error);
    }

    /// Records a diagnostic of the current file about the rule at `path`.
    pub(super) fn report(&mut self, path: &FieldPath<'_>, diagnostic: Diagnostic) {
        self.report_in(Phase::Meaning, path, diagnostic);
    }

    /// Records a diagnostic that the reference finds in this phase.
    pub(super) fn report_in(&mut self, phase: Phase, path: &FieldPath<'_>, diagnostic: Diagnostic) {
        self.report_at(phase, (self.file, path), diagnostic);
    }

    /// Records a diagnostic about the rule at a path of a file.
    pub(super) fn report_at(
        &mut self,
        phase: Phase,
        (file, path): (&str, &dyn fmt::Display),
        mut diagnostic: Diagnostic,
    ) {
        let so_far = match diagnostic.severity {
            Severity::Error => self.errors.len(),
            Severity::Warning => self.warnings.len(),
        };
        if so_far >= DIAGNOSTICS_MAX {
            return;
        }
        file.clone_into(&mut diagnostic.file);
        diagnostic.path = path.to_string();
        match diagnostic.severity {
            Severity::Error => self.errors.push((phase, diagnostic)),
            Severity::Warning => self.warnings.push(diagnostic),
        }
    }

    /// Whether a warning of the current file is to be reported: not beyond the bound, and not again,
    /// since an alias is walked each time it is used.
    pub(super) fn is_new_warning(&self, code: Code, span: Span) -> bool {
        let is_same = |one: &Diagnostic| {
            one.code == code && one.span == span && span.at.line > 0 && one.file == self.file
        };
        self.warnings.len() < DIAGNOSTICS_MAX && !self.warnings.iter().any(is_same)
    }

    pub(super) fn warning(
        &mut self,
        at: Span,
        path: &FieldPath<'_>,
        message: String,
        advice: &str,
    ) {
        if self.is_new_warning(Code::NoEffect, at) {
            let warning = Diagnostic::warning(Code::NoEffect, at, message).help(advice);
            self.report(path, warning);
        }
    }
}
