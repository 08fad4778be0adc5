//! Leases of rates in Redis: [`RateLeases`] by a script, in which each exchange is one atomic step.
//!
//! | file | what |
//! | --- | --- |
//! | `exchange.lua` | the step |
//! | `command` | the script's arguments and its reply |
//! | `call` | one call: up to 32 exchanges in one write, and redirects of a cluster |
//!
//! The keys are in one slot (`{quota}`), so one node of a cluster has them all, and one era speaks
//! for all. Exchanges use the connection of that node's worker: it logs in, looks up the primary,
//! and opens the connection again behind a breaker. A fault here makes the worker look at once.
//!
//! Calls are small and few, so that checks on the same connection wait for a millisecond at most.
//! The order in which exchanges of one call are carried out is not defined.
//!
//! An exchange that may have been carried out is not sent again, although that would do no harm:
//! the same version changes nothing. This does not keep the store's tasks alive.

mod call;
mod command;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::call::Call;
pub(crate) use self::call::Shared;
use super::nodes::Nodes;
use tollgate_store::StoreFault;
use tollgate_store::shared::{RateLeaseFuture, RateLeaseRequest, RateLeaseResult, RateLeases};

/// How many exchanges are sent in one write. An exchange takes Redis about 10 µs.
const CALL_EXCHANGES_MAX: usize = 32;

/// How many calls may be in flight.
const CALLS_MAX: usize = 4;

/// Leases of rates in one Redis.
pub(super) struct RedisRateLeases {
    shared: Arc<Shared>,
}

// === impl RedisRateLeases ===

impl RedisRateLeases {
    /// On the first server or cluster of the store.
    pub(super) fn new(nodes: &Nodes) -> Option<Arc<Self>> {
        let endpoint = nodes.endpoints.first()?;
        let nodes = nodes.of(endpoint);
        let first = nodes.first()?;
        Some(Arc::new(Self {
            shared: Arc::new(Shared {
                nodes: nodes.to_vec(),
                cluster: endpoint.cluster.clone(),
                prefix: Arc::clone(&first.prefix),
                deadline: Duration::from_micros(first.deadline_us),
                metrics: first.metrics.clone(),
                calls: Semaphore::new(CALLS_MAX),
            }),
        }))
    }
}

impl RedisRateLeases {
    /// What asks the node of the tag.
    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }
}

impl RateLeases for RedisRateLeases {
    fn exchange(&self, requests: Vec<RateLeaseRequest>) -> RateLeaseFuture<'_> {
        Box::pin(async move {
            let count = requests.len();
            self.shared.metrics.rate_leases.inc_by(count as u64);
            // Calls that are dropped with this set may still be carried out.
            let mut calls = JoinSet::new();
            let first_fault = Arc::<OnceLock<StoreFault>>::default();
            for (number, some) in requests.chunks(CALL_EXCHANGES_MAX).enumerate() {
                let (shared, some) = (Arc::clone(&self.shared), some.to_vec());
                let first_fault = Arc::clone(&first_fault);
                calls.spawn(async move { (number, shared.call(&some, &first_fault).await) });
            }
            // A call without a result is a defect; its exchanges may have been carried out.
            let mut results = vec![Err(StoreFault::UnexpectedReply); count];
            while let Some(ended) = calls.join_next().await {
                let Ok((number, some)) = ended else { continue };
                let own = results.iter_mut().skip(number * CALL_EXCHANGES_MAX);
                for (slot, result) in own.zip(some) {
                    *slot = result;
                }
            }
            for fault in results.iter().filter_map(|result| result.as_ref().err()) {
                self.shared.metrics.rate_lease_fault(fault.name()).inc();
            }
            results
        })
    }
}

// === impl Shared ===

impl Shared {
    /// Carries out these exchanges as soon as a call may be sent. Once a call has failed, those
    /// after it are not sent.
    async fn call(
        &self,
        requests: &[RateLeaseRequest],
        first_fault: &OnceLock<StoreFault>,
    ) -> Vec<RateLeaseResult> {
        let count = requests.len();
        let Ok(_permit) = self.calls.acquire().await else {
            return vec![Err(StoreFault::NotConnected); count];
        };
        if let Some(fault) = first_fault.get() {
            // The node failed a moment ago. These exchanges were not sent.
            return vec![Err(fault.while_breaker_open()); count];
        }
        let mut call = Call::new(self, requests);
        // What has no answer by then is answered so.
        let _ = tokio::time::timeout(self.deadline, call.run()).await;
        let (results, failed) = call.results();
        if let Some(fault) = failed {
            // The first one stays.
            let _ = first_fault.set(fault);
        }
        results
    }
}
