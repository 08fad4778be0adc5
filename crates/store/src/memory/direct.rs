//! One memory partition without a queue and without a task: the caller's thread decides.
//!
//! Simulations use it. They choose the time and the order of each check, so that the same requests
//! always have the same answers.

use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Context;

use super::partition::Partition;
use crate::WhenFull;
use crate::{
    BatchClient, CheckResult, Deadline, PartialReply, Purpose, Refund, RefundSink, RequestsApart,
    Store, StoreError, StoreReply, TentativeTake, Ticket,
};
use tollgate_limiter::{Check, Timestamp};
use tollgate_system::clock::Clock;
use tollgate_system::per_thread::lock;

/// How many slots are looked at for idle buckets with each check: more than one check can add.
const SWEEP_LOOKS_PER_CHECK: usize = 2;

/// A store that decides in the caller's thread, at the time of its clock.
#[derive(Clone)]
pub struct DirectStore {
    partition: Arc<Mutex<Partition>>,
    clock: Arc<dyn Clock>,
}

/// A batch client of a [`DirectStore`]: decides while requests are added.
struct DirectClient {
    store: DirectStore,
    answered: RequestsApart,
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
        lock(&self.partition)
    }

    fn decide_all(&self, checks: &mut [Check], purpose: Purpose) -> Vec<CheckResult> {
        let (now, uptime_us) = (self.clock.now(), self.clock.uptime_us());
        if purpose.decides() {
            let decided = checks.iter_mut().map(|check| self.decide(check, now));
            return decided.collect();
        }
        let mut partition = self.partition();
        partition.resets.expire(uptime_us);
        let resets = checks.iter();
        resets
            .map(|check| partition.reset_or_deny(check, purpose, now, uptime_us))
            .collect()
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
        for refund in refunds {
            partition.refund(refund, now);
        }
    }

    /// How many buckets there are.
    pub fn buckets(&self) -> usize {
        self.partition().len()
    }
}

impl RefundSink for DirectStore {
    fn refund(&self, refunds: Vec<Refund>) {
        let (mut partition, now) = (self.partition(), self.clock.now());
        for Refund { mut check, .. } in refunds {
            partition.refund(&mut check, now);
        }
    }
}

impl Store for DirectStore {
    fn batch_client(&self) -> Box<dyn BatchClient> {
        Box::new(DirectClient {
            store: self.clone(),
            answered: RequestsApart::default(),
        })
    }
}

// === impl DirectClient ===

impl BatchClient for DirectClient {
    fn add(
        &mut self,
        ticket: Ticket,
        checks: &[Check],
        _: Deadline,
        purpose: Purpose,
    ) -> Result<usize, StoreError> {
        let mut checks = checks.to_vec();
        let mut reply = StoreReply::undecided(0, &StoreError::Stopped);
        reply.answers = self.store.decide_all(&mut checks, purpose);
        reply.tentative = (purpose == Purpose::DecideTentatively).then(|| {
            let sink = Arc::new(self.store.clone());
            TentativeTake::new(sink, checks.iter().zip(&reply.answers), 0)
        });
        let reply = Box::pin(ready(Ok(reply)));
        self.answered.push(ticket, checks.len(), reply);
        Ok(1)
    }

    fn send(&mut self) {}

    fn take_replies(
        &mut self,
        cx: &mut Context<'_>,
        take: &mut dyn FnMut(PartialReply<'_>),
    ) -> usize {
        self.answered.take_replies(cx, take)
    }
}
