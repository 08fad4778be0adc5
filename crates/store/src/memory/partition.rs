//! One partition's buckets: plain data with one owner, no lock and no await.
//!
//! A table has a 128-bit keyed hash and a few registers per key, never the key's text. The hash is
//! keyed and even, so the table uses it as it is. A cursor walks along the table and removes a
//! bounded number of buckets that have reset at a time.
//!
//! Marks are in a separate table. Memory is counted in bytes and bounded (`eviction`).
//!
//! What a penalty remembers of a key is a bucket of its own (`penalized`).
//!
//! Time is an argument. An exhausted bucket is not removed before its reset. A check that can never
//! pass needs no space and stays denied; what its denial would have counted is dropped.

mod penalized;

use super::bucket::{Bucket, BucketMeta};
use super::eviction::{EvictionCounts, SpaceRequest, Tables};
use super::marks_table::{MarksTable, RecordCounts, open_counts};
use super::reset_times::ResetTimes;
use super::table::SlotIndex;
use crate::{Purpose, StoreError, WhenFull};
use tollgate_limiter::{
    Check, CountRefused, Hits, Key, Marks, Outcome, ReservationOutcome, State, Step, Timestamp,
};

/// A partition: its tables, and what to do when they are full.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) tables: Tables,
    when_full: WhenFull,
    pub(super) resets: ResetTimes,
}

/// The upper half of the keys of shared buckets. A keyed hash has it as rarely as any other value.
const SHARED: u128 = 0x7368_6172_6564_2121 << 64;

/// The retry time of a denial for want of space: the real one is unknown.
const DENIED_FOR_US: u64 = 1_000_000;

// === impl Partition ===

impl Partition {
    /// A partition that takes no more than `bytes_max` of the heap.
    pub(super) fn new(bytes_max: usize, when_full: WhenFull) -> Self {
        Self {
            tables: Tables::new(bytes_max),
            when_full,
            resets: ResetTimes::default(),
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.tables.bytes_max, self.when_full);
    }

    /// Whether this is the key of a bucket that keys without space share.
    pub(super) fn is_shared(key: Key) -> bool {
        key.0 >> 64 == SHARED >> 64
    }

    pub(super) fn len(&self) -> usize {
        self.tables.buckets.len()
    }

    /// How many bytes of the heap the tables take.
    pub(super) fn bytes(&self) -> usize {
        self.tables.bytes()
    }

    /// The capacity of all marks.
    pub(super) fn marks(&self) -> usize {
        self.tables.marks.capacity
    }

    /// How many checks were not decided by a bucket of their own, for lack of memory, since
    /// [`Partition::take_counts`].
    pub(super) fn without_space_count(&self) -> u64 {
        let counts = &self.tables.counts;
        counts.shared + counts.allowed + counts.denied
    }

    /// What was counted since the last call.
    pub(super) fn take_counts(&mut self) -> EvictionCounts {
        std::mem::take(&mut self.tables.counts)
    }

    /// Looks up the buckets of the next checks and changes nothing. One decision is too long for
    /// the processor to see the next bucket's address behind it; short look-ups in a row fetch
    /// several buckets from memory at the same time.
    pub(super) fn look_ahead(&self, checks: &[Check]) {
        let known = checks
            .iter()
            .filter_map(|check| self.tables.buckets.find(check.key));
        std::hint::black_box(known.count());
    }

    /// Decides one check. When another bucket was used for lack of space, the check records that
    /// afterwards, so that a refund finds it.
    ///
    /// # Errors
    ///
    /// When the check could pass and there is no space for its bucket or for the shared one.
    /// Nothing is taken then.
    pub(super) fn apply(
        &mut self,
        check: &mut Check,
        now: Timestamp,
    ) -> Result<Outcome, StoreError> {
        if let Some(penalty) = check.limit.penalty() {
            return self.apply_penalized(*penalty, check, now);
        }
        self.decide(check, now)
    }

    /// Decides one check by its bucket alone.
    pub(super) fn decide(
        &mut self,
        check: &mut Check,
        now: Timestamp,
    ) -> Result<Outcome, StoreError> {
        let key = if check.shared_bucket {
            shared_key(check)
        } else {
            check.key
        };
        match self.tables.buckets.find(key) {
            Some(place) => self.again(key, place, check, now),
            None => self.first(key, check, now),
        }
    }

    /// Gives back what a check took, unless its bucket was reset since.
    pub(super) fn refund(&mut self, refund: &mut Check, now: Timestamp) {
        self.resets.void_refunds(std::slice::from_mut(refund));
        // A refund needs no space, so it does not fail.
        drop(self.apply(refund, now));
    }

    /// Removes the bucket of a check. Returns its last outcome. A key that shares a bucket for lack
    /// of space has none of its own, and keeps what is counted there.
    ///
    /// # Errors
    ///
    /// When too many resets are remembered already. Nothing is removed then.
    fn reset(&mut self, check: &Check, now: Timestamp, now_us: u64) -> Result<Outcome, StoreError> {
        self.resets.check_space()?;
        let mut look = check.clone();
        look.operation.hits = Hits::Refund(0);
        look.shared_bucket = false;
        let mut outcome = self.apply(&mut look, now)?;
        if let Some(place) = self.tables.buckets.find(check.key) {
            let bucket = self.tables.buckets.remove(place);
            self.tables.marks.remove(&bucket);
        }
        if self.forget_penalty(check, now) {
            outcome.used_before = outcome.used_before.max(1);
        }
        self.resets.add(check.key, outcome.bucket_time, now_us);
        Ok(outcome)
    }

    /// Resets the bucket of a check, or denies hits of the window after the present one: buckets
    /// here have only the present one.
    ///
    /// # Errors
    ///
    /// Those of a reset, and when there is no space.
    pub(super) fn reset_or_deny(
        &mut self,
        check: &Check,
        purpose: Purpose,
        now: Timestamp,
        now_us: u64,
    ) -> Result<Outcome, StoreError> {
        if purpose == Purpose::Reset {
            return self.reset(check, now, now_us);
        }
        let mut look = check.clone();
        look.operation.hits = Hits::PEEK;
        let looked = self.apply(&mut look, now)?;
        Ok(Outcome {
            allowed: false,
            ..looked
        })
    }

    /// Decides a check whose key has no bucket.
    fn first(
        &mut self,
        key: Key,
        check: &mut Check,
        now: Timestamp,
    ) -> Result<Outcome, StoreError> {
        let mut state = State::default();
        if !check.operation.hits.can_fill() {
            // Nothing is taken, so no bucket is needed.
            return Ok(state.apply(check.algorithm, &check.limit, check.operation, now));
        }
        let marks_bytes = if check.reserves() {
            Some(MarksTable::record_bytes())
        } else {
            check
                .algorithm
                .facts()
                .has_marks
                .then(MarksTable::first_bytes)
        };
        let need = SpaceRequest {
            key,
            bucket: true,
            marks_bytes,
            shared: check.shared_bucket,
        };
        let passes = check.can_ever_pass() || counts_in_full(check);
        // A check that never passes is remembered if there is space, without eviction.
        let has_space = if passes {
            self.tables.make_space(&need, now)
        } else {
            self.tables.has_space(&need)
        };
        if passes && !has_space {
            return self.without_space(check, now);
        }
        let outcome = state.apply(check.algorithm, &check.limit, check.operation, now);
        let unused = state.registers == [0, 0] && state.marks.is_none();
        if has_space && !unused {
            let marks = std::mem::take(&mut state.marks);
            let meta = meta(check, (&state, &marks), &outcome, now);
            self.tables.buckets.put(Bucket::new(key, &state, meta));
            self.tables.marks.keep(key, marks);
        }
        Ok(outcome)
    }

    /// Decides a check of the bucket at `place`.
    fn again(
        &mut self,
        key: Key,
        mut place: SlotIndex,
        check: &mut Check,
        now: Timestamp,
    ) -> Result<Outcome, StoreError> {
        let shared = check.shared_bucket;
        let need = |bytes| SpaceRequest {
            key,
            bucket: false,
            marks_bytes: Some(bytes),
            shared,
        };
        if check.reserves() {
            if !self.has_space_for_record(key, now) {
                return self.without_space(check, now);
            }
            // The eviction may have moved or removed this bucket.
            match self.tables.buckets.find(key) {
                Some(found) => place = found,
                None => return self.first(key, check, now),
            }
        }
        let mut uncounted = false;
        if check.operation.hits.requested() > 0
            && check.algorithm.facts().has_marks
            && let Some(bytes) = self.tables.marks.bytes_for_one_more(key)
            && !self.tables.has_space(&need(bytes))
        {
            // Expired marks are dropped first.
            self.forget_expired(key, place, check, now);
            let asked = std::mem::replace(&mut check.operation.hits, Hits::Refund(0));
            let left = self.step(key, place, check, now).remaining;
            check.operation.hits = asked;
            if let Some(bytes) = self.tables.marks.bytes_for_one_more(key) {
                if check.operation.hits.requested() > left && !counts_in_full(check) {
                    // A denial needs no space if it is not counted.
                    uncounted = true;
                } else if !self.make_space_for_more(key, &need(bytes), now) {
                    return self.without_space(check, now);
                }
            }
            // The eviction may have moved or removed this bucket.
            match self.tables.buckets.find(key) {
                Some(found) => place = found,
                None => return self.first(key, check, now),
            }
        }
        if !uncounted {
            return Ok(self.step(key, place, check, now));
        }
        let limit = check.limit;
        check.limit = limit.with_count_refused(CountRefused::None);
        let outcome = self.step(key, place, check, now);
        check.limit = limit;
        Ok(outcome)
    }

    /// Makes space for more marks of a bucket without evicting the bucket.
    fn make_space_for_more(&mut self, key: Key, need: &SpaceRequest, now: Timestamp) -> bool {
        let as_it_was = self.set_kept(key, None);
        let has_space = self.tables.make_space(need, now);
        self.set_kept(key, as_it_was);
        has_space
    }

    /// Marks a bucket as exhausted, or restores what it was before. Returns what it was.
    fn set_kept(&mut self, key: Key, as_it_was: Option<bool>) -> Option<bool> {
        let place = self.tables.buckets.find(key)?;
        let bucket = *self.tables.buckets.get(place)?;
        let before = bucket.meta();
        let meta = BucketMeta {
            exhausted: as_it_was.unwrap_or(true),
            ..before
        };
        self.tables
            .buckets
            .replace(place, Bucket::new(key, &bucket.state(), meta));
        Some(before.exhausted)
    }

    /// One step of the bucket at `place`.
    fn step(&mut self, key: Key, place: SlotIndex, check: &Check, now: Timestamp) -> Outcome {
        let bucket = self.tables.buckets.get(place).copied().unwrap_or_default();
        let mut state = bucket.state();
        if bucket.is_marked() {
            state.marks = self.tables.marks.lift(key);
        }
        if state.marks.ledger().is_some() {
            self.end_due(&mut state, check, now);
        }
        let outcome = state.apply(check.algorithm, &check.limit, check.operation, now);
        let mut marks = std::mem::take(&mut state.marks);
        if outcome.reservation != ReservationOutcome::None {
            self.count_records(&mut marks, &outcome);
        }
        let meta = meta(check, (&state, &marks), &outcome, now);
        self.tables
            .buckets
            .replace(place, Bucket::new(key, &state, meta));
        self.tables.marks.keep(key, marks);
        outcome
    }

    /// Drops the expired marks of the bucket at `place`.
    fn forget_expired(&mut self, key: Key, place: SlotIndex, check: &Check, now: Timestamp) {
        let bucket = self.tables.buckets.get(place).copied().unwrap_or_default();
        if !bucket.is_marked() {
            return;
        }
        let mut state = bucket.state();
        state.marks = self.tables.marks.lift(key);
        state.remove_expired(&check.limit, now);
        let marks = std::mem::take(&mut state.marks);
        let bucket = Bucket::new(key, &state, bucket.meta());
        self.tables.buckets.replace(place, bucket);
        self.tables.marks.keep(key, marks);
    }

    /// Decides a check for whose bucket there is no space.
    fn without_space(&mut self, check: &mut Check, now: Timestamp) -> Result<Outcome, StoreError> {
        let when_full = if check.reserves() {
            // It must be found again when it is settled.
            self.tables.marks.counts_mut().without_space += 1;
            WhenFull::Error
        } else if check.shared_bucket {
            WhenFull::Error
        } else {
            self.when_full
        };
        match when_full {
            WhenFull::Error => Err(StoreError::Full {
                bytes_max: self.tables.bytes_max,
            }),
            WhenFull::Share => {
                self.tables.counts.shared += 1;
                check.shared_bucket = true;
                self.decide(check, now)
            }
            WhenFull::Allow => {
                self.tables.counts.allowed += 1;
                let hits = check.operation.hits.requested();
                // Nothing is taken, so nothing must be given back.
                check.operation.hits = Hits::PEEK;
                Ok(Outcome {
                    reservation: ReservationOutcome::None,
                    blocked: false,
                    allowed: true,
                    used_before: 0,
                    remaining: check.limit.burst().saturating_sub(hits),
                    reset_us: check.limit.window().as_us(),
                    retry_us: Some(0),
                    bucket_time: now,
                })
            }
            WhenFull::Deny => {
                self.tables.counts.denied += 1;
                Ok(Outcome {
                    reservation: ReservationOutcome::None,
                    blocked: false,
                    allowed: false,
                    used_before: check.limit.burst(),
                    remaining: 0,
                    reset_us: DENIED_FOR_US,
                    retry_us: Some(DENIED_FOR_US),
                    bucket_time: now,
                })
            }
        }
    }

    /// Visits at most `looks_max` slots and removes buckets that have reset.
    pub(super) fn sweep(&mut self, now: Timestamp, looks_max: usize) {
        if self.tables.is_pressed && self.tables.bytes() < self.tables.bytes_max / 8 * 7 {
            self.tables.is_pressed = false;
        }
        let pressed = self.tables.is_pressed;
        let Tables { buckets, marks, .. } = &mut self.tables;
        let freed = buckets.sweep(looks_max, |bucket| {
            let life_us = bucket.meta().life_us;
            if bucket.seen().since_us(now) > life_us {
                // The clock jumped ahead and came back (the second clock law). Without this the
                // bucket would stay for the length of the jump. A life is at least one window.
                marks.bring_back(bucket, now);
            }
            let goes = if pressed {
                now >= bucket.fresh_at()
            } else {
                // The time it takes even if the clock goes back a little.
                now.since_us(bucket.seen()) >= life_us
            };
            if goes {
                marks.release(bucket);
            }
            goes
        });
        self.tables.counts.freed += freed as u64;
    }
}

// === Records of reservations ===

impl Partition {
    /// How many records of reservations there are, and how many of them are open.
    pub(super) fn records(&self) -> [usize; 2] {
        [self.tables.marks.records, self.tables.marks.open]
    }

    /// Whether these numbers or those of `take_record_counts` may have changed since the last call.
    #[inline]
    pub(super) fn take_records_changed(&mut self) -> bool {
        std::mem::take(&mut self.tables.marks.changed)
    }

    /// What became of records since the last call.
    pub(super) fn take_record_counts(&mut self) -> RecordCounts {
        std::mem::take(&mut self.tables.marks.counts)
    }

    /// Makes space for one more record of a reservation.
    fn has_space_for_record(&mut self, key: Key, now: Timestamp) -> bool {
        let need = SpaceRequest {
            key,
            bucket: false,
            marks_bytes: Some(MarksTable::record_bytes()),
            shared: false,
        };
        self.tables.has_space(&need) || self.make_space_for_more(key, &need, now)
    }

    /// Ends and counts the reservations of a bucket that are due.
    #[cold]
    fn end_due(&mut self, state: &mut State, check: &Check, now: Timestamp) {
        let at = now.max(state.updated_at);
        let is_step = matches!(check.operation.hits, Hits::Reservation(_));
        let ledger = state.marks.ledger();
        let due = ledger.filter(|ledger| ledger.is_due(at, is_step));
        if let Some(before) = due.map(open_counts) {
            // A step without an id finds no reservation. Like any step, it ends those that are due.
            let hits = Hits::Reservation(Step::Release);
            state.apply(check.algorithm, &check.limit, hits, now);
            let after = state.marks.ledger().map_or([0, 0], open_counts);
            self.tables.marks.counts_mut().add_expired(before, after);
        }
    }

    /// Counts what a step of a reservation did not keep.
    #[cold]
    fn count_records(&mut self, marks: &mut Marks, outcome: &Outcome) {
        let dropped = marks.take_dropped_records();
        let counts = self.tables.marks.counts_mut();
        counts.dropped += dropped;
        counts.too_many += u64::from(outcome.reservation == ReservationOutcome::TooMany);
    }
}

/// The key of the bucket that keys without space share.
fn shared_key(check: &Check) -> Key {
    Key(SHARED | u128::from(check.fingerprint))
}

/// What a partition needs to know about a bucket after this outcome.
fn meta(
    check: &Check,
    (state, marks): (&State, &Marks),
    outcome: &Outcome,
    now: Timestamp,
) -> BucketMeta {
    // The outcome counts from the caller's time, which may be before the bucket's.
    let mut reset_us = now.plus_us(outcome.reset_us).since_us(state.updated_at);
    let mut has_open = false;
    if let Some(ledger) = marks.ledger() {
        has_open = ledger.open() > 0;
        if outcome.settled().is_some() {
            // It counts from the bucket's time.
            reset_us = reset_us.max(outcome.reset_us);
        }
        let until = ledger.until().unwrap_or_default();
        reset_us = reset_us.max(until.since_us(state.updated_at));
    }
    // A bucket that was filled under a larger limit, before a reload, may need longer than the
    // present limit says.
    let life_us = check.algorithm.ttl_us(&check.limit).max(reset_us);
    BucketMeta {
        // A shared bucket counts as exhausted: evicting it would forget hits of several keys.
        // Open reservations are never forgotten.
        exhausted: check.shared_bucket || !outcome.allowed || outcome.remaining == 0 || has_open,
        marked: !marks.is_none(),
        reset_us,
        life_us,
    }
}

/// Whether refused hits of a check count, whatever is left: it needs space as one that passes.
fn counts_in_full(check: &Check) -> bool {
    check.limit.count_refused() == Some(CountRefused::InFull)
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
// small numbers, and figures for people
mod tests;
