//! Which queue of the Redis store a check goes to: by the limit's unit, and in a cluster by the
//! key.

use std::fmt;
use std::sync::Arc;

use super::cluster::{Cluster, NODES_MAX};
use super::node::Node;
use crate::store::StoreNode;
use crate::store::queue::QueueSelector;
use tollgate_limiter::{Check, Unit};

/// Chooses the queue of a check.
pub(super) struct Routes {
    /// The store, then the store for limits per second if there is one.
    pub(super) endpoints: Vec<Endpoint>,
}

/// One store, as the operator named it.
pub(super) struct Endpoint {
    /// The number of its first queue.
    pub(super) first: usize,
    /// Its address, for messages.
    pub(super) words: String,
    /// None when it is a single server.
    pub(super) cluster: Option<Arc<Cluster>>,
}

// === impl Routes ===

impl Routes {
    pub(super) fn clusters(&self) -> impl Iterator<Item = &Arc<Cluster>> {
        self.endpoints
            .iter()
            .filter_map(|endpoint| endpoint.cluster.as_ref())
    }
}

impl QueueSelector for Routes {
    fn queue_of(&self, check: &Check) -> usize {
        let a_second = check.limit.unit() == Some(Unit::Second);
        let number = usize::from(a_second).min(self.endpoints.len().saturating_sub(1));
        let Some(endpoint) = self.endpoints.get(number) else {
            return 0;
        };
        let node_slot = endpoint.cluster.as_ref();
        let node_slot = node_slot.map_or(0, |cluster| cluster.node_slot_of(check.key));
        endpoint.first.saturating_add(node_slot)
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.endpoints.iter().map(|endpoint| &endpoint.words);
        f.debug_list().entries(words).finish()
    }
}

// === impl Endpoint ===

impl Endpoint {
    /// One more than the number of its last queue.
    pub(super) fn queues_end(&self) -> usize {
        let node_slots = self.cluster.as_ref().map_or(0, |_| NODES_MAX);
        self.first.saturating_add(node_slots).saturating_add(1)
    }

    /// Its state, for people.
    pub(super) fn state(&self, nodes: &[Arc<Node>]) -> String {
        let own = nodes.get(self.first..self.queues_end());
        let own = own.unwrap_or_default();
        let Some(cluster) = &self.cluster else {
            return own.first().map(|node| node.words()).unwrap_or_default();
        };
        let out = own.iter().filter(|node| !node.is_healthy());
        let out: Vec<_> = out.map(|node| node.words()).collect();
        if out.is_empty() {
            return format!("{} answers, {} servers", self.words, cluster.nodes());
        }
        out.join("; ")
    }

    /// Its servers; of a cluster, those that are assigned.
    pub(super) fn nodes(&self, nodes: &[Arc<Node>]) -> Vec<StoreNode> {
        let own = nodes.get(self.first..self.queues_end());
        let own = own.unwrap_or_default();
        let assigned = self.cluster.as_ref().map(|cluster| {
            let assigned = cluster.assigned().into_iter();
            assigned.map(|(slot, _)| slot).collect::<Vec<_>>()
        });
        let all = own.iter().enumerate();
        let in_use = all.filter(|(slot, _)| match &assigned {
            None => true,
            Some(assigned) => assigned.contains(slot),
        });
        in_use.map(|(_, node)| node.inspect()).collect()
    }
}
