//! The matchers of compiled patterns: one DFA, several matchers, or states made on demand.
//!
//! What it deliberately does not do: choose among them (`compiler`).

use std::fmt;
use std::sync::Arc;

use regex_automata::dfa::{Automaton as _, dense};
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, Input, meta};
use regex_syntax::hir::Hir;

use tollgate_limiter::{PatternMatcher, StepBudget};

/// A DFA whose states are all built in advance.
pub(crate) struct DenseMatcher(pub(crate) dense::DFA<Vec<u32>>);

/// Patterns of several matchers, in groups.
#[derive(Debug)]
pub(crate) struct GroupedMatcher(pub(crate) Vec<PatternGroup>);

/// A group of patterns with a matcher of their own.
#[derive(Debug)]
pub(crate) struct PatternGroup {
    /// The numbers of the patterns, in order.
    pub(crate) numbers: Vec<usize>,
    /// How many steps a byte of a value takes at most, without the steps that depend on the
    /// patterns that are visited.
    pub(crate) steps_per_byte: u64,
    pub(crate) matcher: Arc<dyn PatternMatcher>,
}

/// The expression of a pattern, and the pattern's number.
pub(crate) type NumberedRegex = (usize, Hir);

/// One expression whose states are built on demand.
pub(crate) struct LazyMatcher {
    pub(crate) regex: meta::Regex,
    /// The number of states of its NFA: at worst a byte takes a step in each.
    pub(crate) states: usize,
}

// === impl DenseMatcher ===

impl DenseMatcher {
    /// Follows the states of a text, and calls `matched` with those in which a pattern has matched.
    /// Stops when nothing can match any more.
    fn walk(&self, text: &[u8], steps: &StepBudget, mut matched: impl FnMut(StateID)) {
        let dfa = &self.0;
        let input = Input::new(b"").anchored(Anchored::Yes);
        let Ok(mut state) = dfa.start_state_forward(&input) else {
            return;
        };
        for (at, &byte) in text.iter().enumerate() {
            state = dfa.next_state(state, byte);
            if dfa.is_special_state(state) {
                if dfa.is_match_state(state) {
                    matched(state);
                } else if dfa.is_dead_state(state) {
                    steps.spend(at.saturating_add(1));
                    return;
                }
            }
        }
        steps.spend(text.len().saturating_add(1));
        let end = dfa.next_eoi_state(state);
        if dfa.is_match_state(end) {
            matched(end);
        }
    }
}

impl PatternMatcher for DenseMatcher {
    fn first_match(&self, text: &[u8], steps: &StepBudget) -> Option<usize> {
        let mut first = None;
        self.walk(text, steps, |state| {
            // The patterns of a state are in order, as their expressions are in the NFA.
            let here = self.0.match_pattern(state, 0).as_usize();
            first = Some(first.map_or(here, |first: usize| first.min(here)));
        });
        first
    }

    fn each_match(&self, text: &[u8], steps: &StepBudget, found: &mut dyn FnMut(usize)) {
        self.walk(text, steps, |state| {
            steps.spend(self.0.match_len(state));
            for index in 0..self.0.match_len(state) {
                found(self.0.match_pattern(state, index).as_usize());
            }
        });
    }
}

impl fmt::Debug for DenseMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (patterns, bytes) = (self.0.pattern_len(), self.0.memory_usage());
        write!(f, "Dense({patterns} patterns, {bytes} bytes)")
    }
}

// === impl PatternGroup ===

impl PatternGroup {
    pub(crate) fn new(
        patterns: &[NumberedRegex],
        steps_per_byte: u64,
        matcher: Arc<dyn PatternMatcher>,
    ) -> Self {
        Self {
            numbers: patterns.iter().map(|(number, _)| *number).collect(),
            steps_per_byte,
            matcher,
        }
    }
}

// === impl GroupedMatcher ===

impl PatternMatcher for GroupedMatcher {
    fn first_match(&self, text: &[u8], steps: &StepBudget) -> Option<usize> {
        let first = |part: &PatternGroup| {
            let index = part.matcher.first_match(text, steps)?;
            part.numbers.get(index).copied()
        };
        let parts = self.0.iter().take_while(|_| !steps.is_exhausted());
        parts.filter_map(first).min()
    }

    fn each_match(&self, text: &[u8], steps: &StepBudget, found: &mut dyn FnMut(usize)) {
        for part in self.0.iter().take_while(|_| !steps.is_exhausted()) {
            part.matcher.each_match(text, steps, &mut |index| {
                if let Some(number) = part.numbers.get(index) {
                    found(*number);
                }
            });
        }
    }
}

// === impl LazyMatcher ===

impl PatternMatcher for LazyMatcher {
    fn first_match(&self, text: &[u8], steps: &StepBudget) -> Option<usize> {
        // The steps cannot be counted while it matches, so the maximum is taken in advance.
        steps.spend(text.len().saturating_add(1).saturating_mul(self.states));
        if steps.is_exhausted() {
            return None;
        }
        let input = Input::new(text).anchored(Anchored::Yes);
        self.regex.is_match(input).then_some(0)
    }

    fn each_match(&self, text: &[u8], steps: &StepBudget, found: &mut dyn FnMut(usize)) {
        if let Some(only) = self.first_match(text, steps) {
            found(only);
        }
    }
}

impl fmt::Debug for LazyMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slow")
    }
}
