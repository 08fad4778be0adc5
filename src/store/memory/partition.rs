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
//! a new key that would pass is an error, which a setting turns into an answer (`service`). What is refused needs no room
//! and stays refused, and then what the refusal would have counted is forgotten.

use std::hash::{BuildHasherDefault, Hasher};

use indexmap::IndexMap;

use crate::limiter::{Check, CountRefused, Hits, Key, Outcome, State, Timestamp};
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
    /// When it would pass and its bucket is new, or needs room for another mark, and there is none. Nothing is taken then.
    pub(super) fn apply(&mut self, check: &Check, now: Timestamp) -> Result<Outcome, StoreError> {
        match self.buckets.get_index_of(&check.key) {
            Some(place) => self.again(place, check, now),
            None => self.first(check, now),
        }
    }

    /// Decides a check of a key that has no bucket.
    fn first(&mut self, check: &Check, now: Timestamp) -> Result<Outcome, StoreError> {
        let takes = check.ask.hits.taken() > 0;
        let room = self.room_for_first(check);
        if takes && check.may_ever_pass() {
            room.clone()?;
        }
        let mut bucket = Bucket::default();
        let outcome = bucket.step(check, now);
        // Where nothing was taken there is nothing to remember; least of all what a rule that refuses everything refused.
        // And a refusal needs no room: as an error it might be let through.
        if takes && room.is_ok() && !bucket.is_as_never_used() {
            self.marks = self.marks.saturating_add(bucket.state.marks.room());
            self.buckets.insert(check.key, bucket);
        }
        Ok(outcome)
    }

    fn room_for_first(&self, check: &Check) -> Result<(), StoreError> {
        if self.buckets.len() >= self.buckets_max {
            return Err(StoreError::Full {
                buckets_max: self.buckets_max,
            });
        }
        if check.algorithm.has_marks() && self.marks >= self.marks_max {
            return Err(self.no_room_for_marks());
        }
        Ok(())
    }

    fn no_room_for_marks(&self) -> StoreError {
        StoreError::NoRoomForMarks {
            marks_max: self.marks_max,
        }
    }

    /// Decides a check of the bucket at `place`.
    fn again(
        &mut self,
        place: usize,
        check: &Check,
        now: Timestamp,
    ) -> Result<Outcome, StoreError> {
        let no_room = self.no_room_for_marks();
        let Some((_, bucket)) = self.buckets.get_index_mut(place) else {
            return self.first(check, now);
        };
        let hits = check.ask.hits.taken();
        let room_before = bucket.state.marks.room();
        let mut counted = *check;
        let mut fits = true;
        if hits > 0
            && check.algorithm.has_marks()
            && self.marks >= self.marks_max
            && bucket.marks_are_full()
        {
            // What has run out makes room: giving nothing back drops it, and changes nothing else.
            counted.ask.hits = Hits::Refund(0);
            let left = bucket.step(&counted, now).remaining;
            counted = *check;
            if bucket.marks_are_full() {
                // A refusal needs no room, so long as what it would count is forgotten.
                counted.limit = check.limit.with_count_refused(CountRefused::None);
                fits = hits > left;
            }
        }
        let outcome = fits.then(|| bucket.step(&counted, now)).ok_or(no_room);
        self.marks = self
            .marks
            .saturating_add(bucket.state.marks.room())
            .saturating_sub(room_before);
        outcome
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

// === impl Bucket ===

impl Bucket {
    fn step(&mut self, check: &Check, now: Timestamp) -> Outcome {
        let outcome = self
            .state
            .step(check.algorithm, &check.limit, check.ask, now);
        // A bucket filled under a larger limit, before a reload, may need longer than its limit now says.
        let life_us = check.algorithm.life_us(&check.limit);
        self.life_us = life_us.max(outcome.reset_us);
        outcome
    }

    fn is_as_never_used(&self) -> bool {
        self.state.registers == [0, 0] && self.state.marks.is_empty()
    }

    /// Whether another mark would need more memory.
    fn marks_are_full(&self) -> bool {
        self.state.marks.len() >= self.state.marks.room()
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
    use crate::limiter::{ALGORITHMS, Limit, Unit};

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

    #[test]
    fn what_can_never_pass_is_refused_by_a_full_table_too() {
        let now = Timestamp::from_seconds(600);
        let mut partition = Partition::new(1, 0);
        partition.apply(&check(1), now).unwrap();
        let denied = Limit::per(0, Unit::Minute, NonZeroU32::MIN);
        for algorithm in ALGORITHMS {
            for (limit, hits) in [(check(2).limit, 2), (denied, 1)] {
                let asked = Check {
                    algorithm: *algorithm,
                    limit,
                    ask: Hits::Take(hits).into(),
                    ..check(2)
                };
                let outcome = partition.apply(&asked, now).unwrap();
                assert!(!outcome.allowed, "{algorithm:?}");
                assert_eq!(outcome.retry_us, None, "{algorithm:?}");
            }
        }
        assert_eq!((partition.len(), partition.marks()), (1, 0));
    }

    #[test]
    fn a_refusal_that_leaves_nothing_takes_no_bucket() {
        let now = Timestamp::from_seconds(600);
        for algorithm in ALGORITHMS {
            let mut partition = Partition::new(10, 10);
            let asked = Check {
                algorithm: *algorithm,
                ask: Hits::Take(2).into(),
                ..check(1)
            };
            assert!(!partition.apply(&asked, now).unwrap().allowed);
            let counts = algorithm.usual_count_refused() != CountRefused::None;
            assert_eq!(partition.len(), usize::from(counts), "{algorithm:?}");
        }
    }

    #[test]
    fn marks_that_have_run_out_make_room_when_there_is_no_other() {
        let begin = Timestamp::from_seconds(600);
        let mut partition = Partition::new(10, 1);
        for us in 0..4 {
            partition.apply(&logged(1, 1), begin.plus_us(us)).unwrap();
        }
        let full = Err(StoreError::NoRoomForMarks { marks_max: 1 });
        let end = begin.plus_us(60_000_000);
        assert_eq!(partition.apply(&logged(1, 1), end.minus_us(1)), full);
        assert!(partition.apply(&logged(1, 1), end).unwrap().allowed);
        assert_eq!(partition.apply(&logged(1, 1), end), full);
    }

    #[test]
    fn what_is_refused_without_room_leaves_no_mark() {
        let begin = Timestamp::from_seconds(600);
        let mut partition = Partition::new(10, 1);
        let counting = |hits| {
            let check = logged(1, hits);
            let limit = check.limit.with_count_refused(CountRefused::All);
            Check { limit, ..check }
        };
        for us in 0..4 {
            let at = begin.plus_us(us);
            assert!(partition.apply(&counting(25), at).unwrap().allowed);
        }
        let refused = partition.apply(&counting(1), begin.plus_us(4)).unwrap();
        assert!(!refused.allowed);
        // When the first mark has run out, and not later: no debt.
        assert_eq!(refused.retry_us, Some(59_999_996));
        assert_eq!(partition.marks(), 4);
    }
}
