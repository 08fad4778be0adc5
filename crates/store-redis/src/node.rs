//! What the callers and the worker of one server share: whether its breaker is open, and the
//! counters.
//!
//! It is apart from the worker because, while the breaker is open, callers must fail at once and
//! without a message. Only the worker changes it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use crate::cluster::{ClusterMember, Link};
use crate::decided_share::{DecidedShare, Undecided};
use crate::denial_cache::DenialCache;
use tollgate_store::{StoreFault, StoreNode, StoreStart};
use tollgate_system::clock::Clock;
use tollgate_system::per_thread::lock;
use tollgate_telemetry::metrics::{Counter, Metrics, PartitionLevels, StoreMetrics};

/// The breakers of all nodes of a store.
#[derive(Debug, Default)]
pub(crate) struct Breakers {
    tripped_count: AtomicUsize,
    /// Whether a probe of a server has succeeded.
    has_succeeded: AtomicBool,
    /// Whether a node could not be used.
    has_failed: AtomicBool,
}

/// One server.
pub(crate) struct Node {
    /// Its address, for messages. In a cluster it changes with the assigned node.
    address: ArcSwap<String>,
    /// Its place in a cluster; none for a single server.
    pub(crate) member: Option<ClusterMember>,
    /// The prefix of every key.
    pub(crate) prefix: Arc<str>,
    /// How long an answer may take.
    pub(crate) deadline_us: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: StoreMetrics,
    pub(crate) shed_deadline: Counter,
    pub(crate) shed_caller_gone: Counter,
    pub(crate) given_back: Counter,
    pub(crate) levels: Arc<PartitionLevels>,
    pub(crate) denials: Arc<DenialCache>,
    /// Something else than the worker's calls has failed here: it looks at the node now.
    pub(crate) doubted: Notify,
    breakers: Arc<Breakers>,
    /// Counters of checks that were not decided, by fault.
    undecided: HashMap<StoreFault, Counter>,
    /// The number of the fault that opened the breaker; 0 while it is closed.
    fault: AtomicU8,
    /// The error text of that fault, word for word.
    error_text: ArcSwap<String>,
    /// Written at the end of each call, and for batches that waited too long. Pages for people
    /// read it.
    share: Mutex<DecidedShare>,
    /// The connection, where the node is not in a cluster.
    own_link: watch::Sender<Link>,
}

// === impl Node ===

impl Node {
    #[allow(clippy::too_many_arguments)] // one of each
    pub(crate) fn new(
        address: String,
        member: Option<ClusterMember>,
        prefix: Arc<str>,
        deadline_us: u64,
        clock: Arc<dyn Clock>,
        metrics: &Metrics,
        levels: Arc<PartitionLevels>,
        denials: Arc<DenialCache>,
        breakers: Arc<Breakers>,
    ) -> Self {
        // An unassigned node slot is not a fault.
        let is_unassigned = member.as_ref().is_some_and(|member| member.node_slot > 0);
        let undecided = |fault: StoreFault| (fault, metrics.store.undecided(fault.name()));
        let node = Self {
            address: ArcSwap::from_pointee(address),
            member,
            prefix,
            deadline_us,
            clock,
            metrics: metrics.store.clone(),
            shed_deadline: metrics.buckets.shed_deadline.clone(),
            shed_caller_gone: metrics.buckets.shed_caller_gone.clone(),
            given_back: metrics.buckets.given_back.clone(),
            levels,
            denials,
            doubted: Notify::new(),
            breakers,
            undecided: StoreFault::ALL.into_iter().map(undecided).collect(),
            fault: AtomicU8::new(0),
            error_text: ArcSwap::default(),
            share: Mutex::default(),
            own_link: watch::Sender::new(Link::Connecting),
        };
        if !is_unassigned {
            node.trip(StoreFault::NotConnected);
        }
        node
    }

    /// The address, for messages.
    pub(crate) fn address(&self) -> Arc<String> {
        self.address.load_full()
    }

    /// Another node was assigned.
    pub(crate) fn rename(&self, address: String) {
        self.address.store(Arc::new(address));
        *lock(&self.share) = DecidedShare::default();
    }

    /// Gives others the connection to this node: redirected calls, and exchanges of rate leases.
    pub(crate) fn publish(&self, link: Link) {
        match &self.member {
            Some(ClusterMember { cluster, node_slot }) => cluster.publish(*node_slot, link),
            None => drop(self.own_link.send_replace(link)),
        }
    }

    /// The connection that was published; none where no node is ever assigned.
    pub(crate) fn link(&self) -> Option<watch::Receiver<Link>> {
        match &self.member {
            Some(ClusterMember { cluster, node_slot }) => cluster.link(*node_slot),
            None => Some(self.own_link.subscribe()),
        }
    }

    /// Asks for a new topology soon.
    pub(crate) fn refresh(&self) {
        if let Some(member) = &self.member {
            member.cluster.refresh();
        }
    }

    /// Why the breaker is open; none when it is closed.
    pub(crate) fn fault(&self) -> Option<StoreFault> {
        StoreFault::of_number(self.fault.load(Ordering::Acquire))
    }

    /// Closes the breaker: calls go through from now on. Returns whether it was open.
    pub(crate) fn readmit(&self) -> bool {
        let was_tripped = self.fault.swap(0, Ordering::AcqRel) != 0;
        if was_tripped && self.breakers.tripped_count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.metrics.up.set(1);
        }
        was_tripped
    }

    /// Records that a probe succeeded.
    pub(crate) fn note_success(&self) {
        self.breakers.has_succeeded.store(true, Ordering::Release);
    }

    /// Opens the breaker: no calls from now on. Returns whether it was closed.
    pub(crate) fn trip(&self, why: StoreFault) -> bool {
        let was_closed = self.fault.swap(why.number(), Ordering::AcqRel) == 0;
        if was_closed {
            self.breakers.tripped_count.fetch_add(1, Ordering::AcqRel);
            self.metrics.up.set(0);
        }
        was_closed
    }

    /// Counts checks that were not decided.
    pub(crate) fn count_undecided(&self, fault: StoreFault, checks: usize) {
        if let Some(counter) = self.undecided.get(&fault) {
            counter.inc_by(checks as u64);
        }
    }

    /// Counts refunds that are lost.
    pub(crate) fn lose_refunds(&self, checks: usize) {
        self.metrics.give_backs_lost.inc_by(checks as u64);
    }

    /// Keeps the last error text.
    pub(crate) fn remember_error(&self, text: String) {
        self.error_text.store(Arc::new(text));
        self.breakers.has_failed.store(true, Ordering::Release);
    }

    /// Counts checks that were sent, or waited for too long, and why some were not decided.
    pub(crate) fn count_share(&self, checks: usize, undecided: Option<(usize, StoreFault)>) {
        let now_us = self.clock.uptime_us();
        lock(&self.share).add(checks, undecided, now_us);
    }

    /// What was not decided of late, if it is too much.
    fn poor_share(&self) -> Option<Undecided> {
        let share = *lock(&self.share);
        share.poor(self.clock.uptime_us())
    }

    /// Whether it decides.
    pub(crate) fn is_healthy(&self) -> bool {
        self.fault().is_none() && self.poor_share().is_none()
    }

    /// The state, for people.
    pub(crate) fn state_text(&self) -> String {
        let address = self.address();
        match (self.fault(), self.poor_share()) {
            (Some(_), _) if self.error_text.load().is_empty() => format!("{address}: connecting"),
            (Some(fault), _) => format!("{address}: {fault} ({})", self.error_text.load()),
            (None, None) => format!("{address} answers"),
            (None, Some(Undecided { checks, of, fault })) => {
                format!("{address} did not decide {checks} of the last {of} checks: {fault}")
            }
        }
    }

    /// Its address, health and queue.
    pub(crate) fn inspect(&self) -> StoreNode {
        StoreNode {
            address: self.address().to_string(),
            healthy: self.is_healthy(),
            queue_checks: self.levels.waiting.load(Ordering::Relaxed),
        }
    }
}

// === impl Breakers ===

impl Breakers {
    /// Whether all are closed.
    pub(crate) fn are_closed(&self) -> bool {
        self.tripped_count.load(Ordering::Acquire) == 0
    }

    /// Whether the store has been in use. One server that decides is enough, once others have
    /// failed: until then they are being reached.
    pub(crate) fn start(&self) -> StoreStart {
        let has_succeeded = self.has_succeeded.load(Ordering::Acquire);
        match self.has_failed.load(Ordering::Acquire) {
            has_failed if has_succeeded && (has_failed || self.are_closed()) => StoreStart::Used,
            true => StoreStart::Failed,
            false => StoreStart::Connecting,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use tollgate_system::clock::ManualClock;

    /// A node at which nothing listens.
    pub(crate) fn node(
        member: Option<ClusterMember>,
        clock: Arc<ManualClock>,
        breakers: &Arc<Breakers>,
    ) -> Arc<Node> {
        let metrics = Metrics::new().unwrap();
        let denials = DenialCache::new(0, metrics.store.cache_full.clone());
        Arc::new(Node::new(
            "cache:6379".to_owned(),
            member,
            "".into(),
            20_000,
            clock,
            &metrics,
            Arc::default(),
            Arc::new(denials),
            Arc::clone(breakers),
        ))
    }

    fn nodes(members: &[Option<ClusterMember>]) -> (Arc<Breakers>, Vec<Arc<Node>>) {
        let breakers = Arc::<Breakers>::default();
        let members = members.iter().cloned();
        let nodes = members.map(|member| node(member, Arc::default(), &breakers));
        (Arc::clone(&breakers), nodes.collect())
    }

    fn succeeds(node: &Node) {
        node.note_success();
        node.readmit();
    }

    fn fails(node: &Node) {
        node.trip(StoreFault::NotConnected);
        node.remember_error("refused".to_owned());
    }

    #[test]
    fn a_store_whose_second_server_is_down_is_in_use() {
        let (breakers, nodes) = nodes(&[None, None]);
        assert_eq!(breakers.start(), StoreStart::Connecting);
        succeeds(&nodes[0]);
        assert_eq!(breakers.start(), StoreStart::Connecting);
        fails(&nodes[1]);
        assert_eq!(breakers.start(), StoreStart::Used);
        fails(&nodes[0]);
        assert_eq!(breakers.start(), StoreStart::Used);
    }

    /// Number 0 is that of the topology task, which is no server.
    #[test]
    fn a_cluster_with_a_dead_master_is_in_use() {
        let cluster = Arc::new(Cluster::new(""));
        let members: Vec<_> = (0..4)
            .map(|node_slot| {
                let cluster = Arc::clone(&cluster);
                Some(ClusterMember { cluster, node_slot })
            })
            .collect();
        for master_down in [false, true] {
            let (breakers, nodes) = nodes(&members);
            if master_down {
                fails(&nodes[1]);
                nodes[0].readmit();
                // A master that left the cluster while it was down.
                nodes[1].readmit();
                assert_eq!(breakers.start(), StoreStart::Failed);
                fails(&nodes[1]);
            }
            succeeds(&nodes[2]);
            succeeds(&nodes[3]);
            if !master_down {
                assert_eq!(breakers.start(), StoreStart::Connecting);
                succeeds(&nodes[1]);
                nodes[0].readmit();
            }
            assert_eq!(breakers.start(), StoreStart::Used);
        }
    }
}
