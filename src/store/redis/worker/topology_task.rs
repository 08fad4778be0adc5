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

use super::probe::ProbeError;
use crate::store::StoreFault;
use crate::store::queue::{Batch, Message};
use crate::store::redis::call::CallBatch;
use crate::store::redis::cluster::{Cluster, Link, Topology};
use crate::store::redis::connect::{CONNECT_WITHIN, Connector};
use crate::store::redis::connection::Connection;
use crate::store::redis::error_class::value;
use crate::store::redis::node::Node;
use crate::store::redis::target::Address;
use crate::store::refund_queue::{self, RefundQueue};
use tollgate_limiter::Check;

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
    reading: JoinSet<Result<Topology, ProbeError>>,
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
                () = self.cluster.wanted() => {
                    let soonest_us = self.was_read_us.saturating_add(READ_AGAIN_US);
                    self.read_at_us = self.read_at_us.min(soonest_us);
                    self.pause_us = FAULT_PAUSE_US.0;
                }
                () = sleeping => {}
            }
        }
    }

    fn until_next(&self, now_us: u64) -> Duration {
        let mut next_us = self.swept_at_us.saturating_add(1_000_000);
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
        if self.node.open() {
            let (store, message) = (self.node.place(), "connected to the cluster");
            if std::mem::take(&mut self.is_failure_logged) {
                // At the level of the failure.
                tracing::warn!(%store, "{message}");
            } else {
                tracing::info!(%store, "{message}");
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
        let assigned = self.cluster.assigned();
        let mut asked: Vec<(Address, Option<Connection>)> = Vec::new();
        let mut far = Vec::new();
        for (node_slot, address) in assigned {
            let link = self
                .cluster
                .link(node_slot)
                .map(|link| link.borrow().clone());
            match link {
                Some(Link::Up(connection)) => asked.push((address, Some(connection))),
                _ => far.push((address, None)),
            }
        }
        // Starts with another node each time: a node that is cut off from the others does not know
        // that it is.
        self.turn = self.turn.wrapping_add(1);
        let turns = self.turn.checked_rem(asked.len()).unwrap_or_default();
        asked.rotate_left(turns);
        asked.extend(far);
        for seed in self.connector.seeds() {
            if asked.iter().all(|(known, _)| known != seed) {
                asked.push((seed.clone(), None));
            }
        }
        let (connector, cluster) = (Arc::clone(&self.connector), Arc::clone(&self.cluster));
        self.reading.spawn(read(connector, cluster, asked));
    }

    fn was_read(&mut self, read: Result<Result<Topology, ProbeError>, JoinError>) {
        let now_us = self.node.clock.uptime_us();
        let read = read.unwrap_or_else(|error| {
            let words = format!("a defect in tollgate: {error}");
            Err(ProbeError::not_connected(words))
        });
        match read {
            Err(error) if self.node.fault().is_none() => self.log_unread(&error.words),
            Err(error) => self.read_failed(error.fault, error.words),
            Ok(topology) => {
                if std::mem::take(&mut self.is_unread_logged) {
                    tracing::warn!(store = %self.node.place(), "the cluster's topology was read again");
                }
                let (unserved, count) = self.cluster.adopt(&topology, now_us);
                self.report_nodes();
                if let Some(slot) = unserved {
                    let others = count.saturating_sub(1);
                    let words = format!("slot {slot} and {others} more of ours have no server");
                    self.read_failed(StoreFault::ClusterDown, words);
                } else {
                    self.logged = None;
                    if self.node.fault().is_some() && self.links_awaited_until_us.is_none() {
                        self.links_awaited_until_us = Some(now_us.saturating_add(LINK_WAIT_MAX_US));
                    }
                }
                self.send_back();
            }
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

    /// Assigned nodes stay unchanged: only a topology tells which slots have no node.
    fn log_unread(&mut self, words: &str) {
        if !std::mem::replace(&mut self.is_unread_logged, true) {
            tracing::warn!(
                store = %self.node.place(),
                error = words,
                "no node reported the cluster's topology"
            );
        }
    }

    /// Opens the breaker for slots that no node serves.
    fn read_failed(&mut self, fault: StoreFault, words: String) {
        self.links_awaited_until_us = None;
        if self.node.close(fault) {
            self.node.metrics.breaker_opened.inc();
        }
        if self.logged.as_ref() != Some(&words) {
            tracing::warn!(
                store = %self.node.place(),
                %fault,
                error = words,
                "some slots are unavailable; --on-store-failure applies to them"
            );
            self.is_failure_logged = true;
            self.logged = Some(words.clone());
        }
        self.node.remember(words);
    }

    fn report_nodes(&mut self) {
        let servers = i64::try_from(self.cluster.nodes()).unwrap_or(i64::MAX);
        let more = servers.saturating_sub(self.reported_nodes);
        self.reported_nodes = servers;
        self.node.metrics.cluster_servers.add(more);
    }

    fn take_in(&mut self, messages: &mut Vec<Message>) {
        let now_us = self.node.clock.uptime_us();
        for message in messages.drain(..) {
            match message {
                Message::Decide(batch) => self.refuse(batch),
                Message::Refund(checks, _) => {
                    let until_us = now_us.saturating_add(refund_queue::RETRY_FOR_US);
                    let lost = self.refunds.add(checks, until_us);
                    self.lose(lost);
                }
            }
        }
    }

    fn refuse(&self, batch: Box<Batch>) {
        let part = CallBatch {
            batch,
            due_us: 0,
            gives_back_until_us: None,
        };
        let fault = self.node.fault().unwrap_or(StoreFault::ClusterDown);
        self.node.undecided(part, fault.while_breaker_open());
    }

    /// Sends refunds on whose slots have a node by now.
    fn send_back(&mut self) {
        let served = |check: &Check| self.cluster.node_slot_of(check.key) > 0;
        let going = self.refunds.take_where(served);
        let count = going.len();
        if count > 0 && !self.cluster.give_back(going) {
            self.lose(count);
        }
    }

    fn expire(&mut self, now_us: u64) {
        let lost = self.refunds.pass(now_us);
        self.lose(lost);
        if self.swept_at_us.saturating_add(1_000_000) <= now_us {
            self.swept_at_us = now_us;
            self.node.refused.sweep(now_us);
        }
    }

    fn lose(&self, checks: usize) {
        self.node.metrics.give_backs_lost.inc_by(checks as u64);
    }
}

impl Drop for TopologyTask {
    /// Answers every caller, however the task ends.
    fn drop(&mut self) {
        self.queue.close();
        self.lose(self.refunds.checks());
        while let Ok(message) = self.queue.try_recv() {
            match message {
                Message::Decide(batch) => self.refuse(batch),
                Message::Refund(checks, _) => self.lose(checks.len()),
            }
        }
    }
}

/// The first topology with a master for every slot in use; else the first with some.
async fn read(
    connector: Arc<Connector>,
    cluster: Arc<Cluster>,
    asked: Vec<(Address, Option<Connection>)>,
) -> Result<Topology, ProbeError> {
    let mut some = None;
    let mut last = ProbeError::not_connected("the cluster reported no node".to_owned());
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
            Ok(Err(error)) => {
                last.fault = error.fault;
                last.words = format!("{address}: {}", error.words);
            }
            // The lookup goes on, and the next read has its answer.
            Err(_) if connector.is_looking_up(&address) => {
                last.fault = StoreFault::NameLookup;
                last.words = format!("{address}: the lookup of the name is in progress");
            }
            Err(_) => last = ProbeError::not_connected(format!("{address} does not answer")),
        }
    }
    some.ok_or(last)
}

/// The topology as one node has it.
async fn ask(
    connector: &Connector,
    address: &Address,
    connection: Option<Connection>,
) -> Result<Topology, ProbeError> {
    let mut connection = if let Some(connection) = connection {
        connection
    } else {
        connector.connect(Some(address)).await?.connection
    };
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let reply = value(connection.send_packed_command(&command).await)?;
    Topology::read(&reply, address).ok_or_else(|| ProbeError {
        fault: StoreFault::UnexpectedReply,
        words: format!("it said {reply:?} of its slots"),
    })
}
