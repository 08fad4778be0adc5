//! A map that grows up to a bound, and that readers look into without a lock.
//!
//! Why: what a stranger can name must be counted by name up to a bound, on the way of every request
//! that names it. How: a snapshot exchanged whole; adding and removing copy it, and beyond the
//! bound everything new is one.
//!
//! What it deliberately does not do: choose what to remove.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::declaration::Counter;

/// See the file's own words.
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

    /// Shows every key and value; of what is beyond the bound see [`Self::overflow`].
    pub(super) fn each(&self, mut see: impl FnMut(&K, &V)) {
        for (key, value) in self.map.load().iter() {
            see(key, value);
        }
    }

    /// The value of everything beyond the bound.
    pub(super) fn overflow(&self) -> &V {
        &self.overflow
    }

    /// Whether a new key finds no room.
    pub(super) fn is_full(&self) -> bool {
        self.map.load().len() >= self.len_max
    }

    /// The value of a key that is there.
    pub(super) fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: ?Sized + Eq + Hash,
    {
        self.map.load().get(key).cloned()
    }

    /// Removes keys, and gives their values.
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

    /// The value of a key, made when it is new and there is room.
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
