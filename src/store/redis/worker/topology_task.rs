//! The task that knows who serves what: it asks for the topology, node_slots servers, and answers for slots that nobody serves.
//!
//! How: servers that are spoken to are asked first, one after the other, then all that are known, then those that the operator
//! named, each for a quarter of a second at most; the first that knows a master for every slot of ours is believed. When: soon
//! after a server has sent somebody elsewhere or has failed, again and again while something is amiss, and every ten seconds
//! besides.
//!
//! What it deliberately does not do: speak of buckets, ask a server twice in a moment, end while anybody may still ask.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use crate::store::StoreFault;
use crate::store::queue::{Batch, Message};
use crate::store::redis::call::CallBatch;
use crate::store::redis::cluster::{Cluster, Link, Topology};
use crate::store::redis::connect::{CONNECT_WITHIN, Connector};
use crate::store::redis::error_class::value;
use crate::store::redis::node::Node;
use crate::store::redis::target::Address;
use crate::store::refund_queue::{self, RefundQueue};
use tollgate_limiter::Check;

/// How often the topology is read when all is well, in microseconds.
const READ_EVERY_US: u64 = 10_000_000;

/// How soon again at the earliest.
const READ_AGAIN_US: u64 = 50_000;

/// The pauses while something is amiss: the first, and the longest.
const FAULT_PAUSE_US: (u64, u64) = (100_000, 1_000_000);

/// How often to look, once all is served, whether all are reached.
const LINK_POLL_US: u64 = 5_000;

/// For how long those who are reached are waited for.
const LINK_WAIT_MAX_US: u64 = 2_000_000;

/// The task, ready to run.
pub(crate) struct TopologyTask {
    cluster: Arc<Cluster>,
    /// Of what nobody serves.
    node: Arc<Node>,
    connector: Arc<Connector>,
    queue: mpsc::UnboundedReceiver<Message>,
    reading: JoinSet<Result<Topology, String>>,
    read_at_us: u64,
    /// When it was read last.
    was_read_us: u64,
    pause_us: u64,
    /// Who is asked first, the next time.
    turn: usize,
    /// Until when servers that were seated first are waited for; none when nothing is waited for.
    links_awaited_until_us: Option<u64>,
    /// To slots that nobody serves.
    refunds: RefundQueue,
    reported_nodes: i64,
    /// What the log was told last.
    told: Option<String>,
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
            told: None,
            swept_at_us: 0,
        }
    }

    /// Knows who serves what until nobody can ask any more.
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

    /// Once all is served: whoever was seated is reached, or not, before all is called good.
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
            tracing::info!(store = %self.node.place(), "the cluster's servers are known");
        }
    }

    /// The ways to all who have a node_slot.
    fn links(&self) -> impl Iterator<Item = Link> {
        let seated = self.cluster.assigned().into_iter();
        seated.filter_map(|(node_slot, _)| Some(self.cluster.link(node_slot)?.borrow().clone()))
    }

    fn read(&mut self, now_us: u64) {
        self.was_read_us = now_us;
        self.node.metrics.topology_reads.inc();
        let seated = self.cluster.assigned();
        let mut asked: Vec<(Address, Option<MultiplexedConnection>)> = Vec::new();
        let mut far = Vec::new();
        for (node_slot, address) in seated {
            let link = self
                .cluster
                .link(node_slot)
                .map(|link| link.borrow().clone());
            match link {
                Some(Link::Up(connection)) => asked.push((address, Some(connection))),
                _ => far.push((address, None)),
            }
        }
        // Not always the same one first: one that is cut off from the others does not know that it is.
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

    fn was_read(&mut self, read: Result<Result<Topology, String>, JoinError>) {
        let now_us = self.node.clock.uptime_us();
        let read = read.unwrap_or_else(|error| Err(format!("a defect in tollgate: {error}")));
        match read {
            Err(words) => self.read_failed(StoreFault::NotConnected, words),
            Ok(topology) => {
                let (unserved, count) = self.cluster.adopt(&topology, now_us);
                self.report_nodes();
                if let Some(slot) = unserved {
                    let others = count.saturating_sub(1);
                    let words = format!("slot {slot} and {others} more of ours have no server");
                    self.read_failed(StoreFault::ClusterDown, words);
                } else {
                    self.told = None;
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

    /// What nobody serves is not asked for, and why.
    fn read_failed(&mut self, fault: StoreFault, words: String) {
        // Those who are seated go on as they were: only a topology says who is not served.
        let known = self.node.fault().is_none();
        if fault == StoreFault::NotConnected && known {
            tracing::warn!(store = %self.node.place(), words, "nobody says who serves what");
            return;
        }
        self.links_awaited_until_us = None;
        if self.node.close(fault) {
            self.node.metrics.breaker_opened.inc();
        }
        if self.told.as_ref() != Some(&words) {
            tracing::warn!(
                store = %self.node.place(),
                words,
                "a part of the store is not asked, --on-store-failure applies: {fault}"
            );
            self.told = Some(words.clone());
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
                Message::Refund(checks) => {
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

    /// Sends on what is to go back, where somebody serves it by now.
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
    /// Whoever ends the task, nobody is left waiting for it.
    fn drop(&mut self) {
        self.queue.close();
        self.lose(self.refunds.checks());
        while let Ok(message) = self.queue.try_recv() {
            match message {
                Message::Decide(batch) => self.refuse(batch),
                Message::Refund(checks) => self.lose(checks.len()),
            }
        }
    }
}

/// What the first says that knows a master for every slot of ours; else what the last said that knows some.
async fn read(
    connector: Arc<Connector>,
    cluster: Arc<Cluster>,
    asked: Vec<(Address, Option<MultiplexedConnection>)>,
) -> Result<Topology, String> {
    let mut some = None;
    let mut words = "the cluster names no server".to_owned();
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
            Ok(Err(error)) => words = format!("{address}: {error}"),
            Err(_) => words = format!("{address} does not answer"),
        }
    }
    some.ok_or(words)
}

/// What one server says.
async fn ask(
    connector: &Connector,
    address: &Address,
    connection: Option<MultiplexedConnection>,
) -> Result<Topology, String> {
    let mut connection = if let Some(connection) = connection {
        connection
    } else {
        let opened = connector.connect(Some(address)).await;
        opened.map_err(|error| error.to_string())?.connection
    };
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let reply = value(connection.send_packed_command(&command).await);
    let reply = reply.map_err(|error| error.to_string())?;
    Topology::read(&reply, address).ok_or_else(|| format!("it said {reply:?} of its slots"))
}
