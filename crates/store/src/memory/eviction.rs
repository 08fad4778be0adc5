//! Memory limits of a partition, and eviction when they are reached.
//!
//! Evicted are, in this order: buckets that have reset, in the segment of the new bucket; then, in
//! that segment, the sixteenth of the buckets that is nearest to its reset and not exhausted; then
//! the same in other segments, until a block is free. An exhausted bucket is never evicted before
//! its reset, so a flood of new keys cannot reset a limit. When only such buckets are left there is
//! no space, and `--on-memory-full` decides about new keys.
//!
//! By segments, because a segment has about a thousand entries however large the table is, and keys
//! are hashed, so a segment is a fair sample of the table.
//!
//! Nothing is evicted for a key whose check never passes.

use crate::memory::bucket::Bucket;
use crate::memory::marks_table::MarksTable;
use crate::memory::table::{BLOCK_SLOTS, Table};
use tollgate_limiter::{Key, Timestamp};

/// What must have space.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpaceRequest {
    pub(super) key: Key,
    /// Whether a bucket needs a slot.
    pub(super) bucket: bool,
    /// How many bytes its marks need.
    pub(super) marks_bytes: Option<usize>,
    /// Whether it is the bucket that keys without space share.
    pub(super) shared: bool,
}

/// The part of a segment that is evicted at a time: one in this many.
const FORGOTTEN_SHARE: usize = 16;

/// How many segments one check may evict from.
const SEGMENTS_ASKED_MAX: usize = 8;

/// The part of the bytes that is reserved for shared buckets and for eviction itself: one in this
/// many.
const RESERVED_SHARE: usize = 16;

/// The reserved bytes are at most this many.
const RESERVED_BYTES_MAX: usize = 256 << 10;

/// What a partition evicted, and checks without space.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EvictionCounts {
    /// Buckets that had reset.
    pub(super) freed: u64,
    /// Buckets that had not reset and were not exhausted.
    pub(super) forgotten: u64,
    /// Checks without space, by what was done with them.
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
    /// Space was short: buckets are removed as soon as they have reset.
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

    /// How many bytes of the heap the tables take.
    pub(super) fn bytes(&self) -> usize {
        self.buckets.bytes() + self.marks.bytes()
    }

    /// Whether there is space without eviction. The tables may grow.
    pub(super) fn has_space(&mut self, need: &SpaceRequest) -> bool {
        let reserved = if need.shared {
            0
        } else {
            (self.bytes_max / RESERVED_SHARE).min(RESERVED_BYTES_MAX)
        };
        let marks_bytes = need.marks_bytes.unwrap_or_default();
        let bytes_max = self.bytes_max.saturating_sub(reserved + marks_bytes);
        if need.bucket {
            let left = bytes_max.saturating_sub(self.marks.bytes());
            let found = need.shared && self.buckets.has_slot(need.key)
                || self.buckets.make_space(need.key, left);
            if !found {
                return false;
            }
        }
        if need.marks_bytes.is_some() {
            let left = bytes_max.saturating_sub(self.buckets.bytes());
            return self.marks.make_space(need.key, left) && self.bytes() <= bytes_max;
        }
        true
    }

    /// Makes space, with eviction if needed. Returns whether there is space.
    pub(super) fn make_space(&mut self, need: &SpaceRequest, now: Timestamp) -> bool {
        if self.has_space(need) {
            return true;
        }
        self.is_pressed = true;
        if need.bucket && self.ease_here(need.key, now) && self.has_space(need) {
            return true;
        }
        for _ in 0..SEGMENTS_ASKED_MAX {
            if !self.ease_elsewhere(need, now) {
                return false;
            }
            if self.has_space(need) {
                return true;
            }
        }
        false
    }

    /// Evicts from the segment of this key. Returns whether anything was evicted.
    fn ease_here(&mut self, key: Key, now: Timestamp) -> bool {
        let segment = self.buckets.segment_of(key);
        self.drop_fresh(segment, now) > 0
            || self.forget(segment, self.buckets.len_of(segment) / FORGOTTEN_SHARE + 1) > 0
    }

    /// Evicts a block's worth of entries from the next segment. Returns whether anything was
    /// evicted.
    fn ease_elsewhere(&mut self, need: &SpaceRequest, now: Timestamp) -> bool {
        let Some(segment) = self.buckets.next_that_may_give() else {
            return false;
        };
        let mut gone = self.drop_fresh(segment, now);
        if gone < BLOCK_SLOTS {
            gone += self.forget(segment, BLOCK_SLOTS);
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
        self.counts.freed += dropped as u64;
        dropped
    }

    fn forget(&mut self, segment: usize, most: usize) -> usize {
        let Self { buckets, marks, .. } = self;
        let fresh_at_us = |bucket: &Bucket| bucket.fresh_at().as_us();
        let gone = |bucket| marks.evict(&bucket);
        let forgotten = buckets.forget(segment, most, fresh_at_us, gone);
        self.counts.forgotten += forgotten as u64;
        forgotten
    }
}
