//! Limits of single descriptors, in place of those of the rules that they meet: set while a service
//! runs, for a time.
//!
//! How: a descriptor is matched as ever. Then one look-up of its entries, by a keyed hash, finds
//! its override, whose limits take the place of the rule's. They are rules of the set after the
//! written ones, and keep the index of the rule that they replace, so its name, labels and counters
//! stay. A bucket's key has no number of requests, so counts go on.
//!
//! What it deliberately does not do: know the time. The caller takes overrides away.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, Hash as _, Hasher as _, RandomState};
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;

use super::algorithm::FixedWindow;
use super::allowance::Allowance;
use super::descriptor::Entry;
use super::limit::{CountRefused, Limit};
use super::rule::{Level, Overriding, Rule};
use super::time::{Timestamp, Unit};

/// An override of one descriptor.
#[derive(Clone, Debug)]
pub struct RuleOverride<'o> {
    /// The domain.
    pub domain: &'o [u8],
    /// The descriptor, as it is sent, without an entry that names the holder of a slot.
    pub entries: Vec<Entry<'o>>,
    /// What applies.
    pub effect: OverrideEffect<'o>,
}

/// What applies in place of a rule's limits.
#[derive(Clone, Copy, Debug)]
pub enum OverrideEffect<'o> {
    /// These limits: rules of which only what belongs to a limit counts. Never empty.
    Limits(&'o [Rule]),
    /// No limit.
    Unlimited,
    /// Every hit is refused until this time.
    Blocked(Timestamp),
}

/// Why an override has no effect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WithoutEffect {
    /// No rule has the domain.
    UnknownDomain,
    /// No rule with a limit, or with `unlimited`, matches the descriptor.
    NoRule,
    /// The last entry of the descriptor names the holder of a slot.
    NamesHolder,
    /// The rule is apportioned over proxies, which decide alone.
    Rlqs,
    /// The rule has reservations, and a limit of the override has none.
    NoReservations,
}

/// The overrides of one domain.
#[derive(Clone, Debug, Default)]
pub(super) struct Overrides {
    hasher: RandomState,
    by_hash: HashMap<u64, Vec<Overridden>>,
}

/// A key and a value.
type OwnedEntry = (Box<[u8]>, Box<[u8]>);

#[derive(Clone, Debug)]
struct Overridden {
    entries: Box<[OwnedEntry]>,
    /// Its rules, as positions in the set.
    rules: Range<usize>,
}

/// How many overrides take the place of the rules of each level.
#[derive(Clone, Debug, Default)]
pub struct OverrideCounts(HashMap<*const Level, u64>);

// === impl Overrides ===

impl Overrides {
    fn hash(&self, entries: &[Entry<'_>]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        for entry in entries {
            (entry.key, entry.value).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The positions of the rules of a descriptor's override.
    pub(super) fn find(&self, entries: &[Entry<'_>]) -> Option<Range<usize>> {
        let mut alike = self.by_hash.get(&self.hash(entries))?.iter();
        let found = alike.find(|one| one.is_of(entries))?;
        Some(found.rules.clone())
    }

    /// The position of the first rule of each.
    pub(super) fn first_rules(&self) -> impl Iterator<Item = usize> {
        let overrides = self.by_hash.values().flatten();
        overrides.map(|one| one.rules.start)
    }

    /// The most limits of one override.
    pub(super) fn limits_max(&self) -> usize {
        let overrides = self.by_hash.values().flatten();
        overrides
            .map(|one| one.rules.len())
            .max()
            .unwrap_or_default()
    }

    /// Adds an override. A later one of the same descriptor replaces it.
    pub(super) fn add(&mut self, entries: &[Entry<'_>], rules: Range<usize>) {
        let hash = self.hash(entries);
        let alike = self.by_hash.entry(hash).or_default();
        alike.retain(|one| !one.is_of(entries));
        let texts = entries.iter();
        let texts = texts.map(|entry| (entry.key.into(), entry.value.into()));
        alike.push(Overridden {
            entries: texts.collect(),
            rules,
        });
    }
}

// === impl Overridden ===

impl Overridden {
    fn is_of(&self, entries: &[Entry<'_>]) -> bool {
        let mut pairs = self.entries.iter().zip(entries);
        self.entries.len() == entries.len()
            && pairs.all(|((key, value), entry)| **key == *entry.key && **value == *entry.value)
    }
}

// === impl OverrideCounts ===

impl OverrideCounts {
    pub(super) fn of<'r>(rules: impl Iterator<Item = &'r Rule>) -> Self {
        let mut counts = Self::default();
        for level in rules.filter_map(|rule| rule.path.last()) {
            let count = counts.0.entry(Arc::as_ptr(level)).or_default();
            *count = count.saturating_add(1);
        }
        counts
    }

    /// How many take the place of this rule for some descriptor; none where none does.
    pub fn of_rule(&self, rule: &Rule) -> Option<u64> {
        self.0.get(&Arc::as_ptr(rule.path.last()?)).copied()
    }
}

// === impl OverrideEffect ===

impl OverrideEffect<'_> {
    /// The rules that take the place of these, which one descriptor meets.
    pub(super) fn rules(self, met: &[Rule]) -> Result<Vec<Rule>, WithoutEffect> {
        let Some(first) = met.first() else {
            return Err(WithoutEffect::NoRule);
        };
        let limits = match self {
            Self::Limits(limits) => limits,
            Self::Unlimited | Self::Blocked(_) => &[],
        };
        if met.iter().chain(limits).any(|rule| rule.rlqs) {
            return Err(WithoutEffect::Rlqs);
        }
        let overriding = |rule: &Rule, blocked_until| Rule {
            lines: None,
            candidate: None,
            overriding: Some(Box::new(Overriding {
                blocked_until,
                position: 0,
            })),
            ..rule.clone()
        };
        let rules = match self {
            Self::Unlimited => vec![Rule {
                allowance: Allowance::Unlimited,
                ..overriding(first, None)
            }],
            Self::Blocked(until) => {
                let blocked = |rule: &Rule| Rule {
                    allowance: nothing(&rule.allowance),
                    ..overriding(rule, Some(until))
                };
                met.iter().map(blocked).collect()
            }
            Self::Limits(limits) => {
                let reserves = met.iter().any(|rule| rule.reserve.is_some());
                let mut limited = limits
                    .iter()
                    .filter(|rule| rule.allowance != Allowance::Unlimited);
                if reserves && limited.any(|limit| limit.reserve.is_none()) {
                    return Err(WithoutEffect::NoReservations);
                }
                let is_one = met.len() == 1 && limits.len() == 1;
                let limits = limits.iter().enumerate();
                let limits = limits.map(|(number, limit)| {
                    // Metrics count it as the limit at its position.
                    let met = met.get(number).or(met.last()).unwrap_or(first);
                    let keeps_name = is_one && limit.name.is_empty();
                    let names = if keeps_name { met } else { limit };
                    Rule {
                        domain: Arc::clone(&met.domain),
                        path: met.path.clone(),
                        shadow_mode: met.shadow_mode,
                        quota_mode: met.quota_mode,
                        detailed_metric: met.detailed_metric,
                        metadata: met.metadata.clone(),
                        over_limit: met.over_limit.clone(),
                        limit_from_request: met.limit_from_request,
                        index: met.index,
                        name: names.name.clone(),
                        replaces: names.replaces.clone(),
                        ..overriding(limit, None)
                    }
                });
                limits.collect()
            }
        };
        Ok(rules)
    }
}

/// A limit of 0 in the bucket of this allowance. Refused hits are not counted there, so that they
/// are not missing when the time has come.
fn nothing(allowance: &Allowance) -> Allowance {
    match allowance {
        Allowance::Unlimited => Allowance::Limited {
            limit: Limit::per(0, Unit::Second, NonZeroU32::MIN),
            algorithm: &FixedWindow,
        },
        Allowance::Limited { limit, algorithm } => Allowance::Limited {
            limit: match limit.count_refused() {
                // Work that is done is charged.
                Some(CountRefused::InFull) => limit.with_requests(0, 0),
                _ => limit
                    .with_requests(0, 0)
                    .with_count_refused(CountRefused::None),
            },
            algorithm: *algorithm,
        },
    }
}

// === impl WithoutEffect ===

impl fmt::Display for WithoutEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownDomain => "no rule has this domain; GET /limits lists the domains",
            Self::NoRule => {
                "no rule with a limit matches this descriptor; `tollgate explain` says which entry does not match"
            }
            Self::NamesHolder => {
                "the last entry names the holder of a slot, or is the id of a reservation; leave it out"
            }
            Self::Rlqs => "proxies decide alone where a rule or a plan has rlqs, and know no overrides",
            Self::NoReservations => {
                "the rule has reservations; write `reserve` in the limit, as in the rule"
            }
        })
    }
}

impl std::error::Error for WithoutEffect {}
