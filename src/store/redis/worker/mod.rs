//! The task that owns the queue of one server.
//!
//! Batches wait in order. While fewer than [`CALLS_MAX`] calls are in flight, everything that waits
//! goes into the next call, up to a bound. So a single check is sent at once, a flood is sent in
//! large calls, and there is no timer. A batch whose deadline passes while it waits is answered so,
//! and was not sent.
//!
//! When the server fails the breaker opens: [`Node`] fails new callers, what waits is answered with
//! the fault, and the worker probes until the server decides again. A connection that was only lost
//! is made again while batches wait, as long as their deadlines allow.
//!
//! Refunds have no deadline. They are kept while the server is away or cannot take them, up to a
//! bound and for a minute, and are then counted as lost. A refund that may have been carried out is
//! not sent again: refunding twice would let too many hits pass.
//!
//! In a cluster the worker serves the node that is assigned to its node slot and sleeps while there
//! is none (`assignment`).
//!
//! The worker ends when no caller is left, whatever the server does.

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

/// How many calls may be in flight.
const CALLS_MAX: usize = 4;

/// How many messages are read at a time.
const MESSAGES_MAX: usize = 256;

/// How soon a failed refund is retried.
const GIVE_BACK_AGAIN_US: u64 = 100_000;

/// How long an unassigned node is still served: by then everything on its way to the queue has
/// arrived.
const DRAIN_US: u64 = 1_000_000;

/// How long a worker without a node sleeps.
const IDLE_SLEEP_US: u64 = 3_600_000_000;

/// How often expired denials are removed.
const SWEEP_EVERY_US: u64 = 1_000_000;

/// For how long a failure that was logged is not logged again.
const QUIET_US: u64 = 10_000_000;

/// The worker of one server.
pub(super) struct NodeWorker {
    node: Arc<Node>,
    queue: mpsc::UnboundedReceiver<Message>,
    connector: Arc<Connector>,
    /// This replica's name among the registered replicas.
    replica: Arc<str>,
    /// Whether its count of replicas is the one that is published.
    counts_replicas: bool,
    breaker: Breaker,
    /// The fault that was logged, and its end was not.
    logged: Option<StoreFault>,
    /// The fault that was logged last, and until when it is not logged again.
    quiet: Option<(StoreFault, u64)>,
    /// Failed calls since the last line about one, and until when there is no other line.
    failed_calls: u64,
    failed_calls_quiet_until_us: u64,
    /// The number of waiting checks that the metrics were last given.
    reported_waiting: i64,
    /// None while there is no connection, or while it is being probed.
    connected: Option<LiveConnection>,
    /// The number of the connection, from 1.
    connection: u64,
    waiting: VecDeque<CallBatch>,
    refunds: RefundQueue,
    calls: JoinSet<CallReport>,
    /// The probe or heartbeat in flight: at most one.
    probing: JoinSet<ProbeReport>,
    heartbeat_at_us: u64,
    sweep_at_us: u64,
    node_slot: Option<NodeAssignment>,
}

/// The node that is assigned to a cluster's node slot.
struct NodeAssignment {
    changes: watch::Receiver<Option<Address>>,
    /// The node that is served.
    address: Option<Address>,
    /// When an unassigned node is no longer served.
    drained_at_us: Option<u64>,
}

/// The result of a probe or a heartbeat.
struct ProbeReport {
    /// The number of the connection, or of the one before it.
    connection: u64,
    /// Whether it probed an open breaker.
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
                changes: member.cluster.assignment(member.node_slot)?,
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
            logged: None,
            quiet: None,
            failed_calls: 0,
            failed_calls_quiet_until_us: 0,
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

    /// Serves the queue until no caller is left.
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
                () = assignment_change(&mut self.node_slot) => self.assignment_changed(),
                // The next heartbeat shows whether the connection is good.
                () = self.node.doubted() => self.heartbeat_at_us = 0,
                () = sleeping => {}
            }
            self.expire();
            self.leave();
        }
        self.finish().await;
    }

    /// Waits for calls in flight and sends the last refunds, as long as an answer may take.
    async fn finish(mut self) {
        let within = Duration::from_micros(self.node.deadline_us.saturating_mul(2));
        let ending = async {
            self.send();
            while let Some(ended) = self.calls.join_next().await {
                self.call_ended(ended);
                self.send();
            }
        };
        // The rest is counted when the worker is dropped.
        let _ = tokio::time::timeout(within, ending).await;
    }

    fn now_us(&self) -> u64 {
        self.node.clock.uptime_us()
    }

    /// Counts refunds that are lost.
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
                    // The sender may not have seen that the breaker is open.
                    match self.node.fault() {
                        None if self.is_vacant() => {
                            self.node.undecided(part, StoreFault::ClusterDown);
                        }
                        None => self.waiting.push_back(part),
                        Some(fault) => self.node.undecided(part, fault.while_breaker_open()),
                    }
                }
                Message::Refund(checks, _) => {
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

    /// Answers the batches whose deadline has passed.
    fn expire(&mut self) {
        let now_us = self.now_us();
        while self
            .waiting
            .front()
            .is_some_and(|part| part.due_us <= now_us)
            && let Some(part) = self.waiting.pop_front()
        {
            let checks = part.batch.checks.len();
            let undecided = (checks, StoreFault::QueueTimeout);
            self.node.count_share(checks, Some(undecided));
            self.node.undecided(part, StoreFault::QueueTimeout);
        }
        let lost = self.refunds.pass(now_us);
        self.lost(lost);
        // In a cluster the topology task does this: it never sleeps.
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

    /// Updates the gauge of waiting checks.
    fn report_waiting(&mut self) {
        let waiting = self.node.levels.waiting.load(Ordering::Relaxed);
        let waiting = i64::try_from(waiting).unwrap_or(i64::MAX);
        // The workers of other servers add their own.
        let more = waiting.saturating_sub(self.reported_waiting);
        self.reported_waiting = waiting;
        self.node.metrics.waiting_checks.add(more);
    }
}

impl Drop for NodeWorker {
    /// Answers every caller, counts every refund and lets go of the connection, however the worker
    /// ends.
    fn drop(&mut self) {
        self.node.publish(Link::Down(StoreFault::NotConnected));
        self.queue.close();
        let mut lost = self.refunds.checks();
        while let Ok(message) = self.queue.try_recv() {
            match message {
                Message::Decide(batch) => self.waiting.push_back(CallBatch {
                    batch,
                    due_us: 0,
                    gives_back_until_us: None,
                }),
                Message::Refund(checks, _) => lost = lost.saturating_add(checks.len()),
            }
        }
        self.lost(lost);
        while let Some(mut part) = self.waiting.pop_front() {
            part.batch.answer_all(&StoreError::Stopped);
            self.node.send_back(part);
        }
    }
}

/// Ends when the assignment of the node slot changes.
async fn assignment_change(node_slot: &mut Option<NodeAssignment>) {
    if let Some(node_slot) = node_slot
        && node_slot.changes.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
