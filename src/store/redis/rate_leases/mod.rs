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

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::call::{Call, Shared};
use super::node::Node;
use super::routes::Routes;
use crate::store::StoreFault;
use crate::store::rate_leases::{RateLeaseFuture, RateLeaseRequest, RateLeaseResult, RateLeases};

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
    /// On the first server or cluster of the store, whose nodes these are.
    pub(super) fn new(routes: &Routes, nodes: &[Arc<Node>]) -> Option<Arc<Self>> {
        let endpoint = routes.endpoints.first()?;
        let nodes = nodes.get(..endpoint.queues_end())?;
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

impl RateLeases for RedisRateLeases {
    fn exchange(&self, requests: Vec<RateLeaseRequest>) -> RateLeaseFuture<'_> {
        Box::pin(async move {
            let count = requests.len();
            self.shared.metrics.rate_leases.inc_by(count as u64);
            // Calls that are dropped with this set may still be carried out.
            let mut calls = JoinSet::new();
            let fault = Arc::<FirstFault>::default();
            let mut rest = requests.into_iter();
            let mut first = 0_usize;
            while first < count {
                let some: Vec<_> = rest.by_ref().take(CALL_EXCHANGES_MAX).collect();
                let number = first;
                first = first.saturating_add(CALL_EXCHANGES_MAX);
                let (shared, fault) = (Arc::clone(&self.shared), Arc::clone(&fault));
                calls.spawn(async move { (number, shared.call(some, &fault).await) });
            }
            // A call without a result is a defect; its exchanges may have been carried out.
            let mut results = vec![Err(StoreFault::UnexpectedReply); count];
            while let Some(ended) = calls.join_next().await {
                let Ok((number, some)) = ended else { continue };
                let places = results.iter_mut().skip(number);
                for (place, result) in places.zip(some) {
                    *place = result;
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
    /// Carries out these exchanges as soon as a call may be sent.
    async fn call(
        &self,
        requests: Vec<RateLeaseRequest>,
        first: &FirstFault,
    ) -> Vec<RateLeaseResult> {
        let count = requests.len();
        let Ok(_permit) = self.calls.acquire().await else {
            return vec![Err(StoreFault::NotConnected); count];
        };
        if let Some(fault) = first.get() {
            // The node failed a moment ago. These exchanges were not sent.
            return vec![Err(fault.while_breaker_open()); count];
        }
        let mut call = Call::new(self, &requests);
        // What has no answer by then is answered so.
        let _ = tokio::time::timeout(self.deadline, call.run()).await;
        let (results, failed) = call.results();
        if let Some(fault) = failed {
            first.set(fault);
        }
        results
    }
}

/// The fault that ended a call of an exchange; the calls after it are not sent.
#[derive(Default)]
struct FirstFault(AtomicU8);

// === impl FirstFault ===

impl FirstFault {
    fn get(&self) -> Option<StoreFault> {
        let number = self.0.load(Ordering::Acquire).checked_sub(1)?;
        StoreFault::ALL.get(usize::from(number)).copied()
    }

    fn set(&self, fault: StoreFault) {
        let number = u8::try_from(fault.number().saturating_add(1)).unwrap_or(1);
        self.0.store(number, Ordering::Release);
    }
}
