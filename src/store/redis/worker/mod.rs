//! The task that speaks to one server.
//!
//! How: what comes in waits in a line; as long as fewer than a few calls are under way, all that waits goes into the next one,
//! up to a bound. So a lone check goes at once and a flood goes in large calls, and nobody waits for a timer. A batch whose
//! time is over before its turn has come is told so, and was not asked.
//!
//! When the server fails the breaker opens: those who ask are refused by [`Node`], what waits is told why, and the worker
//! probes until the server decides again. A connection that was merely lost is made anew while what waits goes on waiting, as
//! long as its time allows.
//!
//! What goes back has no deadline and is kept while the server is away or in no state to take it, up to a bound and for a while;
//! then it is counted as lost. What may have been carried out is not sent again: giving back twice would let too many pass.
//!
//! In a cluster a worker speaks to whoever sits in its node_slot, and sleeps while nobody does. A server that is to leave is spoken
//! to until what was under way has come; then what is to go back is sent to whoever serves it by now.
//!
//! What it deliberately does not do: end while anybody may still ask, whatever the server does.

mod assignment;
mod calls;
mod health;
mod probe;
pub(super) mod topology_task;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use self::probe::{LiveConnection, ProbeError};
use super::breaker::Breaker;
use super::call::{CallBatch, CallReport};
use super::cluster::Link;
use super::connect::Connector;
use super::node::Node;
use super::target::Address;
use crate::store::queue::Message;
use crate::store::refund_queue::{self, RefundQueue};
use crate::store::{StoreError, StoreFault};

/// How many calls may be under way.
const CALLS_MAX: usize = 4;

/// How many messages are taken in at a time.
const MESSAGES_MAX: usize = 256;

/// How soon what was not taken back is tried again.
const GIVE_BACK_AGAIN_US: u64 = 100_000;

/// For how long a server that is to leave is spoken to: what was on its way to the queue has come by then.
const DRAIN_US: u64 = 1_000_000;

/// How long a worker sleeps whom nobody asks and who has nobody to speak to.
const IDLE_SLEEP_US: u64 = 3_600_000_000;

/// How often the cache of refused keys is swept.
const SWEEP_EVERY_US: u64 = 1_000_000;

/// One server's worker, ready to run.
pub(super) struct NodeWorker {
    node: Arc<Node>,
    queue: mpsc::UnboundedReceiver<Message>,
    connector: Arc<Connector>,
    /// By what name this replica counts.
    replica: Arc<str>,
    /// Whether it is the one whose count of replicas is believed.
    counts_replicas: bool,
    breaker: Breaker,
    /// What the log was told last.
    told: Option<StoreFault>,
    /// How many checks the metrics were told wait.
    reported_waiting: i64,
    /// None while there is no connection, or one is being report at.
    connected: Option<LiveConnection>,
    /// Which connection it is, counted from 1.
    connection: u64,
    waiting: VecDeque<CallBatch>,
    refunds: RefundQueue,
    calls: JoinSet<CallReport>,
    /// A probe, or a sign of life: at most one.
    probing: JoinSet<ProbeReport>,
    heartbeat_at_us: u64,
    sweep_at_us: u64,
    node_slot: Option<NodeAssignment>,
}

/// Where a cluster's servers come and go.
struct NodeAssignment {
    told: watch::Receiver<Option<Address>>,
    /// Who sits there.
    address: Option<Address>,
    /// When whoever sits there is no longer spoken to.
    drained_at_us: Option<u64>,
}

/// What came of looking at the server.
struct ProbeReport {
    /// On which connection, or after which one.
    connection: u64,
    /// Whether it is of an open breaker.
    probe: bool,
    result: Result<LiveConnection, ProbeError>,
}

// === impl NodeWorker ===

impl NodeWorker {
    pub(super) fn new(
        node: Arc<Node>,
        queue: mpsc::UnboundedReceiver<Message>,
        connector: Arc<Connector>,
        replica: Arc<str>,
        counts_replicas: bool,
    ) -> Self {
        let node_slot = node.member.as_ref().and_then(|member| {
            Some(NodeAssignment {
                told: member.cluster.assignment(member.node_slot)?,
                address: None,
                drained_at_us: None,
            })
        });
        Self {
            node,
            queue,
            connector,
            replica,
            counts_replicas,
            breaker: Breaker::new(),
            told: None,
            reported_waiting: 0,
            connected: None,
            connection: 0,
            waiting: VecDeque::new(),
            refunds: RefundQueue::default(),
            calls: JoinSet::new(),
            probing: JoinSet::new(),
            heartbeat_at_us: 0,
            sweep_at_us: 0,
            node_slot,
        }
    }

    /// Speaks to the server until nobody can ask any more.
    pub(super) async fn run(mut self) {
        let mut messages = Vec::new();
        loop {
            self.start_due_probe();
            self.send();
            self.report_waiting();
            let sleeping = tokio::time::sleep(self.until_next());
            tokio::select! {
                biased;
                Some(ended) = self.calls.join_next() => self.call_ended(ended),
                Some(report) = self.probing.join_next() => self.probe_ended(report),
                received = self.queue.recv_many(&mut messages, MESSAGES_MAX) => {
                    if received == 0 {
                        break;
                    }
                    self.take_in(&mut messages);
                }
                () = told(&mut self.node_slot) => self.assignment_changed(),
                () = sleeping => {}
            }
            self.expire();
            self.leave();
        }
        self.finish().await;
    }

    /// The last things: what is under way and what goes back, as long as an answer may take.
    async fn finish(mut self) {
        let within = Duration::from_micros(self.node.deadline_us.saturating_mul(2));
        let ending = async {
            self.send();
            while let Some(ended) = self.calls.join_next().await {
                self.call_ended(ended);
                self.send();
            }
        };
        // What is not done by then is counted where it lies.
        let _ = tokio::time::timeout(within, ending).await;
    }

    fn now_us(&self) -> u64 {
        self.node.clock.uptime_us()
    }

    /// So many takes will not go back.
    fn lost(&self, checks: usize) {
        self.node.metrics.give_backs_lost.inc_by(checks as u64);
    }

    fn disconnect(&mut self) {
        self.connected = None;
        self.connection = self.connection.saturating_add(1);
        self.node.publish(Link::Connecting);
    }

    fn take_in(&mut self, messages: &mut Vec<Message>) {
        let now_us = self.now_us();
        for message in messages.drain(..) {
            match message {
                Message::Decide(batch) => {
                    let part = CallBatch {
                        batch,
                        due_us: now_us.saturating_add(self.node.deadline_us),
                        gives_back_until_us: None,
                    };
                    // Whoever sent it may not have seen the breaker open.
                    match self.node.fault() {
                        None if self.is_vacant() => {
                            self.node.undecided(part, StoreFault::ClusterDown);
                        }
                        None => self.waiting.push_back(part),
                        Some(fault) => self.node.undecided(part, fault.while_breaker_open()),
                    }
                }
                Message::Refund(checks) => {
                    for check in &checks {
                        self.node.refused.forget(check.key);
                    }
                    if self.is_vacant() {
                        self.give_back_elsewhere(checks);
                    } else {
                        let until_us = now_us.saturating_add(refund_queue::RETRY_FOR_US);
                        let lost = self.refunds.add(checks, until_us);
                        self.lost(lost);
                    }
                }
            }
        }
    }

    /// Tells those whose time is over.
    fn expire(&mut self) {
        let now_us = self.now_us();
        while self
            .waiting
            .front()
            .is_some_and(|part| part.due_us <= now_us)
            && let Some(part) = self.waiting.pop_front()
        {
            self.node.undecided(part, StoreFault::QueueTimeout);
        }
        let lost = self.refunds.pass(now_us);
        self.lost(lost);
        // Of a cluster's nodes one is always awake, and that is another.
        if self.node_slot.is_none() && self.sweep_at_us <= now_us {
            self.sweep_at_us = now_us.saturating_add(SWEEP_EVERY_US);
            self.node.refused.sweep(now_us);
        }
    }

    fn address(&self) -> Option<Address> {
        self.node_slot.as_ref()?.address.clone()
    }

    /// How long nothing is due.
    fn until_next(&self) -> Duration {
        if self.is_vacant() {
            return Duration::from_micros(IDLE_SLEEP_US);
        }
        let probe_at_us = self.breaker.probe_at_us();
        let mut next_us = self.sweep_at_us.max(1);
        if let Some(node_slot) = &self.node_slot {
            next_us = node_slot.drained_at_us.unwrap_or(u64::MAX);
        }
        next_us = next_us.min(self.refunds.next_us().unwrap_or(u64::MAX));
        if self.probing.is_empty() {
            next_us = next_us.min(probe_at_us.unwrap_or(self.heartbeat_at_us));
        }
        if let Some(part) = self.waiting.front() {
            next_us = next_us.min(part.due_us);
        }
        Duration::from_micros(next_us.saturating_sub(self.now_us()))
    }

    /// Tells the metrics how long the line is.
    fn report_waiting(&mut self) {
        let waiting = self.node.levels.waiting.load(Ordering::Relaxed);
        let waiting = i64::try_from(waiting).unwrap_or(i64::MAX);
        // Another server's worker adds its own.
        let more = waiting.saturating_sub(self.reported_waiting);
        self.reported_waiting = waiting;
        self.node.metrics.waiting_checks.add(more);
    }
}

impl Drop for NodeWorker {
    /// Whoever ends the worker, nobody is left waiting for it, and nothing is lost unseen.
    fn drop(&mut self) {
        self.queue.close();
        let mut lost = self.refunds.checks();
        while let Ok(message) = self.queue.try_recv() {
            match message {
                Message::Decide(batch) => self.waiting.push_back(CallBatch {
                    batch,
                    due_us: 0,
                    gives_back_until_us: None,
                }),
                Message::Refund(checks) => lost = lost.saturating_add(checks.len()),
            }
        }
        self.lost(lost);
        while let Some(mut part) = self.waiting.pop_front() {
            part.batch.answer_all(&StoreError::Stopped);
            self.node.send_back(part);
        }
    }
}

/// Ends when a node_slot's server is told to come or to go.
async fn told(node_slot: &mut Option<NodeAssignment>) {
    if let Some(node_slot) = node_slot
        && node_slot.told.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
