//! Wildcards and regular expressions as automata: the compiler behind [`PatternCompiler`].
//!
//! Why automata: a value comes from a stranger, and must cost one step a byte, whatever it is and however many patterns
//! there are. How: all patterns of a key become one NFA, and that a dense DFA, built whole while rules are read:
//! matching is then a table look-up a byte, without a lock, a cache or an allocation. Patterns may need more states
//! than are worth their memory (twenty of `/v1/*/x/*/y` can be half done in a million ways); then a few of them at a
//! time get a DFA. A single expression that does not fit even so goes to the crate's meta engine, which makes states as
//! values need them and, when they do not repay, steps through the NFA: still one pass over the value. Its caches are
//! shared between threads, so it is the second choice, and only for an NFA so small that even the worst value is borne.
//!
//! Everything is on bytes: `.` is any byte, line feed and 0xFF too, so that nobody slips past a rule by sending one,
//! and a letter beyond ASCII is its bytes in UTF-8. The whole value must match; the ends are put into the parsed
//! expression, not into its text, where `a|b` or a comment would swallow them. A pattern that ends in "anything" ends
//! its search there: "matched already" is then no state of its own, which would double those of all others.
//!
//! | file | what |
//! | --- | --- |
//! | `expression` | texts into parsed expressions, and why not |
//! | `together` | many of them into one NFA |
//! | `matchers` | what matches |
//!
//! What it deliberately does not do: Unicode classes and case (`(?u)` is refused), captures, look where a rule stands.

mod expression;
mod matchers;
mod together;

use std::collections::HashMap;
use std::sync::Arc;

use regex_automata::dfa::{StartKind, dense};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::{MatchKind, meta};
use regex_syntax::hir::Hir;

use self::expression::{nfa, parsed, stars, whole};
use self::matchers::{Dense, Part, Parts, Slow};
use self::together::together;
use crate::limiter::{Pattern, PatternCompiler, PatternError, Patterns};

pub use self::expression::RegexError;

/// How large the NFA of one regular expression may be: one of letters alone, as long as a text may be, fits.
pub const REGEX_BYTES_MAX: usize = 1 << 20;

/// How large the NFA of all patterns of one key may be.
pub const KEY_BYTES_MAX: usize = 10 << 20;

/// How large the DFA of one key may be: so many times its NFA, no more than `DENSE_BYTES_MAX`, and `DENSE_BYTES_MIN` is
/// always worth a try. A DFA as large as a trie of the patterns fits; one that doubles with each of them is given up
/// soon.
const DENSE_PER_NFA_BYTE: usize = 64;
const DENSE_BYTES_MIN: usize = 512 << 10;
const DENSE_BYTES_MAX: usize = 8 << 20;

/// How much it may take to make it, in the same way: what takes more has states that are large sets, and takes long.
const MAKING_PER_NFA_BYTE: usize = 16;

/// How many patterns that may be half done in many ways get a DFA together, where not all do.
const ENTANGLED_TOGETHER: usize = 3;

/// How large an NFA may be that no DFA was made of: at worst each byte of a value costs a step in each of its states.
const SLOW_BYTES_MAX: usize = 16 << 10;

/// What an expression without a DFA is reckoned to take: caches for the threads that match at one time.
const SLOW_COST_BYTES: usize = 4 << 20;

/// How large its cache of states may grow, for each thread that matches at one time.
const SLOW_CACHE_BYTES: usize = 256 << 10;

/// How much all automata of one rule set may take, built or given up.
pub const ALL_BYTES_MAX: usize = 128 << 20;

/// How much looking at an expression counts for each byte of its NFA: a thousand that only repeat cost time as well.
const CHECKS_PER_BYTE: usize = 4;

/// Compiles patterns, and remembers what it compiled: the same patterns at another level share one automaton.
#[derive(Debug)]
pub struct Automata {
    bytes_left: usize,
    known: HashMap<Vec<Owned>, Arc<dyn Patterns>>,
}

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
enum Owned {
    Stars(String),
    Regex(String),
}

/// A pattern, parsed.
#[derive(Debug)]
enum Ready<'p> {
    Stars(&'p str),
    Regex(Hir),
}

/// How patterns go together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// Any number of them make a table that is no larger than they are.
    Plain,
    /// Text in which a star comes after another: of each such pattern one part may be found and the next not, and it
    /// takes a state for each way in which they all may be so.
    Entangled,
    /// Who knows.
    Regex,
}

// === impl Automata ===

impl Default for Automata {
    fn default() -> Self {
        Self {
            bytes_left: ALL_BYTES_MAX,
            known: HashMap::new(),
        }
    }
}

impl Automata {
    /// Whether `regex` is a regular expression that can be used. Looking takes room as compiling does.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn check(&mut self, regex: &str) -> Result<(), RegexError> {
        let nfa = nfa(&whole(parsed(regex)?), REGEX_BYTES_MAX);
        let bytes = nfa.as_ref().map_or(REGEX_BYTES_MAX, |nfa| {
            nfa.memory_usage().saturating_mul(CHECKS_PER_BYTE)
        });
        self.take(bytes).map_err(|_| RegexError::NoRoomLeft)?;
        nfa.map(drop).ok_or(RegexError::TooLarge)
    }

    fn made(&mut self, patterns: &[Ready<'_>]) -> Result<Arc<dyn Patterns>, PatternError> {
        let all: Vec<usize> = (0..patterns.len()).collect();
        if let Some(dense) = self.dense(patterns, &all)? {
            return Ok(Arc::new(dense));
        }
        let of_kind = |kind| {
            let same = |number: &usize| patterns.get(*number).map(Ready::kind) == Some(kind);
            all.iter().copied().filter(same).collect::<Vec<_>>()
        };
        let mut groups = vec![of_kind(Kind::Plain), of_kind(Kind::Regex)];
        let entangled = of_kind(Kind::Entangled);
        groups.extend(entangled.chunks(ENTANGLED_TOGETHER).map(<[usize]>::to_vec));
        let mut parts = Vec::new();
        while let Some(group) = groups.pop() {
            // All together have been tried.
            let dense = if group.len() == patterns.len() {
                None
            } else {
                self.dense(patterns, &group)?
            };
            let matcher: Arc<dyn Patterns> = match (dense, group.as_slice()) {
                (_, []) => continue,
                (Some(dense), _) => Arc::new(dense),
                (None, [only]) => {
                    let only = patterns.get(*only).ok_or(PatternError::TooLarge)?;
                    self.slow(only)?
                }
                (None, several) => {
                    let (first, second) = several.split_at(several.len() / 2);
                    groups.extend([first.to_vec(), second.to_vec()]);
                    continue;
                }
            };
            parts.push(Part {
                numbers: group,
                matcher,
            });
        }
        Ok(Arc::new(Parts(parts)))
    }

    /// One table of states for these of the patterns. None when it would be too large, or take too long to make.
    fn dense(
        &mut self,
        patterns: &[Ready<'_>],
        numbers: &[usize],
    ) -> Result<Option<Dense>, PatternError> {
        let chosen = numbers.iter().filter_map(|number| patterns.get(*number));
        let nfa = together(chosen).ok_or(PatternError::TooLarge)?;
        let bound = |per_byte: usize| {
            let bytes = nfa.memory_usage().saturating_mul(per_byte);
            let bytes = bytes.clamp(DENSE_BYTES_MIN, DENSE_BYTES_MAX);
            bytes.min(self.bytes_left)
        };
        let making = bound(MAKING_PER_NFA_BYTE);
        let config = dense::Config::new()
            .match_kind(MatchKind::All)
            .start_kind(StartKind::Anchored)
            .accelerate(false)
            .dfa_size_limit(Some(bound(DENSE_PER_NFA_BYTE)))
            .determinize_size_limit(Some(making));
        let mut builder = dense::Builder::new();
        if let Ok(dfa) = builder.configure(config).build_from_nfa(&nfa) {
            let dense = Dense::new(dfa).ok_or(PatternError::TooLarge)?;
            self.take(dense.bytes())?;
            Ok(Some(dense))
        } else {
            // What was tried in vain counts too, so that no rule set takes for ever to read.
            self.take(making)?;
            Ok(None)
        }
    }

    fn slow(&mut self, pattern: &Ready<'_>) -> Result<Arc<dyn Patterns>, PatternError> {
        let whole = pattern.whole();
        nfa(&whole, SLOW_BYTES_MAX).ok_or(PatternError::TooLarge)?;
        self.take(SLOW_COST_BYTES)?;
        let config = meta::Config::new()
            .utf8_empty(false)
            .auto_prefilter(false)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(KEY_BYTES_MAX))
            .hybrid_cache_capacity(SLOW_CACHE_BYTES);
        let mut builder = meta::Builder::new();
        let regex = builder.configure(config).build_from_hir(&whole);
        Ok(Arc::new(Slow(regex.map_err(|_| PatternError::TooLarge)?)))
    }

    fn take(&mut self, bytes: usize) -> Result<(), PatternError> {
        let left = self.bytes_left.checked_sub(bytes);
        self.bytes_left = left.ok_or(PatternError::NoRoomLeft)?;
        Ok(())
    }
}

impl PatternCompiler for Automata {
    fn compile(&mut self, patterns: &[Pattern<'_>]) -> Result<Arc<dyn Patterns>, PatternError> {
        let owned: Vec<_> = patterns.iter().map(Owned::from).collect();
        if let Some(known) = self.known.get(&owned) {
            return Ok(Arc::clone(known));
        }
        let ready = patterns.iter().map(|pattern| match pattern {
            Pattern::Stars(text) => Ok(Ready::Stars(text)),
            Pattern::Regex(text) => parsed(text).map(|hir| Ready::Regex(whole(hir))),
        });
        let made = self.made(&ready.collect::<Result<Vec<_>, RegexError>>()?)?;
        self.known.insert(owned, Arc::clone(&made));
        Ok(made)
    }
}

// === impl Owned ===

impl From<&Pattern<'_>> for Owned {
    fn from(pattern: &Pattern<'_>) -> Self {
        match pattern {
            Pattern::Stars(text) => Self::Stars((*text).to_owned()),
            Pattern::Regex(text) => Self::Regex((*text).to_owned()),
        }
    }
}

// === impl Ready ===

impl Ready<'_> {
    fn kind(&self) -> Kind {
        match self {
            Self::Regex(_) => Kind::Regex,
            Self::Stars(text) => {
                let stars = text.trim_end_matches('*').split('*');
                // Stars in a row are one, and one that begins the text is one.
                let later = stars.skip(1).filter(|part| !part.is_empty()).count();
                if later > 1 {
                    Kind::Entangled
                } else {
                    Kind::Plain
                }
            }
        }
    }

    /// Ready to be searched for alone.
    fn whole(&self) -> Hir {
        match self {
            Self::Stars(text) => whole(stars(text)),
            Self::Regex(hir) => hir.clone(),
        }
    }
}
