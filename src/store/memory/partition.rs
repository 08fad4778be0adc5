//! One partition's buckets: plain data, one owner, no lock and no await.
//!
//! A table keeps a 128-bit keyed hash and a few registers a key, never the key's text. The hash is already keyed and
//! even, so the table uses it as it is. Buckets that are as good as new are swept out a bounded number at a time, by a
//! cursor that walks along the table.
//!
//! What buckets remember one by one (their marks) lies in a table beside, since few have any. Tables, marks and what they
//! need to grow are counted in bytes, together, and bounded. What goes when there is no room for more is said in `room`.
//!
//! What it deliberately does not do: ask the time, forget a bucket that is exhausted before its reset. What is refused for
//! good needs no room and stays refused, and then what the refusal would have counted is forgotten.

use super::bucket::{Bucket, BucketMeta};
use super::eviction::{EvictionCounts, SpaceRequest, Tables};
use super::marks_table::MarksTable;
use super::table::SlotIndex;
use crate::store::StoreError;
use crate::store::memory_limits::WhenFull;
use tollgate_limiter::{Check, CountRefused, Hits, Key, Outcome, State, Timestamp};

/// A partition's tables.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) tables: Tables,
    when_full: WhenFull,
}

/// The upper half of the keys of buckets that are shared. A keyed hash is as likely to have it as any other.
const SHARED: u128 = 0x7368_6172_6564_2121 << 64;

/// When to come again after a denial for want of room: nobody knows better.
const DENIED_FOR_US: u64 = 1_000_000;

// === impl Partition ===

impl Partition {
    /// A partition that takes no more than `bytes_max` of the heap.
    pub(super) fn new(bytes_max: usize, when_full: WhenFull) -> Self {
        Self {
            tables: Tables::new(bytes_max),
            when_full,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.tables.buckets.len()
    }

    /// How many bytes of the heap the tables take.
    pub(super) fn bytes(&self) -> usize {
        self.tables.bytes()
    }

    /// For how many marks there is room taken.
    pub(super) fn marks(&self) -> usize {
        self.tables.marks.room()
    }

    /// What was counted since the last time.
    pub(super) fn take_counts(&mut self) -> EvictionCounts {
        std::mem::take(&mut self.tables.counts)
    }

    /// Looks for the buckets of checks that are to be decided next, and changes nothing. One decision is too long for a
    /// processor to see past it to the next one's bucket; short looks in a row fetch several from memory at a time.
    pub(super) fn look_ahead(&self, checks: &[Check]) {
        let known = checks
            .iter()
            .filter_map(|check| self.tables.buckets.find(check.key));
        std::hint::black_box(known.count());
    }

    /// Decides one check. Where there is no room for its bucket, says in the check which other was asked, if any was: so
    /// that what was taken can go back there.
    ///
    /// # Errors
    ///
    /// When it might pass, there is no room for its bucket and none for the one that it is to share. Nothing is taken then.
    pub(super) fn apply(
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

    /// Decides a check of a key that has no bucket.
    fn first(
        &mut self,
        key: Key,
        check: &mut Check,
        now: Timestamp,
    ) -> Result<Outcome, StoreError> {
        let mut state = State::default();
        if check.operation.hits.requested() == 0 {
            // Nothing is taken, so there is nothing to remember.
            return Ok(state.apply(check.algorithm, &check.limit, check.operation, now));
        }
        let marked = check.algorithm.has_marks();
        let need = SpaceRequest {
            key,
            bucket: true,
            marks_bytes: marked.then(MarksTable::first_bytes),
            shared: check.shared_bucket,
        };
        let passes = check.can_ever_pass();
        // What never passes is remembered where there is room, and nobody is forgotten for it.
        let room = if passes {
            self.tables.make_room(&need, now)
        } else {
            self.tables.has_room(&need)
        };
        if passes && !room {
            return self.without_room(check, now);
        }
        let outcome = state.apply(check.algorithm, &check.limit, check.operation, now);
        let unused = state.registers == [0, 0] && state.marks.is_empty();
        if room && !unused {
            let marks = std::mem::take(&mut state.marks);
            let meta = meta(check, &state, &outcome, marks.capacity() > 0, now);
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
        let mut uncounted = false;
        if check.operation.hits.requested() > 0
            && check.algorithm.has_marks()
            && let Some(bytes) = self.tables.marks.bytes_for_one_more(key)
            && !self.tables.has_room(&need(bytes))
        {
            // What has expired makes room.
            self.remove_expired(key, place, check, now);
            let asked = std::mem::replace(&mut check.operation.hits, Hits::Refund(0));
            let left = self.step(key, place, check, now).remaining;
            check.operation.hits = asked;
            if let Some(bytes) = self.tables.marks.bytes_for_one_more(key) {
                if check.operation.hits.requested() > left {
                    // A refusal needs no room, so long as what it would count is forgotten.
                    uncounted = true;
                } else if !self.make_room_for_more(key, &need(bytes), now) {
                    return self.without_room(check, now);
                }
            }
            // Room may have been made by what stood here.
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

    /// Makes room for a bucket to remember more, and does not forget that bucket for it.
    fn make_room_for_more(&mut self, key: Key, need: &SpaceRequest, now: Timestamp) -> bool {
        let as_it_was = self.set_kept(key, None);
        let room = self.tables.make_room(need, now);
        self.set_kept(key, as_it_was);
        room
    }

    /// Has a bucket count as exhausted, or as it was before. Gives that.
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
        let outcome = state.apply(check.algorithm, &check.limit, check.operation, now);
        let marks = std::mem::take(&mut state.marks);
        let meta = meta(check, &state, &outcome, marks.capacity() > 0, now);
        self.tables
            .buckets
            .replace(place, Bucket::new(key, &state, meta));
        self.tables.marks.keep(key, marks);
        outcome
    }

    /// Frees the marks of the bucket at `place` that have expired.
    fn remove_expired(&mut self, key: Key, place: SlotIndex, check: &Check, now: Timestamp) {
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

    /// What becomes of a check for whose bucket there is no room.
    fn without_room(&mut self, check: &mut Check, now: Timestamp) -> Result<Outcome, StoreError> {
        let when_full = if check.shared_bucket {
            WhenFull::Error
        } else {
            self.when_full
        };
        match when_full {
            WhenFull::Error => Err(StoreError::Full {
                bytes_max: self.tables.bytes_max,
            }),
            WhenFull::Share => {
                self.tables.counts.shared = self.tables.counts.shared.saturating_add(1);
                check.shared_bucket = true;
                self.apply(check, now)
            }
            WhenFull::Allow => {
                self.tables.counts.allowed = self.tables.counts.allowed.saturating_add(1);
                let hits = check.operation.hits.requested();
                // Nothing is taken, so nothing may go back.
                check.operation.hits = Hits::PEEK;
                Ok(Outcome {
                    allowed: true,
                    used_before: 0,
                    remaining: check.limit.burst().saturating_sub(hits),
                    reset_us: check.limit.window().as_us(),
                    retry_us: Some(0),
                    bucket_time: now,
                })
            }
            WhenFull::Deny => {
                self.tables.counts.denied = self.tables.counts.denied.saturating_add(1);
                Ok(Outcome {
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

    /// Goes on through no more than `looks_max` places of the table and frees buckets that are as good as new.
    pub(super) fn sweep(&mut self, now: Timestamp, looks_max: usize) {
        if self.tables.is_pressed && self.tables.bytes() < self.tables.bytes_max / 8 * 7 {
            self.tables.is_pressed = false;
        }
        let pressed = self.tables.is_pressed;
        let Tables { buckets, marks, .. } = &mut self.tables;
        let freed = buckets.sweep(looks_max, |bucket| {
            let life_us = bucket.meta().life_us;
            if bucket.seen().since_us(now) > life_us {
                // The clock jumped ahead and came back (the second clock law): else it would stay for as long as the
                // jump was. A life is at least one window.
                marks.bring_back(bucket, now);
            }
            let goes = if pressed {
                now >= bucket.fresh_at()
            } else {
                // As long as it would take if the clock went back a little.
                now.since_us(bucket.seen()) >= life_us
            };
            if goes {
                marks.release(bucket);
            }
            goes
        });
        self.tables.counts.freed = self.tables.counts.freed.saturating_add(freed as u64);
    }
}

/// The key of the bucket that keys without room share.
fn shared_key(check: &Check) -> Key {
    Key(SHARED | u128::from(check.fingerprint))
}

/// What a partition must know of a bucket after this outcome.
fn meta(
    check: &Check,
    state: &State,
    outcome: &Outcome,
    marked: bool,
    now: Timestamp,
) -> BucketMeta {
    // The caller counts from its own present, which may lie before the bucket's.
    let reset_us = now.plus_us(outcome.reset_us).since_us(state.updated_at);
    // A bucket filled under a larger limit, before a reload, may need longer than its limit now says.
    let life_us = check.algorithm.ttl_us(&check.limit).max(outcome.reset_us);
    BucketMeta {
        // What is shared is as good as exhausted: somebody else's hits would be forgotten with it.
        exhausted: check.shared_bucket || !outcome.allowed || outcome.remaining == 0,
        marked,
        reset_us,
        life_us,
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]
// small numbers, and figures for people
mod tests;
