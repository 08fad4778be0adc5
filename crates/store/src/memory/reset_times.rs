//! When buckets were reset, so that hits taken before a reset are not given back after it.
//!
//! Why: a refund may arrive when its bucket was reset and has filled again. The new bucket would
//! get hits that were never taken from it, and more than the limit would pass.
//!
//! A time is remembered for as long as a refund can be late. The table is bounded; a reset that it
//! cannot remember is rejected.

use std::collections::{HashMap, VecDeque};

use crate::StoreError;
use crate::refund_queue::REFUND_LATE_MAX_US;
use tollgate_limiter::{Check, Hits, Key, Step, Timestamp};

/// How many resets a partition remembers.
const RESETS_MAX: usize = 4_096;

/// The times of resets, by key.
#[derive(Debug, Default)]
pub(super) struct ResetTimes {
    known: HashMap<Key, ResetTime>,
    /// Until when each is remembered, in uptime, in order.
    due: VecDeque<(u64, Key)>,
}

#[derive(Clone, Copy, Debug)]
struct ResetTime {
    /// The bucket's time at the reset.
    at: Timestamp,
    until_us: u64,
}

// === impl ResetTimes ===

impl ResetTimes {
    /// An error when a reset could not be remembered.
    pub(super) fn check_space(&self) -> Result<(), StoreError> {
        if self.due.len() < RESETS_MAX {
            return Ok(());
        }
        Err(StoreError::TooManyResets {
            resets_max: RESETS_MAX,
            for_s: REFUND_LATE_MAX_US / 1_000_000,
        })
    }

    /// Remembers a reset at this time of the bucket.
    pub(super) fn add(&mut self, key: Key, at: Timestamp, now_us: u64) {
        let until_us = now_us.saturating_add(REFUND_LATE_MAX_US);
        // The clock may have been set back since an earlier reset.
        let earlier = self.known.get(&key).map(|reset| reset.at);
        let kept = earlier.filter(|earlier| earlier.since_us(at) <= REFUND_LATE_MAX_US);
        let at = at.max(kept.unwrap_or_default());
        self.known.insert(key, ResetTime { at, until_us });
        self.due.push_back((until_us, key));
    }

    /// Voids the refunds of hits that were taken before their bucket was reset.
    pub(super) fn void_refunds(&self, checks: &mut [Check]) {
        if self.known.is_empty() {
            return;
        }
        for check in checks {
            // The bucket that keys without space share is not reset.
            let (Hits::Undo { taken_at, .. } | Hits::Reservation(Step::Withdraw { taken_at, .. })) =
                check.operation.hits
            else {
                continue;
            };
            if !check.shared_bucket
                && let Some(reset) = self.known.get(&check.key)
                && taken_at <= reset.at
            {
                check.operation.hits = Hits::Refund(0);
            }
        }
    }

    /// Drops what is remembered for too long.
    pub(super) fn expire(&mut self, now_us: u64) {
        while let Some((until_us, key)) = self.due.front().copied()
            && until_us <= now_us
        {
            self.due.pop_front();
            // A later reset of the same key has an entry of its own.
            if self
                .known
                .get(&key)
                .is_some_and(|reset| reset.until_us <= now_us)
            {
                self.known.remove(&key);
            }
        }
    }
}
