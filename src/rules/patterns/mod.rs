//! Wildcards and regular expressions as automata: the compiler behind [`PatternCompiler`].
//!
//! Why automata: a value comes from a stranger, and must cost one step a byte, whatever it is and
//! however many patterns there are. How: all patterns of a key become one NFA, and that a dense
//! DFA, built whole while rules are read: matching is then a table look-up a byte, without a lock,
//! a cache or an allocation. Patterns may need more states than are worth their memory (twenty of
//! `/v1/*/x/*/y` can be half done in a million ways); then a few of them at a time get a DFA; how
//! many is learnt on the way, and what did not fit together is not tried again. Texts with several
//! stars are matched by their fixed parts instead (`sequences`), in one pass however many there
//! are. All attempts share a budget of steps, so that no rules file takes long to read. A single
//! expression that does not fit even so goes to the crate's meta engine, which makes states as
//! values need them and, when they do not repay, steps through the NFA: still one pass over the
//! value. Its caches are shared between threads, so it is the second choice, and only for an NFA so
//! small that even the worst value is borne.
//!
//! What matching takes is counted in steps (`limiter::StepBudget`). A request that takes too many is
//! refused, and so are rules of which each byte of a value would take too many.
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
//! | `sequences` | what matches texts with several stars, by their fixed parts |
//!
//! What it deliberately does not do: Unicode classes and case (`(?u)` is refused), captures, look where a rule stands.

mod expression;
mod matchers;
mod sequences;
mod together;

use std::collections::HashMap;
use std::sync::Arc;

use regex_automata::dfa::{StartKind, dense};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::{MatchKind, meta};
use regex_syntax::hir::Hir;

use self::expression::{nfa, parsed, stars, whole};
use self::matchers::{Dense, Part, Parts, Slow};
use self::sequences::Sequences;
use self::together::together;
use tollgate_limiter::{
    MATCHING_STEPS_MAX, Pattern, PatternCompiler, PatternError, PatternMatcher,
};

pub use self::expression::RegexError;

/// How large the NFA of one regular expression may be: one of letters alone, as long as a text may be, fits.
pub const REGEX_BYTES_MAX: usize = 1 << 20;

/// How large the NFA of all patterns of one key may be.
pub const KEY_BYTES_MAX: usize = 10 << 20;

/// How large one DFA may be: so many times its NFA, no more than `DENSE_BYTES_MAX`, and `DENSE_BYTES_MIN` is
/// always worth a try. A DFA as large as a trie of the patterns fits; one that doubles with each of them is given up
/// soon.
const DENSE_PER_NFA_BYTE: usize = 64;
const DENSE_BYTES_MIN: usize = 512 << 10;
const DENSE_BYTES_MAX: usize = 8 << 20;

/// How much it may take to make it, in the same way: what takes more has states that are large sets, and takes long.
const MAKING_PER_NFA_BYTE: usize = 16;

/// With how much the first attempt is made, and how many times more each other has.
const MAKING_FIRST_BYTES: usize = 2 << 10;
const MAKING_GROWTH: usize = 8;

/// How many steps each byte of a value may take at one level: so that a value of a kilobyte takes
/// no more than a request may.
const STEPS_PER_BYTE_MAX: u64 = MATCHING_STEPS_MAX / 1_024;

/// How large an NFA may be that no DFA was made of: at worst each byte of a value costs a step in each of its states.
const SLOW_BYTES_MAX: usize = 16 << 10;

/// How many steps a byte of a text counts as that is matched by its fixed parts: each becomes a
/// state, and is visited twice.
const SEQUENCES_STEPS_PER_BYTE: usize = 64;

/// What an expression without a DFA is reckoned to take: caches for the threads that match at one time.
const SLOW_COST_BYTES: usize = 4 << 20;

/// How large its cache of states may grow, for each thread that matches at one time.
const SLOW_CACHE_BYTES: usize = 256 << 10;

/// How much all automata of one rule set may take.
pub const ALL_BYTES_MAX: usize = 128 << 20;

/// How much work the tables of one rule set may be, made or given up: a step is one byte of the sets of NFA states that
/// its states stand for, followed for one class of bytes. That is what the time of determinizing goes by.
pub const ALL_STEPS_MAX: usize = 3 << 27;

/// How many of them a pattern is worth where not all fit into one table.
const STEPS_PER_PATTERN: usize = 1 << 20;

/// Which part of what is left the patterns that wait may take; each is tried in groups of several sizes.
const WAITING_SHARE: usize = 4;

/// Which part of the steps left the attempt may take to have all patterns of a key in one table.
const ALL_TOGETHER_SHARE: usize = 4;

/// How much looking at an expression counts for each byte of its NFA: a thousand that only repeat cost time as well.
const CHECKS_PER_BYTE: usize = 4;

/// Compiles patterns, and remembers what it compiled: the same patterns at another level share one automaton.
#[derive(Debug)]
pub struct Automata {
    left: Room,
    known: HashMap<Vec<Owned>, Arc<dyn PatternMatcher>>,
}

/// How much automata may take.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Of memory.
    bytes: usize,
    /// Of time.
    steps: usize,
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
            left: Room {
                bytes: ALL_BYTES_MAX,
                steps: ALL_STEPS_MAX,
            },
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

    fn made(&mut self, patterns: &[Ready<'_>]) -> Result<Arc<dyn PatternMatcher>, PatternError> {
        let all: Vec<usize> = (0..patterns.len()).collect();
        let hope = Room {
            bytes: self.left.bytes,
            steps: self.left.steps / ALL_TOGETHER_SHARE,
        };
        if let Some(dense) = self.dense(patterns, &all, hope)? {
            return Ok(Arc::new(dense));
        }
        let mut parts = Vec::new();
        let of_kind = |kind: Kind| -> Vec<usize> {
            let same = |number: &usize| patterns.get(*number).map(Ready::kind) == Some(kind);
            all.iter().copied().filter(same).collect()
        };
        let plain = of_kind(Kind::Plain);
        self.in_groups(patterns, &plain, (Kind::Plain, patterns.len()), &mut parts)?;
        parts.extend(self.sequences(patterns, of_kind(Kind::Entangled))?);
        self.in_groups(
            patterns,
            &of_kind(Kind::Regex),
            (Kind::Regex, 1),
            &mut parts,
        )?;
        let steps_per_byte = parts.iter().map(|part| part.steps_per_byte);
        if steps_per_byte.fold(0, u64::saturating_add) > STEPS_PER_BYTE_MAX {
            return Err(PatternError::TooManySteps);
        }
        Ok(Arc::new(Parts(parts)))
    }

    /// One matcher for texts with several stars; none where there are no such texts.
    fn sequences(
        &mut self,
        patterns: &[Ready<'_>],
        numbers: Vec<usize>,
    ) -> Result<Option<Part>, PatternError> {
        let texts = numbers
            .iter()
            .filter_map(|number| match patterns.get(*number)? {
                Ready::Stars(text) => Some(*text),
                Ready::Regex(_) => None,
            });
        let texts: Vec<&str> = texts.collect();
        if texts.is_empty() {
            return Ok(None);
        }
        let bytes = texts.iter().map(|text| text.len()).sum::<usize>();
        self.work(bytes.saturating_mul(SEQUENCES_STEPS_PER_BYTE))?;
        let sequences = Sequences::new(&texts).ok_or(PatternError::TooLarge)?;
        self.take(sequences.bytes())?;
        Ok(Some(Part {
            numbers,
            steps_per_byte: 1,
            matcher: Arc::new(sequences),
        }))
    }

    /// Several tables for patterns that do not fit into one. How many go into one is learnt on the way: half as many as
    /// did not fit, and of regular expressions twice as many as did, tried less and less often while it is in vain.
    fn in_groups(
        &mut self,
        patterns: &[Ready<'_>],
        numbers: &[usize],
        (kind, mut size): (Kind, usize),
        parts: &mut Vec<Part>,
    ) -> Result<(), PatternError> {
        let mut rest = numbers;
        // After how many groups it is tried again to have larger ones.
        let (mut wait, mut waited) = (0_usize, 0_usize);
        while !rest.is_empty() {
            size = size.clamp(1, rest.len());
            let (group, _) = rest.split_at(size);
            let Some(mut dense) = self.dense_of(patterns, group, rest.len())? else {
                if let [only] = group {
                    let only = patterns.get(*only).ok_or(PatternError::TooLarge)?;
                    let slow = self.slow(only)?;
                    parts.push(Part {
                        numbers: group.to_vec(),
                        steps_per_byte: u64::try_from(slow.states).unwrap_or(u64::MAX),
                        matcher: Arc::new(slow),
                    });
                    rest = rest.get(1..).unwrap_or_default();
                }
                size /= 2;
                continue;
            };
            waited = waited.saturating_add(1);
            while kind == Kind::Regex && waited > wait && size < rest.len() {
                let twice = size.saturating_mul(2).min(rest.len());
                let (group, _) = rest.split_at(twice);
                if let Some(larger) = self.dense_of(patterns, group, rest.len())? {
                    self.left.bytes = self.left.bytes.saturating_add(dense.bytes());
                    (dense, size, wait) = (larger, twice, 0);
                } else {
                    wait = wait.saturating_mul(2).max(1);
                    waited = 0;
                }
            }
            let (group, after) = rest.split_at(size);
            parts.push(Part {
                numbers: group.to_vec(),
                steps_per_byte: 1,
                matcher: Arc::new(dense),
            });
            rest = after;
        }
        Ok(())
    }

    /// One table for these, which are some of so many that still wait for theirs, and take no more than their share.
    fn dense_of(
        &mut self,
        patterns: &[Ready<'_>],
        numbers: &[usize],
        waiting: usize,
    ) -> Result<Option<Dense>, PatternError> {
        // All together have been tried.
        if numbers.len() == patterns.len() {
            return Ok(None);
        }
        let share = |left: usize| (left / waiting.max(1)).saturating_mul(numbers.len());
        let kind = numbers.first().and_then(|first| patterns.get(*first));
        let room = match numbers {
            // These only need memory for each, and are tried in few sizes.
            _ if kind.map(Ready::kind) == Some(Kind::Plain) => Room {
                bytes: self.left.bytes,
                steps: share(self.left.steps),
            },
            [_] => Room {
                steps: self.left.steps / 2,
                ..self.left
            },
            _ => Room {
                bytes: share(self.left.bytes) / WAITING_SHARE,
                steps: (share(self.left.steps) / WAITING_SHARE)
                    .min(numbers.len().saturating_mul(STEPS_PER_PATTERN)),
            },
        };
        self.dense(patterns, numbers, room)
    }

    /// One table of states for these of the patterns. None when it would be too large, or take too long to make.
    fn dense(
        &mut self,
        patterns: &[Ready<'_>],
        numbers: &[usize],
        room: Room,
    ) -> Result<Option<Dense>, PatternError> {
        if self.left.steps == 0 {
            return Err(PatternError::TotalTooLarge);
        }
        let chosen = numbers.iter().filter_map(|number| patterns.get(*number));
        let nfa = together(chosen).ok_or(PatternError::TooLarge)?;
        let bound = |per_byte: usize| {
            let bytes = nfa.memory_usage().saturating_mul(per_byte);
            bytes.clamp(DENSE_BYTES_MIN, DENSE_BYTES_MAX)
        };
        let classes = nfa.byte_classes().alphabet_len().max(1);
        let making_most = bound(MAKING_PER_NFA_BYTE).min(room.steps / classes);
        // What it really takes cannot be asked for, so it is found by trying.
        let mut making = MAKING_FIRST_BYTES.min(making_most);
        loop {
            self.work(making.saturating_mul(classes))?;
            let config = dense::Config::new()
                .match_kind(MatchKind::All)
                .start_kind(StartKind::Anchored)
                .accelerate(false)
                .dfa_size_limit(Some(bound(DENSE_PER_NFA_BYTE).min(room.bytes)))
                .determinize_size_limit(Some(making));
            let mut builder = dense::Builder::new();
            if let Ok(dfa) = builder.configure(config).build_from_nfa(&nfa) {
                let dense = Dense::new(dfa).ok_or(PatternError::TooLarge)?;
                self.take(dense.bytes())?;
                return Ok(Some(dense));
            }
            if making >= making_most {
                return Ok(None);
            }
            making = making.saturating_mul(MAKING_GROWTH).min(making_most);
        }
    }

    fn slow(&mut self, pattern: &Ready<'_>) -> Result<Slow, PatternError> {
        let whole = pattern.whole();
        let nfa = nfa(&whole, SLOW_BYTES_MAX).ok_or(PatternError::TooLarge)?;
        let states = nfa.states().len();
        self.take(SLOW_COST_BYTES)?;
        let config = meta::Config::new()
            .utf8_empty(false)
            .auto_prefilter(false)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(KEY_BYTES_MAX))
            .hybrid_cache_capacity(SLOW_CACHE_BYTES);
        let mut builder = meta::Builder::new();
        let regex = builder.configure(config).build_from_hir(&whole);
        let regex = regex.map_err(|_| PatternError::TooLarge)?;
        Ok(Slow { regex, states })
    }

    fn take(&mut self, bytes: usize) -> Result<(), PatternError> {
        self.spend(Room { bytes, steps: 0 })
    }

    fn work(&mut self, steps: usize) -> Result<(), PatternError> {
        self.spend(Room { bytes: 0, steps })
    }

    /// Where there is too little left, nothing is: what comes later is not even tried.
    fn spend(&mut self, room: Room) -> Result<(), PatternError> {
        let left = self.left.bytes.checked_sub(room.bytes);
        let left = left.zip(self.left.steps.checked_sub(room.steps));
        let left = left.map(|(bytes, steps)| Room { bytes, steps });
        self.left = left.unwrap_or(Room { bytes: 0, steps: 0 });
        left.map(drop).ok_or(PatternError::TotalTooLarge)
    }
}

impl PatternCompiler for Automata {
    fn compile(
        &mut self,
        patterns: &[Pattern<'_>],
    ) -> Result<Arc<dyn PatternMatcher>, PatternError> {
        let owned: Vec<_> = patterns.iter().map(Owned::from).collect();
        if let Some(known) = self.known.get(&owned) {
            return Ok(Arc::clone(known));
        }
        let ready = patterns.iter().map(|pattern| match pattern {
            Pattern::Wildcard(text) => Ok(Ready::Stars(text)),
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
            Pattern::Wildcard(text) => Self::Stars((*text).to_owned()),
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
