//! One partition's buckets: plain data, one owner, no lock and no await.
//!
//! A table keeps a 128-bit keyed hash and a few registers a key, never the key's text. The hash is already keyed and
//! even, so the table uses it as it is. Buckets that are as good as new are swept out a bounded number at a time; the
//! table keeps its entries in a row, so a sweep is a cursor that walks along it and a removal moves the last entry into
//! the gap.
//!
//! What buckets remember one by one (their marks) is counted across the table and bounded, since one key may need ten
//! thousand times what another does.
//!
//! What it deliberately does not do: ask the time, forget a bucket that is still in use. When the table is full of those
//! a new key is refused, which a setting turns into an answer (`service`).

use std::hash::{BuildHasherDefault, Hasher};

use indexmap::IndexMap;
use indexmap::map::Entry as Slot;

use crate::limiter::{Check, Key, Outcome, State, Timestamp};
use crate::store::StoreError;

/// A partition's table.
#[derive(Debug)]
pub(super) struct Partition {
    buckets: IndexMap<Key, Bucket, BuildHasherDefault<KeyIsHash>>,
    /// How many it may hold.
    buckets_max: usize,
    /// For how many marks its buckets have room together.
    marks: usize,
    /// How many that may be.
    marks_max: usize,
    /// Where the next sweep begins.
    cursor: usize,
}

#[derive(Clone, Debug, Default)]
struct Bucket {
    state: State,
    /// How long after it was last seen it is surely as good as new.
    life_us: u64,
}

/// Gives the lower half of a key as its hash.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyIsHash(u64);

// === impl Partition ===

impl Partition {
    pub(super) fn new(buckets_max: usize, marks_max: usize) -> Self {
        Self {
            buckets: IndexMap::default(),
            buckets_max,
            marks: 0,
            marks_max,
            cursor: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.buckets.len()
    }

    /// For how many marks there is room taken.
    pub(super) fn marks(&self) -> usize {
        self.marks
    }

    /// Decides one check.
    ///
    /// # Errors
    ///
    /// When its bucket is new, or needs room for another mark, and there is none. Nothing is taken then.
    pub(super) fn apply(&mut self, check: &Check, now: Timestamp) -> Result<Outcome, StoreError> {
        let takes = check.ask.hits.taken() > 0;
        let marks_full = takes && check.algorithm.has_marks() && self.marks >= self.marks_max;
        let full = self.buckets.len() >= self.buckets_max;
        let mut unused = Bucket::default();
        let bucket = match self.buckets.entry(check.key) {
            Slot::Occupied(slot) => slot.into_mut(),
            // Nothing is taken, so there is nothing to remember.
            Slot::Vacant(_) if !takes => &mut unused,
            Slot::Vacant(_) if full => {
                return Err(StoreError::Full {
                    buckets_max: self.buckets_max,
                });
            }
            Slot::Vacant(_) if marks_full => {
                return Err(StoreError::NoRoomForMarks {
                    marks_max: self.marks_max,
                });
            }
            Slot::Vacant(slot) => slot.insert(unused),
        };
        let room_before = bucket.state.marks.room();
        if marks_full && bucket.state.marks.len() >= room_before {
            // What is refused needs no room.
            let mut supposed = bucket.state.clone();
            let outcome = supposed.step(check.algorithm, &check.limit, check.ask, now);
            if outcome.allowed {
                return Err(StoreError::NoRoomForMarks {
                    marks_max: self.marks_max,
                });
            }
            return Ok(outcome);
        }
        let outcome = bucket
            .state
            .step(check.algorithm, &check.limit, check.ask, now);
        self.marks = self
            .marks
            .saturating_add(bucket.state.marks.room())
            .saturating_sub(room_before);
        // A bucket filled under a larger limit, before a reload, may need longer than its limit now says.
        let life_us = check.algorithm.life_us(&check.limit);
        bucket.life_us = life_us.max(outcome.reset_us);
        Ok(outcome)
    }

    /// Looks at no more than `looks_max` buckets and frees those that are as good as new. Gives how many.
    pub(super) fn sweep(&mut self, now: Timestamp, looks_max: usize) -> usize {
        let mut freed = 0_usize;
        for _ in 0..looks_max.min(self.buckets.len()) {
            if self.cursor >= self.buckets.len() {
                self.cursor = 0;
            }
            let Some((_, bucket)) = self.buckets.get_index_mut(self.cursor) else {
                break;
            };
            if bucket.state.seen.since_us(now) > bucket.life_us {
                // The clock jumped ahead and came back (the second clock law): else it would stay for as long as the
                // jump was. A life is at least one window.
                bucket.state.bring_back(now);
            }
            if now.since_us(bucket.state.seen) >= bucket.life_us {
                self.marks = self.marks.saturating_sub(bucket.state.marks.room());
                self.buckets.swap_remove_index(self.cursor);
                freed = freed.saturating_add(1);
            } else {
                self.cursor = self.cursor.saturating_add(1);
            }
        }
        // A flood that has passed gives its memory back, half at a time so that it is not copied often.
        if self.buckets.capacity() > 1024 && self.buckets.len() < self.buckets.capacity() / 4 {
            self.buckets.shrink_to(self.buckets.capacity() / 2);
        }
        freed
    }
}

// === impl KeyIsHash ===

impl Hasher for KeyIsHash {
    fn write(&mut self, bytes: &[u8]) {
        // A key is written as one u128; whatever else this may be given still counts.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = u64::try_from(key & u128::from(u64::MAX)).unwrap_or_default();
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::limiter::algorithm::{FixedWindow, SlidingLog};
    use crate::limiter::{Hits, Limit, Unit};

    fn check(key: u128) -> Check {
        Check {
            key: Key(key),
            limit: Limit::per(1, Unit::Minute, NonZeroU32::MIN),
            algorithm: &FixedWindow,
            ask: Hits::Take(1).into(),
        }
    }

    #[test]
    fn a_full_table_keeps_what_it_has_and_refuses_new_keys() {
        let now = Timestamp::from_seconds(600);
        let mut partition = Partition::new(2, 10);
        assert!(partition.apply(&check(1), now).unwrap().allowed);
        assert!(partition.apply(&check(2), now).unwrap().allowed);
        let full = StoreError::Full { buckets_max: 2 };
        assert_eq!(partition.apply(&check(3), now), Err(full));
        // Looking at a new key, or giving back to one, needs no room.
        for hits in [Hits::LOOK, Hits::Refund(1)] {
            let check = Check {
                ask: hits.into(),
                ..check(3)
            };
            assert_eq!(partition.apply(&check, now).unwrap().remaining, 1);
        }
        assert_eq!(partition.len(), 2);
        assert!(!partition.apply(&check(1), now).unwrap().allowed);
    }

    #[test]
    fn a_sweep_frees_idle_buckets_and_looks_at_no_more_than_it_may() {
        let begin = Timestamp::from_seconds(600);
        let mut partition = Partition::new(1_000, 10);
        for key in 0..100 {
            partition.apply(&check(key), begin).unwrap();
        }
        let within = begin.plus_us(59_999_999);
        assert_eq!(partition.sweep(within, 1_000), 0);
        let after = begin.plus_us(60_000_000);
        assert_eq!(partition.sweep(after, 30), 30);
        assert_eq!(partition.sweep(after, 1_000), 70);
        assert_eq!(partition.len(), 0);
    }

    #[test]
    fn a_bucket_seen_in_a_future_that_did_not_come_is_freed_in_time() {
        let mut partition = Partition::new(10, 10);
        let jumped = Timestamp::from_seconds(1_000_000);
        partition.apply(&check(1), jumped).unwrap();
        let back = Timestamp::from_seconds(600);
        assert_eq!(partition.sweep(back, 10), 0);
        assert_eq!(partition.sweep(back.plus_us(60_000_000), 10), 1);
    }

    #[test]
    fn a_flood_that_has_passed_gives_its_memory_back() {
        let begin = Timestamp::from_seconds(600);
        let mut partition = Partition::new(1_000_000, 10);
        for key in 0..50_000 {
            partition.apply(&check(key), begin).unwrap();
        }
        let before = partition.buckets.capacity();
        let after = begin.plus_us(60_000_000);
        for _ in 0..100 {
            partition.sweep(after, 1_000);
        }
        assert_eq!(partition.len(), 0);
        assert!(partition.buckets.capacity() < before / 8);
    }

    fn logged(key: u128, hits: u64) -> Check {
        Check {
            algorithm: &SlidingLog,
            limit: Limit::per(100, Unit::Minute, NonZeroU32::MIN),
            ask: Hits::Take(hits).into(),
            ..check(key)
        }
    }

    #[test]
    fn marks_are_bounded_across_buckets_and_refusals_need_none() {
        let begin = Timestamp::from_seconds(600);
        let mut partition = Partition::new(1_000, 8);
        let mut at = begin;
        let mut take = |partition: &mut Partition, key, hits| {
            at = at.plus_us(1);
            partition.apply(&logged(key, hits), at)
        };
        assert!(take(&mut partition, 1, 100).unwrap().allowed);
        while partition.marks() < 8 {
            assert!(take(&mut partition, 2, 1).unwrap().allowed);
        }
        // What a bucket has room for it may use; then nothing more is taken.
        let full = loop {
            match take(&mut partition, 2, 1) {
                Ok(outcome) => assert!(outcome.allowed),
                Err(error) => break error,
            }
        };
        assert_eq!(full, StoreError::NoRoomForMarks { marks_max: 8 });
        let refused = take(&mut partition, 3, 1);
        assert_eq!(refused, Err(StoreError::NoRoomForMarks { marks_max: 8 }));
        // Known to be over its limit, so it is refused and no error lets it through.
        assert!(!take(&mut partition, 1, 1).unwrap().allowed);
        // Other algorithms need no marks.
        assert!(partition.apply(&check(4), at).unwrap().allowed);
        assert_eq!(partition.sweep(begin.plus_us(60_001_000), 1_000), 3);
        assert_eq!(partition.marks(), 0);
    }
}
