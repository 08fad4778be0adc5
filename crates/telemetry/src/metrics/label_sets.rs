//! Label sets of configured rules: which there are, and how long each is kept.
//!
//! A reload looks its rules up by their labels, so a rule that stays, or comes back in time, keeps
//! its counters. A label set that no generation of rules holds is freed after its retention. A core
//! that still counts for an old generation holds it, and with it its label sets; their retention
//! starts when the last holder is gone. Without a reader no retention ends. So a reload frees the
//! oldest unused label sets when they outnumber those in use, and [`RETIRED_LABEL_SETS_MAX`].
//!
//! Why a retention counts readings and not seconds: a counter that is freed before it was read
//! loses its last hits, and the interval of a reader is unknown. Why two: with two servers that
//! scrape in turn, or a scrape whose response is lost, one reading is not enough.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tollgate_limiter::{Rule, RuleSet};

use super::counts::plus;
use super::declaration::Counter;
use super::label::{label, names, overflow_names};
use super::limit::{Hits, LimitCounters, SeriesTable};

/// How many times each reader reads a label set that is no longer in use before it is freed.
const READINGS: u64 = 2;

/// How many rules have counters of their own; those beyond share the labels [`super::OVERFLOW`].
pub const RULE_LABEL_SETS_MAX: usize = 10_000;

/// How many label sets of rules that are no longer in use stay at a reload, where fewer are in use.
pub const RETIRED_LABEL_SETS_MAX: usize = 1_000;

/// What reads the counters of limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reader {
    /// `/metrics`: a reading is a response.
    Scrape,
    /// statsd: a reading is a flush that sent all there was.
    Flush,
}

/// How many complete readings there were by each reader, in the order of [`Reader`]; none of a
/// reader that was not seen yet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readings([Option<u64>; 2]);

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
    /// Hits under labels that depend on requests, by the number of the label set of their rule.
    /// Bounded by the label sets of rules.
    of_requests: HashMap<u64, Hits>,
    pub(super) readings: Readings,
}

#[derive(Debug)]
struct OfRule {
    counters: Arc<LimitCounters>,
    /// The newest generation of rules that has it.
    generation: u64,
    /// The readings when it was last in use.
    since: Readings,
}

/// The counters of every rule of one rule set, by [`Rule::index`]. A clone has the same counters.
#[derive(Clone, Debug, Default)]
pub struct RuleCounters(Arc<[Arc<LimitCounters>]>);

// === impl Readings ===

impl Readings {
    /// Expects readings of this reader.
    pub(super) fn expect(&mut self, reader: Reader) {
        if let Some(readings) = self.0.get_mut(reader as usize) {
            readings.get_or_insert(0);
        }
    }

    /// Counts a reading.
    pub(super) fn count(&mut self, reader: Reader) {
        if let Some(readings) = self.0.get_mut(reader as usize) {
            *readings = Some(readings.unwrap_or_default().saturating_add(1));
        }
    }

    /// Whether every reader has read often enough since then.
    pub(super) fn is_over(self, since: Self) -> bool {
        let is_enough = |(now, then): (Option<u64>, Option<u64>)| {
            now.is_none_or(|now| now.saturating_sub(then.unwrap_or_default()) >= READINGS)
        };
        self.0 != [None; 2] && self.0.into_iter().zip(since.0).all(is_enough)
    }
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
            of_requests: HashMap::new(),
            readings: Readings::default(),
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
        let counters = rules.rules().iter().map(|rule| {
            let names = names(&rule.domain, &rule.labels(), without_dots);
            let known = self.sets.get(&names);
            if known.is_none_or(|known| known.generation < self.generation) {
                if in_use >= RULE_LABEL_SETS_MAX {
                    overflowed.inc();
                    return Arc::clone(&self.overflow);
                }
                in_use = in_use.saturating_add(1);
            }
            let set = self.sets.entry(names).or_insert_with_key(|names| {
                self.last_number = self.last_number.saturating_add(1);
                OfRule {
                    counters: Arc::new(LimitCounters::new(names, series, self.last_number)),
                    generation: 0,
                    since: Readings::default(),
                }
            });
            set.generation = self.generation;
            set.since = self.readings;
            Arc::clone(&set.counters)
        });
        RuleCounters(counters.collect())
    }

    /// Frees the oldest unused label sets beyond the bound. Returns how many.
    pub(super) fn bound(&mut self) -> usize {
        let newest = self.generation;
        let unused = self.sets.iter_mut().filter_map(|(names, set)| {
            (!set.is_in_use(newest)).then(|| (set.generation, names.clone()))
        });
        let mut retired: Vec<_> = unused.collect();
        let in_use = self.sets.len().saturating_sub(retired.len());
        let surplus = retired
            .len()
            .saturating_sub(in_use.max(RETIRED_LABEL_SETS_MAX));
        retired.sort_unstable();
        for (_, names) in retired.iter().take(surplus) {
            self.sets.remove(names);
        }
        self.shrink();
        surplus
    }

    /// Notes a complete reading, and frees the label sets whose retention is over. Returns how
    /// many.
    pub(super) fn read(&mut self, reader: Reader) -> usize {
        self.readings.count(reader);
        let (readings, newest) = (self.readings, self.generation);
        let before = self.sets.len();
        self.sets.retain(|_, set| {
            if set.is_in_use(newest) {
                set.since = readings;
            }
            !readings.is_over(set.since)
        });
        self.shrink();
        before.saturating_sub(self.sets.len())
    }

    /// The numbers of the label sets in use.
    pub(super) fn in_use(&mut self) -> HashSet<u64> {
        let newest = self.generation;
        let sets = self.sets.values_mut();
        sets.filter_map(|set| set.is_in_use(newest).then(|| set.counters.owner()))
            .collect()
    }

    /// Whether the newest rules have the domain of these counters.
    pub(super) fn has_domain_of(&self, counters: &LimitCounters) -> bool {
        let domains = self.domains.as_ref();
        domains.is_none_or(|domains| domains.contains(counters.domain()))
    }

    /// Credits new hits of a label set that depends on requests to the rule that has it now.
    pub(super) fn credit(&mut self, counters: &LimitCounters) {
        let hits = counters.take_uncredited();
        let owner = counters.owner();
        // Without an owner the limit came with the request, or the labels met a bound.
        if owner != 0 && hits != Hits::default() {
            let credited = self.of_requests.entry(owner).or_default();
            *credited = plus(*credited, hits);
        }
    }

    /// The hits of a rule since the start, with those of its label sets that depend on requests.
    pub(super) fn hits_of(&self, counters: &LimitCounters) -> Hits {
        let credited = self.of_requests.get(&counters.owner());
        plus(counters.hits(), credited.copied().unwrap_or_default())
    }

    /// Shows every counter.
    pub(super) fn all(&self) -> impl Iterator<Item = &LimitCounters> {
        let sets = self.sets.values().map(|set| &*set.counters);
        sets.chain([&*self.overflow])
    }

    fn shrink(&mut self) {
        let len = self.sets.len();
        self.sets.shrink_to(len.saturating_mul(2));
        if self.of_requests.len() > len {
            let numbers = self.sets.values().map(|set| set.counters.owner());
            let numbers: HashSet<u64> = numbers.collect();
            self.of_requests.retain(|owner, _| numbers.contains(owner));
        }
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

// === impl RuleCounters ===

impl RuleCounters {
    /// The counters of a rule.
    #[inline]
    pub fn of(&self, rule: &Rule) -> Option<&Arc<LimitCounters>> {
        self.0.get(rule.index)
    }

    /// The counters of all rules, in their order.
    pub(super) fn each(&self) -> impl Iterator<Item = &LimitCounters> {
        self.0.iter().map(|counters| &**counters)
    }
}
