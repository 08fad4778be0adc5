//! Which node of a cluster a worker serves, and how the worker changes nodes.
//!
//! A worker keeps its node slot. The node in it changes when the topology does. A node that leaves
//! is served until its calls have ended; its refunds then go to the nodes that own the slots now.

use super::{DRAIN_US, NodeWorker};
use crate::store::StoreFault;
use crate::store::redis::breaker::Breaker;
use tollgate_limiter::Check;

impl NodeWorker {
    /// Whether no node is assigned.
    pub(super) fn is_vacant(&self) -> bool {
        self.node_slot
            .as_ref()
            .is_some_and(|node_slot| node_slot.address.is_none())
    }

    /// A node was assigned or unassigned.
    pub(super) fn assignment_changed(&mut self) {
        let now_us = self.now_us();
        let Some(node_slot) = &mut self.node_slot else {
            return;
        };
        let assigned = node_slot.changes.borrow_and_update().clone();
        match assigned {
            None => {
                let at_us = now_us.saturating_add(DRAIN_US);
                node_slot.drained_at_us = node_slot.address.is_some().then_some(at_us);
            }
            Some(address) if node_slot.address.as_ref() == Some(&address) => {
                node_slot.drained_at_us = None;
            }
            Some(address) => {
                self.node.rename(address.to_string());
                node_slot.address = Some(address);
                node_slot.drained_at_us = None;
                // Checks that arrive before the node is connected wait until their deadline.
                self.breaker = Breaker::new();
                (self.logged, self.quiet) = (None, None);
                self.disconnect();
            }
        }
    }

    /// Releases an unassigned node when no call to it is in flight.
    pub(super) fn leave(&mut self) {
        let (Some(node_slot), Some(member)) = (&mut self.node_slot, &self.node.member) else {
            return;
        };
        let Some(at_us) = node_slot.drained_at_us else {
            return;
        };
        let out_of_order = self.node.fault().is_some() || self.breaker.open().is_some();
        let quiet = self.waiting.is_empty() && self.calls.is_empty();
        let over = at_us <= self.node.clock.uptime_us();
        // It was assigned again meanwhile.
        if !(out_of_order || quiet && over) || !member.cluster.release(member.node_slot) {
            return;
        }
        node_slot.address = None;
        node_slot.drained_at_us = None;
        self.disconnect();
        if self.logged.take().is_some() {
            // The end of the failure, at its level.
            tracing::warn!(store = %self.node.place(), "the unavailable node left the cluster");
        }
        // An unassigned node slot is not a fault.
        self.node.open();
        while let Some(part) = self.waiting.pop_front() {
            self.node.undecided(part, StoreFault::ClusterDown);
        }
        for checks in self.refunds.take_all() {
            self.give_back_elsewhere(checks);
        }
    }

    /// Sends refunds to the nodes that own their slots now.
    pub(super) fn give_back_elsewhere(&self, checks: Vec<Check>) {
        let count = checks.len();
        let member = self.node.member.as_ref();
        if !member.is_some_and(|member| member.cluster.give_back(checks)) {
            self.lost(count);
        }
    }
}
