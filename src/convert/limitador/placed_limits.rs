//! The limits that a domain has already, as a tree of their steps.
//!
//! Why: whether a new limit shares a branch with another one is asked for each limit. A scan of
//! all limits would take quadratic time; the tree takes one look-up for each step and value.

use std::collections::{BTreeMap, HashMap};

use super::levels::Step;

/// How many limits one descriptor may have.
const LIMITS_MAX: usize = 16;

/// The limits below some steps.
#[derive(Default)]
pub(super) struct PlacedLimits {
    /// The limits whose last step leads here.
    limits: usize,
    /// The steps from here, by their key.
    by_key: BTreeMap<String, StepsOfKey>,
}

/// Steps of one key that follow the same steps.
#[derive(Default)]
struct StepsOfKey {
    next: HashMap<Step, PlacedLimits>,
    /// How many of them match other than exact values.
    inexact: usize,
    /// How many of them match a value exactly.
    exact: HashMap<String, usize>,
}

// === impl PlacedLimits ===

impl PlacedLimits {
    /// Whether a limit of these steps takes no value from another limit, and loses none.
    pub(super) fn has_place_for(&self, steps: &[Step]) -> bool {
        let Some((first, rest)) = steps.split_first() else {
            return self.limits < LIMITS_MAX;
        };
        let Some(siblings) = self.by_key.get(&first.key) else {
            return true;
        };
        if !siblings.are_apart_from(first) {
            return false;
        }
        match siblings.next.get(first) {
            Some(next) => next.has_place_for(rest),
            None => true,
        }
    }

    /// Adds a limit of these steps.
    pub(super) fn add(&mut self, steps: &[Step]) {
        match steps.split_first() {
            None => self.limits = self.limits.saturating_add(1),
            Some((first, rest)) => {
                let siblings = self.by_key.entry(first.key.clone()).or_default();
                siblings.add(first).add(rest);
            }
        }
    }
}

// === impl StepsOfKey ===

impl StepsOfKey {
    /// Whether a descriptor of this step never takes a branch of another step, nor the reverse.
    fn are_apart_from(&self, step: &Step) -> bool {
        let own = usize::from(self.next.contains_key(step));
        let Some(values) = step.exact_values() else {
            return self.next.len() == own;
        };
        let others = |value: &String| self.exact.get(value).is_some_and(|steps| *steps > own);
        self.inexact == 0 && !values.iter().any(others)
    }

    fn add(&mut self, step: &Step) -> &mut PlacedLimits {
        if !self.next.contains_key(step) {
            match step.exact_values() {
                None => self.inexact = self.inexact.saturating_add(1),
                Some(values) => {
                    let mut values = values.to_vec();
                    values.sort_unstable();
                    values.dedup();
                    for value in values {
                        let steps = self.exact.entry(value).or_default();
                        *steps = steps.saturating_add(1);
                    }
                }
            }
        }
        self.next.entry(step.clone()).or_default()
    }
}
