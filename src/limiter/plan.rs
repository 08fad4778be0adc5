//! A request held against the rules: what to ask the store, and what each answer will mean.
//!
//! How: first every descriptor finds its rule, then rules that others replace fall out, then each limit left becomes
//! one [`Check`], which carries all the store needs by value: a reload cannot pull a rule from under a request. A
//! request that matches no limit has no checks and never waits for a store.
//!
//! What it deliberately does not do: count, ask the time, know which store will answer.

use super::algorithm::{Algorithm, FixedWindow};
use super::descriptor::{Descriptor, Hits, Override, Request};
use super::key::{Identity, Key, KeyHasher};
use super::limit::Limit;
use super::rule::{Allowance, Rule};
use super::rule_set::{Match, RuleSet};

/// One question to the store.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Whose bucket.
    pub key: Key,
    /// Against how much.
    pub limit: Limit,
    /// Counted how.
    pub algorithm: &'static dyn Algorithm,
    /// Taking or giving back how much.
    pub hits: Hits,
}

/// What one descriptor came to, in the order asked.
#[derive(Clone, Copy, Debug)]
pub enum Line<'r> {
    /// No limit applies: no rule, a rule without a limit, a replaced rule, an unknown domain.
    Pass,
    /// A rule says unlimited.
    Unlimited,
    /// The next outcome not yet spoken for decides.
    Check {
        /// What was asked.
        check: Check,
        /// On whose behalf.
        subject: Subject<'r>,
        /// Its position among the request's descriptors.
        descriptor: usize,
    },
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
    pub lines: Vec<Line<'r>>,
    /// The rule that each descriptor matched, enforced or not, in the order sent.
    pub matched: Vec<Option<&'r Rule>>,
    /// Whether there are rules for the request's domain at all.
    pub domain_known: bool,
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
            matched: Vec::with_capacity(request.len()),
            domain_known,
            overrides_not_obeyed: 0,
        };
        if !domain_known {
            plan.lines.resize(request.len(), Line::Pass);
            plan.matched.resize(request.len(), None);
            return plan;
        }
        let mut replaces = false;
        for (position, descriptor) in request.descriptors().enumerate() {
            if let Some(Override::NotObeyed) = descriptor.limit {
                plan.overrides_not_obeyed = plan.overrides_not_obeyed.saturating_add(1);
            }
            let (line, rule) = line(rules, request.domain, position, &descriptor, hasher);
            replaces |= rule.is_some_and(|rule| !rule.replaces.is_empty());
            plan.lines.push(line);
            plan.matched.push(rule);
        }
        if replaces {
            plan.drop_replaced();
        }
        plan
    }

    /// What to ask the store, in order.
    pub fn checks(&self) -> Vec<Check> {
        self.lines
            .iter()
            .filter_map(|line| match line {
                Line::Check { check, .. } => Some(*check),
                Line::Pass | Line::Unlimited => None,
            })
            .collect()
    }

    /// Rules whose name another matched rule replaces are not counted.
    fn drop_replaced(&mut self) {
        let replaced = |rule: &Rule| {
            let mut matched = self.matched.iter().flatten();
            matched.any(|other| other.index != rule.index && other.replaces.contains(&rule.name))
        };
        for line in &mut self.lines {
            if let Line::Check {
                subject: Subject::Rule(rule),
                ..
            } = line
                && replaced(rule)
            {
                *line = Line::Pass;
            }
        }
    }
}

/// One descriptor's line, and the rule that it matched.
fn line<'r>(
    rules: &'r RuleSet,
    domain: &[u8],
    position: usize,
    descriptor: &Descriptor<'_, '_>,
    hasher: &impl KeyHasher,
) -> (Line<'r>, Option<&'r Rule>) {
    let (limit, algorithm, subject, rule) = match descriptor.limit {
        Some(Override::Limit(limit)) => (
            limit,
            &FixedWindow as &dyn Algorithm,
            Subject::Override,
            None,
        ),
        Some(Override::NotObeyed) | None => match rules.find(domain, descriptor.entries) {
            Match::UnknownDomain | Match::None => return (Line::Pass, None),
            Match::Rule(rule) => match rule.allowance {
                Allowance::Unlimited => return (Line::Unlimited, Some(rule)),
                Allowance::Limited { limit, algorithm } => {
                    (limit, algorithm, Subject::Rule(rule), Some(rule))
                }
            },
        },
    };
    let identity = Identity {
        domain,
        entries: descriptor.entries,
        algorithm,
        limit: &limit,
        rule,
    };
    let check = Check {
        key: identity.key(hasher),
        limit,
        algorithm,
        hits: descriptor.hits,
    };
    let line = Line::Check {
        check,
        subject,
        descriptor: position,
    };
    (line, rule)
}
