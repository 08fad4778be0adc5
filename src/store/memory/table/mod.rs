//! A partition's hash table: linear hashing over small open-addressing segments.
//!
//! A table that doubles moves all its entries in one check and needs three times its memory
//! meanwhile. Here, segments have about a thousand entries each. When the mean grows too large the
//! next segment is split in two; when it grows too small the last segment is merged into the one it
//! came from. A segment grows by blocks of 64 slots ([`segment`]). So an insertion or a removal
//! moves the entries of two segments at most.
//!
//! [`Table::bytes`] is exact at every moment, including what the allocator adds, and the table does
//! not grow beyond what the caller allows.
//!
//! The caller says which entries are kept and which are removed first; the table knows neither
//! buckets nor time.

mod growth;
mod removal;
mod scan;
mod segment;
mod slot;

pub(super) use self::scan::{SCAN_END, ScanCursor};
use self::segment::Segment;
use self::slot::Block;
pub(super) use self::slot::{BLOCK_SLOTS, Slot, allocated};
use tollgate_limiter::Key;

/// The size of the only block of a small segment.
const SMALL_BLOCK_SLOTS: usize = 4;

/// The mean number of entries per segment at most. Segments that are not split yet have up to twice
/// as many.
const MEAN_MAX: usize = 512;

/// Segments are merged below this mean.
const MEAN_MIN: usize = MEAN_MAX / 4;

/// A table of entries with keyed hashes as keys.
#[derive(Debug)]
pub(super) struct Table<S> {
    segments: Vec<Segment<S>>,
    len: usize,
    kept: usize,
    /// Unused blocks.
    spare: Vec<Block<S>>,
    /// Entries whose segment is being resized.
    moving: Vec<S>,
    /// A buffer for [`Table::forget`].
    ranks: Vec<u64>,
    /// The heap bytes of the segments' blocks.
    in_segments: usize,
    /// The position of the sweep: a segment, and a slot in it.
    cursor: (usize, usize),
    /// The segment after the last one that had something to evict.
    hand: usize,
    /// How many entries have been moved in all.
    moved: u64,
}

/// The position of an entry, until the table changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotIndex {
    segment: usize,
    slot: usize,
}

// === impl Table ===

impl<S: Slot> Table<S> {
    pub(super) fn new() -> Self {
        Self {
            segments: Vec::new(),
            len: 0,
            kept: 0,
            spare: Vec::new(),
            moving: Vec::new(),
            ranks: Vec::new(),
            in_segments: 0,
            cursor: (0, 0),
            hand: 0,
            moved: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many entries may be evicted.
    pub(super) fn may_go(&self) -> usize {
        self.len.saturating_sub(self.kept)
    }

    /// How many bytes of the heap it takes.
    pub(super) fn bytes(&self) -> usize {
        [
            self.in_segments,
            allocated::<Segment<S>>(self.segments.capacity()),
            allocated::<S>(BLOCK_SLOTS).saturating_mul(self.spare.len()),
            allocated::<Block<S>>(self.spare.capacity()),
            allocated::<S>(self.moving.capacity()),
            allocated::<u64>(self.ranks.capacity()),
        ]
        .into_iter()
        .fold(0, usize::saturating_add)
    }

    /// The position of this key.
    pub(super) fn find(&self, key: Key) -> Option<SlotIndex> {
        let segment = self.segment_of(key);
        let slot = self.segments.get(segment)?.find(key)?;
        Some(SlotIndex { segment, slot })
    }

    pub(super) fn get(&self, place: SlotIndex) -> Option<&S> {
        self.segments.get(place.segment)?.slot(place.slot)
    }

    /// Replaces an entry with another of the same key.
    pub(super) fn replace(&mut self, place: SlotIndex, with: S) {
        if let Some(segment) = self.segments.get_mut(place.segment) {
            let before = segment.may_go();
            segment.replace(place.slot, with);
            self.kept = self
                .kept
                .saturating_add(before)
                .saturating_sub(segment.may_go());
        }
    }

    /// Makes space for one more entry with this key within `bytes_max` of the heap. Returns whether
    /// there is space.
    pub(super) fn make_space(&mut self, key: Key, bytes_max: usize) -> bool {
        if self.len >= self.segments.len().saturating_mul(MEAN_MAX) {
            self.split(bytes_max);
        }
        let segment = self.segment_of(key);
        let Some(present) = self.segments.get(segment) else {
            return false;
        };
        !is_full(present.len(), present.capacity()) || self.grow(segment, bytes_max)
    }

    /// Whether the segment of this key has any free slot, reserved ones included.
    pub(super) fn has_slot(&self, key: Key) -> bool {
        let segment = self.segments.get(self.segment_of(key));
        segment.is_some_and(|segment| segment.len() < segment.capacity())
    }

    /// Inserts an entry that is not in the table and for which there is space.
    pub(super) fn put(&mut self, entry: S) {
        let segment = self.segment_of(entry.key());
        if let Some(segment) = self.segments.get_mut(segment)
            && segment.len() < segment.capacity()
        {
            self.len = self.len.saturating_add(1);
            self.kept = self.kept.saturating_add(usize::from(entry.is_kept()));
            segment.put(entry);
        }
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, place: SlotIndex) -> S {
        let removed = self.lift(place);
        self.settle(place.segment);
        removed
    }

    /// Takes an entry out that the caller puts back at once: the segment keeps its size.
    pub(super) fn lift(&mut self, place: SlotIndex) -> S {
        let Some(segment) = self.segments.get_mut(place.segment) else {
            return S::default();
        };
        let taken = segment.take(place.slot);
        if !taken.is_free() {
            self.len = self.len.saturating_sub(1);
            self.kept = self.kept.saturating_sub(usize::from(taken.is_kept()));
        }
        taken
    }

    /// Visits at most `looks_max` slots, removes the entries for which `goes` returns true, and
    /// returns how many. Stops after a whole lap without one. An entry may be visited twice in a
    /// lap, or a lap later, when others move it.
    pub(super) fn sweep(
        &mut self,
        looks_max: usize,
        mut goes: impl FnMut(&mut S) -> bool,
    ) -> usize {
        let mut gone = 0_usize;
        let mut turned = false;
        for _ in 0..looks_max {
            if self.len == 0 {
                break;
            }
            let (segment, slot) = self.cursor;
            let Some(present) = self.segments.get_mut(segment) else {
                self.cursor = (0, 0);
                if std::mem::replace(&mut turned, true) {
                    break;
                }
                continue;
            };
            let Some(entry) = present.slot_mut(slot) else {
                self.cursor = (segment.saturating_add(1), 0);
                continue;
            };
            let ends = !entry.is_free() && goes(entry);
            if ends {
                self.remove(SlotIndex { segment, slot });
                gone = gone.saturating_add(1);
                // An entry may have moved to a slot that this lap has visited.
                turned = false;
            } else {
                self.cursor = (segment, slot.saturating_add(1));
            }
        }
        gone
    }

    /// The segment of this key.
    pub(super) fn segment_of(&self, key: Key) -> usize {
        #[allow(clippy::cast_possible_truncation)] // the lower bits are what is wanted
        let hash = key.0 as u32 as usize;
        let mask = self.segments.len().next_power_of_two().saturating_sub(1);
        let segment = hash & mask;
        if segment < self.segments.len() {
            segment
        } else {
            hash & (mask >> 1)
        }
    }
}

/// Whether another entry would be too many: nine slots in ten may be used.
fn is_full(len: usize, capacity: usize) -> bool {
    len.saturating_add(1).saturating_mul(10) > capacity.saturating_mul(9)
}

/// How many slots this number of entries needs.
fn slots_for(len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    let slots = len.saturating_mul(10).div_ceil(9);
    if slots <= BLOCK_SLOTS {
        slots.next_power_of_two().max(SMALL_BLOCK_SLOTS)
    } else {
        slots.next_multiple_of(BLOCK_SLOTS)
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
// small numbers, and figures for people
mod tests;
