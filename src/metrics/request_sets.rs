//! The label sets that depend on requests: of limits sent along, and of rules with
//! `detailed_metric` or `value_to_metric`.
//!
//! Each belongs to the rule that used it last, or, where a limit was sent along, to its domain.
//! When that is gone it is freed after its grace (`grace`), or at once when a new label set finds
//! no room. Those of rules that stay are kept: a value that is rare must not begin anew.
//!
//! Looking one up takes no lock. A request may hold counters that are freed meanwhile; what it adds
//! to them is told as long as it holds them (`leaving`).
//!
//! What it deliberately does not do: count (`limit`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::bounded_map::BoundedMap;
use super::declaration::Counter;
use super::grace::{Grace, Reader, Readers};
use super::limit::LimitCounters;
use super::rule_sets::InUse;
use tollgate_limiter::Key;

/// How many label sets that depend on requests have counters of their own: limits that came along,
/// and rules with `detailed_metric` or `value_to_metric`.
pub const REQUEST_LABEL_SETS_MAX: usize = 1_000;

/// Which part of the retired label sets goes when one has to: each time costs a copy of the map.
const ROOM_SHARE: usize = 8;

/// See the file's description.
#[derive(Debug)]
pub(super) struct RequestLabelSets {
    map: BoundedMap<Key, Arc<LimitCounters>>,
    /// How many are retired: where none is, a full map is not locked.
    retired: AtomicUsize,
    changing: Mutex<Changing>,
    freed_for_room: Counter,
}

#[derive(Debug, Default)]
struct Changing {
    /// Label sets whose rule or domain is gone.
    retired: HashMap<Key, Grace>,
    /// Those that are out of the map and that a request may still hold.
    leaving: Vec<Arc<LimitCounters>>,
}

// === impl RequestLabelSets ===

impl RequestLabelSets {
    pub(super) fn new(
        overflow: LimitCounters,
        overflowed: Counter,
        freed_for_room: Counter,
    ) -> Self {
        Self {
            map: BoundedMap::new(REQUEST_LABEL_SETS_MAX, Arc::new(overflow), overflowed),
            retired: AtomicUsize::new(0),
            changing: Mutex::default(),
            freed_for_room,
        }
    }

    /// The counters of a label set, which from now on belongs to `owner`.
    pub(super) fn get_or_add(
        &self,
        key: Key,
        owner: u64,
        make: impl FnOnce() -> LimitCounters,
    ) -> Arc<LimitCounters> {
        let known = self.map.get(&key);
        let counters = known.unwrap_or_else(|| {
            if self.map.is_full() && self.retired.load(Ordering::Relaxed) > 0 {
                self.make_room();
            }
            self.map.get_or_add(&key, || Arc::new(make()))
        });
        counters.belong_to(owner);
        counters
    }

    /// Shows every counter.
    pub(super) fn each(&self, mut see: impl FnMut(&LimitCounters)) {
        self.map.each(|_, counters| see(counters));
        see(self.map.overflow());
        let changing = self.changing();
        changing.leaving.iter().for_each(|counters| see(counters));
    }

    /// Notes that a reader has read everything, and frees what it waited for. Says how many label
    /// sets that were, and whether any counters are gone with which series may go.
    pub(super) fn read_by(
        &self,
        reader: Reader,
        readers: Readers,
        in_use: &InUse,
    ) -> (usize, bool) {
        let mut changing = self.changing();
        let mut gone = Vec::new();
        let mut retired = HashMap::new();
        self.map.each(|key, counters| {
            if in_use.has(counters) {
                return;
            }
            let mut grace = changing.retired.get(key).copied().unwrap_or_default();
            grace.count(reader);
            if grace.is_over(readers) {
                gone.push(*key);
            } else {
                retired.insert(*key, grace);
            }
        });
        self.retired.store(retired.len(), Ordering::Relaxed);
        changing.retired = retired;
        changing.leaving.extend(self.map.remove(&gone));
        let before = changing.leaving.len();
        changing.leaving.retain_mut(|counters| {
            let is_held = Arc::get_mut(counters).is_none();
            counters.tell();
            is_held
        });
        (gone.len(), changing.leaving.len() < before)
    }

    /// Frees some label sets of rules that are gone before their grace is over.
    fn make_room(&self) {
        let mut changing = self.changing();
        if !self.map.is_full() {
            return;
        }
        let some = (changing.retired.len() / ROOM_SHARE).saturating_add(1);
        let gone: Vec<Key> = changing.retired.keys().take(some).copied().collect();
        for key in &gone {
            changing.retired.remove(key);
        }
        self.retired
            .store(changing.retired.len(), Ordering::Relaxed);
        self.freed_for_room.inc_by(gone.len() as u64);
        changing.leaving.extend(self.map.remove(&gone));
    }

    fn changing(&self) -> MutexGuard<'_, Changing> {
        let changing = self.changing.lock();
        changing.unwrap_or_else(PoisonError::into_inner)
    }
}
