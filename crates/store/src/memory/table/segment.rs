//! A segment: one small open-addressing table, in blocks of slots.
//!
//! The upper half of a key's hash gives its home slot. On insertion, an entry close to its home
//! makes way for one farther from its home (Robin Hood hashing), so a look-up of an absent key ends
//! early although nine slots in ten may be used. A removal moves the following entries up and
//! leaves no tombstone.
//!
//! All blocks have one size, except the only block of a small segment. So a segment grows by a
//! tenth or less and not by half, and a block that one segment frees another can use, without
//! fragmentation.
//!
//! A segment does not allocate and does not know when it is full; `Table` does.

use tollgate_limiter::Key;

/// An entry of a table, or a free slot.
pub(crate) trait Slot: Default {
    /// The key: a keyed hash, which the table uses as it is.
    fn key(&self) -> Key;

    /// Whether the slot is free; the default is.
    fn is_free(&self) -> bool;

    /// Whether [`Table::forget`](super::Table::forget) must leave it.
    fn is_kept(&self) -> bool;
}

/// How many slots a block has.
pub(crate) const BLOCK_SLOTS: usize = 64;

/// A row of slots, allocated together.
pub(super) type Block<S> = Box<[S]>;

/// The heap bytes of an allocation of `count` values, with what a usual allocator adds.
pub(crate) fn allocated<T>(count: usize) -> usize {
    match count.saturating_mul(size_of::<T>()) {
        0 => 0,
        bytes => bytes.saturating_add(8).max(24).next_multiple_of(16),
    }
}

/// A segment of a table.
#[derive(Debug)]
pub(super) struct Segment<S> {
    blocks: Vec<Block<S>>,
    len: u32,
    /// How many entries are kept.
    kept: u32,
    /// Until when, in microseconds, no entry resets if all are kept.
    pub(super) barren_until_us: u64,
}

// === impl Segment ===

impl<S: Slot> Segment<S> {
    pub(super) fn new() -> Self {
        Self {
            blocks: Vec::new(),
            len: 0,
            kept: 0,
            barren_until_us: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// How many entries may be evicted.
    pub(super) fn may_go(&self) -> usize {
        self.len.saturating_sub(self.kept) as usize
    }

    /// How many slots it has.
    pub(super) fn capacity(&self) -> usize {
        match self.blocks.as_slice() {
            [] => 0,
            [sole] => sole.len(),
            several => several.len().saturating_mul(BLOCK_SLOTS),
        }
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &S> {
        let slots = self.blocks.iter().flat_map(|block| block.iter());
        slots.filter(|slot| !slot.is_free())
    }

    /// How many bytes of the heap it takes.
    pub(super) fn bytes(&self) -> usize {
        let block = self.blocks.first().map_or(0, |block| block.len());
        let blocks = allocated::<S>(block).saturating_mul(self.blocks.len());
        blocks.saturating_add(allocated::<Block<S>>(self.blocks.capacity()))
    }

    pub(super) fn slot(&self, at: usize) -> Option<&S> {
        self.blocks.get(at / BLOCK_SLOTS)?.get(at % BLOCK_SLOTS)
    }

    /// A slot whose key and kept flag the caller does not change.
    pub(super) fn slot_mut(&mut self, at: usize) -> Option<&mut S> {
        let block = self.blocks.get_mut(at / BLOCK_SLOTS)?;
        block.get_mut(at % BLOCK_SLOTS)
    }

    /// Replaces an entry with another of the same key.
    pub(super) fn replace(&mut self, at: usize, with: S) {
        let kept = u32::from(with.is_kept());
        if let Some(slot) = self.slot_mut(at) {
            let before = u32::from(slot.is_kept());
            *slot = with;
            self.kept = self.kept.saturating_add(kept).saturating_sub(before);
        }
    }

    /// The slot of a key.
    pub(super) fn find(&self, key: Key) -> Option<usize> {
        let capacity = self.capacity();
        let mut at = home(key, capacity);
        for distance in 0..capacity {
            let slot = self.slot(at)?;
            if slot.is_free() {
                return None;
            }
            let other = slot.key();
            if other == key {
                return Some(at);
            }
            if distance_from(home(other, capacity), at, capacity) < distance {
                return None;
            }
            at = next(at, capacity);
        }
        None
    }

    /// Inserts an entry that is not in the segment. There must be a free slot.
    pub(super) fn put(&mut self, slot: S) {
        let capacity = self.capacity();
        self.len = self.len.saturating_add(1);
        self.kept = self.kept.saturating_add(u32::from(slot.is_kept()));
        self.barren_until_us = 0;
        let mut carried = slot;
        let mut at = home(carried.key(), capacity);
        let mut distance = 0;
        for _ in 0..capacity {
            let Some(slot) = self.slot_mut(at) else {
                return;
            };
            if slot.is_free() {
                *slot = carried;
                return;
            }
            let others = distance_from(home(slot.key(), capacity), at, capacity);
            if others < distance {
                std::mem::swap(slot, &mut carried);
                distance = others;
            }
            at = next(at, capacity);
            distance += 1;
        }
    }

    /// Removes an entry; the following ones move up.
    pub(super) fn take(&mut self, at: usize) -> S {
        let capacity = self.capacity();
        let taken = self.slot_mut(at).map(std::mem::take).unwrap_or_default();
        if taken.is_free() {
            return taken;
        }
        self.len = self.len.saturating_sub(1);
        self.kept = self.kept.saturating_sub(u32::from(taken.is_kept()));
        let mut gap = at;
        for _ in 0..capacity {
            let from = next(gap, capacity);
            let moved = match self.slot_mut(from) {
                Some(slot) if !slot.is_free() && home(slot.key(), capacity) != from => {
                    std::mem::take(slot)
                }
                _ => break,
            };
            if let Some(slot) = self.slot_mut(gap) {
                *slot = moved;
            }
            gap = from;
        }
        taken
    }

    /// Moves all entries to `into`.
    pub(super) fn take_all(&mut self, into: &mut Vec<S>) {
        let slots = self.blocks.iter_mut().flat_map(|block| block.iter_mut());
        into.extend(slots.filter(|slot| !slot.is_free()).map(std::mem::take));
        self.len = 0;
        self.kept = 0;
    }

    /// Reserves space for pointers to this many blocks.
    pub(super) fn reserve(&mut self, blocks: usize) {
        let more = blocks.saturating_sub(self.blocks.len());
        self.blocks.reserve_exact(more);
    }

    /// Adds a block. Only while the segment is empty, since all home slots change; so with all
    /// below.
    pub(super) fn push_block(&mut self, block: Block<S>) {
        self.blocks.push(block);
    }

    pub(super) fn pop_block(&mut self) -> Option<Block<S>> {
        let block = self.blocks.pop();
        // The pointers are freed when a quarter of them are in use.
        if self.blocks.capacity() > 8 && self.blocks.len() < self.blocks.capacity() / 4 {
            self.blocks.shrink_to(self.blocks.len());
        }
        if self.blocks.is_empty() {
            self.blocks = Vec::new();
        }
        block
    }
}

/// The home slot of a key, from bits of its hash that did not choose its segment.
fn home(key: Key, capacity: usize) -> usize {
    let hash = (key.0 >> 32) & u128::from(u32::MAX);
    #[allow(clippy::cast_possible_truncation)]
    // 32 bits are left, and then less than there is capacity
    let place = ((hash as u64).saturating_mul(capacity as u64) >> 32) as usize;
    place
}

fn next(at: usize, capacity: usize) -> usize {
    if at + 1 >= capacity { 0 } else { at + 1 }
}

/// How far a slot is behind a home slot.
fn distance_from(home: usize, at: usize, capacity: usize) -> usize {
    if at >= home {
        at - home
    } else {
        at + capacity - home
    }
}
