//! Label sets of configured rules: those in use, and for some time those of removed rules.
//!
//! How: a reload looks its rules up by their labels, so a rule that stays, or comes back in time,
//! keeps its counters. A label set that no generation of rules holds is freed after its retention
//! (`retention`). A core that still counts for an old generation holds it, and with it its label
//! sets; their retention starts when the last holder is gone.
//!
//! Without a reader no retention ends. So a reload frees the oldest unused label sets when they
//! outnumber those in use, and [`RETIRED_LABEL_SETS_MAX`].

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::declaration::Counter;
use super::label::{label, names, overflow_names};
use super::limit::LimitCounters;
use super::retention::{Reader, Readers, Retention};
use super::series::SeriesTable;
use tollgate_limiter::{Rule, RuleSet};

/// How many rules have counters of their own; those beyond share the labels [`super::OVERFLOW`].
pub const RULE_LABEL_SETS_MAX: usize = 10_000;

/// How many label sets of rules that are no longer in use stay at a reload, where fewer are in use.
pub const RETIRED_LABEL_SETS_MAX: usize = 1_000;

/// The label sets of configured rules.
#[derive(Debug)]
pub(super) struct RuleLabelSets {
    sets: HashMap<Vec<String>, OfRule>,
    overflow: Arc<LimitCounters>,
    /// Reloads so far.
    generation: u64,
    /// The domains of the newest rules, as labels. None before there are any.
    domains: Option<HashSet<String>>,
    /// The number that was last given to a label set.
    last_number: u64,
}

#[derive(Debug)]
struct OfRule {
    counters: Arc<LimitCounters>,
    /// The newest generation of rules that has it.
    generation: u64,
    retention: Retention,
}

/// The counters of every rule of one rule set, by [`Rule::index`]. A clone has the same counters.
#[derive(Clone, Debug, Default)]
pub struct RuleCounters(Arc<[Arc<LimitCounters>]>);

/// The rules and domains in use, to which a label set that depends on requests may belong.
#[derive(Debug)]
pub(super) struct InUse {
    rules: HashSet<u64>,
    domains: Option<HashSet<String>>,
}

// === impl RuleLabelSets ===

impl RuleLabelSets {
    pub(super) fn new(series: &SeriesTable) -> Self {
        Self {
            sets: HashMap::new(),
            overflow: Arc::new(LimitCounters::new(&overflow_names(), series, 0)),
            generation: 0,
            domains: None,
            last_number: 0,
        }
    }

    /// Counters for every rule of a rule set, which becomes the newest.
    pub(super) fn counters_of(
        &mut self,
        rules: &RuleSet,
        series: &SeriesTable,
        overflowed: &Counter,
        without_dots: bool,
    ) -> RuleCounters {
        self.generation = self.generation.saturating_add(1);
        let domains = rules.domains();
        self.domains = Some(domains.iter().map(|domain| label(domain)).collect());
        let mut in_use: usize = 0;
        let mut counters = Vec::with_capacity(rules.rules().len());
        for rule in rules.rules() {
            let names = names(&rule.domain, &rule.labels(), without_dots);
            let known = self.sets.get_mut(&names);
            if let Some(known) = known
                && known.generation == self.generation
            {
                counters.push(Arc::clone(&known.counters));
                continue;
            }
            if in_use >= RULE_LABEL_SETS_MAX {
                overflowed.inc();
                counters.push(Arc::clone(&self.overflow));
                continue;
            }
            in_use = in_use.saturating_add(1);
            let last_number = &mut self.last_number;
            let set = self.sets.entry(names).or_insert_with_key(|names| {
                *last_number = last_number.saturating_add(1);
                OfRule {
                    counters: Arc::new(LimitCounters::new(names, series, *last_number)),
                    generation: 0,
                    retention: Retention::default(),
                }
            });
            set.generation = self.generation;
            set.retention = Retention::default();
            counters.push(Arc::clone(&set.counters));
        }
        RuleCounters(counters.into())
    }

    /// Frees the oldest unused label sets beyond the bound. Returns how many.
    pub(super) fn bound(&mut self) -> usize {
        let mut retired = Vec::new();
        let mut in_use: usize = 0;
        for (names, set) in &mut self.sets {
            if set.is_in_use(self.generation) {
                in_use = in_use.saturating_add(1);
            } else {
                retired.push((set.generation, names.clone()));
            }
        }
        let retired_max = in_use.max(RETIRED_LABEL_SETS_MAX);
        let surplus = retired.len().saturating_sub(retired_max);
        retired.sort_unstable();
        for (_, names) in retired.iter().take(surplus) {
            self.sets.remove(names);
        }
        self.shrink();
        surplus
    }

    /// Counts a complete reading, and frees the label sets whose retention is over. Returns how
    /// many.
    pub(super) fn read_by(&mut self, reader: Reader, readers: Readers) -> usize {
        let before = self.sets.len();
        let newest = self.generation;
        self.sets.retain(|_, set| {
            if set.is_in_use(newest) {
                set.retention = Retention::default();
                return true;
            }
            set.retention.count(reader);
            !set.retention.is_over(readers)
        });
        self.shrink();
        before.saturating_sub(self.sets.len())
    }

    /// The label sets in use.
    pub(super) fn in_use(&mut self) -> InUse {
        let newest = self.generation;
        let sets = self.sets.values_mut();
        let in_use = sets.filter_map(|set| set.is_in_use(newest).then(|| set.counters.owner()));
        InUse {
            rules: in_use.collect(),
            domains: self.domains.clone(),
        }
    }

    /// How many label sets there are, in use or not.
    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    /// The numbers of all label sets.
    pub(super) fn numbers(&self) -> HashSet<u64> {
        self.sets.values().map(|set| set.counters.owner()).collect()
    }

    /// Shows every counter.
    pub(super) fn all(&self) -> impl Iterator<Item = &LimitCounters> {
        let sets = self.sets.values().map(|set| &*set.counters);
        sets.chain([&*self.overflow])
    }

    fn shrink(&mut self) {
        let len = self.sets.len();
        self.sets.shrink_to(len.saturating_mul(2));
    }
}

// === impl OfRule ===

impl OfRule {
    /// Whether the newest rules have it, or a holder of older rules still counts with it.
    fn is_in_use(&mut self, newest: u64) -> bool {
        // A holder has a reference. New references come from this map only, under its lock.
        self.generation == newest || Arc::get_mut(&mut self.counters).is_none()
    }
}

// === impl InUse ===

impl InUse {
    /// Whether the rule of these counters is in use, or their domain if they have no rule.
    pub(super) fn has(&self, counters: &LimitCounters) -> bool {
        match counters.owner() {
            0 => {
                let domains = self.domains.as_ref();
                domains.is_none_or(|domains| domains.contains(counters.domain()))
            }
            rule => self.rules.contains(&rule),
        }
    }
}

// === impl RuleCounters ===

impl RuleCounters {
    /// The counters of a rule.
    pub fn of(&self, rule: &Rule) -> Option<&Arc<LimitCounters>> {
        self.0.get(rule.index)
    }

    /// The counters of all rules, in their order.
    pub(super) fn each(&self) -> impl Iterator<Item = &LimitCounters> {
        self.0.iter().map(|counters| &**counters)
    }
}
