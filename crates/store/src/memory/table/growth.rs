//! How a table grows and shrinks: block by block, segment by segment.
//!
//! Entries are moved in the check that needs it, never those of more than two segments.

use super::segment::{BLOCK_SLOTS, Block, Segment, Slot, allocated};
use super::{MEAN_MAX, MEAN_MIN, SMALL_BLOCK_SLOTS, Table, hash_of, slots_for};

/// One block is allocated in advance per this many entries,
const STOCKED_SHARE: usize = 2_048;

/// and at most this many.
const STOCKED_BLOCKS_MAX: usize = 128;

/// How many spare blocks are kept, beside one in sixteen of those in use.
const SPARE_BLOCKS: usize = 4;

// === impl Table ===

impl<S: Slot> Table<S> {
    /// Gives a segment space for one more entry within `bytes_max`.
    pub(super) fn grow(&mut self, segment: usize, bytes_max: usize) -> bool {
        let Some(present) = self.segments.get(segment) else {
            return false;
        };
        let entries = present.len();
        let slots = slots_for(entries + 1);
        let whole = whole_blocks(present.capacity()) + self.spare.len();
        let cost = cost_of::<S>(slots, whole) + self.cost_of_moving(entries);
        if self.bytes() + cost > bytes_max {
            return false;
        }
        if whole_blocks(slots) > whole {
            self.stock(bytes_max.saturating_sub(cost));
        }
        self.resize(segment, slots);
        true
    }

    /// Allocates a few blocks in advance, so that they are adjacent. Short-lived allocations in
    /// between would leave holes too small for a block.
    fn stock(&mut self, bytes_max: usize) {
        let several = (self.len / STOCKED_SHARE).min(STOCKED_BLOCKS_MAX);
        for _ in 0..several {
            // The list of spare blocks may double.
            let list = allocated::<Block<S>>(SPARE_BLOCKS.max(2 * self.spare.len()));
            if self.bytes() + allocated::<S>(BLOCK_SLOTS) + list > bytes_max {
                return;
            }
            self.spare.push(block(BLOCK_SLOTS));
        }
    }

    /// Splits an empty table into as many segments as it needs for this number of entries, within
    /// `bytes_max`.
    pub(crate) fn presize(&mut self, entries: usize, bytes_max: usize) {
        let segments = entries.div_ceil(MEAN_MAX);
        while self.len == 0 && self.segments.len() < segments {
            let before = self.segments.len();
            self.split(bytes_max);
            if self.segments.len() == before {
                return;
            }
        }
    }

    /// Splits the next segment within `bytes_max`. An insertion succeeds without it too.
    pub(super) fn split(&mut self, bytes_max: usize) {
        let new = self.segments.len();
        let scarce = self.bytes() + 2 * allocated::<S>(BLOCK_SLOTS);
        if new > 0 && scarce > bytes_max {
            return;
        }
        let mask = new.saturating_add(1).next_power_of_two().saturating_sub(1);
        let from = new & (mask >> 1);
        let goes = |entry: &S| hash_of(entry.key()) as usize & mask == new;
        let (entries, going, whole) = match self.segments.get(from) {
            None => (0, 0, 0),
            Some(present) => (
                present.len(),
                present.entries().filter(|entry| goes(entry)).count(),
                whole_blocks(present.capacity()),
            ),
        };
        let (staying, going) = (slots_for(entries.saturating_sub(going)), slots_for(going));
        let whole = whole + self.spare.len();
        let headers = new + new / 8 + 1;
        let more_headers = self.segments.len() == self.segments.capacity();
        let mut cost = cost_of::<S>(staying, whole) + self.cost_of_moving(entries);
        cost += cost_of::<S>(going, whole.saturating_sub(whole_blocks(staying)));
        if more_headers {
            cost += allocated::<Segment<S>>(headers);
        }
        if self.bytes() + cost > bytes_max {
            return;
        }
        if more_headers {
            self.segments
                .reserve_exact(headers.saturating_sub(self.segments.len()));
        }
        self.segments.push(Segment::new());
        self.take_all(from, entries);
        self.arrange(from, staying);
        self.arrange(new, going);
        self.put_back(|entry| if goes(entry) { new } else { from });
    }

    /// Merges the last segment into the one that it came from.
    fn merge(&mut self) {
        let mask = self.segments.len().next_power_of_two().saturating_sub(1);
        let last = self.segments.len().saturating_sub(1);
        let into = last & (mask >> 1);
        let both = [into, last].map(|segment| self.segments.get(segment).map_or(0, Segment::len));
        let entries = both[0] + both[1];
        self.take_all(into, entries);
        self.take_all(last, entries);
        self.arrange(last, 0);
        self.segments.pop();
        self.arrange(into, slots_for(entries));
        self.put_back(|_| into);
        if self.segments.len() < self.segments.capacity() / 2 {
            self.segments.shrink_to(self.segments.len());
        }
    }

    /// Frees what a removal has left unused.
    pub(super) fn settle(&mut self, segment: usize) {
        let Some(present) = self.segments.get(segment) else {
            return;
        };
        let (entries, capacity) = (present.len(), present.capacity());
        if entries < capacity / 2 {
            let slots = slots_for(entries.saturating_add(entries / 4));
            if slots < capacity {
                self.resize(segment, slots);
            }
        }
        if self.segments.len() > 1 && self.len < self.segments.len().saturating_mul(MEAN_MIN) {
            self.merge();
        }
        let spare_max = self.len / (16 * BLOCK_SLOTS) + SPARE_BLOCKS;
        while self.spare.len() > spare_max {
            self.spare.pop();
        }
        if self.spare.len() < self.spare.capacity() / 4 {
            self.spare.shrink_to(self.spare.len());
        }
    }

    /// Gives a segment this many slots. Its entries must fit.
    pub(super) fn resize(&mut self, segment: usize, slots: usize) {
        let entries = self.segments.get(segment).map_or(0, Segment::len);
        self.take_all(segment, entries);
        self.arrange(segment, slots);
        self.put_back(|_| segment);
    }

    /// What it costs to move this many entries.
    fn cost_of_moving(&self, entries: usize) -> usize {
        if entries <= self.moving.capacity() {
            return 0;
        }
        let capacity = allocated::<S>(entries.next_multiple_of(BLOCK_SLOTS));
        capacity.saturating_sub(allocated::<S>(self.moving.capacity()))
    }

    /// Moves all entries out of a segment; `entries` is the capacity that is needed for them.
    fn take_all(&mut self, segment: usize, entries: usize) {
        if self.moving.is_empty() && self.moving.capacity() < entries {
            // The buffer for small segments is not worth keeping.
            self.moving = Vec::new();
            let capacity = match entries {
                0..BLOCK_SLOTS => entries,
                _ => entries.next_multiple_of(BLOCK_SLOTS),
            };
            self.moving = Vec::with_capacity(capacity);
        }
        if let Some(present) = self.segments.get_mut(segment) {
            self.moved = self.moved.saturating_add(present.len() as u64);
            present.take_all(&mut self.moving);
        }
    }

    /// Puts the moved entries into the segments that `to` returns.
    fn put_back(&mut self, to: impl Fn(&S) -> usize) {
        for entry in self.moving.drain(..) {
            if let Some(segment) = self.segments.get_mut(to(&entry)) {
                segment.put(entry);
            }
        }
    }

    /// Gives an empty segment this many slots.
    fn arrange(&mut self, segment: usize, slots: usize) {
        let Some(present) = self.segments.get_mut(segment) else {
            return;
        };
        self.in_segments -= present.bytes();
        let blocks = slots.div_ceil(BLOCK_SLOTS);
        let keeps = whole_blocks(slots).min(whole_blocks(present.capacity()));
        while present.blocks() > keeps {
            let block = present.pop_block();
            self.spare
                .extend(block.filter(|block| block.len() == BLOCK_SLOTS));
        }
        present.reserve(blocks);
        while present.blocks() < blocks {
            let is_whole = slots >= BLOCK_SLOTS;
            let spare = self.spare.pop_if(|_| is_whole);
            present.push_block(spare.unwrap_or_else(|| block(slots.min(BLOCK_SLOTS))));
        }
        self.in_segments += present.bytes();
    }
}

fn block<S: Slot>(slots: usize) -> Block<S> {
    std::iter::repeat_with(S::default).take(slots).collect()
}

/// How many whole blocks these slots are: a small block is none.
fn whole_blocks(slots: usize) -> usize {
    slots / BLOCK_SLOTS
}

/// The heap bytes of these slots when `whole` blocks are there already.
fn cost_of<S>(slots: usize, whole: usize) -> usize {
    let blocks = whole_blocks(slots);
    let small = if (SMALL_BLOCK_SLOTS..BLOCK_SLOTS).contains(&slots) {
        allocated::<S>(slots)
    } else {
        0
    };
    let more = blocks.saturating_sub(whole) * allocated::<S>(BLOCK_SLOTS);
    more + small + allocated::<Block<S>>(slots.div_ceil(BLOCK_SLOTS))
}
