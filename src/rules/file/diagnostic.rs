//! A diagnostic: one error or warning about one place in one file.
//!
//! It holds what is wrong, where (a range of bytes, the rule), what to do, and, if there is exactly
//! one way to do that, the edits.
//!
//! What it deliberately does not do: print itself with the text of the file (`rules::report`).

use std::fmt;

use crate::rules::file::code::Code;
pub use crate::rules::yaml::{Position, Span};

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
}

/// Whether a diagnostic prevents the load.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Severity {
    /// The rules are rejected.
    Error,
    /// The rules are loaded.
    Warning,
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
    /// An error. The loader adds file and path (`Loader::report`).
    pub fn error(code: Code, span: Span, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, span, message.into())
    }

    /// A warning. The loader adds file and path (`Loader::report`).
    pub fn warning(code: Code, span: Span, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, span, message.into())
    }

    fn new(severity: Severity, code: Code, span: Span, message: String) -> Self {
        Self {
            severity,
            code,
            file: String::new(),
            span,
            message,
            label: String::new(),
            related: Vec::new(),
            path: String::new(),
            help: String::new(),
            edits: Vec::new(),
        }
    }

    /// Sets the words at the place.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Adds another place of the same file.
    #[must_use]
    pub fn related(mut self, span: Span, text: impl Into<String>) -> Self {
        self.related.push(Label {
            file: None,
            span,
            text: text.into(),
        });
        self
    }

    /// Adds a place of any file.
    #[must_use]
    pub fn related_in(
        mut self,
        file: impl Into<String>,
        span: Span,
        text: impl Into<String>,
    ) -> Self {
        self.related.push(Label {
            file: Some(file.into()),
            span,
            text: text.into(),
        });
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
        writeln!(f, "{}: {}", self.file, self.message)?;
        write!(f, "  at {}", self.file)?;
        if self.span.at.line > 0 {
            write!(f, ":{}", self.span.at)?;
        }
        if !self.path.is_empty() {
            write!(f, ", {}", self.path)?;
        }
        write!(f, "\n  hint: {}", self.help)
    }
}

// === impl Severity ===

impl Severity {
    /// Its name in every format.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}
