//! The topology task of a cluster: reads which node serves which slots, assigns nodes to node
//! slots, and answers checks for slots that no node serves.
//!
//! It asks connected nodes first, starting with another one each time, then the other known nodes,
//! then the seeds, each for a quarter of a second at most. The first answer with a master for every
//! slot in use is taken. It reads soon after a redirect or a fault, again while something is wrong,
//! and every ten seconds in any case.
//!
//! It ends when no caller is left.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use super::SWEEP_EVERY_US;
use crate::cluster::{Cluster, Link, Topology};
use crate::connect::{CONNECT_WITHIN, Connector};
use crate::connection::Connection;
use crate::error_class::ServerError;
use crate::node::Node;
use crate::target::Address;
use tollgate_limiter::Check;
use tollgate_store::StoreFault;
use tollgate_store::queue::{Batch, Message};
use tollgate_store::refund_queue::{RETRY_FOR_US, RefundQueue};

/// The target of log lines.
const LOG: &str = "tollgate::store::redis::worker::topology_task";

/// How often the topology is read while all is well, in microseconds.
const READ_EVERY_US: u64 = 10_000_000;

/// The shortest time between two reads.
const READ_AGAIN_US: u64 = 50_000;

/// The first and the longest pause between reads while something is wrong.
const FAULT_PAUSE_US: (u64, u64) = (100_000, 1_000_000);

/// How often to check, once every slot has a node, whether all nodes are connected.
const LINK_POLL_US: u64 = 5_000;

/// How long connections to new nodes are awaited.
const LINK_WAIT_MAX_US: u64 = 2_000_000;

/// The topology task.
pub(crate) struct TopologyTask {
    cluster: Arc<Cluster>,
    /// Node number 0, the placeholder for slots that no node serves.
    node: Arc<Node>,
    connector: Arc<Connector>,
    queue: mpsc::UnboundedReceiver<Message>,
    reading: JoinSet<Result<Topology, ServerError>>,
    read_at_us: u64,
    /// When the last read began.
    was_read_us: u64,
    pause_us: u64,
    /// Counts reads, to start each with another node.
    turn: usize,
    /// Until when connections to the first nodes are awaited; none when they are not.
    links_awaited_until_us: Option<u64>,
    /// Refunds for slots that no node serves.
    refunds: RefundQueue,
    reported_nodes: i64,
    /// What was logged last.
    logged: Option<String>,
    /// A failure was logged, and its end was not.
    is_failure_logged: bool,
    /// It was logged that no node reported the topology.
    is_unread_logged: bool,
    swept_at_us: u64,
}

// === impl TopologyTask ===

impl TopologyTask {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        node: Arc<Node>,
        connector: Arc<Connector>,
        queue: mpsc::UnboundedReceiver<Message>,
    ) -> Self {
        Self {
            cluster,
            node,
            connector,
            queue,
            reading: JoinSet::new(),
            read_at_us: 0,
            was_read_us: 0,
            pause_us: FAULT_PAUSE_US.0,
            turn: 0,
            links_awaited_until_us: None,
            refunds: RefundQueue::default(),
            reported_nodes: 0,
            logged: None,
            is_failure_logged: false,
            is_unread_logged: false,
            swept_at_us: 0,
        }
    }

    /// Keeps the topology up to date until no caller is left.
    pub(crate) async fn run(mut self) {
        let mut messages = Vec::new();
        loop {
            let now_us = self.node.clock.uptime_us();
            if self.read_at_us <= now_us && self.reading.is_empty() {
                self.read(now_us);
            }
            self.look(now_us);
            self.expire(now_us);
            let sleeping = tokio::time::sleep(self.until_next(now_us));
            tokio::select! {
                biased;
                Some(read) = self.reading.join_next() => self.was_read(read),
                received = self.queue.recv_many(&mut messages, 256) => {
                    if received == 0 {
                        break;
                    }
                    self.take_in(&mut messages);
                }
                () = self.cluster.wanted.notified() => {
                    let soonest_us = self.was_read_us.saturating_add(READ_AGAIN_US);
                    self.read_at_us = self.read_at_us.min(soonest_us);
                    self.pause_us = FAULT_PAUSE_US.0;
                }
                () = sleeping => {}
            }
        }
    }

    fn until_next(&self, now_us: u64) -> Duration {
        let mut next_us = self.swept_at_us.saturating_add(SWEEP_EVERY_US);
        if self.reading.is_empty() {
            next_us = next_us.min(self.read_at_us);
        }
        if self.links_awaited_until_us.is_some() {
            next_us = next_us.min(now_us.saturating_add(LINK_POLL_US));
        }
        Duration::from_micros(next_us.saturating_sub(now_us))
    }

    /// Once every slot has a node: waits until the nodes are connected, or not, before the cluster
    /// counts as reached.
    fn look(&mut self, now_us: u64) {
        let Some(until_us) = self.links_awaited_until_us else {
            return;
        };
        let waits = self.links().any(|link| matches!(link, Link::Connecting));
        if waits && now_us < until_us {
            return;
        }
        self.links_awaited_until_us = None;
        if self.node.readmit() {
            let (store, message) = (self.node.address(), "connected to the cluster");
            if std::mem::take(&mut self.is_failure_logged) {
                // At the level of the failure.
                tracing::warn!(target: LOG, %store, "{message}");
            } else {
                tracing::info!(target: LOG, %store, "{message}");
            }
        }
    }

    /// The links to all assigned nodes.
    fn links(&self) -> impl Iterator<Item = Link> {
        let assigned = self.cluster.assigned().into_iter();
        assigned.filter_map(|(node_slot, _)| Some(self.cluster.link(node_slot)?.borrow().clone()))
    }

    fn read(&mut self, now_us: u64) {
        self.was_read_us = now_us;
        self.node.metrics.topology_reads.inc();
        let assigned = self.cluster.assigned().into_iter();
        let connection_to = |node_slot| match &*self.cluster.link(node_slot)?.borrow() {
            Link::Up(connection) => Some(connection.clone()),
            Link::Connecting | Link::Down(_) => None,
        };
        let (mut asked, unconnected): (Vec<_>, Vec<_>) = assigned
            .map(|(node_slot, address)| (address, connection_to(node_slot)))
            .partition(|(_, connection)| connection.is_some());
        // Starts with another node each time: a node that is cut off from the others does not know
        // that it is.
        self.turn = self.turn.wrapping_add(1);
        let turns = self.turn.checked_rem(asked.len()).unwrap_or_default();
        asked.rotate_left(turns);
        asked.extend(unconnected);
        for seed in self.connector.seeds() {
            if asked.iter().all(|(known, _)| known != seed) {
                asked.push((seed.clone(), None));
            }
        }
        let (connector, cluster) = (Arc::clone(&self.connector), Arc::clone(&self.cluster));
        self.reading.spawn(read(connector, cluster, asked));
    }

    fn was_read(&mut self, read: Result<Result<Topology, ServerError>, JoinError>) {
        let now_us = self.node.clock.uptime_us();
        let read = read.unwrap_or_else(|error| {
            let text = format!("a defect in tollgate: {error}");
            Err(ServerError::new(StoreFault::NotConnected, text))
        });
        match read {
            Err(error) if self.node.fault().is_none() => {
                // Assigned nodes stay unchanged: only a topology tells which slots have no node.
                if !std::mem::replace(&mut self.is_unread_logged, true) {
                    let (store, error) = (self.node.address(), error.text);
                    let message = "no node reported the cluster's topology";
                    tracing::warn!(target: LOG, %store, error, "{message}");
                }
            }
            Err(error) => self.read_failed(error),
            Ok(topology) => self.adopt(&topology, now_us),
        }
        let well =
            self.node.fault().is_none() && self.links().all(|link| matches!(link, Link::Up(_)));
        let pause_us = if well {
            self.pause_us = FAULT_PAUSE_US.0;
            READ_EVERY_US
        } else {
            let pause_us = self.pause_us;
            self.pause_us = pause_us.saturating_mul(2).min(FAULT_PAUSE_US.1);
            pause_us
        };
        self.read_at_us = now_us.saturating_add(pause_us);
    }

    /// Takes over a topology, and sends refunds on whose slots have a node by now.
    fn adopt(&mut self, topology: &Topology, now_us: u64) {
        if std::mem::take(&mut self.is_unread_logged) {
            let store = self.node.address();
            tracing::warn!(target: LOG, %store, "the cluster's topology was read again");
        }
        let (unserved, count) = self.cluster.adopt(topology, now_us);
        let nodes = i64::try_from(self.cluster.nodes()).unwrap_or(i64::MAX);
        let more = nodes.saturating_sub(self.reported_nodes);
        self.reported_nodes = nodes;
        self.node.metrics.cluster_servers.add(more);
        if let Some(slot) = unserved {
            let others = count.saturating_sub(1);
            let text = format!("slot {slot} and {others} more of ours have no server");
            self.read_failed(ServerError::new(StoreFault::ClusterDown, text));
        } else {
            self.logged = None;
            if self.node.fault().is_some() && self.links_awaited_until_us.is_none() {
                self.links_awaited_until_us = Some(now_us.saturating_add(LINK_WAIT_MAX_US));
            }
        }
        let served = |refund: &Check| self.cluster.node_slot_of(refund.key) > 0;
        let refunds = self.refunds.take_where(served);
        let count = refunds.len();
        if count > 0 && !self.cluster.refund(refunds) {
            self.node.lose_refunds(count);
        }
    }

    /// Opens the breaker for slots that no node serves.
    fn read_failed(&mut self, ServerError { fault, text }: ServerError) {
        self.links_awaited_until_us = None;
        if self.node.trip(fault) {
            self.node.metrics.breaker_opened.inc();
        }
        if self.logged.as_ref() != Some(&text) {
            tracing::warn!(
                target: LOG,
                store = %self.node.address(),
                %fault,
                error = text,
                "some slots are unavailable; --on-store-failure applies to them"
            );
            self.is_failure_logged = true;
            self.logged = Some(text.clone());
        }
        self.node.remember_error(text);
    }

    fn take_in(&mut self, messages: &mut Vec<Message>) {
        let now_us = self.node.clock.uptime_us();
        for message in messages.drain(..) {
            match message {
                Message::Decide(batch) => self.refuse(batch),
                Message::Refund(refunds) => {
                    let refunds = refunds.into_iter().map(|refund| refund.check);
                    let until_us = now_us.saturating_add(RETRY_FOR_US);
                    let lost = self.refunds.add(refunds.collect(), until_us);
                    self.node.lose_refunds(lost);
                }
            }
        }
    }

    fn refuse(&self, batch: Box<Batch>) {
        let fault = self.node.fault().unwrap_or(StoreFault::ClusterDown);
        self.node.undecided(batch, fault.while_breaker_open());
    }

    fn expire(&mut self, now_us: u64) {
        let lost = self.refunds.pass(now_us);
        self.node.lose_refunds(lost);
        if self.swept_at_us.saturating_add(SWEEP_EVERY_US) <= now_us {
            self.swept_at_us = now_us;
            self.node.denials.sweep(now_us);
        }
    }
}

impl Drop for TopologyTask {
    /// Answers every caller, however the task ends.
    fn drop(&mut self) {
        self.queue.close();
        let mut lost = self.refunds.checks();
        while let Ok(message) = self.queue.try_recv() {
            match message {
                Message::Decide(batch) => self.refuse(batch),
                Message::Refund(refunds) => lost += refunds.len(),
            }
        }
        self.node.lose_refunds(lost);
    }
}

/// The first topology with a master for every slot in use; else the first with some.
async fn read(
    connector: Arc<Connector>,
    cluster: Arc<Cluster>,
    asked: Vec<(Address, Option<Connection>)>,
) -> Result<Topology, ServerError> {
    let mut some = None;
    let not_connected = |text| ServerError::new(StoreFault::NotConnected, text);
    let mut last = not_connected("the cluster reported no node".to_owned());
    for (address, connection) in asked {
        let within = CONNECT_WITHIN / 4;
        let one = ask(&connector, &address, connection);
        match tokio::time::timeout(within, one).await {
            Ok(Ok(topology)) => {
                if cluster.is_covered_by(&topology) {
                    return Ok(topology);
                }
                some.get_or_insert(topology);
            }
            Ok(Err(ServerError { fault, text })) => {
                last = ServerError::new(fault, format!("{address}: {text}"));
            }
            // The lookup goes on, and the next read has its answer.
            Err(_) if connector.is_looking_up(&address) => {
                let text = format!("{address}: the lookup of the name is in progress");
                last = ServerError::new(StoreFault::NameLookup, text);
            }
            Err(_) => last = not_connected(format!("{address} does not answer")),
        }
    }
    some.ok_or(last)
}

/// The topology as one node has it.
async fn ask(
    connector: &Connector,
    address: &Address,
    connection: Option<Connection>,
) -> Result<Topology, ServerError> {
    let mut connection = match connection {
        Some(connection) => connection,
        None => connector.connect(Some(address)).await?.connection,
    };
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let reply = connection.ask(&command).await?;
    Topology::read(&reply, address).ok_or_else(|| {
        let text = format!("it said {reply:?} of its slots");
        ServerError::new(StoreFault::UnexpectedReply, text)
    })
}
