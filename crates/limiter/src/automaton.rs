//! Wildcard patterns and regular expressions of one key, matched in one pass.
//!
//! What it deliberately does not do: compile patterns (a `PatternCompiler` does).

use std::sync::Arc;

use super::node_match::{MatchKind, NodeIndex};
use super::pattern::{Pattern, PatternMatcher, StepBudget};
use super::rule::Level;
use super::values::Values;

/// Wildcard patterns, then regular expressions, each in the order configured.
#[derive(Clone, Debug, Default)]
pub(super) struct Automaton {
    pub(super) wildcards: Vec<PatternNode>,
    pub(super) regexes: Vec<PatternNode>,
    /// None until compiled, and when there are no patterns.
    pub(super) compiled: Option<Arc<dyn PatternMatcher>>,
}

#[derive(Clone, Debug)]
pub(super) struct PatternNode {
    pub(super) node: NodeIndex,
    pub(super) level: Arc<Level>,
}

// === impl Automaton ===

impl Automaton {
    pub(super) fn first_node(&self) -> Option<NodeIndex> {
        let first = |configured: &[PatternNode]| Some(configured.first()?.node);
        first(&self.wildcards).or_else(|| first(&self.regexes))
    }

    /// All patterns, in order of precedence.
    pub(super) fn patterns(&self) -> impl Iterator<Item = Pattern<'_>> {
        let all = self.wildcards.iter().chain(&self.regexes);
        all.filter_map(|configured| match &*configured.level.values {
            Values::Text(value) => Some(Pattern::Wildcard(value)),
            Values::Regex(regex) => Some(Pattern::Regex(regex)),
            // Only text and regular expressions are added.
            Values::Any | Values::List(_) | Values::Prefixes(_) => None,
        })
    }

    pub(super) fn at(&self, place: usize) -> Option<(MatchKind, NodeIndex)> {
        match place.checked_sub(self.wildcards.len()) {
            None => Some((MatchKind::Wildcard, self.wildcards.get(place)?.node)),
            Some(place) => Some((MatchKind::Regex, self.regexes.get(place)?.node)),
        }
    }

    pub(super) fn first(&self, value: &[u8], steps: &StepBudget) -> Option<(MatchKind, NodeIndex)> {
        if steps.is_exhausted() {
            return None;
        }
        self.at(self.compiled.as_ref()?.first_match(value, steps)?)
    }

    pub(super) fn each(&self, value: &[u8], found: &mut dyn FnMut(MatchKind, NodeIndex)) {
        if let Some(compiled) = &self.compiled {
            compiled.each_match(value, &StepBudget::unlimited(), &mut |place| {
                if let Some((kind, node)) = self.at(place) {
                    found(kind, node);
                }
            });
        }
    }
}
