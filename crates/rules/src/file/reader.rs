//! Reads the nodes of YAML files by a grammar, and collects diagnostics: for files of rules and for
//! other files that are written in the same way.
//!
//! `fields` adds the methods that read fields, `misplaced` those that report names.

use std::rc::Rc;

use crate::excerpt::excerpt;
use crate::file::diagnostic::{ERRORS_COUNTED_MAX, FilePlace, Found, Phase};
use crate::file::{Code, DIAGNOSTICS_MAX, Diagnostic, FieldPlace, Grammar, Report, Severity, Span};
use crate::path::Source;
use crate::yaml::{self, Document, Node, Position, YamlError, kind};

/// How long a domain, key, value or name may be, in bytes.
pub const TEXT_BYTES_MAX: usize = 16 << 10;

/// How much is walked for each byte of a file, aliases unfolded, and how much at least. A byte of
/// text counts 1.
const UNFOLDING_PER_BYTE: usize = 16;
const UNFOLDING_MIN: usize = 100_000;

/// What a node counts, without its text.
const UNFOLDING_OF_A_NODE: usize = 4;

/// Walks files of one grammar and collects diagnostics.
pub struct Reader<'s> {
    pub(super) grammar: &'static Grammar,
    pub(super) report: Report,
    /// How many diagnostics there are so far.
    found: usize,
    /// The names of the files so far; the last one is the current file.
    pub(super) files: Vec<&'s str>,
    /// The text of the current file; empty when it is no text.
    pub(super) text: &'s str,
    /// The indices of files of which no line is shown.
    hidden: Vec<usize>,
    /// How much more of the current file may be walked; none when the budget is used up.
    pub(super) unfolding_left: Option<usize>,
    /// Whether the current file has a field that the reference does not know.
    pub(super) has_own_fields: bool,
}

/// How much may be walked of a file with this text.
pub fn unfolding_budget(text: &str) -> usize {
    let walked = text.len().saturating_mul(UNFOLDING_PER_BYTE);
    walked.max(UNFOLDING_MIN)
}

// === impl Reader ===

impl<'s> Reader<'s> {
    /// A reader of files with this grammar.
    pub fn new(grammar: &'static Grammar) -> Self {
        Self {
            grammar,
            report: Report::default(),
            found: 0,
            files: Vec::new(),
            text: "",
            hidden: Vec::new(),
            unfolding_left: None,
            has_own_fields: false,
        }
    }

    /// Begins a file with this name and text, of which so much may be walked.
    pub fn file(&mut self, name: &'s str, text: &'s str, budget: usize) {
        self.files.push(name);
        self.text = text;
        self.unfolding_left = Some(budget);
        self.has_own_fields = false;
    }

    /// Everything that was reported, with the lines of the files.
    pub fn into_report(self, sources: &[&Source]) -> Report {
        let mut report = self.report;
        report.complete(sources);
        report
    }

    /// How many errors there are so far.
    pub(crate) fn error_count(&self) -> usize {
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
        let file = self.current_file();
        self.report.files_with_errors.insert(file);
        let omitted = &mut self.report.errors_omitted;
        *omitted = omitted.saturating_add(1);
    }

    /// A place in the current file.
    pub(super) fn place(&self, span: Span) -> FilePlace {
        let file = self.current_file();
        FilePlace { file, span }
    }

    /// Adds a place of any file to a diagnostic of a file.
    pub(super) fn cite(
        &self,
        file: usize,
        diagnostic: Diagnostic,
        other: FilePlace,
        label: &str,
    ) -> Diagnostic {
        if other.span.at.line == 0 {
            // A document that is not text has no places.
            return diagnostic;
        }
        let name = (other.file != file).then(|| self.file_name(other.file).to_owned());
        diagnostic.related_in(name, other.span, label)
    }

    /// The index of the current file.
    pub(super) fn current_file(&self) -> usize {
        self.files.len().saturating_sub(1)
    }

    /// Takes nodes and their texts off the budget. Reports once that the budget is used up.
    pub fn spend<'n>(
        &mut self,
        nodes: impl IntoIterator<Item = &'n Rc<Node>>,
        at: FieldPlace,
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
            self.error(Code::TooLarge, at, message, help);
        }
        self.unfolding_left.is_some()
    }

    /// Whether a text keeps its bound; reports it if not.
    pub fn check_length(&mut self, text: &str, at: FieldPlace) -> bool {
        let fits = text.len() <= TEXT_BYTES_MAX;
        if !fits {
            let message = format!("a text is longer than {TEXT_BYTES_MAX} bytes");
            self.error(Code::TooLarge, at, message, "shorten it");
        }
        fits
    }

    /// Records an error.
    pub fn error(
        &mut self,
        code: Code,
        at: FieldPlace,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.report(Diagnostic::error(code, at, message).help(help));
    }

    /// Records an error of a type, which the reference finds when it decodes.
    pub fn type_error(&mut self, mut error: Diagnostic) {
        if self.grammar.is_reference {
            error
                .message
                .insert_str(0, "error loading config file: yaml: ");
        }
        self.report_in(Phase::Types, error);
    }

    /// Records that a node is not of the type that it is to be.
    pub fn wrong_type(
        &mut self,
        at: FieldPlace,
        node: &Node,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let error = Diagnostic::error(Code::WrongType, at, message);
        self.type_error(error.label(format!("found {}", kind(node))).help(help));
    }

    /// Records a diagnostic of the current file.
    pub fn report(&mut self, diagnostic: Diagnostic) {
        self.report_in(Phase::Meaning, diagnostic);
    }

    /// Records a diagnostic that the reference finds in this phase.
    pub(super) fn report_in(&mut self, phase: Phase, diagnostic: Diagnostic) {
        self.record(self.current_file(), phase, diagnostic);
    }

    /// Records a diagnostic of a file; one with a name is about a file that this one names.
    pub(super) fn record(&mut self, file: usize, phase: Phase, mut diagnostic: Diagnostic) {
        let report = &mut self.report;
        if diagnostic.severity == Severity::Error {
            report.files_with_errors.insert(file);
        }
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
        if diagnostic.file.is_empty() {
            let name = self.files.get(file).copied().unwrap_or_default();
            name.clone_into(&mut diagnostic.file);
        }
        diagnostic.shows_lines = !self.hidden.contains(&file);
        if !self.grammar.is_reference {
            diagnostic.path_name = "field";
        }
        all.push(diagnostic);
    }

    /// The name of a file by its index.
    pub(super) fn file_name(&self, file: usize) -> &'s str {
        self.files.get(file).copied().unwrap_or_default()
    }

    /// Whether a warning of the current file is to be recorded: not beyond the bound, and once,
    /// although an alias is walked each time it is used.
    pub(crate) fn is_new_warning(&mut self, code: Code, span: Span) -> bool {
        let file = self.current_file();
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

    /// Parses the current file. None of its lines is shown if it is no file of this grammar.
    pub(super) fn parse(&mut self) -> Result<Document, YamlError> {
        let document = yaml::parse(self.text);
        self.recognize(&document);
        document
    }

    /// The root of the current file. Reports a text that is no YAML, and an empty one.
    pub fn parse_root(&mut self, empty: &str, help: &str) -> Option<Rc<Node>> {
        match self.parse() {
            Ok(Document { root, ignored }) => {
                self.warn_ignored(ignored);
                if root.is_none() {
                    self.error(Code::MissingKey, Span::START.into(), empty, help);
                }
                root
            }
            Err(error) => {
                self.syntax_error(&error);
                None
            }
        }
    }

    /// Notes whether a document is of this grammar. A path may be a link to any file, and the
    /// output of a check may be public.
    pub(super) fn recognize(&mut self, document: &Result<Document, YamlError>) {
        let root = document.as_ref().ok().and_then(|it| it.root.as_deref());
        let is_of_grammar = match root {
            Some(root) => self.grammar.has_root(root),
            None => self.grammar.is_in_text(self.text),
        };
        if !is_of_grammar {
            self.hidden.push(self.current_file());
        }
    }

    /// Whether the current file is not of this grammar.
    pub(super) fn hides_lines(&self) -> bool {
        self.hidden.last() == Some(&self.current_file())
    }

    /// A key for messages: in quotes, and not at all where it could be a line of another file.
    pub(super) fn shown_key(&self, name: &str) -> String {
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if self.hides_lines() && !name.bytes().all(is_word) {
            return "here".to_owned();
        }
        format!("'{}'", excerpt(name))
    }

    /// Warns of what follows the first document of a file.
    pub(super) fn warn_ignored(&mut self, at: Option<Span>) {
        if let Some(at) = at {
            let message = "only the first YAML document of a file is read";
            let warning = Diagnostic::warning(Code::IgnoredDocument, at, message);
            let warning = warning.label("this is ignored");
            let help = "move it to a file of its own, or remove the `---` before it";
            self.report(warning.help(help));
        }
    }

    /// Reports a text that is no YAML.
    pub(crate) fn syntax_error(&mut self, error: &YamlError) {
        let help = self.syntax_help(error);
        let message = excerpt(&error.message).into_owned();
        let opened = self.open_bracket(error.span);
        let mut error = Diagnostic::error(Code::YamlSyntax, error.span, message);
        if let Some((bracket, span)) = opened.filter(|_| !self.hides_lines()) {
            error = error.related(span, format!("this `{bracket}` is not closed"));
        }
        self.type_error(error.help(help));
    }

    /// The last `[` or `{` of an earlier line that is open where an error is.
    fn open_bracket(&self, error: Span) -> Option<(char, Span)> {
        let mut open = Vec::new();
        // What ends a comment or a text in quotes.
        let (mut quote, mut before) = (None, ' ');
        let (mut line, mut column) = (1, 1);
        for (start, c) in self.text.get(..error.start)?.char_indices() {
            let begins_token = before.is_whitespace() || "[{,:".contains(before);
            match (quote, c) {
                (Some(end), c) if end == c => quote = None,
                (None, '#') if before.is_whitespace() => quote = Some('\n'),
                (None, '"' | '\'') if begins_token => quote = Some(c),
                (None, '[' | '{') if begins_token => {
                    let at = Position { line, column };
                    let end = start.saturating_add(1);
                    open.push((c, Span { at, start, end }));
                }
                (None, ']' | '}') => drop(open.pop()),
                _ => {}
            }
            before = c;
            (line, column) = match c {
                '\n' => (line.saturating_add(1), 1),
                _ => (line, column.saturating_add(1)),
            };
        }
        open.pop().filter(|(_, span)| span.at.line < error.at.line)
    }

    /// What to do about a syntax error.
    fn syntax_help(&self, error: &YamlError) -> &'static str {
        let at = self.text.get(error.span.start..).unwrap_or_default();
        let begins = self.text.get(..error.span.start).unwrap_or_default();
        let line = begins.rsplit('\n').next().unwrap_or_default();
        let indent = line.trim_start_matches(' ');
        if at.starts_with('\t') || indent.starts_with('\t') {
            "indent with spaces; YAML does not allow tabs there"
        } else if at.starts_with(['@', '`', '%']) {
            "put the value in quotes; it begins with a character that YAML reserves"
        } else if error.message.contains("mapping values are not allowed") {
            "put the value in quotes if it has a `: `, or check the indentation of this line"
        } else if error.message.contains("illegal placement of ':'") {
            "check that every `[` and `{` before this place is closed"
        } else if error.message.contains("expected '-'")
            || error.message.contains("expected <block")
        {
            "check the indentation of this line"
        } else if error.message.contains("unknown anchor") {
            "define the anchor first: `&name`; put the value in quotes if the `*` is text"
        } else {
            "fix the YAML syntax here"
        }
    }
}
