//! Patterns: text with wildcards, regular expressions, and the interface that matches many at once.
//!
//! A wildcard pattern is text with any number of `*`, each standing for zero or more bytes. The
//! part before the first `*` must begin the value, the part after the last must end it, and the
//! parts between must occur in order in the rest, without overlap. There is no escape and no other
//! special character. A regular expression matches the whole value, as bytes.
//!
//! Why only traits: an automaton matches many patterns in one pass, and `std` has none. The caller
//! brings the compiler, as it brings the hash.
//!
//! What it deliberately does not do: match, or let a `*` span a key and its value, as the reference
//! service does.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// One pattern, as configured.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Pattern<'p> {
    /// Text with any number of `*`, each standing for zero or more bytes. Without a `*`, this text.
    Wildcard(&'p str),
    /// A regular expression for the whole value.
    Regex(&'p str),
}

/// Compiled patterns, identified by their index in the list they were compiled from.
pub trait PatternMatcher: fmt::Debug + Send + Sync {
    /// The first pattern, in the order given, that matches all of `text`. The result is meaningless
    /// once the steps are exhausted.
    fn first_match(&self, text: &[u8], steps: &StepBudget) -> Option<usize>;

    /// Calls `found` with every pattern that matches all of `text`, in any order, perhaps more than
    /// once.
    fn each_match(&self, text: &[u8], steps: &StepBudget, found: &mut dyn FnMut(usize));
}

/// The matching steps that one request can take: some milliseconds of CPU time. A value takes one
/// step a byte with a simple rule, so the longest message by default takes a sixteenth of it.
pub const MATCHING_STEPS_MAX: u64 = 4_000_000;

/// The matching steps that are left. A step is one byte of a value looked up in one table, or one
/// pattern examined.
#[derive(Debug)]
pub struct StepBudget(Cell<u64>);

/// Compiles patterns to a [`PatternMatcher`].
pub trait PatternCompiler {
    /// Compiles one matcher of all these patterns.
    ///
    /// # Errors
    ///
    /// When one of them is invalid, or together they exceed the size limit.
    fn compile(
        &mut self,
        patterns: &[Pattern<'_>],
    ) -> Result<Arc<dyn PatternMatcher>, PatternError>;
}

/// Why patterns could not be compiled.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PatternError {
    /// A pattern is invalid. Holds the parser's message.
    Syntax(String),
    /// Together they exceed the size limit.
    TooLarge,
    /// All patterns compiled so far exceed the total size limit.
    TotalTooLarge,
    /// Each byte of a value would take too many steps.
    TooManySteps,
}

// === impl StepBudget ===

impl StepBudget {
    /// A budget of this many steps.
    pub const fn new(steps: u64) -> Self {
        Self(Cell::new(steps))
    }

    /// A budget without a bound.
    pub const fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// Spends steps.
    pub fn spend(&self, steps: usize) {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        self.0.set(self.0.get().saturating_sub(steps));
    }

    /// The number of steps left.
    pub fn remaining(&self) -> u64 {
        self.0.get()
    }

    /// Whether no steps are left.
    pub fn is_exhausted(&self) -> bool {
        self.remaining() == 0
    }
}

// === impl PatternError ===

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax(words) => f.write_str(words),
            Self::TooLarge => f.write_str("too large"),
            Self::TotalTooLarge => f.write_str("all patterns together are too large"),
            Self::TooManySteps => f.write_str("too many steps for each byte of a value"),
        }
    }
}

impl std::error::Error for PatternError {}
