//! The state of one load: the rules so far, and the reader with its diagnostics.
//!
//! The other files of this folder add the methods that read each part of a file.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

use crate::rules::file::diagnostic::{Diagnostic, Span};
use crate::rules::file::grammar::RULES;
use crate::rules::file::node_origin::{FilePlace, NodeOrigin, ReplacedName};
use crate::rules::file::reader::Reader;
use crate::rules::file::report::Report;
use crate::rules::path::Source;
use crate::rules::patterns::Automata;
use crate::settings::RulesSettings;
use tollgate_limiter::RuleSet;

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
    /// How many more warnings there are.
    pub warnings_omitted: usize,
}

/// Walks rules files and collects rules and diagnostics.
pub(super) struct Loader<'s> {
    pub(super) options: Options,
    pub(super) rules: RuleSet,
    reader: Reader<'s>,
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
            reader: Reader::new(&RULES),
            automata: Automata::default(),
            valid_regexes: HashMap::new(),
            nodes: Vec::new(),
            items: HashMap::new(),
            replaced_names: Vec::new(),
            domains: HashMap::new(),
        }
    }

    /// Compiles the patterns of all files, and gives the rules or the errors.
    pub(super) fn finish(mut self, sources: &[Source]) -> Result<LoadedRules, Report> {
        self.compile();
        if self.report.errors.is_empty() {
            self.warn_unreachable_nodes();
            self.warn_unknown_replaced_names();
        }
        let report = self.reader.into_report(sources);
        if report.errors.is_empty() {
            Ok(LoadedRules {
                rules: self.rules,
                warnings: report.warnings,
                warnings_omitted: report.warnings_omitted,
            })
        } else {
            Err(report)
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
