//! A diagnostic: the reference's sentence first, then where, which rule, and what to do.

use std::fmt;

pub use crate::rules::yaml::Position;

/// One error or warning about one file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Diagnostic {
    /// The file.
    pub file: String,
    /// The position in it; line 0 where it has no lines.
    pub at: Position,
    /// What is wrong, in the reference's words where it has any.
    pub message: String,
    /// The rule, as `descriptors[0].rate_limit`; empty at the root.
    pub path: String,
    /// What to do.
    pub advice: String,
}

// === impl Diagnostic ===

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.file, self.message)?;
        write!(f, "  at {}", self.file)?;
        if self.at.line > 0 {
            write!(f, ":{}", self.at)?;
        }
        if !self.path.is_empty() {
            write!(f, ", {}", self.path)?;
        }
        write!(f, "\n  hint: {}", self.advice)
    }
}
