//! Regular expressions, parsed: on bytes, and for the whole value.
//!
//! What it deliberately does not do: bound the size of many patterns together.

use std::borrow::Borrow;
use std::fmt;

use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_syntax::ast::{self, Ast, Flag, Flags, FlagsItemKind};
use regex_syntax::hir::translate::TranslatorBuilder;
use regex_syntax::hir::{self, Dot, Hir, HirKind, Look, Repetition};

use tollgate_limiter::PatternError;

/// How deep an expression may nest.
const NEST_MAX: u32 = 100;

/// Why a regular expression is invalid.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RegexError {
    /// The parser's message, and the character, counted from 1.
    Unreadable(String, usize),
    /// It enables Unicode, at this character.
    Unicode(usize),
    /// It names a Unicode class, at this character.
    UnicodeClass(usize),
    /// It is too large.
    TooLarge,
    /// The patterns before it have used up the budget.
    SizeLimitReached,
}

/// Parses a regular expression.
pub(crate) fn parse(regex: &str) -> Result<Hir, RegexError> {
    let at = |span: &ast::Span| regex.get(..span.start.offset).unwrap_or("").chars().count() + 1;
    let mut parser = ast::parse::ParserBuilder::new()
        .nest_limit(NEST_MAX)
        .build();
    let tree = parser
        .parse(regex)
        .map_err(|error| RegexError::Unreadable(error.kind().to_string(), at(error.span())))?;
    if let Err(span) = ast::visit(&tree, UnicodeFlagVisitor) {
        return Err(RegexError::Unicode(at(&span)));
    }
    let mut translator = TranslatorBuilder::new()
        .unicode(false)
        .utf8(false)
        .dot_matches_new_line(true)
        .build();
    translator
        .translate(regex, &tree)
        .map_err(|error| match error.kind() {
            hir::ErrorKind::UnicodeNotAllowed => RegexError::UnicodeClass(at(error.span())),
            kind => RegexError::Unreadable(kind.to_string(), at(error.span())),
        })
}

/// Finds where an expression enables Unicode.
struct UnicodeFlagVisitor;

impl ast::Visitor for UnicodeFlagVisitor {
    type Output = ();
    type Err = ast::Span;

    fn finish(self) -> Result<(), ast::Span> {
        Ok(())
    }

    fn visit_pre(&mut self, part: &Ast) -> Result<(), ast::Span> {
        let flags: Option<&Flags> = match part {
            Ast::Flags(set) => Some(&set.flags),
            Ast::Group(group) => group.flags(),
            _ => None,
        };
        let items = flags.map_or(&[][..], |flags| &flags.items);
        let asks = items
            .iter()
            .take_while(|item| item.kind != FlagsItemKind::Negation)
            .find(|item| item.kind == FlagsItemKind::Flag(Flag::Unicode));
        asks.map_or(Ok(()), |item| Err(item.span))
    }
}

fn anything() -> Hir {
    Hir::repetition(Repetition {
        min: 0,
        max: None,
        greedy: true,
        sub: Box::new(Hir::dot(Dot::AnyByte)),
    })
}

/// The expression of a wildcard.
pub(crate) fn wildcard(text: &str) -> Hir {
    let mut parts = Vec::new();
    for (index, part) in text.split('*').enumerate() {
        if index > 0 && parts.last() != Some(&anything()) {
            parts.push(anything());
        }
        if !part.is_empty() {
            parts.push(Hir::literal(part.as_bytes()));
        }
    }
    Hir::concat(parts)
}

/// Anchors an expression to the whole value; where it ends in anything, only to the beginning.
pub(crate) fn whole_value(hir: Hir) -> Hir {
    let start = Hir::look(Look::Start);
    if hir == anything() {
        return start;
    }
    match hir.kind() {
        HirKind::Concat(parts) => match parts.split_last() {
            Some((last, parts)) if *last == anything() => Hir::concat([&[start], parts].concat()),
            _ => Hir::concat(vec![start, hir, Hir::look(Look::End)]),
        },
        _ => Hir::concat(vec![start, hir, Hir::look(Look::End)]),
    }
}

/// The NFA of expressions. None when it would be larger than `bytes_max`.
pub(crate) fn nfa<H: Borrow<Hir>>(regexes: &[H], bytes_max: usize) -> Option<NFA> {
    let config = thompson::Config::new()
        .utf8(false)
        .which_captures(WhichCaptures::None)
        .nfa_size_limit(Some(bytes_max));
    let mut compiler = thompson::Compiler::new();
    compiler.configure(config).build_many_from_hir(regexes).ok()
}

// === impl RegexError ===

impl fmt::Display for RegexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(words, at) => write!(f, "{words}, at its character {at}"),
            Self::Unicode(at) => {
                write!(
                    f,
                    "Unicode is off, the value is bytes, at its character {at}"
                )
            }
            Self::UnicodeClass(at) => {
                write!(
                    f,
                    "nothing of Unicode can stand there, the value is bytes, at its character {at}"
                )
            }
            Self::TooLarge => f.write_str("too large"),
            Self::SizeLimitReached => f.write_str("the size limit is reached"),
        }
    }
}

impl std::error::Error for RegexError {}

impl From<RegexError> for PatternError {
    fn from(error: RegexError) -> Self {
        match error {
            RegexError::TooLarge => Self::TooLarge,
            RegexError::SizeLimitReached => Self::TotalTooLarge,
            error => Self::Syntax(error.to_string()),
        }
    }
}
