//! The rules that other matched rules of a request replace.

use std::collections::HashMap;

use super::rule::Rule;

/// The names that matched rules replace, each looked up in one step however many there are.
#[derive(Default)]
pub(super) struct Replacements<'r> {
    names: HashMap<&'r str, ReplacedBy>,
}

/// Who names a rule as replaced. One that names itself replaces only others of that name.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum ReplacedBy {
    /// The rule of this number, and no other.
    Rule(usize),
    Several,
}

// === impl Replacements ===

impl<'r> Replacements<'r> {
    /// Takes in what a matched rule names.
    pub(super) fn add(&mut self, rule: &'r Rule) {
        for name in &rule.replaces {
            let by = self
                .names
                .entry(name)
                .or_insert(ReplacedBy::Rule(rule.index));
            if *by != ReplacedBy::Rule(rule.index) {
                *by = ReplacedBy::Several;
            }
        }
    }

    /// Whether another matched rule names this one; it is then not counted.
    pub(super) fn replaces(&self, rule: &Rule) -> bool {
        // Most rule sets replace nothing: then no name is hashed.
        !self.names.is_empty()
            && match self.names.get(rule.name.as_str()) {
                None => false,
                Some(ReplacedBy::Several) => true,
                Some(ReplacedBy::Rule(index)) => *index != rule.index,
            }
    }
}
