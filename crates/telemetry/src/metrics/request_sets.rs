//! Label sets of limits that depend on requests: of limits that came with one, and of rules with
//! `detailed_metric` or `value_to_metric`.
//!
//! Each belongs to the rule that used it last, or, for a limit that came with a request, to its
//! domain. When that is gone the label set is freed after its retention, or at once when a new
//! label set needs its space. While the rule or domain stays, so does the label set: a rare value
//! must not start again from 0. Only where there is no other space, a new label set takes that of
//! one without hits since its retention began. A request may hold counters that are freed
//! meanwhile; what it adds to them is shown as long as it holds them (`leaving`).

use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use dashmap::DashMap;
use tollgate_limiter::Key;
use tollgate_system::keyed_hash::IdentityHasher;

use super::declaration::Counter;
use super::label_sets::Readings;
use super::limit::{Hits, LimitCounters};
use tollgate_system::per_thread::lock;

/// Target of log lines: the module as operators know it.
const LOG: &str = "tollgate::metrics::label_sets";

/// How many label sets that depend on requests have counters of their own: of limits that came
/// with a request, and of rules with `detailed_metric` or `value_to_metric`.
pub const REQUEST_LABEL_SETS_MAX: usize = 1_000;

/// The share of the freeable label sets that is freed at once, since each time looks at all.
const FREED_SHARE: usize = 8;

/// The label sets that depend on requests.
#[derive(Debug)]
pub(super) struct RequestSets {
    sets: DashMap<Key, RequestSet, BuildHasherDefault<IdentityHasher>>,
    /// Whether there is no space and none can be made: then new keys do not wait for the lock.
    is_closed: AtomicBool,
    changing: Mutex<Changing>,
    pub(super) overflow: Arc<LimitCounters>,
    pub(super) overflowed: Counter,
    pub(super) freed_for_capacity: Counter,
}

#[derive(Debug)]
struct RequestSet {
    counters: Arc<LimitCounters>,
    /// The hits at the last reading; none before the first.
    hits: Option<Hits>,
    /// Whether its rule or domain was gone at the last reading.
    is_retired: bool,
    /// The readings before it was retired, or those in which it had its last hits.
    since: Readings,
}

/// Held while label sets are added and removed.
#[derive(Debug, Default)]
struct Changing {
    readings: Readings,
    /// Label sets that were removed and that a request may still hold.
    leaving: Vec<Arc<LimitCounters>>,
    /// Whether the log says that there is no space.
    is_reported: bool,
}

// === impl RequestSets ===

impl RequestSets {
    pub(super) fn new(
        overflow: LimitCounters,
        overflowed: Counter,
        freed_for_capacity: Counter,
    ) -> Self {
        Self {
            sets: DashMap::default(),
            is_closed: AtomicBool::new(false),
            changing: Mutex::default(),
            overflow: Arc::new(overflow),
            overflowed,
            freed_for_capacity,
        }
    }

    /// The counters of a label set, which then belongs to `owner`.
    pub(super) fn get_or_add(
        &self,
        key: Key,
        owner: u64,
        new: impl FnOnce() -> LimitCounters,
    ) -> Arc<LimitCounters> {
        let known = self.sets.get(&key).map(|set| Arc::clone(&set.counters));
        let counters = known.or_else(|| self.add(key, new));
        let counters = counters.unwrap_or_else(|| {
            self.overflowed.inc();
            Arc::clone(&self.overflow)
        });
        counters.set_owner(owner);
        counters
    }

    /// Adds a label set; none if there is no space.
    fn add(&self, key: Key, new: impl FnOnce() -> LimitCounters) -> Option<Arc<LimitCounters>> {
        if self.is_closed.load(Ordering::Relaxed) {
            return None;
        }
        let mut changing = lock(&self.changing);
        if let Some(set) = self.sets.get(&key) {
            return Some(Arc::clone(&set.counters));
        }
        if self.sets.len() >= REQUEST_LABEL_SETS_MAX && !self.free_some(&mut changing) {
            self.is_closed.store(true, Ordering::Relaxed);
            if !std::mem::replace(&mut changing.is_reported, true) {
                tracing::warn!(
                    target: LOG,
                    label_sets = REQUEST_LABEL_SETS_MAX,
                    "metrics of further values of detailed_metric, value_to_metric and limits of requests are counted as overflow"
                );
            }
            return None;
        }
        let counters = Arc::new(new());
        let set = RequestSet {
            counters: Arc::clone(&counters),
            hits: None,
            is_retired: false,
            since: changing.readings,
        };
        self.sets.insert(key, set);
        Some(counters)
    }

    /// Frees some label sets of removed rules before their retention is over, or else some that
    /// were without hits for as long. False if there are none.
    fn free_some(&self, changing: &mut Changing) -> bool {
        let keys = |is_freeable: &dyn Fn(&RequestSet) -> bool| -> Vec<Key> {
            let sets = self.sets.iter().filter(|set| is_freeable(set));
            sets.map(|set| *set.key()).collect()
        };
        let mut gone = keys(&|set| set.is_retired);
        if gone.is_empty() {
            let readings = changing.readings;
            // It may have had hits since it was read.
            gone = keys(&|set| {
                readings.is_over(set.since) && set.hits == Some(set.counters.answered())
            });
        }
        gone.truncate((gone.len() / FREED_SHARE).saturating_add(1));
        self.freed_for_capacity.inc_by(gone.len() as u64);
        let removed = gone.iter().filter_map(|key| self.sets.remove(key));
        changing
            .leaving
            .extend(removed.map(|(_, set)| set.counters));
        !gone.is_empty()
    }

    /// Shows every counter.
    pub(super) fn each(&self, mut see: impl FnMut(&LimitCounters)) {
        let changing = lock(&self.changing);
        self.sets.iter().for_each(|set| see(&set.counters));
        changing.leaving.iter().for_each(|counters| see(counters));
        see(&self.overflow);
    }

    /// Notes a complete reading, and frees the label sets whose retention is over. Returns how
    /// many they were.
    pub(super) fn read(
        &self,
        readings: Readings,
        is_in_use: impl Fn(&LimitCounters) -> bool,
    ) -> usize {
        let mut changing = lock(&self.changing);
        let before = std::mem::replace(&mut changing.readings, readings);
        let is_full = self.sets.len() >= REQUEST_LABEL_SETS_MAX;
        changing.is_reported &= is_full;
        let mut gone = Vec::new();
        for mut set in self.sets.iter_mut() {
            let is_retired = !is_in_use(&set.counters);
            let hits = Some(set.counters.answered());
            if is_retired && !set.is_retired {
                set.since = before;
            } else if !is_retired && (set.is_retired || set.hits != hits) {
                set.since = readings;
            }
            set.hits = hits;
            set.is_retired = is_retired;
            if is_retired && readings.is_over(set.since) {
                gone.push(*set.key());
            }
        }
        let removed = gone.iter().filter_map(|key| self.sets.remove(key));
        changing
            .leaving
            .extend(removed.map(|(_, set)| set.counters));
        let leaving = &mut changing.leaving;
        leaving.retain_mut(|counters| Arc::get_mut(counters).is_none());
        self.is_closed.store(false, Ordering::Relaxed);
        gone.len()
    }
}
