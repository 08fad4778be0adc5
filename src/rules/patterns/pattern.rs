//! One pattern, parsed, and what it is compiled together with.

use regex_syntax::hir::Hir;

use crate::rules::patterns::regex::{whole_value, wildcard};
use tollgate_limiter::Pattern;

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) enum PatternKey {
    Stars(String),
    Regex(String),
}

/// A pattern, parsed.
#[derive(Debug)]
pub(crate) enum ParsedPattern<'p> {
    Stars(&'p str),
    Regex(Hir),
}

/// How patterns go together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PatternKind {
    /// Any number of them make a table that is no larger than they are.
    Plain,
    /// Text in which a star comes after another: of each such pattern one part may be found and the
    /// next not, and it takes a state for each way in which they all may be so.
    Entangled,
    /// Who knows.
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
                // Stars in a row are one, and one that begins the text is one.
                let later = stars.skip(1).filter(|part| !part.is_empty()).count();
                if later > 1 {
                    PatternKind::Entangled
                } else {
                    PatternKind::Plain
                }
            }
        }
    }

    /// ParsedPattern to be searched for alone.
    pub(crate) fn whole_value(&self) -> Hir {
        match self {
            Self::Stars(text) => whole_value(wildcard(text)),
            Self::Regex(hir) => hir.clone(),
        }
    }
}
