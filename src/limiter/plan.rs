//! A request held against the rules: what to ask the store, and what each answer will mean.
//!
//! How: first every descriptor finds its rule, then rules that others replace fall out, then each limit left becomes
//! one [`Check`], which carries all the store needs by value: a reload cannot pull a rule from under a request. A
//! request that matches no limit has no checks and never waits for a store.
//!
//! What it deliberately does not do: count, ask the time, know which store will answer.

use std::collections::HashMap;
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
    /// Whether, as far as its rules say, a request takes from all its limits or from none.
    pub all_or_nothing: bool,
    /// How many overrides had no usable unit and were not obeyed.
    pub overrides_not_obeyed: u64,
}

/// The names that matched rules replace, each looked up in one step however many there are.
struct Replaced<'r> {
    names: HashMap<&'r str, By>,
}

/// Who names a rule as replaced. One that names itself replaces only others of that name.
#[derive(Clone, Copy, Eq, PartialEq)]
enum By {
    /// The rule of this number, and no other.
    Rule(usize),
    Several,
}

// === impl Plan ===

impl<'r> Plan<'r> {
    /// Holds `request` against `rules`.
    pub fn new(rules: &'r RuleSet, request: &Request<'_>, hasher: &impl KeyHasher) -> Self {
        let domain_known = rules.knows(request.domain);
        let mut plan = Self {
            lines: Vec::with_capacity(request.len()),
            // Room only where there may be something to ask.
            asked: Vec::new(),
            matched: Vec::with_capacity(request.len()),
            domain_known,
            all_or_nothing: rules.all_or_nothing(request.domain).unwrap_or_default(),
            overrides_not_obeyed: 0,
        };
        if !domain_known {
            plan.lines.resize(request.len(), Line::Pass);
            plan.matched.resize(request.len(), Matched::default());
            return plan;
        }
        let mut asked_max = 0_usize;
        for descriptor in request.descriptors() {
            if let Some(Override::NotObeyed) = descriptor.limit {
                plan.overrides_not_obeyed = plan.overrides_not_obeyed.saturating_add(1);
            }
            let matched = match descriptor.limit {
                Some(Override::Limit(_)) => {
                    asked_max = asked_max.saturating_add(1);
                    Matched::default()
                }
                Some(Override::NotObeyed) | None => {
                    match rules.find(request.domain, descriptor.entries) {
                        Match::UnknownDomain | Match::None => Matched::default(),
                        Match::Rules(matched) => matched,
                    }
                }
            };
            asked_max = asked_max.saturating_add(matched.rules.len());
            plan.matched.push(matched);
        }
        plan.asked.reserve_exact(asked_max);
        let replaced = Replaced::by(&plan.matched);
        for (position, descriptor) in request.descriptors().enumerate() {
            let line = plan.line(request.domain, position, &descriptor, &replaced, hasher);
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
        replaced: &Replaced<'r>,
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
        if matched.rules.is_empty() {
            return Line::Pass;
        }
        // Who holds a slot is no part of what a bucket is.
        let (entries, held) = descriptor
            .entries
            .split_at_checked(matched.entries)
            .unwrap_or((descriptor.entries, &[]));
        for rule in matched.rules {
            let Allowance::Limited { limit, algorithm } = &rule.allowance else {
                return Line::Unlimited;
            };
            if replaced.holds(rule) {
                continue;
            }
            // Several limits may stand here, of which not each has slots.
            let holding = held.first().filter(|entry| rule.is_held_by(entry));
            let ask = Ask {
                hits: descriptor.hits,
                holder: holding.map(|entry| holder(entry.value, hasher)),
            };
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
}

// === impl Replaced ===

impl<'r> Replaced<'r> {
    /// What these rules name.
    fn by(matched: &[Matched<'r>]) -> Self {
        let mut names = HashMap::new();
        for rule in matched.iter().flat_map(|matched| matched.rules) {
            for name in &rule.replaces {
                let by = names.entry(name.as_str()).or_insert(By::Rule(rule.index));
                if *by != By::Rule(rule.index) {
                    *by = By::Several;
                }
            }
        }
        Self { names }
    }

    /// Whether another matched rule names this one; it is then not counted.
    fn holds(&self, rule: &Rule) -> bool {
        // Most rule sets replace nothing: then no name is hashed.
        !self.names.is_empty()
            && match self.names.get(rule.name.as_str()) {
                None => false,
                Some(By::Several) => true,
                Some(By::Rule(index)) => *index != rule.index,
            }
    }
}

// === impl Check ===

impl Check {
    /// Whether its hits pass in a bucket never used; else they never do.
    pub fn may_ever_pass(&self) -> bool {
        self.ask.hits.taken() <= self.limit.burst()
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
