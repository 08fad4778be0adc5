//! The rules that other matched rules of a request replace.

use std::collections::HashMap;

use super::rule::Rule;

/// The names that matched rules replace. A look-up takes one step, however many names there are.
#[derive(Default)]
pub(super) struct Replacements<'r> {
    names: HashMap<&'r str, ReplacedBy>,
}

/// The rules that replace one name. A rule that names itself replaces only other rules of that
/// name.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum ReplacedBy {
    /// Only the rule with this index.
    Rule(usize),
    Several,
}

// === impl Replacements ===

impl<'r> Replacements<'r> {
    /// Adds the names that a matched rule replaces. Few rules have any.
    #[inline]
    pub(super) fn add(&mut self, rule: &'r Rule) {
        if !rule.replaces.is_empty() {
            self.add_names(rule);
        }
    }

    #[cold]
    fn add_names(&mut self, rule: &'r Rule) {
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

    /// Whether another matched rule replaces this one. It is then not counted.
    pub(super) fn replaces(&self, rule: &Rule) -> bool {
        // Most rule sets replace nothing. Then no name is hashed.
        !self.names.is_empty()
            && match self.names.get(rule.name.as_str()) {
                None => false,
                Some(ReplacedBy::Several) => true,
                Some(ReplacedBy::Rule(index)) => *index != rule.index,
            }
    }
}
