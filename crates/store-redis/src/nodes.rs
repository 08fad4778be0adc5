//! All nodes of a store, and which of them a check goes to: by the limit's unit, and in a cluster
//! by the key.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::cluster::Cluster;
use super::denial_cache::DenialCache;
use super::node::{Breakers, Node};
use tollgate_limiter::{Check, Unit};
use tollgate_store::queue::QueueSelector;
use tollgate_store::{CheckResult, StoreError, StoreHealth, StoreNode};
use tollgate_telemetry::metrics::Counter;

/// All nodes, and the denial cache.
pub(super) struct Nodes {
    /// One per queue.
    pub(super) each: Vec<Arc<Node>>,
    /// The store, then the store for limits per second if there is one.
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) breakers: Arc<Breakers>,
    pub(super) denials: Arc<DenialCache>,
    pub(super) answered_by_cache: Counter,
}

/// One store, as the operator named it.
pub(super) struct Endpoint {
    /// The numbers of its queues.
    pub(super) queues: Range<usize>,
    /// Its address, for messages.
    pub(super) address: String,
    /// None when it is a single server.
    pub(super) cluster: Option<Arc<Cluster>>,
}

// === impl Nodes ===

impl Nodes {
    /// An error when the breaker of a node that these checks need is open.
    pub(super) fn check_breakers(&self, checks: &[Check]) -> Result<(), StoreError> {
        if self.breakers.are_closed() {
            return Ok(());
        }
        let tripped = checks.iter().find_map(|check| {
            let node = self.each.get(self.queue_of(check))?;
            Some((node, node.fault()?))
        });
        let Some((node, fault)) = tripped else {
            return Ok(());
        };
        // A timeout concerns the checks that were sent. These were not.
        let fault = fault.while_breaker_open();
        node.count_undecided(fault, checks.len());
        Err(StoreError::Unavailable(fault))
    }

    /// The answers from the denial cache, when it has one for every check.
    pub(super) fn denied(&self, checks: &[Check]) -> Option<Vec<CheckResult>> {
        if self.denials.is_empty() {
            return None;
        }
        let now_us = self.each.first()?.clock.uptime_us();
        let denials = checks.iter();
        let denials = denials.map(|check| self.denials.outcome(check, now_us).map(Ok));
        let answers: Vec<CheckResult> = denials.collect::<Option<_>>()?;
        self.answered_by_cache.inc_by(answers.len() as u64);
        Some(answers)
    }

    /// The nodes of an endpoint.
    pub(super) fn of(&self, endpoint: &Endpoint) -> &[Arc<Node>] {
        self.each.get(endpoint.queues.clone()).unwrap_or_default()
    }

    pub(super) fn health(&self) -> StoreHealth {
        let endpoints = self.endpoints.iter();
        let addresses: Vec<_> = endpoints.clone().map(|it| it.address.as_str()).collect();
        let texts: Vec<_> = endpoints
            .map(|endpoint| self.state_text(endpoint))
            .collect();
        StoreHealth {
            address: addresses.join(", "),
            healthy: self.breakers.are_closed() && self.each.iter().all(|node| node.is_healthy()),
            start: self.breakers.start(),
            message: texts.join("; "),
        }
    }

    /// The state of an endpoint, for people.
    fn state_text(&self, endpoint: &Endpoint) -> String {
        let nodes = self.of(endpoint).iter();
        let shown = nodes.filter(|node| endpoint.cluster.is_none() || !node.is_healthy());
        let texts: Vec<_> = shown.map(|node| node.state_text()).collect();
        match &endpoint.cluster {
            Some(cluster) if texts.is_empty() => {
                format!("{} answers, {} servers", endpoint.address, cluster.nodes())
            }
            _ => texts.join("; "),
        }
    }

    /// The servers; of a cluster, those that are assigned.
    pub(super) fn inspect(&self) -> Vec<StoreNode> {
        let endpoints = self.endpoints.iter();
        let nodes = endpoints.flat_map(|endpoint| {
            let slots: Vec<usize> = match &endpoint.cluster {
                None => vec![0],
                Some(cluster) => cluster
                    .assigned()
                    .into_iter()
                    .map(|(slot, _)| slot)
                    .collect(),
            };
            let nodes = self.of(endpoint);
            slots.into_iter().filter_map(|slot| nodes.get(slot))
        });
        nodes.map(|node| node.inspect()).collect()
    }
}

impl QueueSelector for Nodes {
    fn queue_of(&self, check: &Check) -> usize {
        let a_second = check.limit.unit() == Some(Unit::Second);
        let number = usize::from(a_second).min(self.endpoints.len().saturating_sub(1));
        let Some(endpoint) = self.endpoints.get(number) else {
            return 0;
        };
        let cluster = endpoint.cluster.as_ref();
        let node_slot = cluster.map_or(0, |cluster| cluster.node_slot_of(check.key));
        endpoint.queues.start + node_slot
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses = self.endpoints.iter().map(|endpoint| &endpoint.address);
        f.debug_list().entries(addresses).finish()
    }
}
