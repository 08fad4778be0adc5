//! A finding of a conversion: what has no equal or behaves differently, where, and what to do.

use std::fmt;

use crate::rules::excerpt::printable;
use crate::rules::yaml::{Position, Span};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// It is left out, because it has no equal.
    Gap,
    /// It is converted; the note says what to set elsewhere, or what differs.
    Note,
}

/// One finding.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The file.
    pub file: String,
    /// The place in it.
    pub at: Position,
    /// What was found.
    pub message: String,
    /// What to do.
    pub help: String,
}

// === impl Finding ===

impl Finding {
    pub(super) fn gap(
        file: &str,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Gap,
            file: file.to_owned(),
            at: span.at,
            message: message.into(),
            help: help.into(),
        }
    }

    pub(super) fn note(
        file: &str,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Note,
            ..Self::gap(file, span, message, help)
        }
    }

    /// The order in which findings are reported.
    pub(super) fn place(&self) -> (&str, usize, usize) {
        (&self.file, self.at.line, self.at.column)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Gap => "warning",
            Severity::Note => "note",
        };
        let Position { line, column } = self.at;
        write!(
            f,
            "{}:{line}:{column}: {severity}: {}\n  help: {}",
            printable(&self.file),
            printable(&self.message),
            printable(&self.help)
        )
    }
}
