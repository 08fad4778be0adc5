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

use std::fmt;
use std::sync::Arc;

/// One pattern, as configured.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Pattern<'p> {
    /// Text with any number of `*`, each standing for zero or more bytes. Without one, this text.
    Stars(&'p str),
    /// A regular expression for the whole value.
    Regex(&'p str),
}

/// Patterns, compiled, told by their place in the list they were compiled from.
pub trait Patterns: fmt::Debug + Send + Sync {
    /// The first, in the order given, that matches all of `text`.
    fn first(&self, text: &[u8]) -> Option<usize>;

    /// Every one that matches all of `text`, in any order, some perhaps more than once.
    fn each(&self, text: &[u8], found: &mut dyn FnMut(usize));
}

/// What makes [`Patterns`].
pub trait PatternCompiler {
    /// Makes one matcher of all of these.
    ///
    /// # Errors
    ///
    /// When one of them is no pattern, or together they are larger than may be.
    fn compile(&mut self, patterns: &[Pattern<'_>]) -> Result<Arc<dyn Patterns>, PatternError>;
}

/// Why patterns could not be compiled.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum PatternError {
    /// One of them is none, in the parser's words.
    Unreadable(String),
    /// Together they are larger than may be.
    TooLarge,
    /// What was compiled before has used up what all may take.
    NoRoomLeft,
}

// === impl PatternError ===

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(words) => f.write_str(words),
            Self::TooLarge => f.write_str("too large"),
            Self::NoRoomLeft => f.write_str("no room left"),
        }
    }
}

impl std::error::Error for PatternError {}
