//! A map with a bound on its length, which is read without a lock.
//!
//! Why: what a client can name must be counted by name up to a bound, on the path of every request
//! that names it. Readers load a snapshot; adding and removing replace it with a changed copy. When
//! the map is full all new keys share one value.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use super::declaration::Counter;

/// A map with a bound on its length.
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
