//! A diagnostic: one error or warning about one place in one file.
//!
//! It holds what is wrong, where (a range of bytes, the rule), what to do, and, if there is exactly
//! one way to do that, the edits.
//!
//! What it deliberately does not do: draw its snippet (`report`).

use std::fmt;

use crate::excerpt::SourceLine;
use crate::file::{Code, FieldPlace};
pub use crate::yaml::{Position, Span};

/// How many errors, and how many warnings, are reported in one run. Further ones are counted.
pub const DIAGNOSTICS_MAX: usize = 100;

/// After so many errors the rest of the files is not walked.
pub(super) const ERRORS_COUNTED_MAX: usize = 20_000;

/// A place in one of the files.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilePlace {
    /// The index of the file.
    pub(super) file: usize,
    pub(super) span: Span,
}

/// One error or warning about one file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Diagnostic {
    /// Whether it prevents the load.
    pub severity: Severity,
    /// What it reports; stable, for scripts.
    pub code: Code,
    /// The file, or the resource of an xDS server.
    pub file: String,
    /// The place in the file.
    pub span: Span,
    /// What is wrong, in the reference's words where it has any.
    pub message: String,
    /// A few words at the place; empty when the message says it all.
    pub label: String,
    /// Other places that matter, such as the first of two duplicates.
    pub related: Vec<Label>,
    /// The rule, as `descriptors[0].rate_limit`; empty at the root.
    pub path: String,
    /// What to do.
    pub help: String,
    /// Edits that make the correction; empty when more than one correction is possible.
    pub edits: Vec<Edit>,
    /// What `path` is, in a snippet.
    pub(super) path_name: &'static str,
    /// When it was found.
    pub(super) found: Found,
    /// Whether the lines are taken from the file.
    pub(super) shows_lines: bool,
    /// The lines of the place and of each related one; none where there is no text.
    pub(super) lines: Vec<Option<SourceLine>>,
    /// Lines between these places, if there are few.
    pub(super) between: Vec<SourceLine>,
}

/// When a diagnostic was found. The order is that in which the reference would find it.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Found {
    /// The index of the file.
    pub(super) file: usize,
    pub(super) phase: Phase,
    /// How many were found before it.
    pub(super) number: usize,
}

/// The pass over a file in which the reference finds an error. It stops at the first pass that
/// finds one.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Phase {
    /// Names, and values that no name may have.
    Names,
    /// Types.
    Types,
    /// Meaning.
    #[default]
    Meaning,
}

tollgate_limiter::named! {
    /// Whether a diagnostic prevents the load.
    pub enum Severity {
        /// The rules are rejected.
        Error = "error",
        /// The rules are loaded.
        Warning = "warning",
    }
}

/// A second place of a diagnostic, and what is there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Label {
    /// The file, if it is another one.
    pub file: Option<String>,
    /// The place in it.
    pub span: Span,
    /// What is there, such as `first defined here`.
    pub text: String,
}

/// A replacement of bytes of the diagnostic's file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Edit {
    /// The first byte that is replaced.
    pub start: usize,
    /// The byte after the last one that is replaced; equal to `start` for an insertion.
    pub end: usize,
    /// What stands there instead.
    pub replacement: String,
}

// === impl Diagnostic ===

impl Diagnostic {
    /// An error. The reader adds the file (`Reader::report`).
    pub fn error(code: Code, at: impl Into<FieldPlace>, message: impl Into<String>) -> Self {
        let at = at.into();
        Self {
            severity: Severity::Error,
            code,
            file: String::new(),
            span: at.span,
            message: message.into(),
            label: String::new(),
            related: Vec::new(),
            path: at.path.to_string(),
            help: String::new(),
            edits: Vec::new(),
            path_name: "rule",
            shows_lines: true,
            found: Found::default(),
            lines: Vec::new(),
            between: Vec::new(),
        }
    }

    /// A warning. The reader adds the file (`Reader::report`).
    pub fn warning(code: Code, at: impl Into<FieldPlace>, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(code, at, message)
        }
    }

    /// By which diagnostics are sorted: the file, and the place in it.
    pub(super) fn place(&self) -> (usize, usize) {
        (self.found.file, self.span.start)
    }

    /// The order in which the reference would find errors: it reports the first one only.
    pub fn reference_order(&self) -> impl Ord + use<> {
        self.found
    }

    /// Sets the words at the place.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Adds another place of the same file.
    #[must_use]
    pub fn related(self, span: Span, text: impl Into<String>) -> Self {
        self.related_in(None, span, text)
    }

    /// Adds a place of a file, or of the same one.
    #[must_use]
    pub(super) fn related_in(
        mut self,
        file: Option<String>,
        span: Span,
        text: impl Into<String>,
    ) -> Self {
        let text = text.into();
        self.related.push(Label { file, span, text });
        self
    }

    /// Sets what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = help.into();
        self
    }

    /// Adds an edit: the bytes of `span` become `replacement`. A span of a document that is not
    /// text has no bytes, so there is no edit.
    #[must_use]
    pub fn edit(mut self, span: Span, replacement: impl Into<String>) -> Self {
        if span.at.line > 0 {
            self.edits.push(Edit {
                start: span.start,
                end: span.end,
                replacement: replacement.into(),
            });
        }
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}
