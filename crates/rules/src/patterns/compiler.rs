//! The compiler of patterns: groups them so that each group fits one automaton, within a budget.
//!
//! What it deliberately does not do: match (`matchers`, `sequences`).

use std::collections::HashMap;
use std::sync::Arc;

use regex_automata::dfa::{StartKind, dense};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::{MatchKind, meta};
use regex_syntax::hir::Hir;

use crate::patterns::budget::{
    ALL_BYTES_MAX, ALL_STEPS_MAX, ALL_TOGETHER_SHARE, Budget, CHECKS_PER_BYTE, DENSE_BYTES_MAX,
    DENSE_BYTES_MIN, DENSE_PER_NFA_BYTE, KEY_BYTES_MAX, LAZY_BYTES_MAX, LAZY_CACHE_BYTES,
    LAZY_COST_BYTES, MAKING_FIRST_BYTES, MAKING_GROWTH, MAKING_PER_NFA_BYTE, REGEX_BYTES_MAX,
    SEQUENCES_STEPS_KEPT, SEQUENCES_STEPS_PER_BYTE, STEPS_PER_BYTE_MAX, STEPS_PER_PATTERN,
    WAITING_SHARE, WITH_WILDCARDS_SHARE,
};
use crate::patterns::matchers::{
    DenseMatcher, GroupedMatcher, LazyMatcher, NumberedRegex, PatternGroup,
};
use crate::patterns::regex::{RegexError, nfa, parse, whole_value, wildcard};
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

/// A pattern: its text, and whether it is a regular expression.
type PatternKey = (String, bool);

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
        let nfa = nfa(&[whole_value(hir)], REGEX_BYTES_MAX);
        let bytes = nfa.as_ref().map_or(REGEX_BYTES_MAX, |nfa| {
            nfa.memory_usage().saturating_mul(CHECKS_PER_BYTE)
        });
        self.spend_bytes(bytes)
            .map_err(|_| RegexError::SizeLimitReached)?;
        nfa.map(|_| words).ok_or(RegexError::TooLarge)
    }

    fn compile_new(
        &mut self,
        patterns: &[Pattern<'_>],
    ) -> Result<Arc<dyn PatternMatcher>, PatternError> {
        let mut wildcards = Vec::new();
        let mut regexes = Vec::new();
        let mut all = Vec::with_capacity(patterns.len());
        for (number, pattern) in patterns.iter().enumerate() {
            match pattern {
                Pattern::Wildcard(text) => {
                    all.push((number, whole_value(wildcard(text))));
                    wildcards.push((number, *text));
                }
                Pattern::Regex(text) => {
                    let regex = whole_value(parse(text)?);
                    all.push((number, regex.clone()));
                    regexes.push((number, regex));
                }
            }
        }
        // Without a trie, the states of a DFA of many wildcards may be large sets.
        let steps = if wildcards.is_empty() {
            self.left.steps / ALL_TOGETHER_SHARE
        } else {
            self.left.steps.saturating_sub(SEQUENCES_STEPS_KEPT) / WITH_WILDCARDS_SHARE
        };
        let budget = Budget { steps, ..self.left };
        if let Some(dense) = self.dense(&all, budget)? {
            return Ok(Arc::new(dense));
        }
        let mut groups = Vec::new();
        if !wildcards.is_empty() {
            groups.push(self.wildcards(wildcards)?);
        }
        self.regexes(&regexes, &mut groups)?;
        let steps_per_byte = groups.iter().map(|group| group.steps_per_byte);
        if steps_per_byte.fold(0, u64::saturating_add) > STEPS_PER_BYTE_MAX {
            return Err(PatternError::TooManySteps);
        }
        match groups.as_slice() {
            [all] => Ok(Arc::clone(&all.matcher)),
            _ => Ok(Arc::new(GroupedMatcher(groups))),
        }
    }

    fn wildcards(&mut self, wildcards: Vec<(usize, &str)>) -> Result<PatternGroup, PatternError> {
        let (numbers, texts): (Vec<_>, Vec<_>) = wildcards.into_iter().unzip();
        let bytes = texts.iter().map(|text| text.len()).sum::<usize>();
        self.spend_steps(bytes.saturating_mul(SEQUENCES_STEPS_PER_BYTE))?;
        let sequences = Sequences::new(&texts).ok_or(PatternError::TooLarge)?;
        self.spend_bytes(sequences.bytes())?;
        Ok(PatternGroup {
            numbers,
            steps_per_byte: 1,
            matcher: Arc::new(sequences),
        })
    }

    /// Compiles regular expressions into several DFAs. The size of a group is learnt on the way:
    /// twice as many as fitted, or half as many as did not.
    fn regexes(
        &mut self,
        regexes: &[NumberedRegex],
        groups: &mut Vec<PatternGroup>,
    ) -> Result<(), PatternError> {
        let mut rest = regexes;
        // Without wildcards, all of them have been tried.
        let mut size = if groups.is_empty() { 1 } else { rest.len() };
        // After how many groups a larger one is tried again: less and less often while that fails.
        let (mut wait, mut waited) = (0_usize, 0_usize);
        while !rest.is_empty() {
            let (group, after) = rest.split_at(size.clamp(1, rest.len()));
            let budget = self.share(group.len(), rest.len());
            if let Some(dense) = self.dense(group, budget)? {
                groups.push(PatternGroup::new(group, 1, Arc::new(dense)));
            } else if let [(_, only)] = group {
                let lazy = self.lazy(only)?;
                let steps = u64::try_from(lazy.states).unwrap_or(u64::MAX);
                groups.push(PatternGroup::new(group, steps, Arc::new(lazy)));
            } else {
                size = group.len() / 2;
                (wait, waited) = (wait.saturating_mul(2).max(1), 0);
                continue;
            }
            rest = after;
            size = group.len();
            if waited >= wait {
                size = size.saturating_mul(2);
            }
            waited = waited.saturating_add(1);
        }
        Ok(())
    }

    /// What a group of so many expressions may take of what is left for those that wait.
    fn share(&self, group: usize, waiting: usize) -> Budget {
        let share = |left: usize| (left / waiting.max(1)).saturating_mul(group);
        match group {
            1 => Budget {
                steps: self.left.steps / 2,
                ..self.left
            },
            _ => Budget {
                bytes: share(self.left.bytes) / WAITING_SHARE,
                steps: (share(self.left.steps) / WAITING_SHARE)
                    .min(group.saturating_mul(STEPS_PER_PATTERN)),
            },
        }
    }

    /// Compiles expressions into one DFA. None when it would be too large, or take too long.
    fn dense(
        &mut self,
        regexes: &[NumberedRegex],
        budget: Budget,
    ) -> Result<Option<DenseMatcher>, PatternError> {
        if self.left.steps == 0 {
            return Err(PatternError::TotalTooLarge);
        }
        let regexes: Vec<&Hir> = regexes.iter().map(|(_, regex)| regex).collect();
        let Some(nfa) = nfa(&regexes, KEY_BYTES_MAX) else {
            return Ok(None);
        };
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
                self.spend_bytes(dfa.memory_usage())?;
                return Ok(Some(DenseMatcher(dfa)));
            }
            if making >= making_most {
                return Ok(None);
            }
            making = making.saturating_mul(MAKING_GROWTH).min(making_most);
        }
    }

    fn lazy(&mut self, whole: &Hir) -> Result<LazyMatcher, PatternError> {
        let nfa = nfa(&[whole], LAZY_BYTES_MAX).ok_or(PatternError::TooLarge)?;
        let states = nfa.states().len();
        self.spend_bytes(LAZY_COST_BYTES)?;
        let config = meta::Config::new()
            .utf8_empty(false)
            .auto_prefilter(false)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(KEY_BYTES_MAX))
            .hybrid_cache_capacity(LAZY_CACHE_BYTES);
        let mut builder = meta::Builder::new();
        let regex = builder.configure(config).build_from_hir(whole);
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
        let key = |pattern: &Pattern<'_>| match pattern {
            Pattern::Wildcard(text) => ((*text).to_owned(), false),
            Pattern::Regex(text) => ((*text).to_owned(), true),
        };
        let keys: Vec<PatternKey> = patterns.iter().map(key).collect();
        if let Some(known) = self.known.get(&keys) {
            return Ok(Arc::clone(known));
        }
        let made = self.compile_new(patterns)?;
        self.known.insert(keys, Arc::clone(&made));
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The different patterns `*word*` of a key, none of them that of another key.
    fn words_of(key: usize, count: usize) -> Vec<String> {
        let word = |n: usize| {
            let mut random = (key * 1_000 + n) as u64;
            let letters = (0..8).map(|_| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                char::from(b'a' + u8::try_from((random >> 33) % 26).unwrap())
            });
            format!("*{}*", letters.collect::<String>())
        };
        (0..count).map(word).collect()
    }

    #[test]
    fn hundreds_of_keys_with_wildcards_of_their_own_are_within_the_budget() {
        for (keys, count) in [(150, 25), (200, 30)] {
            let mut automata = Automata::default();
            for key in 0..keys {
                let texts = words_of(key, count);
                let patterns: Vec<_> = texts.iter().map(|text| Pattern::Wildcard(text)).collect();
                let made = automata.compile(&patterns);
                assert!(made.is_ok(), "{key} of {keys}: {made:?}");
            }
            // Further keys take only the steps of their bytes.
            assert!(automata.left.steps > SEQUENCES_STEPS_KEPT / 2, "{keys}");
        }
    }
}
