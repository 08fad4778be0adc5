//! The matchers of compiled patterns: one DFA, several DFAs, or states made on demand.
//!
//! What it deliberately does not do: choose among them (`compiler`).

use std::fmt;
use std::sync::Arc;

use regex_automata::dfa::{Automaton as _, dense};
use regex_automata::util::alphabet::Unit;
use regex_automata::util::primitives::StateID;
use regex_automata::{Anchored, Input, meta};

use tollgate_limiter::{PatternMatcher, StepBudget};

/// A DFA whose states are all built in advance.
pub(crate) struct DenseMatcher {
    dfa: dense::DFA<Vec<u32>>,
    /// For each state the first pattern that has matched there, or [`NO_PATTERN`].
    firsts: Vec<u32>,
}

const NO_PATTERN: u32 = u32::MAX;

/// A state that has not been visited, while `firsts` is computed.
const NOT_SEEN: u32 = u32::MAX - 1;

/// Patterns that do not fit into one automaton, in groups.
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

/// One expression whose states are built on demand.
pub(crate) struct LazyMatcher {
    pub(crate) regex: meta::Regex,
    /// The number of states of its NFA: at worst a byte takes a step in each.
    pub(crate) states: usize,
}

// === impl DenseMatcher ===

impl DenseMatcher {
    /// None when there are too many patterns for their numbers.
    pub(crate) fn new(dfa: dense::DFA<Vec<u32>>) -> Option<Self> {
        let mut dense = Self {
            dfa,
            firsts: Vec::new(),
        };
        let mut seen: Vec<StateID> = vec![dense.start()?];
        let mut next = 0;
        let classes: Vec<u8> = {
            let representatives = dense.dfa.byte_classes().representatives(0..=255);
            representatives.filter_map(Unit::as_u8).collect()
        };
        while let Some(state) = seen.get(next).copied() {
            next = next.saturating_add(1);
            let bytes = classes
                .iter()
                .map(|byte| dense.dfa.next_state(state, *byte));
            for to in bytes
                .chain([dense.dfa.next_eoi_state(state)])
                .collect::<Vec<_>>()
            {
                if dense.record_first(to)? {
                    seen.push(to);
                }
            }
        }
        dense.firsts.shrink_to_fit();
        Some(dense)
    }

    /// Records the first pattern that has matched in a state, if the state is new.
    fn record_first(&mut self, state: StateID) -> Option<bool> {
        let number = self.number(state);
        if number >= self.firsts.len() {
            self.firsts.resize(number.checked_add(1)?, NOT_SEEN);
        }
        let first = self.firsts.get_mut(number)?;
        if *first != NOT_SEEN {
            return Some(false);
        }
        *first = if self.dfa.is_match_state(state) {
            let indices = 0..self.dfa.match_len(state);
            let patterns = indices.map(|index| self.dfa.match_pattern(state, index).as_u32());
            patterns.min()?
        } else {
            NO_PATTERN
        };
        Some(true)
    }

    fn number(&self, state: StateID) -> usize {
        state.as_usize() >> self.dfa.stride2()
    }

    fn start(&self) -> Option<StateID> {
        let input = Input::new(b"").anchored(Anchored::Yes);
        self.dfa.start_state_forward(&input).ok()
    }

    pub(crate) fn bytes(&self) -> usize {
        let firsts = self.firsts.len().saturating_mul(size_of::<u32>());
        let own = size_of::<Self>().saturating_add(firsts);
        self.dfa.memory_usage().saturating_add(own)
    }

    /// Follows the states of a text, and calls `matched` with those in which a pattern has matched.
    /// Stops when nothing can match any more.
    fn walk(&self, text: &[u8], steps: &StepBudget, mut matched: impl FnMut(StateID)) {
        let dfa = &self.dfa;
        let Some(mut state) = self.start() else {
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
        let mut first = NO_PATTERN;
        self.walk(text, steps, |state| {
            let here = self.firsts.get(self.number(state));
            first = first.min(here.copied().unwrap_or(NO_PATTERN));
        });
        (first != NO_PATTERN).then_some(first as usize)
    }

    fn each_match(&self, text: &[u8], steps: &StepBudget, found: &mut dyn FnMut(usize)) {
        self.walk(text, steps, |state| {
            steps.spend(self.dfa.match_len(state));
            for index in 0..self.dfa.match_len(state) {
                found(self.dfa.match_pattern(state, index).as_usize());
            }
        });
    }
}

impl fmt::Debug for DenseMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (patterns, bytes) = (self.dfa.pattern_len(), self.bytes());
        write!(f, "Dense({patterns} patterns, {bytes} bytes)")
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
