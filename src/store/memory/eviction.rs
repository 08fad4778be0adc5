//! Room: what a partition takes of the heap, and what goes when it may not take more.
//!
//! In this order: what is as good as new, where the new bucket is to stand; there, of those that are not exhausted, the
//! sixteenth that is nearest to its reset; the same elsewhere, segment by segment, until a block comes free. An
//! exhausted bucket never goes before its reset: whoever floods a service with new keys does not get an old one anew.
//! Where only such buckets are left there is no room, and a setting says what becomes of new keys.
//!
//! Why by segments: what has been nearest to its reset in a part of the table of a thousand entries is found by looking at a
//! thousand entries, however large the table. Keys are hashed, so a part is like the whole.
//!
//! What it deliberately does not do: forget for a key that never passes.

use crate::store::memory::bucket::Bucket;
use crate::store::memory::marks_table::MarksTable;
use crate::store::memory::table::{BLOCK_SLOTS, Table};
use tollgate_limiter::{Key, Timestamp};

/// For what there must be room.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpaceRequest {
    pub(super) key: Key,
    /// A bucket.
    pub(super) bucket: bool,
    /// Its marks: so many bytes of the heap.
    pub(super) marks_bytes: Option<usize>,
    /// Whether it is for a bucket that keys without room share.
    pub(super) shared: bool,
}

/// One in so many of a segment goes at a time.
const FORGOTTEN_SHARE: usize = 16;

/// In how many segments room is looked for in one check.
const SEGMENTS_ASKED_MAX: usize = 8;

/// One in so many bytes is kept for shared buckets and for what forgetting itself needs.
const RESERVED_SHARE: usize = 16;

/// And no more than so many.
const RESERVED_BYTES_MAX: usize = 256 << 10;

/// What a partition did for want of room, and for good order.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EvictionCounts {
    /// Buckets that were as good as new.
    pub(super) freed: u64,
    /// Buckets that were not, but not exhausted either.
    pub(super) forgotten: u64,
    /// Checks without room, by what became of them.
    pub(super) shared: u64,
    pub(super) allowed: u64,
    pub(super) denied: u64,
}

/// The tables of one partition, and how much memory they may take.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) buckets: Table<Bucket>,
    pub(super) marks: MarksTable,
    /// How many bytes of the heap the tables may take together.
    pub(super) bytes_max: usize,
    /// Space has been short: idle buckets are removed as soon as they have reset.
    pub(super) is_pressed: bool,
    pub(super) counts: EvictionCounts,
}

// === impl Tables ===

impl Tables {
    /// Empty tables that take no more than `bytes_max` of the heap.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            buckets: Table::new(),
            marks: MarksTable::new(),
            bytes_max,
            is_pressed: false,
            counts: EvictionCounts::default(),
        }
    }

    /// What it takes of the heap.
    pub(super) fn bytes(&self) -> usize {
        self.buckets.bytes().saturating_add(self.marks.bytes())
    }

    /// Whether there is room, be it by growing; nobody is forgotten for it.
    pub(super) fn has_room(&mut self, need: &SpaceRequest) -> bool {
        let reserved = if need.shared {
            0
        } else {
            (self.bytes_max / RESERVED_SHARE).min(RESERVED_BYTES_MAX)
        };
        let marks_bytes = need.marks_bytes.unwrap_or_default();
        let bytes_max = self
            .bytes_max
            .saturating_sub(reserved)
            .saturating_sub(marks_bytes);
        if need.bucket {
            let left = bytes_max.saturating_sub(self.marks.bytes());
            let found = need.shared && self.buckets.has_slot(need.key)
                || self.buckets.make_room(need.key, left);
            if !found {
                return false;
            }
        }
        if need.marks_bytes.is_some() {
            let left = bytes_max.saturating_sub(self.buckets.bytes());
            return self.marks.make_room(need.key, left) && self.bytes() <= bytes_max;
        }
        true
    }

    /// Makes room, by forgetting if need be. Says whether there is.
    pub(super) fn make_room(&mut self, need: &SpaceRequest, now: Timestamp) -> bool {
        if self.has_room(need) {
            return true;
        }
        self.is_pressed = true;
        if need.bucket && self.ease_here(need.key, now) && self.has_room(need) {
            return true;
        }
        for _ in 0..SEGMENTS_ASKED_MAX {
            if !self.ease_elsewhere(need, now) {
                return false;
            }
            if self.has_room(need) {
                return true;
            }
        }
        false
    }

    /// Takes something out of the segment where this key is to stand. Says whether anything went.
    fn ease_here(&mut self, key: Key, now: Timestamp) -> bool {
        let segment = self.buckets.segment_of(key);
        self.drop_fresh(segment, now) > 0
            || self.forget(segment, self.buckets.len_of(segment) / FORGOTTEN_SHARE + 1) > 0
    }

    /// Takes a block's worth out of the next segment in turn. Says whether anything went.
    fn ease_elsewhere(&mut self, need: &SpaceRequest, now: Timestamp) -> bool {
        let Some(segment) = self.buckets.next_that_may_give() else {
            return false;
        };
        let mut gone = self.drop_fresh(segment, now);
        if gone < BLOCK_SLOTS {
            gone = gone.saturating_add(self.forget(segment, BLOCK_SLOTS));
        }
        self.buckets.tighten(segment);
        if need.marks_bytes.is_some() {
            self.buckets.give_back_spare();
            self.marks.give_back_spare();
        }
        gone > 0
    }

    fn drop_fresh(&mut self, segment: usize, now: Timestamp) -> usize {
        let Self { buckets, marks, .. } = self;
        let fresh_at_us = |bucket: &Bucket| bucket.fresh_at().as_us();
        let gone = |bucket| marks.release(&bucket);
        let dropped = buckets.drop_fresh(segment, now.as_us(), fresh_at_us, gone);
        self.counts.freed = self.counts.freed.saturating_add(dropped as u64);
        dropped
    }

    fn forget(&mut self, segment: usize, most: usize) -> usize {
        let Self { buckets, marks, .. } = self;
        let fresh_at_us = |bucket: &Bucket| bucket.fresh_at().as_us();
        let gone = |bucket| marks.release(&bucket);
        let forgotten = buckets.forget(segment, most, fresh_at_us, gone);
        self.counts.forgotten = self.counts.forgotten.saturating_add(forgotten as u64);
        forgotten
    }
}
