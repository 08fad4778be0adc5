//! The levels of limits: each test and each variable is one, in their order. The limits of a domain
//! are a tree of their steps.
//!
//! Why a tree: whether a new limit shares a branch with another one is asked for each limit. A scan
//! of all limits would take quadratic time; the tree takes one look-up for each step and value.

use std::collections::HashMap;

use super::expression::{Comparison, EntryKey, Test};
use crate::convert::rules_text::{Level, LimitText, Values, escaped};

/// How many limits one descriptor may have.
const LIMITS_MAX: usize = 16;

/// One level of a limit's descriptor.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Step {
    pub(super) key: String,
    /// Values to which the limit does not apply.
    pub(super) except: Vec<Values>,
    pub(super) values: Values,
    /// All values share one bucket.
    pub(super) is_shared: bool,
}

/// The key of an entry in the rules. Entries of further descriptors have a suffix.
pub(super) fn key_of(entry: &EntryKey) -> String {
    match entry.descriptor {
        0 => entry.key.clone(),
        index => format!("{}_{index}", entry.key),
    }
}

/// The steps of a limit. A variable whose entry has one test is that test's step, without sharing.
pub(super) fn steps(tests: &[Test], variables: &[EntryKey]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut variables: Vec<&EntryKey> = variables.iter().collect();
    for test in tests {
        let is_variable = variables.contains(&&test.entry);
        variables.retain(|entry| **entry != test.entry);
        let step = step(test, is_variable);
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    for entry in variables {
        let step = Step {
            key: key_of(entry),
            except: Vec::new(),
            values: Values::Any,
            is_shared: false,
        };
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    steps
}

fn step(test: &Test, is_variable: bool) -> Step {
    let key = key_of(&test.entry);
    let exists = test.any_of.contains(&Comparison::Exists);
    if exists || test.is_negated {
        let except = if exists {
            Vec::new()
        } else {
            vec![values(&test.any_of)]
        };
        // A pattern is tried before a regex, so the rest is a regex behind a regex.
        let all = match except.as_slice() {
            [Values::Regex(_)] => Values::Regex(".*".to_owned()),
            _ => Values::Pattern("*".to_owned()),
        };
        return Step {
            key,
            except,
            values: if is_variable { Values::Any } else { all },
            is_shared: !is_variable,
        };
    }
    let values = values(&test.any_of);
    Step {
        key,
        except: Vec::new(),
        is_shared: !is_variable && values.match_many(),
        values,
    }
}

/// The values for which one of the comparisons holds.
fn values(any_of: &[Comparison]) -> Values {
    let equal = any_of.iter().map(|comparison| match comparison {
        Comparison::Equal(text) => Some(text.clone()),
        _ => None,
    });
    if let Some(mut texts) = equal.collect::<Option<Vec<_>>>() {
        texts.dedup();
        return Values::any_of(&texts);
    }
    if let [one] = any_of
        && let Some(pattern) = pattern(one)
    {
        return Values::Pattern(pattern);
    }
    let regexes: Vec<_> = any_of.iter().map(regex).collect();
    Values::Regex(match regexes.as_slice() {
        [one] => one.clone(),
        several => several
            .iter()
            .map(|regex| format!("(?:{regex})"))
            .collect::<Vec<_>>()
            .join("|"),
    })
}

/// A comparison as a pattern with `*`, if its text has none.
fn pattern(comparison: &Comparison) -> Option<String> {
    let (before, text, after) = match comparison {
        Comparison::StartsWith(text) => ("", text, "*"),
        Comparison::EndsWith(text) => ("*", text, ""),
        Comparison::Contains(text) => ("*", text, "*"),
        Comparison::Equal(_) | Comparison::Regex(_) | Comparison::Exists => return None,
    };
    (!text.contains('*') && !text.is_empty()).then(|| format!("{before}{text}{after}"))
}

fn regex(comparison: &Comparison) -> String {
    match comparison {
        Comparison::Equal(text) => escaped(text),
        Comparison::StartsWith(text) => format!("{}.*", escaped(text)),
        Comparison::EndsWith(text) => format!(".*{}", escaped(text)),
        Comparison::Contains(text) => format!(".*{}.*", escaped(text)),
        Comparison::Exists => ".*".to_owned(),
        Comparison::Regex(regex) => whole(regex),
    }
}

/// A regex that matches a part of the value, as one that matches the whole value.
fn whole(regex: &str) -> String {
    if regex.contains('|') {
        return format!(".*(?:{regex}).*");
    }
    let (before, rest) = match regex.strip_prefix('^') {
        Some(rest) => ("", rest),
        None => (".*", regex),
    };
    match rest.strip_suffix('$') {
        Some(rest) if !rest.ends_with('\\') => format!("{before}{rest}"),
        _ => format!("{before}{rest}.*"),
    }
}

// === impl Step ===

impl Step {
    /// The entry that stands for one limit.
    pub(super) fn of_limit(name: &str) -> Self {
        Self {
            key: "generic_key".to_owned(),
            except: Vec::new(),
            values: Values::exactly(name),
            is_shared: false,
        }
    }

    /// The values that it matches; none if it matches other than exact values.
    pub(super) fn exact_values(&self) -> Option<&[String]> {
        self.values.exact().filter(|_| self.except.is_empty())
    }
}

/// The limits below some steps.
#[derive(Default)]
pub(super) struct PlacedLimits {
    /// The limits whose last step leads here.
    limits: Vec<LimitText>,
    /// The steps from here, by their key.
    by_key: HashMap<String, StepsOfKey>,
    /// How many steps there are from here.
    steps: usize,
}

/// Steps of one key that follow the same steps.
#[derive(Default)]
struct StepsOfKey {
    next: HashMap<Step, Branch>,
    /// How many of them match other than exact values.
    inexact: usize,
    /// How many of them match a value exactly.
    exact: HashMap<String, usize>,
}

/// What follows a step.
struct Branch {
    /// The step's place among its siblings.
    number: usize,
    below: PlacedLimits,
}

// === impl PlacedLimits ===

impl PlacedLimits {
    /// Whether a limit of these steps takes no value from another limit, and loses none.
    pub(super) fn has_place_for(&self, steps: &[Step]) -> bool {
        let Some((first, rest)) = steps.split_first() else {
            return self.limits.len() < LIMITS_MAX;
        };
        let Some(siblings) = self.by_key.get(&first.key) else {
            return true;
        };
        let next = siblings.next.get(first);
        siblings.are_apart_from(first) && next.is_none_or(|next| next.below.has_place_for(rest))
    }

    /// Adds a limit of these steps.
    pub(super) fn add(&mut self, steps: &[Step], limit: LimitText) {
        let Some((first, rest)) = steps.split_first() else {
            return self.limits.push(limit);
        };
        let siblings = self.by_key.entry(first.key.clone()).or_default();
        if !siblings.next.contains_key(first) {
            siblings.count(first);
        }
        let number = self.steps;
        let branch = siblings.next.entry(first.clone()).or_insert_with(|| {
            self.steps = number.saturating_add(1);
            Branch {
                number,
                below: PlacedLimits::default(),
            }
        });
        branch.below.add(rest, limit);
    }

    /// The levels of all limits, in the order in which their steps came. Exceptions stand before
    /// each step.
    pub(super) fn levels(self) -> Vec<Level> {
        let branches = self.by_key.into_values().flat_map(|steps| steps.next);
        let mut branches: Vec<_> = branches.collect();
        branches.sort_by_key(|(_, branch)| branch.number);
        let mut levels = Vec::new();
        for (step, branch) in branches {
            for values in step.except {
                let mut level = Level::new(&step.key, values);
                level.comments.push("no limit".to_owned());
                levels.push(level);
            }
            let mut below = branch.below;
            levels.push(Level {
                is_shared: step.is_shared,
                limits: std::mem::take(&mut below.limits),
                below: below.levels(),
                ..Level::new(step.key, step.values)
            });
        }
        levels
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

    /// Counts a new step.
    fn count(&mut self, step: &Step) {
        let Some(values) = step.exact_values() else {
            self.inexact = self.inexact.saturating_add(1);
            return;
        };
        let mut values = values.to_vec();
        values.sort_unstable();
        values.dedup();
        for value in values {
            let steps = self.exact.entry(value).or_default();
            *steps = steps.saturating_add(1);
        }
    }
}
