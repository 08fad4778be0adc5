//! Patterns: text with stars, and regular expressions, and what it takes to match many of them at once.
//!
//! Text with stars: any number of `*`, anywhere, each standing for zero or more bytes. What comes before the first must
//! begin the value, what comes after the last must end it, and the parts between must occur in order in what is left,
//! without overlap. No escape, no other sign. A regular expression matches the whole value, as bytes.
//!
//! Why only traits: many patterns are matched in one pass by an automaton, and `std` has none. What compiles them comes
//! in from outside (`config`), as the hash does.
//!
//! What it deliberately does not do: match, or let a star reach from a key into a value, as the reference's does.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// One pattern, as configured.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Pattern<'p> {
    /// Text with any number of `*`, each standing for zero or more bytes. Without one, this text.
    Wildcard(&'p str),
    /// A regular expression for the whole value.
    Regex(&'p str),
}

/// Patterns, compiled, told by their place in the list they were compiled from.
pub trait PatternMatcher: fmt::Debug + Send + Sync {
    /// The first, in the order given, that matches all of `text`. Once the steps are used up what
    /// it says means nothing.
    fn first(&self, text: &[u8], steps: &StepBudget) -> Option<usize>;

    /// Every one that matches all of `text`, in any order, some perhaps more than once.
    fn each_match(&self, text: &[u8], steps: &StepBudget, found: &mut dyn FnMut(usize));
}

/// How many steps of matching one request may take: some milliseconds of a processor. A value of a
/// simple rule takes one step a byte, so the longest message by default takes a sixteenth of it.
pub const MATCHING_STEPS_MAX: u64 = 4_000_000;

/// The steps of matching that are left. A step is one byte of a value, looked up in one table, or
/// one pattern looked at.
#[derive(Debug)]
pub struct StepBudget(Cell<u64>);

/// What makes [`PatternMatcher`].
pub trait PatternCompiler {
    /// Makes one matcher of all of these.
    ///
    /// # Errors
    ///
    /// When one of them is no pattern, or together they are larger than may be.
    fn compile(
        &mut self,
        patterns: &[Pattern<'_>],
    ) -> Result<Arc<dyn PatternMatcher>, PatternError>;
}

/// Why patterns could not be compiled.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PatternError {
    /// One of them is none, in the parser's words.
    Syntax(String),
    /// Together they are larger than may be.
    TooLarge,
    /// What was compiled before has used up what all may take.
    TotalTooLarge,
    /// Each byte of a value would take too many steps.
    TooManySteps,
}

// === impl Steps ===

impl StepBudget {
    /// So many.
    pub const fn new(steps: u64) -> Self {
        Self(Cell::new(steps))
    }

    /// More than can be taken.
    pub const fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// Takes steps that were made.
    pub fn spend(&self, steps: usize) {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        self.0.set(self.0.get().saturating_sub(steps));
    }

    /// How many are left.
    pub fn remaining(&self) -> u64 {
        self.0.get()
    }

    /// Whether all are used up.
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
            Self::TotalTooLarge => f.write_str("no room left"),
            Self::TooManySteps => f.write_str("too many steps for each byte of a value"),
        }
    }
}

impl std::error::Error for PatternError {}
