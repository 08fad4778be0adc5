//! Reads a file of tests, and the rules that it names.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::rule_tests::grammar::{ROOT, TEST, TESTS};
use crate::rule_tests::moments::{Invalid, Moment, moment};
use crate::rule_tests::test_file::{RuleFiles, Test, TestFile};
use crate::rule_tests::watched_path::WatchedPath;
use crate::rule_tests::{ASKS_MAX, FILE_BYTES_MAX, PROXY_SECONDS_MAX, STEPS_MAX, TESTS_MAX};
use crate::rules::excerpt::excerpt;
use crate::rules::file::{
    Code, Diagnostic, FieldPath, Fields, Reader, Report, Span, unfolding_budget,
};
use crate::rules::path::{ReadError, Source, read_one};
use crate::rules::yaml::{Content, Node};
use crate::settings::Settings;

/// Why a file of tests cannot run.
#[derive(Debug)]
pub enum LoadFailure {
    /// It cannot be read.
    Read(ReadError),
    /// It, or rules that it names, have errors.
    Reports {
        /// The errors, a report for each set of files that is read as one.
        reports: Vec<Report>,
        /// Every path that the file names, as it was before it was read.
        watched: Vec<WatchedPath>,
    },
}

/// Reads one file of tests.
pub(super) struct Loader<'s> {
    pub(super) reader: Reader<'s>,
    /// The folder of the file.
    pub(super) folder: &'s Path,
    pub(super) settings: Box<Settings>,
    /// Rules that were read, by their paths.
    pub(super) rules: HashMap<Vec<PathBuf>, Option<Arc<RuleFiles>>>,
    pub(super) watched: Vec<WatchedPath>,
    /// What is added to all rules.
    pub(super) overlay: Option<Source>,
    /// Errors of rules.
    pub(super) reports: Vec<Report>,
    /// How often all steps ask.
    pub(super) asks: u64,
    /// How long all proxies play, in seconds.
    pub(super) proxy_seconds: u64,
}

/// Reads the file of tests at a path, and the rules that it names.
///
/// # Errors
///
/// When the file cannot be read, or it or its rules have errors: all of them.
pub fn load(path: &Path) -> Result<TestFile, LoadFailure> {
    let source = read_one(path).map_err(LoadFailure::Read)?;
    if source.text.len() as u64 > FILE_BYTES_MAX {
        let what = format!("larger than {} MiB; split it", FILE_BYTES_MAX >> 20);
        let path = path.display().to_string();
        return Err(LoadFailure::Read(ReadError::LimitExceeded { path, what }));
    }
    load_source(&source, path.parent().unwrap_or(Path::new("")))
}

/// Reads a file of tests in this folder.
pub(super) fn load_source(source: &Source, folder: &Path) -> Result<TestFile, LoadFailure> {
    let mut reader = Reader::new(&TESTS);
    reader.file(&source.name, &source.text, unfolding_budget(&source.text));
    let mut loader = Loader {
        reader,
        folder,
        settings: default_settings(),
        rules: HashMap::new(),
        watched: Vec::new(),
        overlay: None,
        reports: Vec::new(),
        asks: 0,
        proxy_seconds: 0,
    };
    let read = loader.text_document();
    let report = loader.reader.into_report(&[source]);
    let warnings = report.warnings.clone();
    let is_good = report.errors.is_empty() && loader.reports.is_empty();
    match read {
        Some((rules, tests)) if is_good => Ok(TestFile {
            name: source.name.clone(),
            rules,
            settings: loader.settings,
            tests,
            watched: loader.watched,
            warnings,
        }),
        _ => {
            let mut reports = vec![report];
            reports.append(&mut loader.reports);
            reports.retain(|report| !report.errors.is_empty());
            let watched = loader.watched;
            Err(LoadFailure::Reports { reports, watched })
        }
    }
}

/// The settings of `serve` by default.
fn default_settings() -> Box<Settings> {
    let flags: [&str; 0] = [];
    match Settings::from_flags(flags) {
        Ok(settings) => Box::new(settings),
        // Every setting has a default; tests of the settings hold that.
        Err(error) => error.exit(),
    }
}

// === impl Loader ===

impl Loader<'_> {
    fn text_document(&mut self) -> Option<(Arc<RuleFiles>, Vec<Test>)> {
        let help = "add `rules: FILE` and `tests:`";
        let root = self.reader.parse_root("the file has no tests", help)?;
        self.document(&root)
    }

    fn document(&mut self, root: &Node) -> Option<(Arc<RuleFiles>, Vec<Test>)> {
        let path = FieldPath::ROOT;
        let fields = self.reader.fields(root, &path, &ROOT)?;
        self.settings(&fields, &path);
        self.overlay(&fields, &path);
        self.require(
            &fields,
            &path,
            "rules",
            "name the rules file: `rules: rules.yaml`",
        );
        let rules = self.rule_files(&fields, &path, "rules");
        self.require(
            &fields,
            &path,
            "tests",
            "add `tests:`, a list of `- name: TEXT` with `start` and `steps`",
        );
        let items = self.reader.items(&fields, &path, "tests", "- name: TEXT");
        if items.len() > TESTS_MAX {
            self.too_many(&fields, &path, "tests", TESTS_MAX);
            return None;
        }
        let mut names = HashMap::new();
        let mut tests = Vec::new();
        for (position, item) in items.iter().enumerate() {
            tests.extend(self.test(item, &path.item("tests", position), &mut names));
        }
        if self.asks > ASKS_MAX {
            let message = format!("the steps ask {} times in all", self.asks);
            let help = format!("at most {ASKS_MAX} requests fit in one file; lower `times`");
            let span = fields.span_of("tests");
            self.reader
                .error(Code::TooLarge, span, &path, message, help);
        }
        if self.proxy_seconds > PROXY_SECONDS_MAX {
            let message = format!("the proxies play {} seconds in all", self.proxy_seconds);
            let help = format!(
                "at most {PROXY_SECONDS_MAX} seconds of a proxy fit in one file; lower `for`, or split the file"
            );
            let span = fields.span_of("tests");
            self.reader
                .error(Code::TooLarge, span, &path, message, help);
        }
        Some((rules?, tests))
    }

    fn test(
        &mut self,
        node: &Rc<Node>,
        path: &FieldPath<'_>,
        names: &mut HashMap<String, Span>,
    ) -> Option<Test> {
        let fields = self.reader.fields(node, path, &TEST)?;
        self.require(&fields, path, "name", "add `name: TEXT`");
        let name = self.reader.text(&fields, path, "name").to_owned();
        let span = fields.span_of("name");
        if !name.is_empty()
            && self.reader.check_length(&name, span, path)
            && let Some(first) = names.insert(name.clone(), span)
        {
            let message = format!("duplicate test '{}'", excerpt(&name));
            let error = Diagnostic::error(Code::Duplicate, span, message);
            let error = error.related(first, "first defined here");
            self.reader
                .report(path, error.help("give each test a name of its own"));
        }
        self.require(
            &fields,
            path,
            "start",
            "add a time: `start: 2026-01-01T00:00:00Z`",
        );
        let start = self.moment(&fields, path, "start");
        self.require(&fields, path, "steps", "add `steps:`, a list of `- ask: …`");
        let items = self.reader.items(&fields, path, "steps", "- ask: …");
        if items.len() > STEPS_MAX {
            self.too_many(&fields, path, "steps", STEPS_MAX);
            return None;
        }
        let mut steps = Vec::new();
        for (position, item) in items.iter().enumerate() {
            steps.extend(self.step(item, &path.item("steps", position)));
        }
        Some(Test {
            name,
            span,
            start: start?,
            steps,
        })
    }

    /// Reports a field that is absent or empty.
    pub(super) fn require(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        name: &str,
        help: &str,
    ) {
        let is_empty = match fields.given(name).map(|node| &node.content) {
            None => true,
            Some(Content::Scalar { text, .. }) => text.is_empty(),
            Some(Content::Sequence(items)) => items.is_empty(),
            Some(Content::Mapping(_)) => false,
        };
        // One mistake, one error: a misspelt key has been reported.
        if is_empty && !fields.is_misspelt(name) {
            let message = format!("`{name}` is missing or empty");
            let span = fields.span_of(name);
            self.reader
                .error(Code::MissingKey, span, path, message, help);
        }
    }

    fn too_many(&mut self, fields: &Fields<'_>, path: &FieldPath<'_>, name: &str, most: usize) {
        let message = format!("more than {most} {name}");
        let span = fields.key_span(name);
        self.reader
            .error(Code::TooLarge, span, path, message, "split the file");
    }

    /// Reads the text of a field by a parser, and reports what it does not take.
    pub(super) fn parsed<T>(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> Option<T> {
        let text = self.reader.text(fields, path, name);
        if text.is_empty() {
            return None;
        }
        match parse(text) {
            Ok(value) => Some(value),
            Err(invalid) => {
                let span = fields.span_of(name);
                let message = format!("`{name}` {}", invalid.message);
                self.reader
                    .error(Code::UnknownValue, span, path, message, invalid.help);
                None
            }
        }
    }

    pub(super) fn moment(
        &mut self,
        fields: &Fields<'_>,
        path: &FieldPath<'_>,
        name: &str,
    ) -> Option<Moment> {
        self.parsed(fields, path, name, moment)
    }
}
