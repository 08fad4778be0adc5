//! Label sets of limits: which there are, and how long each is kept. Those of configured rules, and
//! those that depend on requests: of limits that came with one, and of rules with `detailed_metric`
//! or `value_to_metric`.
//!
//! Of rules: a reload looks its rules up by their labels, so a rule that stays, or comes back in
//! time, keeps its counters. A label set that no generation of rules holds is freed after its
//! retention. A core that still counts for an old generation holds it, and with it its label sets;
//! their retention starts when the last holder is gone. Without a reader no retention ends. So a
//! reload frees the oldest unused label sets when they outnumber those in use, and
//! [`RETIRED_LABEL_SETS_MAX`].
//!
//! Of requests: each belongs to the rule that used it last, or, for a limit that came with a
//! request, to its domain. When that is gone the label set is freed after its retention, or at once
//! when a new label set needs its space. While the rule or domain stays, so does the label set: a
//! rare value must not start again from 0. Only where there is no other space, a new label set
//! takes that of one without hits since its retention began. A lookup takes no lock. A request may
//! hold counters that are freed meanwhile; what it adds to them is published as long as it holds
//! them (`leaving`).
//!
//! Why a retention counts readings and not seconds: a counter that is freed before it was read
//! loses its last hits, and the interval of a reader is unknown. Why two: with two servers that
//! scrape in turn, or a scrape whose response is lost, one reading is not enough.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use super::declaration::Counter;
use super::label::{label, names, overflow_names};
use super::limit::{HitTotals, LimitCounters, SeriesTable};
use tollgate_limiter::{Key, Rule, RuleSet};

/// Target of log lines: the module as operators know it.
const LOG: &str = "tollgate::metrics::label_sets";

/// How many times each reader reads a label set that is no longer in use before it is freed.
const READINGS: u8 = 2;

/// What reads the counters of limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reader {
    /// `/metrics`: a reading is a response.
    Scrape,
    /// statsd: a reading is a flush that sent all there was.
    Flush,
}

/// The readers seen so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readers {
    scrapes: bool,
    flushes: bool,
}

/// How often a label set was read since it was last in use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retention {
    scrapes: u8,
    flushes: u8,
}

// === impl Readers ===

impl Readers {
    pub(super) fn add(&mut self, reader: Reader) {
        match reader {
            Reader::Scrape => self.scrapes = true,
            Reader::Flush => self.flushes = true,
        }
    }
}

// === impl Retention ===

impl Retention {
    /// Counts a reading.
    pub(super) fn count(&mut self, reader: Reader) {
        let readings = match reader {
            Reader::Scrape => &mut self.scrapes,
            Reader::Flush => &mut self.flushes,
        };
        *readings = readings.saturating_add(1);
    }

    /// Whether every reader has read it often enough.
    pub(super) fn is_over(self, readers: Readers) -> bool {
        (readers.scrapes || readers.flushes)
            && (!readers.scrapes || self.scrapes >= READINGS)
            && (!readers.flushes || self.flushes >= READINGS)
    }
}

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
    #[inline]
    pub fn of(&self, rule: &Rule) -> Option<&Arc<LimitCounters>> {
        self.0.get(rule.index)
    }

    /// The counters of all rules, in their order.
    pub(super) fn each(&self) -> impl Iterator<Item = &LimitCounters> {
        self.0.iter().map(|counters| &**counters)
    }
}

/// How many label sets that depend on requests have counters of their own: of limits that came
/// with a request, and of rules with `detailed_metric` or `value_to_metric`.
pub const REQUEST_LABEL_SETS_MAX: usize = 1_000;

/// The share of the freeable label sets that is freed at once, since each time copies the map.
const ROOM_SHARE: usize = 8;

/// The label sets that depend on requests.
#[derive(Debug)]
pub(super) struct RequestLabelSets {
    map: BoundedMap<Key, Arc<LimitCounters>>,
    /// How many can be freed. At 0 a full map is not locked.
    freeable: AtomicUsize,
    /// Whether the log says that there is no space.
    is_reported: AtomicBool,
    changing: Mutex<Changing>,
    freed_for_capacity: Counter,
}

#[derive(Debug, Default)]
struct Changing {
    /// Label sets whose rule or domain is gone.
    retired: HashMap<Key, Retention>,
    /// Label sets of rules and domains in use, with their hits and how long these have not changed.
    unchanged: HashMap<Key, (HitTotals, Retention)>,
    /// Those that were without hits for their retention.
    idle: Vec<Key>,
    /// Label sets removed from the map that a request may still hold.
    leaving: Vec<Arc<LimitCounters>>,
}

// === impl RequestLabelSets ===

impl RequestLabelSets {
    pub(super) fn new(
        overflow: LimitCounters,
        overflowed: Counter,
        freed_for_capacity: Counter,
    ) -> Self {
        Self {
            map: BoundedMap::new(REQUEST_LABEL_SETS_MAX, Arc::new(overflow), overflowed),
            freeable: AtomicUsize::new(0),
            is_reported: AtomicBool::new(false),
            changing: Mutex::default(),
            freed_for_capacity,
        }
    }

    /// The counters of a label set, which then belongs to `owner`.
    pub(super) fn get_or_add(
        &self,
        key: Key,
        owner: u64,
        make: impl FnOnce() -> LimitCounters,
    ) -> Arc<LimitCounters> {
        let known = self.map.get(&key);
        let counters = known.unwrap_or_else(|| {
            if self.map.is_full() && self.freeable.load(Ordering::Relaxed) > 0 {
                self.free_some();
            }
            let counters = self.map.get_or_add(&key, || Arc::new(make()));
            if Arc::ptr_eq(&counters, self.map.overflow()) {
                self.report_overflow();
            }
            counters
        });
        counters.set_owner(owner);
        counters
    }

    /// Shows every counter.
    pub(super) fn each(&self, mut see: impl FnMut(&LimitCounters)) {
        self.map.each(|_, counters| see(counters));
        see(self.map.overflow());
        let changing = self.changing();
        changing.leaving.iter().for_each(|counters| see(counters));
    }

    /// Counts a complete reading, and frees the label sets whose retention is over. Returns how
    /// many they were, and whether counters were dropped, so that series may be unused. `published`
    /// sees the hits that were published meanwhile.
    pub(super) fn read_by(
        &self,
        reader: Reader,
        readers: Readers,
        in_use: &InUse,
        mut published: impl FnMut(&LimitCounters, &HitTotals),
    ) -> (usize, bool) {
        let mut changing = self.changing();
        let mut gone = Vec::new();
        let mut next = Changing::default();
        self.map.each(|key, counters| {
            if in_use.has(counters) {
                let hits = counters.totals();
                let known = changing.unchanged.get(key);
                let known = known.filter(|(before, _)| *before == hits);
                let mut retention = known.map_or_else(Retention::default, |(_, known)| *known);
                if known.is_some() {
                    retention.count(reader);
                }
                if retention.is_over(readers) {
                    next.idle.push(*key);
                }
                next.unchanged.insert(*key, (hits, retention));
                return;
            }
            let mut retention = changing.retired.get(key).copied().unwrap_or_default();
            retention.count(reader);
            if retention.is_over(readers) {
                gone.push(*key);
            } else {
                next.retired.insert(*key, retention);
            }
        });
        next.leaving = std::mem::take(&mut changing.leaving);
        *changing = next;
        self.set_freeable(&changing);
        if !self.map.is_full() {
            self.is_reported.store(false, Ordering::Relaxed);
        }
        changing.leaving.extend(self.map.remove(&gone));
        let before = changing.leaving.len();
        changing.leaving.retain_mut(|counters| {
            let is_held = Arc::get_mut(counters).is_none();
            published(counters, &counters.publish());
            is_held
        });
        (gone.len(), changing.leaving.len() < before)
    }

    /// Frees some label sets of removed rules before their retention is over, or idle ones.
    fn free_some(&self) {
        let mut changing = self.changing();
        if !self.map.is_full() {
            return;
        }
        let some = |all: usize| (all / ROOM_SHARE).saturating_add(1);
        let retired = some(changing.retired.len());
        let mut gone: Vec<Key> = changing.retired.keys().take(retired).copied().collect();
        for key in &gone {
            changing.retired.remove(key);
        }
        if gone.is_empty() {
            let Changing {
                idle, unchanged, ..
            } = &mut *changing;
            let wanted = some(idle.len());
            while gone.len() < wanted
                && let Some(key) = idle.pop()
            {
                // It may have had hits since it was read.
                let hits = self.map.get(&key).map(|counters| counters.totals());
                if hits.is_some() && hits.as_ref() == unchanged.get(&key).map(|(hits, _)| hits) {
                    gone.push(key);
                }
            }
        }
        self.set_freeable(&changing);
        self.freed_for_capacity.inc_by(gone.len() as u64);
        changing.leaving.extend(self.map.remove(&gone));
    }

    fn set_freeable(&self, changing: &Changing) {
        let freeable = changing.retired.len().saturating_add(changing.idle.len());
        self.freeable.store(freeable, Ordering::Relaxed);
    }

    /// Says once that values are counted together, until there is space again.
    fn report_overflow(&self) {
        if !self.is_reported.load(Ordering::Relaxed)
            && !self.is_reported.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
                target: LOG,
                label_sets = REQUEST_LABEL_SETS_MAX,
                "metrics of further values of detailed_metric, value_to_metric and limits of requests are counted as overflow"
            );
        }
    }

    fn changing(&self) -> MutexGuard<'_, Changing> {
        let changing = self.changing.lock();
        changing.unwrap_or_else(PoisonError::into_inner)
    }
}

/// A map with a bound on its length, which is read without a lock.
///
/// Why: what a client can name must be counted by name up to a bound, on the path of every request
/// that names it. Readers load a snapshot; adding and removing replace it with a changed copy. When
/// the map is full all new keys share one value.
#[derive(Debug)]
pub(super) struct BoundedMap<K, V> {
    map: ArcSwap<HashMap<K, V>>,
    growing: Mutex<()>,
    len_max: usize,
    overflow: V,
    overflowed: Counter,
}

// === impl BoundedMap ===

impl<K: Clone + Eq + Hash, V: Clone> BoundedMap<K, V> {
    pub(super) fn new(len_max: usize, overflow: V, overflowed: Counter) -> Self {
        Self {
            map: ArcSwap::default(),
            growing: Mutex::new(()),
            len_max,
            overflow,
            overflowed,
        }
    }

    /// Shows every key and value. Keys beyond the bound share [`Self::overflow`].
    pub(super) fn each(&self, mut see: impl FnMut(&K, &V)) {
        for (key, value) in self.map.load().iter() {
            see(key, value);
        }
    }

    /// The value of all keys beyond the bound.
    pub(super) fn overflow(&self) -> &V {
        &self.overflow
    }

    /// Whether the map has no space for a new key.
    pub(super) fn is_full(&self) -> bool {
        self.map.load().len() >= self.len_max
    }

    /// The value of a known key.
    pub(super) fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        self.map.load().get(key).cloned()
    }

    /// Removes keys, and returns their values.
    pub(super) fn remove(&self, keys: &[K]) -> Vec<V> {
        if keys.is_empty() {
            return Vec::new();
        }
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut map = HashMap::clone(&self.map.load());
        let removed = keys.iter().filter_map(|key| map.remove(key)).collect();
        self.map.store(Arc::new(map));
        removed
    }

    /// The value of a key; a new key gets a value of its own while there is space.
    pub(super) fn get_or_add<Q>(&self, key: &Q, make: impl FnOnce() -> V) -> V
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash + ToOwned<Owned = K>,
    {
        let map = self.map.load();
        if let Some(value) = map.get(key) {
            return value.clone();
        }
        if map.len() < self.len_max {
            let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
            let map = self.map.load_full();
            if let Some(value) = map.get(key) {
                return value.clone();
            }
            if map.len() < self.len_max {
                // A copy for each new label, at most `len_max` times until some are removed.
                let mut map = HashMap::clone(&map);
                let value = make();
                map.insert(key.to_owned(), value.clone());
                self.map.store(Arc::new(map));
                return value;
            }
        }
        self.overflowed.inc();
        self.overflow.clone()
    }
}
