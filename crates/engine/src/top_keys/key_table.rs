//! A table from keys to values: entries in one vector, found by an index of positions. And the
//! bytes that tables may use.
//!
//! Keys are hashes already, so their low bits are the place in the index. Entries lie side by side:
//! to subtract from all of them, to drop some and to copy them is one pass, and no pass allocates.
//! The capacity changes only where the owner says so, because it counts the bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The smallest capacity.
const CAPACITY_MIN: usize = 24;

/// The largest capacity; positions have 16 bits.
pub(super) const CAPACITY_MAX: usize = CAPACITY_MIN << 10;

/// A table from keys to values.
#[derive(Debug)]
pub(super) struct KeyTable<V> {
    entries: Vec<(u128, V)>,
    /// One more than a position in `entries`; 0 where there is none. Its length is a power of two.
    index: Vec<u16>,
    /// How many entries there is space for.
    capacity: usize,
}

/// The bytes of one recorder.
#[derive(Debug)]
pub(super) struct Budget {
    used: usize,
    max: usize,
    /// The bytes of all recorders, for the metric.
    all: Arc<AtomicU64>,
}

// === impl KeyTable ===

impl<V> KeyTable<V> {
    /// Without any space.
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            index: Vec::new(),
            capacity: 0,
        }
    }

    /// The capacity after the next growth.
    pub(super) fn next_capacity(&self) -> usize {
        self.capacity.saturating_mul(2).max(CAPACITY_MIN)
    }

    /// The bytes of a table of this capacity.
    pub(super) fn bytes_of(capacity: usize) -> usize {
        let entries = capacity.saturating_mul(size_of::<(u128, V)>());
        entries.saturating_add(Self::index_len(capacity).saturating_mul(size_of::<u16>()))
    }

    fn index_len(capacity: usize) -> usize {
        match capacity {
            0 => 0,
            _ => capacity.saturating_mul(2).next_power_of_two(),
        }
    }

    /// Makes space for twice as many entries, if the budget allows it.
    pub(super) fn grow(&mut self, budget: &mut Budget) -> bool {
        let capacity = self.next_capacity();
        let more = Self::bytes_of(capacity).saturating_sub(Self::bytes_of(self.capacity));
        if capacity > CAPACITY_MAX || !budget.take(more) {
            return false;
        }
        self.entries
            .reserve_exact(capacity.saturating_sub(self.entries.len()));
        self.index = vec![0; Self::index_len(capacity)];
        self.capacity = capacity;
        self.reindex();
        true
    }

    /// The bytes that are to be given back when it is dropped.
    pub(super) fn bytes(&self) -> usize {
        Self::bytes_of(self.capacity)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.entries.len() >= self.capacity
    }

    #[inline]
    fn position(&self, key: u128) -> Option<usize> {
        let mask = self.index.len().checked_sub(1)?;
        let mut at = low_bits(key) & mask;
        loop {
            let position = usize::from(*self.index.get(at)?).checked_sub(1)?;
            if self.entries.get(position)?.0 == key {
                return Some(position);
            }
            at = at.wrapping_add(1) & mask;
        }
    }

    /// Whether the key is in it.
    #[inline]
    pub(super) fn contains(&self, key: u128) -> bool {
        self.position(key).is_some()
    }

    /// The value of a key.
    #[inline]
    pub(super) fn get(&self, key: u128) -> Option<&V> {
        let position = self.position(key)?;
        self.entries.get(position).map(|(_, value)| value)
    }

    /// The value of a key, to change it.
    #[inline]
    pub(super) fn get_mut(&mut self, key: u128) -> Option<&mut V> {
        let position = self.position(key)?;
        self.entries.get_mut(position).map(|(_, value)| value)
    }

    /// Adds a key that is not in it. Without space nothing happens.
    pub(super) fn insert(&mut self, key: u128, value: V) {
        if !self.is_full() {
            self.entries.push((key, value));
            self.place(key, self.entries.len());
        }
    }

    /// Keeps the entries for which `keep` is true.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(u128, &mut V) -> bool) {
        self.entries.retain_mut(|(key, value)| keep(*key, value));
        self.index.fill(0);
        self.reindex();
    }

    /// Drops all entries and keeps the space.
    pub(super) fn clear(&mut self) {
        if !self.entries.is_empty() {
            self.entries.clear();
            self.index.fill(0);
        }
    }

    /// All entries, in no order.
    pub(super) fn entries(&self) -> &[(u128, V)] {
        &self.entries
    }

    /// Writes all positions into an empty index.
    fn reindex(&mut self) {
        for position in 0..self.entries.len() {
            if let Some((key, _)) = self.entries.get(position) {
                self.place(*key, position.saturating_add(1));
            }
        }
    }

    /// Writes a position, counted from 1, at the key's place in the index.
    fn place(&mut self, key: u128, position: usize) {
        let mask = self.index.len().saturating_sub(1);
        let mut at = low_bits(key) & mask;
        // Half of the index is empty.
        while self.index.get(at).is_some_and(|taken| *taken != 0) {
            at = at.wrapping_add(1) & mask;
        }
        if let Some(place) = self.index.get_mut(at) {
            *place = u16::try_from(position).unwrap_or_default();
        }
    }
}

#[inline]
fn low_bits(key: u128) -> usize {
    usize::try_from(key & u128::from(u32::MAX)).unwrap_or_default()
}

// === impl Budget ===

impl Budget {
    pub(super) fn new(max: usize, all: Arc<AtomicU64>) -> Self {
        Self { used: 0, max, all }
    }

    /// Takes bytes, if there are so many.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let used = self.used.saturating_add(bytes);
        if used > self.max {
            return false;
        }
        self.used = used;
        self.all.fetch_add(bytes as u64, Ordering::Relaxed);
        true
    }

    /// Gives bytes back.
    pub(super) fn give_back(&mut self, bytes: usize) {
        let bytes = bytes.min(self.used);
        self.used = self.used.saturating_sub(bytes);
        self.all.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Whether at most so many quarters are used after taking these bytes.
    pub(super) fn has_within(&self, quarters: usize, bytes: usize) -> bool {
        self.used.saturating_add(bytes) <= (self.max / 4).saturating_mul(quarters)
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.give_back(self.used);
    }
}
