//! Label sets that depend on requests: of limits that came with one, and of rules with
//! `detailed_metric` or `value_to_metric`.
//!
//! Each belongs to the rule that used it last, or, for a limit that came with a request, to its
//! domain. When that is gone the label set is freed after its retention (`retention`), or at once
//! when a new label set needs its space. While the rule or domain stays, so does the label set: a
//! rare value must not start again from 0. Only where there is no other space, a new label set
//! takes that of one without hits since its retention began.
//!
//! A lookup takes no lock. A request may hold counters that are freed meanwhile; what it adds to
//! them is published as long as it holds them (`leaving`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bounded_map::BoundedMap;
use super::declaration::Counter;
use super::limit::{HitTotals, LimitCounters};
use super::retention::{Reader, Readers, Retention};
use super::rule_sets::InUse;
use tollgate_limiter::Key;

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
        let mut retired = HashMap::new();
        let mut unchanged = HashMap::new();
        let mut idle = Vec::new();
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
                    idle.push(*key);
                }
                unchanged.insert(*key, (hits, retention));
                return;
            }
            let mut retention = changing.retired.get(key).copied().unwrap_or_default();
            retention.count(reader);
            if retention.is_over(readers) {
                gone.push(*key);
            } else {
                retired.insert(*key, retention);
            }
        });
        let freeable = retired.len().saturating_add(idle.len());
        self.freeable.store(freeable, Ordering::Relaxed);
        changing.retired = retired;
        changing.unchanged = unchanged;
        changing.idle = idle;
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
        let freeable = changing.retired.len().saturating_add(changing.idle.len());
        self.freeable.store(freeable, Ordering::Relaxed);
        self.freed_for_capacity.inc_by(gone.len() as u64);
        changing.leaving.extend(self.map.remove(&gone));
    }

    /// Says once that values are counted together, until there is space again.
    fn report_overflow(&self) {
        if !self.is_reported.load(Ordering::Relaxed)
            && !self.is_reported.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(
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
