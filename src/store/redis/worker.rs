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

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};

use super::breaker::Breaker;
use super::call::{Call, CallBatch, CallReport};
use super::cluster::Link;
use super::connect::Connector;
use super::node::Node;
use super::probe::{
    self, HEARTBEAT_EVERY_US, LiveConnection, ProbeError, SENTINEL_HEARTBEAT_EVERY_US,
};
use super::script;
use super::target::Address;
use crate::store::queue::{Batch, BatchRequest, Message};
use crate::store::refund_queue::{self, RefundQueue};
use crate::store::{Deadline, StoreError, StoreFault};
use tollgate_limiter::Check;

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

/// What checks take of a call together.
fn weigh(checks: &[Check]) -> usize {
    let weights = checks.iter().map(script::weight);
    weights.fold(0, usize::saturating_add)
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

    /// Whether there is anybody to speak to.
    fn is_vacant(&self) -> bool {
        self.node_slot
            .as_ref()
            .is_some_and(|node_slot| node_slot.address.is_none())
    }

    /// Somebody is told to sit here, or whoever does to leave.
    fn assignment_changed(&mut self) {
        let now_us = self.now_us();
        let Some(node_slot) = &mut self.node_slot else {
            return;
        };
        let told = node_slot.told.borrow_and_update().clone();
        match told {
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
                // What comes until it is reached waits as long as its time allows.
                self.breaker = Breaker::new();
                self.told = None;
                self.disconnect();
            }
        }
    }

    /// Lets a server go that is to leave, when nothing of it is awaited any more.
    fn leave(&mut self) {
        let (Some(node_slot), Some(member)) = (&mut self.node_slot, &self.node.member) else {
            return;
        };
        let Some(at_us) = node_slot.drained_at_us else {
            return;
        };
        let out_of_order = self.node.fault().is_some() || self.breaker.open().is_some();
        let quiet = self.waiting.is_empty() && self.calls.is_empty();
        let over = at_us <= self.node.clock.uptime_us();
        // Told again meanwhile: it stays.
        if !(out_of_order || quiet && over) || !member.cluster.release(member.node_slot) {
            return;
        }
        node_slot.address = None;
        node_slot.drained_at_us = None;
        self.disconnect();
        // Nobody is missed here.
        self.node.open();
        while let Some(part) = self.waiting.pop_front() {
            self.node.undecided(part, StoreFault::ClusterDown);
        }
        for checks in self.refunds.take_all() {
            self.give_back_elsewhere(checks);
        }
    }

    /// What is to go back is whoever's who serves it by now.
    fn give_back_elsewhere(&self, checks: Vec<Check>) {
        let count = checks.len();
        let member = self.node.member.as_ref();
        if !member.is_some_and(|member| member.cluster.give_back(checks)) {
            self.lost(count);
        }
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
                        Some(fault) => self.node.undecided(part, fault_while_open(fault)),
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

    /// Puts what waits into calls, as long as there may be another.
    fn send(&mut self) {
        while self.calls.len() < CALLS_MAX {
            let Some(connected) = &self.connected else {
                return;
            };
            let connection = connected.opened.connection.clone();
            let now_us = self.now_us();
            let mut parts = VecDeque::new();
            let mut weight = 0_usize;
            // What goes back makes room, so it goes first.
            while weight < script::CHECKS_MAX
                && let Some((undoing, until_us)) = self.refunds.pop()
            {
                weight = weight.saturating_add(weigh(&undoing));
                parts.push_back(self.undoing(undoing, now_us, until_us));
            }
            while let Some(part) = self.waiting.front() {
                let more = weight.saturating_add(weigh(&part.batch.checks));
                if more > script::CHECKS_MAX && !parts.is_empty() {
                    break;
                }
                let Some(part) = self.waiting.pop_front() else {
                    break;
                };
                if part.batch.is_abandoned() {
                    let count = part.batch.checks.len() as u64;
                    self.node.shed_caller_gone.inc_by(count);
                    self.node.send_back(part);
                    continue;
                }
                weight = more;
                parts.push_back(part);
            }
            if parts.is_empty() {
                return;
            }
            let call = Call {
                node: Arc::clone(&self.node),
                parts,
                began_us: now_us,
                connection: self.connection,
                address: self.address(),
                kept: Vec::new(),
            };
            self.calls.spawn(call.run(connection));
        }
    }

    /// A batch that undoes, for which nobody waits.
    fn undoing(&self, checks: Vec<Check>, now_us: u64, until_us: u64) -> CallBatch {
        let mut batch = Box::<Batch>::default();
        batch.requests.push(BatchRequest {
            ticket: 0,
            checks: checks.len(),
            deadline: Deadline::NEVER,
            is_tentative: false,
            is_elsewhere: false,
            tentative: None,
        });
        // `send_back` gives back the room of every batch, and this one never took any.
        let waiting = &self.node.levels.waiting;
        waiting.fetch_add(checks.len(), Ordering::AcqRel);
        batch.checks = checks;
        CallBatch {
            batch,
            due_us: now_us.saturating_add(self.node.deadline_us),
            gives_back_until_us: Some(until_us),
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

    fn heartbeat_every_us(&self) -> u64 {
        if self.connector.asks_sentinels() {
            SENTINEL_HEARTBEAT_EVERY_US
        } else {
            HEARTBEAT_EVERY_US
        }
    }

    fn address(&self) -> Option<Address> {
        self.node_slot.as_ref()?.address.clone()
    }

    /// Probes where that is due, or says that this replica is there.
    fn start_due_probe(&mut self) {
        if !self.probing.is_empty() || self.is_vacant() {
            return;
        }
        let now_us = self.now_us();
        let address = self.address();
        // What was found out of whoever sat here before says nothing of who does now.
        let connection = self.connection;
        let (node, connector) = (Arc::clone(&self.node), Arc::clone(&self.connector));
        let replica = Arc::clone(&self.replica);
        match (self.breaker.probe_at_us(), &self.connected) {
            (Some(due_us), _) if due_us <= now_us => {
                self.probing.spawn(async move {
                    ProbeReport {
                        connection,
                        probe: true,
                        result: probe::probe(node, connector, replica, address).await,
                    }
                });
            }
            (None, Some(connected)) if self.heartbeat_at_us <= now_us => {
                self.heartbeat_at_us = now_us.saturating_add(self.heartbeat_every_us());
                let connected = connected.clone();
                self.probing.spawn(async move {
                    ProbeReport {
                        connection,
                        probe: false,
                        result: probe::heartbeat(node, connector, connected, replica).await,
                    }
                });
            }
            _ => {}
        }
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

    fn call_ended(&mut self, ended: Result<CallReport, JoinError>) {
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // Its batches went with it; those who asked see that nobody will answer.
                tracing::error!(%error, "this is a defect in tollgate: a call to the store was lost");
                return;
            }
        };
        let again_us = self.now_us().saturating_add(GIVE_BACK_AGAIN_US);
        for (checks, until_us) in ended.kept {
            if self.is_vacant() {
                self.give_back_elsewhere(checks);
            } else {
                let lost = self.refunds.add_again(checks, until_us, again_us);
                self.lost(lost);
            }
        }
        match ended.fault {
            None => self.breaker.answered(),
            // A connection that is gone already says nothing of the present one.
            Some(_) if ended.connection != self.connection => {}
            Some(fault) => self.failed(fault, ended.words),
        }
    }

    fn failed(&mut self, fault: StoreFault, words: Option<String>) {
        let now_us = self.now_us();
        let words = words.unwrap_or_else(|| "it did not answer in time".to_owned());
        if fault == StoreFault::UnexpectedReply {
            tracing::error!(
                store = %self.node.place(),
                words,
                "the store's answer was not understood"
            );
        }
        if !self.breaker.failed(fault, now_us) {
            return;
        }
        self.disconnect();
        self.node.refresh();
        // What was lost may be had again before anybody's time is over.
        if fault != StoreFault::ConnectionLost {
            self.close(fault, words);
        }
    }

    /// Has everybody know that the server is not asked, and why.
    fn close(&mut self, fault: StoreFault, words: String) {
        if self.node.close(fault) {
            self.node.metrics.breaker_opened.inc();
        }
        self.node.publish(Link::Down(fault));
        if self.told.replace(fault) != Some(fault) {
            tracing::warn!(
                store = %self.node.place(),
                words,
                "the store is not asked, --on-store-failure applies: {fault}"
            );
        }
        self.node.remember(words);
        while let Some(part) = self.waiting.pop_front() {
            self.node.undecided(part, fault_while_open(fault));
        }
    }

    fn probe_ended(&mut self, report: Result<ProbeReport, JoinError>) {
        let now_us = self.now_us();
        let report = report.unwrap_or_else(|error| ProbeReport {
            connection: self.connection,
            probe: self.breaker.open().is_some(),
            result: Err(ProbeError {
                fault: StoreFault::NotConnected,
                words: format!("this is a defect in tollgate: {error}"),
            }),
        });
        let open = report.probe;
        match report.result {
            // Of a connection that has been given up since, or of whoever sat here before.
            _ if report.connection != self.connection => {}
            Ok(connected) => {
                if self.counts_replicas
                    && let Some(replicas) = connected.replicas
                {
                    let replicas = i64::try_from(replicas).unwrap_or(1);
                    self.node.metrics.replicas.set(replicas);
                }
                if open {
                    self.connection = self.connection.saturating_add(1);
                    self.breaker.close(now_us);
                    self.heartbeat_at_us = now_us.saturating_add(self.heartbeat_every_us());
                    self.told = None;
                    if self.node.open() {
                        tracing::info!(store = %self.node.place(), "the store decides");
                    }
                }
                self.node
                    .publish(Link::Up(connected.opened.connection.clone()));
                self.connected = Some(connected);
            }
            Err(ProbeError { fault, words }) if open => {
                let mut part = [0];
                // Without randomness replicas probe in step.
                let _ = getrandom::fill(&mut part);
                self.breaker.probe_failed(fault, now_us, part[0]);
                self.close(fault, words);
                self.node.refresh();
            }
            Err(ProbeError { fault, words }) => self.failed(fault, Some(words)),
        }
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

/// What those are told who come while it is not asked: that it was late concerns those who were asked for.
pub(super) fn fault_while_open(fault: StoreFault) -> StoreFault {
    if fault.outcome_unknown() {
        StoreFault::BreakerOpen
    } else {
        fault
    }
}
