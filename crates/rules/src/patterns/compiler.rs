//! The compiler of patterns: groups them so that each group fits one automaton, within a budget.
//!
//! What it deliberately does not do: match (`matchers`, `sequences`).

use std::collections::HashMap;
use std::sync::Arc;

use regex_automata::dfa::{StartKind, dense};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::{MatchKind, meta};

use crate::patterns::budget::{
    ALL_BYTES_MAX, ALL_STEPS_MAX, ALL_TOGETHER_SHARE, Budget, CHECKS_PER_BYTE, DENSE_BYTES_MAX,
    DENSE_BYTES_MIN, DENSE_PER_NFA_BYTE, KEY_BYTES_MAX, LAZY_BYTES_MAX, LAZY_CACHE_BYTES,
    LAZY_COST_BYTES, MAKING_FIRST_BYTES, MAKING_GROWTH, MAKING_PER_NFA_BYTE, REGEX_BYTES_MAX,
    SEQUENCES_STEPS_PER_BYTE, STEPS_PER_BYTE_MAX, STEPS_PER_PATTERN, WAITING_SHARE,
};
use crate::patterns::combined_nfa::combined_nfa;
use crate::patterns::matchers::{DenseMatcher, GroupedMatcher, LazyMatcher, PatternGroup};
use crate::patterns::pattern::{ParsedPattern, PatternKey, PatternKind};
use crate::patterns::regex::{RegexError, nfa, parse, whole_value};
use crate::patterns::sequences::Sequences;
use crate::patterns::words::words;
use tollgate_limiter::{Pattern, PatternCompiler, PatternError, PatternMatcher};

/// Compiles patterns, and caches the result: the same patterns at another level share one
/// automaton.
#[derive(Debug)]
pub struct Automata {
    left: Budget,
    known: HashMap<Vec<PatternKey>, Arc<dyn PatternMatcher>>,
}

// === impl Automata ===

impl Default for Automata {
    fn default() -> Self {
        Self {
            left: Budget {
                bytes: ALL_BYTES_MAX,
                steps: ALL_STEPS_MAX,
            },
            known: HashMap::new(),
        }
    }
}

impl Automata {
    /// Checks that `regex` is a valid regular expression, and gives its words if it has few. A
    /// check spends budget as compiling does.
    ///
    /// # Errors
    ///
    /// Why it is invalid.
    pub fn check(&mut self, regex: &str) -> Result<Option<Vec<Vec<u8>>>, RegexError> {
        let hir = parse(regex)?;
        let words = words(regex, &hir);
        let nfa = nfa(&whole_value(hir), REGEX_BYTES_MAX);
        let bytes = nfa.as_ref().map_or(REGEX_BYTES_MAX, |nfa| {
            nfa.memory_usage().saturating_mul(CHECKS_PER_BYTE)
        });
        self.spend_bytes(bytes)
            .map_err(|_| RegexError::SizeLimitReached)?;
        nfa.map(|_| words).ok_or(RegexError::TooLarge)
    }

    fn compile_new(
        &mut self,
        patterns: &[ParsedPattern<'_>],
    ) -> Result<Arc<dyn PatternMatcher>, PatternError> {
        let all: Vec<usize> = (0..patterns.len()).collect();
        let hope = Budget {
            bytes: self.left.bytes,
            steps: self.left.steps / ALL_TOGETHER_SHARE,
        };
        if let Some(dense) = self.dense(patterns, &all, hope)? {
            return Ok(Arc::new(dense));
        }
        let mut parts = Vec::new();
        let of_kind = |kind: PatternKind| -> Vec<usize> {
            let same =
                |number: &usize| patterns.get(*number).map(ParsedPattern::kind) == Some(kind);
            all.iter().copied().filter(same).collect()
        };
        let plain = of_kind(PatternKind::Plain);
        self.compile_in_groups(
            patterns,
            &plain,
            (PatternKind::Plain, patterns.len()),
            &mut parts,
        )?;
        parts.extend(self.sequences(patterns, of_kind(PatternKind::Entangled))?);
        self.compile_in_groups(
            patterns,
            &of_kind(PatternKind::Regex),
            (PatternKind::Regex, 1),
            &mut parts,
        )?;
        let steps_per_byte = parts.iter().map(|part| part.steps_per_byte);
        if steps_per_byte.fold(0, u64::saturating_add) > STEPS_PER_BYTE_MAX {
            return Err(PatternError::TooManySteps);
        }
        Ok(Arc::new(GroupedMatcher(parts)))
    }

    /// Compiles wildcards with several stars into one matcher; none if there are no such patterns.
    fn sequences(
        &mut self,
        patterns: &[ParsedPattern<'_>],
        numbers: Vec<usize>,
    ) -> Result<Option<PatternGroup>, PatternError> {
        let texts = numbers
            .iter()
            .filter_map(|number| match patterns.get(*number)? {
                ParsedPattern::Stars(text) => Some(*text),
                ParsedPattern::Regex(_) => None,
            });
        let texts: Vec<&str> = texts.collect();
        if texts.is_empty() {
            return Ok(None);
        }
        let bytes = texts.iter().map(|text| text.len()).sum::<usize>();
        self.spend_steps(bytes.saturating_mul(SEQUENCES_STEPS_PER_BYTE))?;
        let sequences = Sequences::new(&texts).ok_or(PatternError::TooLarge)?;
        self.spend_bytes(sequences.bytes())?;
        Ok(Some(PatternGroup {
            numbers,
            steps_per_byte: 1,
            matcher: Arc::new(sequences),
        }))
    }

    /// Compiles patterns that do not fit into one DFA into several. The size of a group is learnt
    /// on the way: half as many as did not fit, and of regular expressions twice as many as did,
    /// tried less and less often while it fails.
    fn compile_in_groups(
        &mut self,
        patterns: &[ParsedPattern<'_>],
        numbers: &[usize],
        (kind, mut size): (PatternKind, usize),
        parts: &mut Vec<PatternGroup>,
    ) -> Result<(), PatternError> {
        let mut rest = numbers;
        // After how many groups a larger group is tried again.
        let (mut wait, mut waited) = (0_usize, 0_usize);
        while !rest.is_empty() {
            size = size.clamp(1, rest.len());
            let (group, _) = rest.split_at(size);
            let Some(mut dense) = self.dense_within_share(patterns, group, rest.len())? else {
                if let [only] = group {
                    let only = patterns.get(*only).ok_or(PatternError::TooLarge)?;
                    let slow = self.lazy(only)?;
                    parts.push(PatternGroup {
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
            while kind == PatternKind::Regex && waited > wait && size < rest.len() {
                let twice = size.saturating_mul(2).min(rest.len());
                let (group, _) = rest.split_at(twice);
                if let Some(larger) = self.dense_within_share(patterns, group, rest.len())? {
                    self.left.bytes = self.left.bytes.saturating_add(dense.bytes());
                    (dense, size, wait) = (larger, twice, 0);
                } else {
                    wait = wait.saturating_mul(2).max(1);
                    waited = 0;
                }
            }
            let (group, after) = rest.split_at(size);
            parts.push(PatternGroup {
                numbers: group.to_vec(),
                steps_per_byte: 1,
                matcher: Arc::new(dense),
            });
            rest = after;
        }
        Ok(())
    }

    /// Compiles a group of the patterns into one DFA, within the group's share of the budget that
    /// is left for the `waiting` ones.
    fn dense_within_share(
        &mut self,
        patterns: &[ParsedPattern<'_>],
        numbers: &[usize],
        waiting: usize,
    ) -> Result<Option<DenseMatcher>, PatternError> {
        // All patterns together have been tried.
        if numbers.len() == patterns.len() {
            return Ok(None);
        }
        let share = |left: usize| (left / waiting.max(1)).saturating_mul(numbers.len());
        let kind = numbers.first().and_then(|first| patterns.get(*first));
        let budget = match numbers {
            // These need only memory for each, and few sizes are tried.
            _ if kind.map(ParsedPattern::kind) == Some(PatternKind::Plain) => Budget {
                bytes: self.left.bytes,
                steps: share(self.left.steps),
            },
            [_] => Budget {
                steps: self.left.steps / 2,
                ..self.left
            },
            _ => Budget {
                bytes: share(self.left.bytes) / WAITING_SHARE,
                steps: (share(self.left.steps) / WAITING_SHARE)
                    .min(numbers.len().saturating_mul(STEPS_PER_PATTERN)),
            },
        };
        self.dense(patterns, numbers, budget)
    }

    /// Compiles a group of the patterns into one DFA. None when it would be too large, or take too
    /// long.
    fn dense(
        &mut self,
        patterns: &[ParsedPattern<'_>],
        numbers: &[usize],
        budget: Budget,
    ) -> Result<Option<DenseMatcher>, PatternError> {
        if self.left.steps == 0 {
            return Err(PatternError::TotalTooLarge);
        }
        let chosen = numbers.iter().filter_map(|number| patterns.get(*number));
        let nfa = combined_nfa(chosen).ok_or(PatternError::TooLarge)?;
        let bound = |per_byte: usize| {
            let bytes = nfa.memory_usage().saturating_mul(per_byte);
            bytes.clamp(DENSE_BYTES_MIN, DENSE_BYTES_MAX)
        };
        let classes = nfa.byte_classes().alphabet_len().max(1);
        let making_most = bound(MAKING_PER_NFA_BYTE).min(budget.steps / classes);
        // The memory that determinization needs is unknown, so it is found by trying.
        let mut making = MAKING_FIRST_BYTES.min(making_most);
        loop {
            self.spend_steps(making.saturating_mul(classes))?;
            let config = dense::Config::new()
                .match_kind(MatchKind::All)
                .start_kind(StartKind::Anchored)
                .accelerate(false)
                .dfa_size_limit(Some(bound(DENSE_PER_NFA_BYTE).min(budget.bytes)))
                .determinize_size_limit(Some(making));
            let mut builder = dense::Builder::new();
            if let Ok(dfa) = builder.configure(config).build_from_nfa(&nfa) {
                let dense = DenseMatcher::new(dfa).ok_or(PatternError::TooLarge)?;
                self.spend_bytes(dense.bytes())?;
                return Ok(Some(dense));
            }
            if making >= making_most {
                return Ok(None);
            }
            making = making.saturating_mul(MAKING_GROWTH).min(making_most);
        }
    }

    fn lazy(&mut self, pattern: &ParsedPattern<'_>) -> Result<LazyMatcher, PatternError> {
        let whole = pattern.whole_value();
        let nfa = nfa(&whole, LAZY_BYTES_MAX).ok_or(PatternError::TooLarge)?;
        let states = nfa.states().len();
        self.spend_bytes(LAZY_COST_BYTES)?;
        let config = meta::Config::new()
            .utf8_empty(false)
            .auto_prefilter(false)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(KEY_BYTES_MAX))
            .hybrid_cache_capacity(LAZY_CACHE_BYTES);
        let mut builder = meta::Builder::new();
        let regex = builder.configure(config).build_from_hir(&whole);
        let regex = regex.map_err(|_| PatternError::TooLarge)?;
        Ok(LazyMatcher { regex, states })
    }

    fn spend_bytes(&mut self, bytes: usize) -> Result<(), PatternError> {
        self.spend(Budget { bytes, steps: 0 })
    }

    fn spend_steps(&mut self, steps: usize) -> Result<(), PatternError> {
        self.spend(Budget { bytes: 0, steps })
    }

    /// When the budget is exceeded, nothing is left: later patterns are not even tried.
    fn spend(&mut self, budget: Budget) -> Result<(), PatternError> {
        let left = self.left.bytes.checked_sub(budget.bytes);
        let left = left.zip(self.left.steps.checked_sub(budget.steps));
        let left = left.map(|(bytes, steps)| Budget { bytes, steps });
        self.left = left.unwrap_or(Budget { bytes: 0, steps: 0 });
        left.map(drop).ok_or(PatternError::TotalTooLarge)
    }
}

impl PatternCompiler for Automata {
    fn compile(
        &mut self,
        patterns: &[Pattern<'_>],
    ) -> Result<Arc<dyn PatternMatcher>, PatternError> {
        let owned: Vec<_> = patterns.iter().map(PatternKey::from).collect();
        if let Some(known) = self.known.get(&owned) {
            return Ok(Arc::clone(known));
        }
        let ready = patterns.iter().map(|pattern| match pattern {
            Pattern::Wildcard(text) => Ok(ParsedPattern::Stars(text)),
            Pattern::Regex(text) => parse(text).map(|hir| ParsedPattern::Regex(whole_value(hir))),
        });
        let made = self.compile_new(&ready.collect::<Result<Vec<_>, RegexError>>()?)?;
        self.known.insert(owned, Arc::clone(&made));
        Ok(made)
    }
}
