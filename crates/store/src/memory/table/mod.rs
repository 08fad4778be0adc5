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
mod segment;

pub(super) use self::segment::{BLOCK_SLOTS, Slot, allocated};
use self::segment::{Block, Segment};
use tollgate_limiter::Key;

/// The size of the only block of a small segment.
const SMALL_BLOCK_SLOTS: usize = 4;

/// The mean number of entries per segment at most. Segments that are not split yet have up to twice
/// as many.
const MEAN_MAX: usize = 512;

/// Segments are merged below this mean.
const MEAN_MIN: usize = MEAN_MAX / 4;

/// Where a scan is: the reversed hash from which on entries have not been visited. The end is
/// 2^32.
pub(super) type ScanCursor = u64;

/// The cursor behind all entries.
pub(super) const SCAN_END: ScanCursor = 1 << u32::BITS;

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
        let hash = hash_of(key) as usize;
        let mask = self.segments.len().next_power_of_two().saturating_sub(1);
        let segment = hash & mask;
        if segment < self.segments.len() {
            segment
        } else {
            hash & (mask >> 1)
        }
    }
}

// === Eviction, one segment at a time ===

impl<S: Slot> Table<S> {
    /// How many entries a segment has.
    pub(super) fn len_of(&self, segment: usize) -> usize {
        self.segments.get(segment).map_or(0, Segment::len)
    }

    /// The next segment that has an entry to evict. Looks at no entry.
    pub(super) fn next_that_may_give(&mut self) -> Option<usize> {
        if self.may_go() == 0 {
            return None;
        }
        let hand = self.hand % self.segments.len().max(1);
        let (before, from) = self.segments.split_at_checked(hand)?;
        let mut turn = from.iter().chain(before).map(Segment::may_go);
        let steps = turn.position(|may_go| may_go > 0)?;
        let found = hand.saturating_add(steps) % self.segments.len().max(1);
        self.hand = found.saturating_add(1) % self.segments.len().max(1);
        Some(found)
    }

    /// Removes the entries of a segment whose reset has come, kept or not, and passes them to
    /// `gone`. Returns how many. Does not look when there is known to be none.
    pub(super) fn drop_fresh(
        &mut self,
        segment: usize,
        now_us: u64,
        fresh_at_us: impl Fn(&S) -> u64,
        mut gone: impl FnMut(S),
    ) -> usize {
        let Some(present) = self.segments.get(segment) else {
            return 0;
        };
        if present.may_go() == 0 && now_us < present.barren_until_us {
            return 0;
        }
        let mut earliest_us = u64::MAX;
        let dropped = self.take_each(
            segment,
            |entry| {
                let at_us = fresh_at_us(entry);
                let goes = at_us <= now_us;
                if !goes {
                    earliest_us = earliest_us.min(at_us);
                }
                goes
            },
            &mut gone,
        );
        if let Some(present) = self.segments.get_mut(segment) {
            present.barren_until_us = earliest_us;
        }
        if dropped > 0 {
            self.settle(segment);
        }
        dropped
    }

    /// Removes up to `most` entries of a segment that are not kept, those of the lowest rank, and
    /// passes them to `gone`. Returns how many.
    pub(super) fn forget(
        &mut self,
        segment: usize,
        most: usize,
        rank: impl Fn(&S) -> u64,
        mut gone: impl FnMut(S),
    ) -> usize {
        let Some(present) = self.segments.get(segment) else {
            return 0;
        };
        let most = most.min(present.may_go());
        let mut ranks = std::mem::take(&mut self.ranks);
        ranks.clear();
        let may_go = present.entries().filter(|entry| !entry.is_kept());
        ranks.extend(may_go.map(&rank));
        let last = match most.checked_sub(1) {
            Some(last) if last < ranks.len() => *ranks.select_nth_unstable(last).1,
            _ => {
                self.ranks = ranks;
                return 0;
            }
        };
        // There may be more entries of this rank than were asked for.
        let below = ranks.iter().filter(|rank| **rank < last).count();
        let mut of_last = most.saturating_sub(below);
        self.ranks = ranks;
        self.take_each(
            segment,
            |entry| {
                if entry.is_kept() {
                    return false;
                }
                match rank(entry).cmp(&last) {
                    std::cmp::Ordering::Less => true,
                    std::cmp::Ordering::Equal if of_last > 0 => {
                        of_last -= 1;
                        true
                    }
                    _ => false,
                }
            },
            &mut gone,
        )
    }

    /// Removes the entries of a segment for which `goes` returns true, without resizing it.
    fn take_each(
        &mut self,
        segment: usize,
        mut goes: impl FnMut(&S) -> bool,
        gone: &mut impl FnMut(S),
    ) -> usize {
        let Some(capacity) = self.segments.get(segment).map(Segment::capacity) else {
            return 0;
        };
        let (mut at, mut taken) = (0, 0_usize);
        while at < capacity {
            let place = SlotIndex { segment, slot: at };
            match self.get(place) {
                Some(entry) if !entry.is_free() && goes(entry) => {
                    // The next entry moves here.
                    gone(self.lift(place));
                    taken = taken.saturating_add(1);
                }
                _ => at += 1,
            }
        }
        taken
    }

    /// Frees every block that a segment does not need.
    pub(super) fn tighten(&mut self, segment: usize) {
        if let Some(present) = self.segments.get(segment) {
            let slots = slots_for(present.len());
            if slots < present.capacity() {
                self.resize(segment, slots);
            }
        }
    }

    /// Returns unused memory to the allocator.
    pub(super) fn give_back_spare(&mut self) {
        self.spare = Vec::new();
        self.moving = Vec::new();
    }
}

// === Scans in steps, while the table changes between them ===
//
// A scan is in the order of reversed bits. Segments are numbered by the lower bits of hashes. Split
// a segment, and its hashes, read from their lowest bit on, are two adjacent ranges; merge two, and
// they are one. So a cursor in that order passes each hash once, whatever was split or merged
// meanwhile.

impl<S: Slot> Table<S> {
    /// Visits the next entries: those of a segment, from the cursor on. Returns the next cursor.
    pub(super) fn scan(&self, cursor: ScanCursor, mut visit: impl FnMut(&S)) -> ScanCursor {
        let Ok(from) = u32::try_from(cursor) else {
            return SCAN_END;
        };
        let (segment, bits) = self.segment_at(from.reverse_bits());
        let Some(present) = self.segments.get(segment) else {
            return SCAN_END;
        };
        // The segment has all hashes that agree with this one in so many lower bits.
        let size = SCAN_END >> bits.min(u32::BITS);
        let next = (cursor / size).saturating_add(1).saturating_mul(size);
        let is_next = |entry: &&S| {
            let at = ScanCursor::from(hash_of(entry.key()).reverse_bits());
            (cursor..next).contains(&at)
        };
        present.entries().filter(is_next).for_each(&mut visit);
        next
    }

    /// The segment of this hash, and how many lower bits its hashes share.
    fn segment_at(&self, hash: u32) -> (usize, u32) {
        let count = self.segments.len();
        let bits = count.next_power_of_two().trailing_zeros();
        let lower = |bits: u32| hash as usize & ((1_usize << bits) - 1);
        let segment = lower(bits);
        if segment >= count {
            let bits = bits.saturating_sub(1);
            return (lower(bits), bits);
        }
        let sibling = segment.saturating_add(count.next_power_of_two() / 2);
        if bits > 0 && segment < count.next_power_of_two() / 2 && sibling >= count {
            // It was not split yet.
            return (segment, bits.saturating_sub(1));
        }
        (segment, bits)
    }
}

/// The bits of a key that choose its segment.
fn hash_of(key: Key) -> u32 {
    #[allow(clippy::cast_possible_truncation)] // the lower bits are what is wanted
    let hash = key.0 as u32;
    hash
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
