//! Reads a file of tests, the settings that it has, and the rules that it names.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::rule_tests::grammar::{ROOT, TEST, TESTS};
use crate::rule_tests::test_file::{
    KnownSettings, RuleFiles, ServiceSettings, Test, TestFile, Value, WatchedPath,
};
use crate::rule_tests::values::moment;
use tollgate_rules::duration::InvalidText;
use tollgate_rules::excerpt::excerpt;
use tollgate_rules::file::{
    Code, Diagnostic, FieldPath, FieldPlace, Fields, Item, LimitFiles, Options, Pair, Reader,
    Report, Span, nearest, unfolding_budget,
};
use tollgate_rules::path::{ReadError, RulesPath, Source, read_one};
use tollgate_rules::reload::load_overlaid;
use tollgate_rules::yaml::{Content, Node};

/// How large a file of tests may be, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// How many tests a file may have, and how many steps a test.
const TESTS_MAX: usize = 10_000;
const STEPS_MAX: usize = 10_000;

/// How often the steps of one file may ask together.
const ASKS_MAX: u64 = 10_000_000;

/// How many seconds the proxies of one file may play together: the time of each step, and the time
/// in which its proxies become idle, for each proxy.
const PROXY_SECONDS_MAX: u64 = 10_000_000;

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

/// Reads one file of tests. The values that it gives count only if there are no errors.
pub(super) struct Loader<'s> {
    pub(super) reader: Reader<'s>,
    /// The folder of the file.
    folder: &'s Path,
    known: &'s KnownSettings,
    pub(super) settings: ServiceSettings,
    /// Rules that were read, by their paths.
    rules: HashMap<Vec<PathBuf>, Option<Arc<RuleFiles>>>,
    watched: Vec<WatchedPath>,
    /// What is added to all rules.
    overlay: Option<Source>,
    /// Errors of rules.
    reports: Vec<Report>,
    /// The places of the names of tests.
    names: HashMap<String, Span>,
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
pub fn load(path: &Path, known: &KnownSettings) -> Result<TestFile, LoadFailure> {
    let source = read_one(path).map_err(LoadFailure::Read)?;
    if source.text.len() as u64 > FILE_BYTES_MAX {
        let what = format!("larger than {} MiB; split it", FILE_BYTES_MAX >> 20);
        let path = path.display().to_string();
        return Err(LoadFailure::Read(ReadError::LimitExceeded { path, what }));
    }
    let mut reader = Reader::new(&TESTS);
    reader.file(&source.name, &source.text, unfolding_budget(&source.text));
    let mut loader = Loader {
        reader,
        folder: path.parent().unwrap_or(Path::new("")),
        known,
        settings: known.defaults.clone(),
        rules: HashMap::new(),
        watched: Vec::new(),
        overlay: None,
        reports: Vec::new(),
        names: HashMap::new(),
        asks: 0,
        proxy_seconds: 0,
    };
    let read = loader.document();
    let report = loader.reader.into_report(&[&source]);
    let name = source.name.clone();
    let is_good = report.errors.is_empty() && loader.reports.is_empty();
    match read {
        Some((rules, tests)) if is_good => Ok(TestFile {
            name,
            rules,
            settings: loader.settings,
            tests,
            watched: loader.watched,
            warnings: report.warnings,
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

/// The value of a field with its place.
pub(super) fn with_place<T>(at: &Fields<'_>, name: &str, value: Option<T>) -> Option<Value<T>> {
    let span = at.span_of(name);
    value.map(|value| Value { value, span })
}

// === impl Loader ===

impl Loader<'_> {
    fn document(&mut self) -> Option<(Arc<RuleFiles>, Vec<Test>)> {
        let help = "add `rules: FILE` and `tests:`";
        let root = self.reader.parse_root("the file has no tests", help)?;
        let at = &self.reader.fields(&root, FieldPath::ROOT, &ROOT)?;
        self.settings(at);
        self.overlay(at);
        let rules = self.rule_files(at, "rules");
        let tests = self.list(at, "tests", "- name: TEXT", TESTS_MAX, Self::test);
        if self.asks > ASKS_MAX {
            let message = format!("the steps ask {} times in all", self.asks);
            let help = format!("at most {ASKS_MAX} requests fit in one file; lower `times`");
            self.error(at, "tests", Code::TooLarge, message, help);
        }
        if self.proxy_seconds > PROXY_SECONDS_MAX {
            let message = format!("the proxies play {} seconds in all", self.proxy_seconds);
            let help = format!(
                "at most {PROXY_SECONDS_MAX} seconds of a proxy fit in one file; lower `for`, or split the file"
            );
            self.error(at, "tests", Code::TooLarge, message, help);
        }
        Some((rules?, tests))
    }

    fn test(&mut self, item: Item<'_>) -> Option<Test> {
        let at = &self.reader.fields(item.node, item.path, &TEST)?;
        let name = self.reader.text(at, "name").to_owned();
        let span = at.span_of("name");
        if !name.is_empty()
            && self.reader.check_length(&name, at.at("name"))
            && let Some(first) = self.names.insert(name.clone(), span)
        {
            let message = format!("duplicate test '{}'", excerpt(&name));
            let error = Diagnostic::error(Code::Duplicate, at.at("name"), message);
            let error = error.related(first, "first defined here");
            let help = "give each test a name of its own";
            self.reader.report(error.help(help));
        }
        let start = self.parsed(at, "start", moment);
        let steps = self.list(at, "steps", "- ask: …", STEPS_MAX, Self::step);
        Some(Test {
            name,
            span,
            start: start?,
            steps,
        })
    }

    // Fields of a mapping.

    /// Reads the text of a field by a parser, and reports what it does not take.
    pub(super) fn parsed<T>(
        &mut self,
        at: &Fields<'_>,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, InvalidText>,
    ) -> Option<T> {
        let text = self.reader.text(at, name);
        if text.is_empty() {
            return None;
        }
        parse(text)
            .map_err(|invalid| {
                let message = format!("`{name}` {}", invalid.message);
                self.error(at, name, Code::UnknownValue, message, invalid.help);
            })
            .ok()
    }

    /// Reads each item of a list of at most `most`.
    pub(super) fn list<T>(
        &mut self,
        at: &Fields<'_>,
        name: &'static str,
        example: &str,
        most: usize,
        mut read: impl FnMut(&mut Self, Item<'_>) -> Option<T>,
    ) -> Vec<T> {
        let items = self.reader.items(at, name, example);
        if items.len() > most {
            let message = format!("more than {most} {name}");
            self.key_error(at, name, Code::TooLarge, message, "split the file");
            return Vec::new();
        }
        let items = items.into_iter();
        items.filter_map(|item| read(self, item)).collect()
    }

    /// The pairs of a mapping of any names that a field holds. `help` says how to write it.
    pub(super) fn pairs<'n>(
        &mut self,
        at: &Fields<'n>,
        name: &'static str,
        help: &str,
    ) -> Vec<Pair<'n>> {
        let Some(node) = at.given(name) else {
            return Vec::new();
        };
        if !matches!(node.content, Content::Mapping(_)) {
            let message = format!("{name} is not a mapping");
            self.reader.wrong_type(at.at(name), node, message, help);
        }
        self.reader.free_form_pairs(node, &at.path.field(name))
    }

    /// A text, or a list of texts.
    fn texts(&mut self, node: &Node, path: &FieldPath, name: &str) -> Option<Vec<String>> {
        let texts = match &node.content {
            Content::Scalar { text, .. } => Ok(vec![text.clone()]),
            Content::Sequence(items) if !self.reader.spend(items, path.at(node.span)) => {
                return None;
            }
            Content::Sequence(items) => {
                let texts = items.iter().map(|item| item.text().ok_or(&**item));
                texts.map(|text| text.map(str::to_owned)).collect()
            }
            Content::Mapping(_) => Err(node),
        };
        let wrong = |wrong: &Node| {
            let message = format!("{name} is not text or a list of texts");
            let help = format!("write `{name}: TEXT` or `{name}: [TEXT, TEXT]`");
            self.reader
                .wrong_type(path.at(wrong.span), wrong, message, help);
        };
        texts.map_err(wrong).ok()
    }

    // Errors.

    /// Reports the value of a field.
    pub(super) fn error(
        &mut self,
        at: &Fields<'_>,
        field: &str,
        code: Code,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.reader.error(code, at.at(field), message, help);
    }

    /// Reports the key of a field.
    pub(super) fn key_error(
        &mut self,
        at: &Fields<'_>,
        field: &str,
        code: Code,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.reader.error(code, at.at_key(field), message, help);
    }

    /// Reports a field that is written where it has no effect.
    pub(super) fn no_effect(&mut self, at: &Fields<'_>, name: &str, place: &str, help: &str) {
        if at.has(name) {
            let message = format!("'{name}' has no effect {place}");
            self.key_error(at, name, Code::MisplacedKey, message, help);
        }
    }

    // Settings and rules.

    /// Reads the settings: names of flags, and their values.
    fn settings(&mut self, at: &Fields<'_>) {
        let help = "write `NAME: VALUE` pairs, such as `all_or_nothing: true`";
        let path = at.path.field("settings");
        let known = self.known;
        let mut flags = BTreeMap::new();
        for pair in self.pairs(at, "settings", help) {
            let name = pair.name.text().unwrap_or_default();
            let mut flags_known = known.flags.iter();
            let Some(flag) = flags_known.find(|flag| flag.replace('-', "_") == name) else {
                self.unknown_setting(name, path.at(pair.name.span));
                continue;
            };
            let Some(values) = self.texts(pair.value, &path, name) else {
                continue;
            };
            let given = format!("--{flag}={}", values.join(","));
            match (known.read)(vec![given.clone()]) {
                Ok(_) if pair.merged && flags.contains_key(flag) => {}
                Ok(_) => {
                    flags.insert(flag, given);
                }
                Err(message) => {
                    let help = format!("see `{flag}` in docs/settings.md");
                    let at = path.at(pair.value.span);
                    self.reader.error(Code::UnknownValue, at, message, help);
                }
            }
        }
        if let Ok(settings) = (known.read)(flags.into_values().collect()) {
            self.settings = settings;
        }
    }

    fn unknown_setting(&mut self, name: &str, at: FieldPlace) {
        let span = at.span;
        let message = format!("unknown setting '{}'", excerpt(name));
        let error = Diagnostic::error(Code::UnknownKey, at, message);
        let flags = self.known.flags.iter();
        let names: Vec<_> = flags.map(|flag| flag.replace('-', "_")).collect();
        let error = if let Some(meant) = nearest(name, names.iter().map(String::as_str)) {
            let help = format!("did you mean `{meant}`?");
            error.help(help).edit(span, meant)
        } else {
            let names = names.join(", ");
            error.help(format!("the settings of a file of tests are {names}"))
        };
        self.reader.report(error);
    }

    /// Reads the overlay, beside the file.
    fn overlay(&mut self, at: &Fields<'_>) {
        let name = self.reader.text(at, "overlay");
        if name.is_empty() {
            return;
        }
        let overlay = self.folder.join(name);
        self.watched.push(WatchedPath::at(&overlay));
        match read_one(&overlay) {
            Ok(source) => self.overlay = Some(source),
            Err(error) => {
                let message = format!("the overlay cannot be read: {error}");
                let help = "name a file, relative to this file";
                self.error(at, "overlay", Code::UnreadableFile, message, help);
            }
        }
    }

    /// The rules that a field names, by paths beside the file.
    pub(super) fn rule_files(&mut self, at: &Fields<'_>, name: &str) -> Option<Arc<RuleFiles>> {
        let node = at.given(name)?;
        let texts = self.texts(node, &at.path, name)?;
        if texts.is_empty() {
            return None;
        }
        let paths: Vec<_> = texts.iter().map(|text| self.folder.join(text)).collect();
        if let Some(rules) = self.rules.get(&paths) {
            return rules.clone();
        }
        self.watch(&paths);
        let rules = self.read_rules(&paths, at, name);
        self.rules.insert(paths, rules.clone());
        rules
    }

    fn read_rules(
        &mut self,
        paths: &[PathBuf],
        at: &Fields<'_>,
        name: &str,
    ) -> Option<Arc<RuleFiles>> {
        let mut sources = Vec::new();
        for rules in paths {
            match RulesPath::Path(rules.clone()).read() {
                Ok(read) => sources.extend(read),
                Err(error) => {
                    let message = format!("the rules cannot be read: {error}");
                    let help = "name a rules file or a directory, relative to this file";
                    self.error(at, name, Code::UnreadableFile, message, help);
                    return None;
                }
            }
        }
        let limit_files = LimitFiles::default();
        let options = Options {
            merge_domains: self.settings.merge_domains,
            overlay: None,
            limit_files: Some(limit_files.clone()),
            isolate_domains: false,
        };
        let loaded = load_overlaid(&sources, self.overlay.as_ref(), options);
        self.watch(&limit_files.touched());
        match loaded {
            Ok(rules) => {
                sources.extend(self.overlay.clone());
                Some(Arc::new(RuleFiles { sources, rules }))
            }
            Err(report) => {
                self.reports.push(report);
                None
            }
        }
    }

    fn watch(&mut self, paths: &[PathBuf]) {
        self.watched
            .extend(paths.iter().map(|path| WatchedPath::at(path)));
    }
}
