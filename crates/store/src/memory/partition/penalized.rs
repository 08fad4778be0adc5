//! Penalties: what they remember of a key is a bucket under a key derived from its own.
//!
//! Why a bucket: the tables, their bounds, the sweep and snapshots then need to know nothing of
//! penalties, and limits without one pay nothing. The key is of the same partition. A block is kept
//! as an exhausted bucket is; refusals that are counted can be evicted. Without memory they are not
//! counted, nor where the key's own bucket has no memory.

use super::{Bucket, BucketMeta, Partition, SpaceRequest};
use crate::StoreError;
use tollgate_limiter::{Check, Key, Outcome, Penalty, PenaltyState, Timestamp};

/// What makes the key of a penalty. The upper half of a key, which chooses the partition, stays.
const PENALTY: u128 = 0x7065_6e61_6c74_7921;

fn penalty_key(key: Key) -> Key {
    Key(key.0 ^ PENALTY)
}

// === impl Partition ===

impl Partition {
    /// Decides a check of a limit with a penalty.
    #[cold]
    #[inline(never)]
    pub(super) fn apply_penalized(
        &mut self,
        penalty: Penalty,
        check: &mut Check,
        now: Timestamp,
    ) -> Result<Outcome, StoreError> {
        if check.shared_bucket {
            return self.decide(check, now);
        }
        let before = self.penalty_state(check.key);
        let (mut after, asked) = (before, (check.limit, check.operation));
        let outcome = penalty.apply(&mut after, (&asked.0, asked.1), now, |limit, operation| {
            (check.limit, check.operation) = (*limit, operation);
            let elsewhere = self.without_space_count();
            let outcome = self.decide(check, now)?;
            Ok((outcome, self.without_space_count() == elsewhere))
        });
        check.limit = asked.0;
        // What passes without memory takes nothing, and says so.
        if !outcome.as_ref().is_ok_and(|outcome| outcome.allowed) {
            check.operation = asked.1;
        }
        if after != before {
            self.keep_penalty(check.key, &penalty, after, now);
        }
        outcome
    }

    /// Removes what a penalty remembers of the key of a check. Says whether it still counted.
    pub(super) fn forget_penalty(&mut self, check: &Check, now: Timestamp) -> bool {
        let state = self.penalty_state(check.key);
        if let Some(place) = self.tables.buckets.find(penalty_key(check.key)) {
            self.tables.buckets.remove(place);
        }
        let penalty = check.limit.penalty();
        penalty.is_some_and(|penalty| penalty.forgotten_at(&state) > now)
    }

    fn penalty_state(&self, key: Key) -> PenaltyState {
        let place = self.tables.buckets.find(penalty_key(key));
        let bucket = place.and_then(|place| self.tables.buckets.get(place));
        bucket.map_or_else(PenaltyState::default, |bucket| {
            PenaltyState::from_bucket(&bucket.state())
        })
    }

    fn keep_penalty(&mut self, key: Key, penalty: &Penalty, state: PenaltyState, now: Timestamp) {
        let key = penalty_key(key);
        let kept_us = penalty.forgotten_at(&state).since_us(state.since);
        let meta = BucketMeta {
            exhausted: state.until > now,
            marked: false,
            reset_us: kept_us,
            // The clock may go back by a span.
            life_us: kept_us + u64::from(penalty.within_s) * 1_000_000,
        };
        let bucket = Bucket::new(key, &state.to_bucket(), meta);
        if let Some(place) = self.tables.buckets.find(key) {
            self.tables.buckets.replace(place, bucket);
            return;
        }
        let need = SpaceRequest {
            key,
            bucket: true,
            marks_bytes: None,
            shared: false,
        };
        if self.tables.make_space(&need, now) {
            self.tables.buckets.put(bucket);
        }
    }
}
