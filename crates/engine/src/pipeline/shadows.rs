//! Rules that an operator keeps in shadow mode until a time, without a change of files.
//!
//! How: the list is applied to a copy of the rules, in [`Generations`](super::Generations), when it
//! changes and when rules are loaded. Time is an argument. An entry ends when its time has come, or
//! when its rule is no longer among the rules.
//!
//! What it deliberately does not do: watch the clock (`app`), or say who made a change (`admin`).

use tollgate_limiter::{RuleSet, Timestamp};

use tollgate_admin_api::rule_name;

/// How many rules can be kept in shadow mode at a time.
pub const SHADOWED_RULES_MAX: usize = 100;

/// Longest time that a rule is kept in shadow mode.
pub const SHADOW_SECONDS_MAX: u64 = 7 * 86_400;

/// A rule that is kept in shadow mode.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Shadow {
    /// The domain.
    pub domain: String,
    /// The name of the rule ([`rule_name`]).
    pub rule: String,
    /// Until when.
    pub until: Timestamp,
}

/// Why a rule is not put in shadow mode.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ShadowError {
    /// There are no rules yet.
    #[error("there are no rules yet; try again when they are loaded")]
    NoRules,
    /// No rule has this domain and name.
    #[error("no rule has this domain and name; GET /limits lists them")]
    UnknownRule,
    /// The list is full.
    #[error(
        "{SHADOWED_RULES_MAX} rules are in shadow mode already; end one with \"for_seconds\": 0"
    )]
    TooMany,
}

/// The list.
#[derive(Clone, Debug, Default)]
pub(super) struct Shadows {
    pub(super) list: Vec<Shadow>,
}

// === impl Shadows ===

impl Shadows {
    /// Adds a rule, or changes its time.
    pub(super) fn set(&mut self, shadow: Shadow) -> Result<(), ShadowError> {
        if let Some(known) = self.find(&shadow.domain, &shadow.rule) {
            known.until = shadow.until;
        } else if self.list.len() < SHADOWED_RULES_MAX {
            self.list.push(shadow);
        } else {
            return Err(ShadowError::TooMany);
        }
        Ok(())
    }

    fn find(&mut self, domain: &str, rule: &str) -> Option<&mut Shadow> {
        let mut list = self.list.iter_mut();
        list.find(|known| known.domain == domain && known.rule == rule)
    }

    /// Removes a rule.
    pub(super) fn remove(&mut self, domain: &str, rule: &str) {
        self.list
            .retain(|known| known.domain != domain || known.rule != rule);
    }

    /// Removes the shadow modes that have ended, and returns them.
    pub(super) fn end(&mut self, now: Timestamp) -> Vec<Shadow> {
        self.list
            .extract_if(.., |known| known.until <= now)
            .collect()
    }

    /// Sets shadow mode in `rules`. Returns the rules whose mode it changed, and removes and
    /// returns the entries that have no rule.
    pub(super) fn apply(&mut self, rules: &mut RuleSet) -> (Vec<usize>, Vec<Shadow>) {
        if self.list.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let mut changed = Vec::new();
        let mut found = vec![false; self.list.len()];
        let mut matched = Vec::new();
        for rule in rules.rules() {
            let mut list = self.list.iter().zip(&mut found);
            let same = |(shadow, _): &(&Shadow, &mut bool)| {
                *shadow.domain == *rule.domain && shadow.rule == rule_name(rule)
            };
            if let Some((_, found)) = list.find(same) {
                *found = true;
                matched.push((rule.index, rule.shadow_mode));
            }
        }
        for (index, was) in matched {
            if !was && rules.set_shadow_mode(index, true) {
                changed.push(index);
            }
        }
        let mut found = found.into_iter();
        let gone = self
            .list
            .extract_if(.., |_| !found.next().unwrap_or_default())
            .collect();
        (changed, gone)
    }
}
