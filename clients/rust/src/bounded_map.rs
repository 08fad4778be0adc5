//! A map that drops its oldest entry when it is full.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

/// A hash map of at most `capacity` entries. Writing an entry makes it the newest.
#[derive(Debug)]
pub(crate) struct BoundedMap<K, V> {
    capacity: usize,
    entries: HashMap<Arc<K>, (u64, V)>,
    by_age: BTreeMap<u64, Arc<K>>,
    next_age: u64,
}

impl<K: Hash + Eq, V> BoundedMap<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            entries: HashMap::new(),
            by_age: BTreeMap::new(),
            next_age: 0,
        }
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V>
    where
        Arc<K>: Borrow<K>,
    {
        self.entries.get_mut(key).map(|(_, value)| value)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.capacity == 0 {
            return;
        }
        self.remove(&key);
        if self.entries.len() >= self.capacity
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.entries.remove(&oldest);
        }
        let key = Arc::new(key);
        self.by_age.insert(self.next_age, Arc::clone(&key));
        self.entries.insert(key, (self.next_age, value));
        self.next_age += 1;
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some((age, _)) = self.entries.remove(key) {
            self.by_age.remove(&age);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::BoundedMap;

    #[test]
    fn the_oldest_entry_is_dropped() {
        let mut map = BoundedMap::new(2);
        map.insert("a", 1);
        map.insert("b", 2);
        map.insert("a", 3); // newer than b
        map.insert("c", 4);
        assert_eq!(map.len(), 2);
        assert_eq!(map.get_mut(&"a"), Some(&mut 3));
        assert_eq!(map.get_mut(&"b"), None);
        assert_eq!(map.get_mut(&"c"), Some(&mut 4));
    }
}
