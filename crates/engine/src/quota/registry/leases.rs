//! Asks the shared store for the leases of all buckets, once a second each.
//!
//! Requests wait for their answers in one task, so that a bucket has one request on the way at
//! most. Those whose buckets are new go first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tollgate_limiter::Key;

use super::{QuotaRegistry, State};
use crate::quota::lease::{EXCHANGE_MS, LeaseAsk};
use tollgate_store::shared::{RateLeaseRequest, RateLeaseResult, RateLeases, ReplicaId};

/// Requests that are sent together.
const REQUESTS_MAX: usize = 500;

/// How often buckets whose requests are due are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The leases of this replica.
pub(crate) struct SharedLeases {
    store: Arc<dyn RateLeases>,
    replica: ReplicaId,
    /// Wakes the task when a bucket is new.
    new_bucket: Notify,
    next_era: AtomicU64,
}

/// A request, and what it was made of. None for a lease that is given back.
type PendingRequest = (Key, Option<LeaseAsk>);

// === impl SharedLeases ===

impl SharedLeases {
    /// Those of a replica with this random number, in this store.
    pub(crate) fn new(store: Arc<dyn RateLeases>, replica: ReplicaId) -> Self {
        Self {
            store,
            replica,
            new_bucket: Notify::new(),
            next_era: AtomicU64::new(replica),
        }
    }

    /// Asks for the leases of new buckets soon.
    pub(super) fn wake(&self) {
        self.new_bucket.notify_one();
    }

    fn request(
        &self,
        key: Key,
        version: u64,
        ask: Option<&LeaseAsk>,
        settled: u64,
    ) -> RateLeaseRequest {
        // An era that no store had before, since replicas have different numbers.
        let new_era = self.next_era.fetch_add(1, Ordering::Relaxed).max(1);
        RateLeaseRequest {
            bucket: key,
            replica: self.replica,
            version,
            keeps: ask.map_or(0, |ask| ask.keeps),
            wants: ask.map_or(0, |ask| ask.wants),
            limit: ask.map_or(0, |ask| ask.need.limit),
            demand: ask.map_or_else(Bytes::new, LeaseAsk::demand),
            ended: ask.map_or_else(Vec::new, |ask| ask.ended.clone()),
            new_era,
            settled_era: settled,
        }
    }
}

// === impl QuotaRegistry ===

impl QuotaRegistry {
    /// Keeps the leases of all buckets, for ever. Ends at once if no replica shares the limits.
    pub async fn keep_leases(self: Arc<Self>) {
        let Some(shared) = &self.leases else {
            return;
        };
        loop {
            while self.exchange_some(shared).await {}
            let _ = tokio::time::timeout(LOOK_EVERY, shared.new_bucket.notified()).await;
        }
    }

    /// Asks for the leases that are due, up to a number. Whether more may be due.
    async fn exchange_some(&self, shared: &SharedLeases) -> bool {
        let (requests, asked) = self.due_requests(shared);
        if requests.is_empty() {
            return false;
        }
        let sent = requests.len();
        let results = shared.store.exchange(requests).await;
        self.take_leases(&asked, &results);
        sent >= REQUESTS_MAX
    }

    fn due_requests(&self, shared: &SharedLeases) -> (Vec<RateLeaseRequest>, Vec<PendingRequest>) {
        let now_ms = self.now_ms();
        let mut state = self.state();
        let state = &mut *state;
        let settled = state.era.settles(now_ms, &self.times);
        let mut due: Vec<(Option<u64>, Key)> = Vec::new();
        for (key, tracked) in &state.buckets {
            let is_due = |asked| now_ms.saturating_sub(asked) >= EXCHANGE_MS;
            if tracked.asked_ms.is_none_or(is_due) {
                due.push((tracked.asked_ms, *key));
            }
        }
        // New ones first, then those that wait the longest.
        if due.len() > REQUESTS_MAX {
            due.select_nth_unstable(REQUESTS_MAX);
            due.truncate(REQUESTS_MAX);
        }
        let (mut requests, mut asked) = (Vec::new(), Vec::new());
        for (_, key) in due {
            let Some(tracked) = state.buckets.get_mut(&key) else {
                continue;
            };
            state.last_version += 1;
            let version = state.last_version;
            tracked.asked_ms = Some(now_ms);
            let ask =
                tracked
                    .bucket
                    .ask(version, &state.era, now_ms, &self.times, &mut state.scratch);
            requests.push(shared.request(key, version, ask.as_ref(), settled));
            asked.push((key, ask));
        }
        let spare = REQUESTS_MAX.saturating_sub(requests.len());
        let from = state.given_back.len().saturating_sub(spare);
        for key in state.given_back.split_off(from) {
            // It may have come back.
            if !state.buckets.contains_key(&key) {
                state.last_version += 1;
                requests.push(shared.request(key, state.last_version, None, settled));
                asked.push((key, None));
            }
        }
        (requests, asked)
    }

    fn take_leases(&self, asked: &[PendingRequest], results: &[RateLeaseResult]) {
        let now_ms = self.now_ms();
        let counters = &self.metrics.quotas;
        let mut state = self.state();
        let State { buckets, era, .. } = &mut *state;
        for ((key, ask), result) in asked.iter().zip(results) {
            let Ok(lease) = result else {
                counters.exchanges_failed.inc();
                continue;
            };
            counters.exchanged.inc();
            era.see(lease.era, now_ms);
            if let (Some(tracked), Some(ask)) = (buckets.get_mut(key), ask) {
                tracked.bucket.answer(ask, lease, era, now_ms, &self.times);
            }
        }
    }
}
