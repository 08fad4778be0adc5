//! Overrides: for single descriptors, a plan, a limit, no limit or a block, until a time.
//!
//! How: the list is applied to a copy of the rules, in [`Generations`](super::Generations), when it
//! changes and when rules are loaded. Time is an argument. An override ends when its time has come.
//! One whose rule or plan has gone stays in the list without effect, since both may come back.
//!
//! What it deliberately does not do: watch the clock (`app`), say who made a change (`admin`), or
//! keep overrides (a snapshot, or the shared store).

use std::collections::BTreeMap;

use tollgate_admin_api::{
    Effect, Entry as ApiEntry, Override as Kept, OverrideState, parse_time, rule_name,
};
use tollgate_limiter::{
    Entry, OverrideEffect, Rule, RuleOverride, RuleSet, Timestamp, WithoutEffect,
};
use tollgate_rules::file::{Plans, read_limits};

/// Longest time of an override.
pub const OVERRIDE_SECONDS_MAX: u64 = 366 * 86_400;

/// Longest override, as it is kept, in bytes.
pub const OVERRIDE_BYTES_MAX: usize = 4 << 10;

/// An override that is valid in itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// As it is kept.
    pub kept: Kept,
    pub(super) until: Timestamp,
    /// The limits of its own.
    limits: Vec<Rule>,
}

/// Why an override is not set.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OverrideError {
    /// There are no rules yet.
    #[error("there are no rules yet; try again when they are loaded")]
    NoRules,
    /// What was sent is invalid.
    #[error("{0}")]
    Invalid(String),
    /// It would have no effect.
    #[error(transparent)]
    WithoutEffect(#[from] WithoutEffect),
    /// There are too many.
    #[error("there are {0} overrides already (--overrides-max); delete one, or raise the bound")]
    TooMany(usize),
}

/// Domain, and keys and values.
type OverrideName = (String, Vec<ApiEntry>);

/// The overrides of a service.
#[derive(Clone, Debug)]
pub(super) struct Overrides {
    pub(super) list: BTreeMap<OverrideName, Override>,
    pub(super) max: usize,
    /// Whether one was set or removed since all were replaced.
    pub(super) is_changed: bool,
}

// === impl Override ===

impl Override {
    /// An override of this form.
    ///
    /// # Errors
    ///
    /// The field that is wrong, and why.
    pub fn new(kept: Kept) -> Result<Self, OverrideError> {
        let invalid = |why: String| Err(OverrideError::Invalid(why));
        if kept.domain.is_empty() || kept.descriptor.is_empty() {
            return invalid("the domain or the descriptor is empty".to_owned());
        }
        let set = [
            kept.plan.is_some(),
            kept.limit.is_some(),
            kept.unlimited,
            kept.blocked,
        ];
        if set.into_iter().filter(|is_set| *is_set).count() != 1 {
            let why = "exactly one of plan, limit, unlimited and blocked must be set";
            return invalid(why.to_owned());
        }
        let bytes = serde_json::to_vec(&kept).map_or(usize::MAX, |bytes| bytes.len());
        if bytes > OVERRIDE_BYTES_MAX {
            return invalid(format!(
                "the override has {bytes} bytes, and may have {OVERRIDE_BYTES_MAX}; shorten its texts"
            ));
        }
        let Some(until) = parse_time(&kept.until) else {
            return invalid(format!("until {:?} is no time in RFC 3339", kept.until));
        };
        let limits = match &kept.limit {
            None => Vec::new(),
            Some(limit) => read_limits(&limit.to_string()).map_err(OverrideError::Invalid)?,
        };
        if limits.iter().any(|limit| limit.rlqs) {
            return invalid("limit.rlqs: proxies do not know overrides; remove it".to_owned());
        }
        Ok(Self {
            kept,
            until,
            limits,
        })
    }

    fn name(&self) -> OverrideName {
        (self.kept.domain.clone(), self.kept.descriptor.clone())
    }

    /// What it says of the rules with these plans.
    fn to_rules<'o>(&'o self, plans: &'o Plans) -> Result<RuleOverride<'o>, OverrideError> {
        let effect = match &self.kept.plan {
            Some(plan) => {
                let limits = plans.get(plan);
                OverrideEffect::Limits(limits.ok_or_else(|| {
                    OverrideError::Invalid(format!("plan: the rules have no plan {plan:?}"))
                })?)
            }
            None if self.kept.blocked => OverrideEffect::Blocked(self.until),
            None if self.kept.unlimited => OverrideEffect::Unlimited,
            None => OverrideEffect::Limits(&self.limits),
        };
        let entries = self.kept.descriptor.iter().map(|entry| Entry {
            key: entry.key.as_bytes(),
            value: entry.value.as_bytes(),
        });
        Ok(RuleOverride {
            domain: self.kept.domain.as_bytes(),
            entries: entries.collect(),
            effect,
        })
    }

    /// The override with its effect on these rules.
    pub(super) fn state(&self, rules: Option<(&RuleSet, &Plans)>) -> OverrideState {
        let rules = match rules {
            None => Err(OverrideError::NoRules),
            Some((rules, plans)) => self.rules_met(rules, plans),
        };
        let (effect, why) = match &rules {
            Ok(_) => (Effect::InForce, None),
            Err(error) => (Effect::None, Some(error.to_string())),
        };
        OverrideState {
            of: self.kept.clone(),
            effect,
            why,
            rules: rules.unwrap_or_default(),
        }
    }

    /// The names of the rules whose place it takes; an error if it has no effect on these.
    pub(super) fn rules_met(
        &self,
        rules: &RuleSet,
        plans: &Plans,
    ) -> Result<Vec<String>, OverrideError> {
        let met = rules.overridden_by(&self.to_rules(plans)?)?;
        Ok(met.iter().map(rule_name).collect())
    }
}

// === impl Overrides ===

impl Default for Overrides {
    fn default() -> Self {
        Self {
            list: BTreeMap::new(),
            max: usize::MAX,
            is_changed: false,
        }
    }
}

impl Overrides {
    /// By domain and descriptor.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Override> {
        self.list.values()
    }

    /// Adds an override, or changes one.
    pub(super) fn set(&mut self, one: Override) -> Result<(), OverrideError> {
        let name = one.name();
        if self.list.len() >= self.max && !self.list.contains_key(&name) {
            return Err(OverrideError::TooMany(self.max));
        }
        self.list.insert(name, one);
        self.is_changed = true;
        Ok(())
    }

    /// Removes an override. Gives whether there was one.
    pub(super) fn remove(&mut self, domain: &str, descriptor: &[ApiEntry]) -> bool {
        let name = (domain.to_owned(), descriptor.to_vec());
        self.is_changed = true;
        self.list.remove(&name).is_some()
    }

    /// Replaces all by these; at most as many as there may be. Gives whether that is a change.
    pub(super) fn replace(&mut self, all: impl IntoIterator<Item = Override>) -> bool {
        let named = all.into_iter().map(|one| (one.name(), one));
        let list = named.take(self.max).collect();
        let is_change = self.list != list;
        self.list = list;
        self.is_changed = false;
        is_change
    }

    /// Removes the overrides that have ended, and gives them.
    pub(super) fn end(&mut self, now: Timestamp) -> Vec<Override> {
        let mut ended = Vec::new();
        self.list.retain(|_, one| {
            let stays = one.until > now;
            if !stays {
                ended.push(one.clone());
            }
            stays
        });
        ended
    }

    /// Sets them in `rules`.
    pub(super) fn apply(&self, rules: &mut RuleSet, plans: &Plans) {
        let overrides = self.iter();
        rules.set_overrides(overrides.filter_map(|one| one.to_rules(plans).ok()));
    }
}
