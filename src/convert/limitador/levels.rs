//! The levels of one limit: each test and each variable is one, in their order.

use super::expression::{Comparison, EntryKey, Test};
use crate::convert::rules_text::{Level, Levels, LimitText, Values, escaped};

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

/// The levels of these steps, with the limit at the end. Exceptions stand beside each step.
pub(super) fn levels(steps: &[Step], limit: LimitText) -> Levels {
    let Some((first, rest)) = steps.split_first() else {
        return Levels::default();
    };
    let mut levels: Levels = first
        .except
        .iter()
        .map(|values| {
            let mut level = Level::new(&first.key, values.clone());
            level.comments.push("no limit".to_owned());
            level
        })
        .collect();
    let mut level = Level::new(&first.key, first.values.clone());
    level.is_shared = first.is_shared;
    if rest.is_empty() {
        level.limits.push(limit);
    } else {
        level.below = self::levels(rest, limit);
    }
    levels.add(level);
    levels
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
        match &self.values {
            Values::Text(text) if self.except.is_empty() => Some(std::slice::from_ref(text)),
            Values::List(texts) if self.except.is_empty() => Some(texts),
            _ => None,
        }
    }
}
