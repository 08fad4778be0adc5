//! One memory partition without a queue and without a task: the caller's thread decides.
//!
//! Simulations use it. They choose the time and the order of each check, so that the same requests
//! always have the same answers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::partition::Partition;
use crate::clock::Clock;
use crate::store::memory_limits::WhenFull;
use crate::store::{
    ApplyFuture, CheckResult, CommitMode, Deadline, RefundSink, ResetFuture, Store, StoreReply,
    TentativeTake,
};
use tollgate_limiter::{Check, Timestamp};

/// How many slots are looked at for idle buckets with each check: more than one check can add.
const SWEEP_LOOKS_PER_CHECK: usize = 2;

/// A store that decides in the caller's thread, at the time of its clock.
#[derive(Clone)]
pub struct DirectStore {
    partition: Arc<Mutex<Partition>>,
    clock: Arc<dyn Clock>,
}

// === impl DirectStore ===

impl DirectStore {
    /// A store that takes no more than `bytes_max` of the heap. Without space, a check is an
    /// error.
    pub fn new(bytes_max: usize, clock: Arc<dyn Clock>) -> Self {
        let partition = Partition::new(bytes_max, WhenFull::Error);
        Self {
            partition: Arc::new(Mutex::new(partition)),
            clock,
        }
    }

    fn partition(&self) -> MutexGuard<'_, Partition> {
        self.partition
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides one check at this time.
    ///
    /// # Errors
    ///
    /// When there is no memory for its bucket.
    pub fn decide(&self, check: &mut Check, now: Timestamp) -> CheckResult {
        let mut partition = self.partition();
        let answer = partition.apply(check, now);
        partition.sweep(now, SWEEP_LOOKS_PER_CHECK);
        answer
    }

    /// Gives back hits at this time: each check is a refund of a [`TentativeTake`].
    pub fn give_back(&self, refunds: &mut [Check], now: Timestamp) {
        let mut partition = self.partition();
        partition.resets.void_refunds(refunds);
        for refund in refunds {
            // A refund needs no space, so it does not fail.
            drop(partition.apply(refund, now));
        }
    }

    /// How many buckets there are.
    pub fn buckets(&self) -> usize {
        self.partition().len()
    }
}

impl RefundSink for DirectStore {
    fn refund(&self, mut checks: Vec<Check>) {
        self.give_back(&mut checks, self.clock.now());
    }
}

impl Store for DirectStore {
    fn apply(
        &self,
        mut checks: Vec<Check>,
        _: Deadline,
        commit_mode: CommitMode,
    ) -> ApplyFuture<'_> {
        let now = self.clock.now();
        let answers: Vec<_> = checks
            .iter_mut()
            .map(|check| self.decide(check, now))
            .collect();
        let tentative = (commit_mode == CommitMode::Tentative)
            .then(|| TentativeTake::new(Arc::new(self.clone()), checks.iter().zip(&answers)));
        Box::pin(std::future::ready(Ok(StoreReply {
            answers,
            tentative,
            from_denial_cache: false,
            local: Vec::new(),
            stamps: Vec::new(),
        })))
    }

    fn reset(&self, checks: Vec<Check>) -> ResetFuture<'_> {
        let (now, uptime_us) = (self.clock.now(), self.clock.uptime_us());
        let mut partition = self.partition();
        partition.resets.expire(uptime_us);
        let existed = checks.iter().map(|check| {
            let outcome = partition.reset(check, now, uptime_us)?;
            Ok(outcome.used_before > 0)
        });
        let existed = existed.collect();
        drop(partition);
        Box::pin(std::future::ready(existed))
    }
}
