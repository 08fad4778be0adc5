//! Keys that hold a `*`, and the values configured for the keys that match.
//!
//! How: one automaton over the keys, and one for each of them over its values. Such keys are rare.

use std::sync::Arc;

use super::automaton::{Automaton, PatternNode};
use super::descriptor::Entry;
use super::node_match::NodeIndex;
use super::pattern::{Pattern, PatternCompiler, PatternError, PatternMatcher, StepBudget};
use super::values::Values;

/// The keys that hold a `*`.
#[derive(Clone, Debug, Default)]
pub(super) struct WildcardKeys {
    pub(super) all: Vec<WildcardKey>,
    /// Matches the keys, in the same order. None until compiled.
    pub(super) keys: Option<Arc<dyn PatternMatcher>>,
}

/// A key that holds a `*`, and what is configured for the keys that match.
#[derive(Clone, Debug)]
pub(super) struct WildcardKey {
    pub(super) key: String,
    pub(super) any: Option<NodeIndex>,
    pub(super) values: Automaton,
}

// === impl WildcardKeys ===

impl WildcardKeys {
    pub(super) fn add(&mut self, place: usize, configured: PatternNode) {
        if place == self.all.len() {
            self.all.push(WildcardKey {
                key: configured.level.key.clone(),
                any: None,
                values: Automaton::default(),
            });
            self.keys = None;
        }
        if let Some(wildcard) = self.all.get_mut(place) {
            if *configured.level.values == Values::Any {
                wildcard.any = Some(configured.node);
            } else {
                wildcard.values.wildcards.push(configured);
                wildcard.values.compiled = None;
            }
        }
    }

    pub(super) fn compile(
        &mut self,
        compiler: &mut dyn PatternCompiler,
        errors: &mut Vec<(NodeIndex, PatternError)>,
    ) {
        let first = self.all.first().and_then(WildcardKey::first_node);
        if let (Some(first), None) = (first, &self.keys) {
            let keys: Vec<_> = self
                .all
                .iter()
                .map(|one| Pattern::Wildcard(&one.key))
                .collect();
            match compiler.compile(&keys) {
                Ok(made) => self.keys = Some(made),
                Err(error) => errors.push((first, error)),
            }
        }
    }

    /// Calls `found` with every key that matches.
    pub(super) fn each_key<'k>(
        &'k self,
        key: &[u8],
        steps: &StepBudget,
        found: &mut dyn FnMut(&'k WildcardKey),
    ) {
        if let Some(keys) = &self.keys {
            keys.each_match(key, steps, &mut |place| {
                if let Some(wildcard) = self.all.get(place) {
                    found(wildcard);
                }
            });
        }
    }

    /// The first node that matches.
    pub(super) fn first(&self, entry: &Entry<'_>, steps: &StepBudget) -> Option<NodeIndex> {
        let mut first = None;
        self.each_key(entry.key, steps, &mut |wildcard| {
            first = earlier(first, wildcard.first(entry.value, steps));
        });
        first
    }

    /// Calls `found` with every node that matches.
    pub(super) fn each(&self, entry: &Entry<'_>, found: &mut dyn FnMut(NodeIndex)) {
        self.each_key(entry.key, &StepBudget::unlimited(), &mut |wildcard| {
            if let Some(any) = wildcard.any {
                found(any);
            }
            wildcard
                .values
                .each(entry.value, &mut |_, node| found(node));
        });
    }
}

// === impl WildcardKey ===

impl WildcardKey {
    pub(super) fn first_node(&self) -> Option<NodeIndex> {
        earlier(self.any, self.values.first_node())
    }

    /// The first node that matches the value, given that the key does.
    pub(super) fn first(&self, value: &[u8], steps: &StepBudget) -> Option<NodeIndex> {
        let by_value = self.values.first(value, steps);
        earlier(self.any, by_value.map(|(_, node)| node))
    }
}

/// The node configured earlier, of two.
fn earlier(one: Option<NodeIndex>, other: Option<NodeIndex>) -> Option<NodeIndex> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
