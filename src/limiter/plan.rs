//! A request held against the rules: what to ask the store, and what each answer will mean.
//!
//! How: first every descriptor finds its rule, then rules that others replace fall out, then each limit left becomes
//! one [`Check`], which carries all the store needs by value: a reload cannot pull a rule from under a request. A
//! request that matches no limit has no checks and never waits for a store.
//!
//! What it deliberately does not do: count, ask the time, know which store will answer.

use std::ops::Range;

use super::algorithm::{Algorithm, FixedWindow};
use super::descriptor::{Ask, Descriptor, Override, Request};
use super::key::{Identity, Key, KeyHasher, holder};
use super::limit::Limit;
use super::rule::{Allowance, Rule};
use super::rule_set::{Match, Matched, RuleSet};

/// One question to the store.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Whose bucket.
    pub key: Key,
    /// Against how much.
    pub limit: Limit,
    /// Counted how.
    pub algorithm: &'static dyn Algorithm,
    /// Taking or giving back how much, on whose behalf.
    pub ask: Ask,
}

/// What one descriptor came to, in the order asked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Line {
    /// No limit applies: no rule, a rule without a limit, a replaced rule, an unknown domain.
    Pass,
    /// A rule says unlimited.
    Unlimited,
    /// These of [`Plan::asked`] decide; never none.
    Checks(Range<usize>),
}

/// One question of a plan.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'r> {
    /// What the store is asked.
    pub check: Check,
    /// On whose behalf.
    pub subject: Subject<'r>,
}

/// Whose limit a check is.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'r> {
    /// A configured rule's.
    Rule(&'r Rule),
    /// The request's own.
    Override,
}

/// A whole request, ready to be asked.
#[derive(Debug)]
pub struct Plan<'r> {
    /// One a descriptor, in the order sent.
    pub lines: Vec<Line>,
    /// What the store is to be asked, in order.
    pub asked: Vec<Asked<'r>>,
    /// The rules that each descriptor matched, enforced or not, in the order sent.
    pub matched: Vec<Matched<'r>>,
    /// Whether there are rules for the request's domain at all.
    pub domain_known: bool,
    /// Whether its rules say that a request takes from all its limits or from none.
    pub all_or_nothing: bool,
    /// How many overrides had no usable unit and were not obeyed.
    pub overrides_not_obeyed: u64,
}

// === impl Plan ===

impl<'r> Plan<'r> {
    /// Holds `request` against `rules`.
    pub fn new(rules: &'r RuleSet, request: &Request<'_>, hasher: &impl KeyHasher) -> Self {
        let domain_known = rules.knows(request.domain);
        let mut plan = Self {
            lines: Vec::with_capacity(request.len()),
            asked: Vec::with_capacity(request.len()),
            matched: Vec::with_capacity(request.len()),
            domain_known,
            all_or_nothing: rules.all_or_nothing(request.domain),
            overrides_not_obeyed: 0,
        };
        if !domain_known {
            plan.lines.resize(request.len(), Line::Pass);
            plan.matched.resize(request.len(), Matched::default());
            return plan;
        }
        let mut replaces = false;
        for descriptor in request.descriptors() {
            if let Some(Override::NotObeyed) = descriptor.limit {
                plan.overrides_not_obeyed = plan.overrides_not_obeyed.saturating_add(1);
            }
            let matched = match descriptor.limit {
                Some(Override::Limit(_)) => Matched::default(),
                Some(Override::NotObeyed) | None => {
                    match rules.find(request.domain, descriptor.entries) {
                        Match::UnknownDomain | Match::None => Matched::default(),
                        Match::Rules(matched) => matched,
                    }
                }
            };
            let mut of_descriptor = matched.rules.iter();
            replaces |= of_descriptor.any(|rule| !rule.replaces.is_empty());
            plan.matched.push(matched);
        }
        for (position, descriptor) in request.descriptors().enumerate() {
            let line = plan.line(request.domain, position, &descriptor, replaces, hasher);
            plan.lines.push(line);
        }
        plan
    }

    /// What to ask the store, in order.
    pub fn checks(&self) -> Vec<Check> {
        self.asked.iter().map(|asked| asked.check).collect()
    }

    /// What a descriptor comes to; its checks are put to those already there.
    fn line(
        &mut self,
        domain: &[u8],
        position: usize,
        descriptor: &Descriptor<'_, '_>,
        replaces: bool,
        hasher: &impl KeyHasher,
    ) -> Line {
        let start = self.asked.len();
        if let Some(Override::Limit(limit)) = descriptor.limit {
            let identity = Identity {
                domain,
                entries: descriptor.entries,
                algorithm: &FixedWindow,
                limit: &limit,
                rule: None,
            };
            let ask = descriptor.hits.into();
            self.asked.push(Asked {
                check: identity.check(ask, hasher),
                subject: Subject::Override,
            });
            return Line::Checks(start..self.asked.len());
        }
        let matched = self.matched.get(position).copied().unwrap_or_default();
        // Who holds a slot is no part of what a bucket is.
        let (entries, held) = descriptor
            .entries
            .split_at_checked(matched.entries)
            .unwrap_or((descriptor.entries, &[]));
        let ask = Ask {
            hits: descriptor.hits,
            holder: held.first().map(|entry| holder(entry.value, hasher)),
        };
        for rule in matched.rules {
            let Allowance::Limited { limit, algorithm } = &rule.allowance else {
                return Line::Unlimited;
            };
            if replaces && self.is_replaced(rule) {
                continue;
            }
            let identity = Identity {
                domain,
                entries,
                algorithm: *algorithm,
                limit,
                rule: Some(rule),
            };
            self.asked.push(Asked {
                check: identity.check(ask, hasher),
                subject: Subject::Rule(rule),
            });
        }
        match self.asked.len() {
            end if end == start => Line::Pass,
            end => Line::Checks(start..end),
        }
    }

    /// Whether another matched rule names this one as replaced; it is then not counted.
    fn is_replaced(&self, rule: &Rule) -> bool {
        let mut matched = self.matched.iter().flat_map(|matched| matched.rules);
        matched.any(|other| other.index != rule.index && other.replaces.contains(&rule.name))
    }
}

// === impl Identity ===

impl Identity<'_> {
    /// The question to the store about this bucket.
    fn check(&self, ask: Ask, hasher: &impl KeyHasher) -> Check {
        Check {
            key: self.key(hasher),
            limit: *self.limit,
            algorithm: self.algorithm,
            ask,
        }
    }
}
