//! A partition's table: many small ones of open addressing, which grow one at a time.
//!
//! Why: a table that doubles moves all its entries in one check, and until it has, needs three times its memory. How:
//! linear hashing. There are so many segments of about a thousand entries; when the mean grows too large one segment, the next
//! in turn, is split in two, when it grows too small the last is merged into the one it came from. Each segment has
//! its own room and grows by a block of 64 slots ([`segment`]). So one insertion moves the entries of two segments at
//! most, and one removal too, however many there are.
//!
//! What it takes of the heap is known to the byte at every moment ([`Table::bytes`]), with what the allocator adds, and
//! nothing grows beyond what the caller allows.
//!
//! What it deliberately does not do: know buckets, ask the time, decide who goes: the caller says who is kept and who
//! goes first.

mod growth;
mod removal;
mod segment;
mod slot;

use self::segment::Segment;
use self::slot::Block;
pub(super) use self::slot::{BLOCK_SLOTS, Slot, allocated};
use tollgate_limiter::Key;

/// The smallest block, of a segment that has no other.
const SMALL_BLOCK_SLOTS: usize = 4;

/// So many entries a segment there are on the mean, and no more: those that are not yet split hold up to twice as many.
const MEAN_MAX: usize = 512;

/// When there are fewer, segments are merged.
const MEAN_MIN: usize = MEAN_MAX / 4;

/// See the file's own words.
#[derive(Debug)]
pub(super) struct Table<S> {
    segments: Vec<Segment<S>>,
    len: usize,
    kept: usize,
    /// Whole blocks that nobody uses at present.
    spare: Vec<Block<S>>,
    /// Where entries are while their segment changes its room.
    moving: Vec<S>,
    /// What is to be forgotten is found here.
    ranks: Vec<u64>,
    /// What the segments' blocks take of the heap.
    in_segments: usize,
    /// Where the sweep is: a segment, and a slot in it.
    cursor: (usize, usize),
    /// Where the next that has something to forget was last found.
    hand: usize,
    /// How many entries have changed their segment's room, ever.
    moved: u64,
}

/// Where an entry is, until the table changes.
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

    /// How many of them may go.
    pub(super) fn may_go(&self) -> usize {
        self.len.saturating_sub(self.kept)
    }

    /// What it takes of the heap.
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

    /// Where this key is.
    pub(super) fn find(&self, key: Key) -> Option<SlotIndex> {
        let segment = self.segment_of(key);
        let slot = self.segments.get(segment)?.find(key)?;
        Some(SlotIndex { segment, slot })
    }

    pub(super) fn get(&self, place: SlotIndex) -> Option<&S> {
        self.segments.get(place.segment)?.slot(place.slot)
    }

    /// Puts another of the same key in place of one.
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

    /// Makes room for one more of this key, if that takes no more than `bytes_max` of the heap. Says whether there is.
    pub(super) fn make_room(&mut self, key: Key, bytes_max: usize) -> bool {
        if self.len >= self.segments.len().saturating_mul(MEAN_MAX) {
            self.split(bytes_max);
        }
        let segment = self.segment_of(key);
        let Some(present) = self.segments.get(segment) else {
            return false;
        };
        !is_full(present.len(), present.room()) || self.grow(segment, bytes_max)
    }

    /// Whether there is any slot left where this key would be, be it one of those that are kept free.
    pub(super) fn has_slot(&self, key: Key) -> bool {
        let segment = self.segments.get(self.segment_of(key));
        segment.is_some_and(|segment| segment.len() < segment.room())
    }

    /// Puts one in that is not there yet and for which there is room.
    pub(super) fn put(&mut self, entry: S) {
        let segment = self.segment_of(entry.key());
        if let Some(segment) = self.segments.get_mut(segment)
            && segment.len() < segment.room()
        {
            self.len = self.len.saturating_add(1);
            self.kept = self.kept.saturating_add(usize::from(entry.is_kept()));
            segment.put(entry);
        }
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, place: SlotIndex) -> S {
        let removed = self.lift(place);
        self.settle(place.segment);
        removed
    }

    /// Takes one out that will be put back at once: its room stays.
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

    /// Goes on through no more than `looks_max` slots, takes out those that `goes` says, and gives how many. Stops after a
    /// whole lap without one. An entry may be seen twice in a lap, or a lap later, when others move it.
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
                // What is left may have moved to where this lap has been.
                turned = false;
            } else {
                self.cursor = (segment, slot.saturating_add(1));
            }
        }
        gone
    }

    /// The segment that this key is or would be in.
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

/// Whether one more is too many: nine slots in ten may be taken.
fn is_full(len: usize, room: usize) -> bool {
    len.saturating_add(1).saturating_mul(10) > room.saturating_mul(9)
}

/// How many slots so many entries need.
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
