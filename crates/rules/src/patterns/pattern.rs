//! One pattern, parsed, and what it is compiled together with.

use regex_syntax::hir::Hir;

use crate::patterns::regex::{whole_value, wildcard};
use tollgate_limiter::Pattern;

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum PatternKey {
    Stars(String),
    Regex(String),
}

/// A parsed pattern.
#[derive(Debug)]
pub(crate) enum ParsedPattern<'p> {
    Stars(&'p str),
    Regex(Hir),
}

/// How well patterns share one DFA.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PatternKind {
    /// Any number of them make a DFA that is no larger than they are.
    Plain,
    /// Wildcards in which a star follows another: of each, one part may be found and the next not,
    /// so a DFA needs a state for each combination.
    Entangled,
    /// Unknown before it is tried.
    Regex,
}

// === impl PatternKey ===

impl From<&Pattern<'_>> for PatternKey {
    fn from(pattern: &Pattern<'_>) -> Self {
        match pattern {
            Pattern::Wildcard(text) => Self::Stars((*text).to_owned()),
            Pattern::Regex(text) => Self::Regex((*text).to_owned()),
        }
    }
}

// === impl ParsedPattern ===

impl ParsedPattern<'_> {
    pub(crate) fn kind(&self) -> PatternKind {
        match self {
            Self::Regex(_) => PatternKind::Regex,
            Self::Stars(text) => {
                let stars = text.trim_end_matches('*').split('*');
                // Stars in a row are one, and one at the beginning of the text is one.
                let later = stars.skip(1).filter(|part| !part.is_empty()).count();
                if later > 1 {
                    PatternKind::Entangled
                } else {
                    PatternKind::Plain
                }
            }
        }
    }

    /// The expression for a search for this pattern alone.
    pub(crate) fn whole_value(&self) -> Hir {
        match self {
            Self::Stars(text) => whole_value(wildcard(text)),
            Self::Regex(hir) => hir.clone(),
        }
    }
}
