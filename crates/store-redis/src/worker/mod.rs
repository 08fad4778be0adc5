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
//! In a cluster the worker keeps its node slot and serves the node that is assigned to it. The node
//! changes when the topology does, and the worker sleeps while there is none. A node that leaves is
//! served until its calls have ended; its refunds then go to the nodes that own the slots now.
//!
//! The worker ends when no caller is left, whatever the server does.

mod probe;
pub(super) mod topology_task;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};

use self::probe::{HEARTBEAT_EVERY_US, LiveConnection, SENTINEL_HEARTBEAT_EVERY_US};
use super::breaker::Breaker;
use super::call::{Call, CallBatch, CallReport};
use super::cluster::Link;
use super::connect::Connector;
use super::error_class::ServerError;
use super::node::Node;
use super::script;
use super::target::Address;
use tollgate_limiter::Check;
use tollgate_store::queue::{Batch, BatchRequest, Message};
use tollgate_store::refund_queue::{RETRY_FOR_US, RefundQueue};
use tollgate_store::{Deadline, Purpose, StoreError, StoreFault};

/// How many calls may be in flight.
const CALLS_MAX: usize = 4;

/// How many messages are read at a time.
const MESSAGES_MAX: usize = 256;

/// How soon a failed refund is retried.
const REFUND_AGAIN_US: u64 = 100_000;

/// How long an unassigned node is still served: by then everything on its way to the queue has
/// arrived.
const DRAIN_US: u64 = 1_000_000;

/// How long a worker without a node sleeps.
const IDLE_SLEEP_US: u64 = 3_600_000_000;

/// How often expired denials are removed.
const SWEEP_EVERY_US: u64 = 1_000_000;

/// For how long a failure that was logged is not logged again.
const QUIET_US: u64 = 10_000_000;

/// The target of log lines about the health of a node.
const HEALTH_LOG: &str = "tollgate::store::redis::worker::health";

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
    is_probe: bool,
    result: Result<LiveConnection, ServerError>,
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
                () = self.node.doubted.notified() => self.heartbeat_at_us = 0,
                () = sleeping => {}
            }
            self.expire();
            self.leave();
        }
        // Waits for calls in flight and sends the last refunds, as long as an answer may take.
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

    fn disconnect(&mut self) {
        self.connected = None;
        self.connection += 1;
        self.node.publish(Link::Connecting);
    }

    fn take_in(&mut self, messages: &mut Vec<Message>) {
        let now_us = self.now_us();
        for message in messages.drain(..) {
            match message {
                // The sender may not have seen that the breaker is open.
                Message::Decide(batch) => match self.node.fault() {
                    Some(fault) => self.node.undecided(batch, fault.while_breaker_open()),
                    None if self.is_vacant() => {
                        self.node.undecided(batch, StoreFault::ClusterDown);
                    }
                    None => self.waiting.push_back(CallBatch {
                        batch,
                        due_us: now_us.saturating_add(self.node.deadline_us),
                        refunds_until_us: None,
                    }),
                },
                Message::Refund(refunds) => {
                    let refunds: Vec<_> = refunds.into_iter().map(|refund| refund.check).collect();
                    for refund in &refunds {
                        self.node.denials.forget(refund.key);
                    }
                    if self.is_vacant() {
                        self.refund_elsewhere(refunds);
                    } else {
                        let until_us = now_us.saturating_add(RETRY_FOR_US);
                        let lost = self.refunds.add(refunds, until_us);
                        self.node.lose_refunds(lost);
                    }
                }
            }
        }
    }

    /// Answers the batches whose deadline has passed.
    fn expire(&mut self) {
        let now_us = self.now_us();
        while let Some(batch) = self.waiting.pop_front() {
            if batch.due_us > now_us {
                self.waiting.push_front(batch);
                break;
            }
            let checks = batch.batch.checks.len();
            let undecided = (checks, StoreFault::QueueTimeout);
            self.node.count_share(checks, Some(undecided));
            self.node.undecided(batch.batch, StoreFault::QueueTimeout);
        }
        let lost = self.refunds.pass(now_us);
        self.node.lose_refunds(lost);
        // In a cluster the topology task does this: it never sleeps.
        if self.node_slot.is_none() && self.sweep_at_us <= now_us {
            self.sweep_at_us = now_us.saturating_add(SWEEP_EVERY_US);
            self.node.denials.sweep(now_us);
        }
    }

    /// How long nothing is due.
    fn until_next(&self) -> Duration {
        if self.is_vacant() {
            return Duration::from_micros(IDLE_SLEEP_US);
        }
        let next_us = [
            match &self.node_slot {
                Some(node_slot) => node_slot.drained_at_us,
                None => Some(self.sweep_at_us.max(1)),
            },
            self.refunds.next_us(),
            self.probing
                .is_empty()
                .then(|| self.breaker.probe_at_us().unwrap_or(self.heartbeat_at_us)),
            self.waiting.front().map(|batch| batch.due_us),
        ];
        let next_us = next_us.into_iter().flatten().min().unwrap_or(u64::MAX);
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
        let mut undecided: Vec<_> = self
            .waiting
            .drain(..)
            .map(|waiting| waiting.batch)
            .collect();
        while let Ok(message) = self.queue.try_recv() {
            match message {
                Message::Decide(batch) => undecided.push(batch),
                Message::Refund(refunds) => lost += refunds.len(),
            }
        }
        self.node.lose_refunds(lost);
        for mut batch in undecided {
            batch.answer_all(&StoreError::Stopped);
            self.node.send_back(batch);
        }
    }
}

// === The node of a cluster ===

/// Ends when the assignment of the node slot changes.
async fn assignment_change(node_slot: &mut Option<NodeAssignment>) {
    if let Some(node_slot) = node_slot
        && node_slot.changes.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

impl NodeWorker {
    fn address(&self) -> Option<Address> {
        self.node_slot.as_ref()?.address.clone()
    }

    /// Whether no node is assigned.
    fn is_vacant(&self) -> bool {
        let node_slot = self.node_slot.as_ref();
        node_slot.is_some_and(|node_slot| node_slot.address.is_none())
    }

    /// A node was assigned or unassigned.
    fn assignment_changed(&mut self) {
        let now_us = self.now_us();
        let Some(node_slot) = &mut self.node_slot else {
            return;
        };
        let assigned = node_slot.changes.borrow_and_update().clone();
        node_slot.drained_at_us = None;
        match assigned {
            None if node_slot.address.is_some() => {
                node_slot.drained_at_us = Some(now_us.saturating_add(DRAIN_US));
            }
            Some(address) if node_slot.address.as_ref() != Some(&address) => {
                self.node.rename(address.to_string());
                node_slot.address = Some(address);
                // Checks that arrive before the node is connected wait until their deadline.
                self.breaker = Breaker::new();
                (self.logged, self.quiet) = (None, None);
                self.disconnect();
            }
            _ => {}
        }
    }

    /// Releases an unassigned node when no call to it is in flight.
    fn leave(&mut self) {
        let (Some(node_slot), Some(member)) = (&mut self.node_slot, &self.node.member) else {
            return;
        };
        let Some(at_us) = node_slot.drained_at_us else {
            return;
        };
        let out_of_order = self.node.fault().is_some() || self.breaker.fault().is_some();
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
            tracing::warn!(
                target: "tollgate::store::redis::worker::assignment",
                store = %self.node.address(),
                "the unavailable node left the cluster"
            );
        }
        // An unassigned node slot is not a fault.
        self.node.readmit();
        while let Some(batch) = self.waiting.pop_front() {
            self.node.undecided(batch.batch, StoreFault::ClusterDown);
        }
        for refunds in self.refunds.take_all() {
            self.refund_elsewhere(refunds);
        }
    }

    /// Sends refunds to the nodes that own their slots now.
    fn refund_elsewhere(&self, refunds: Vec<Check>) {
        let count = refunds.len();
        let member = self.node.member.as_ref();
        if !member.is_some_and(|member| member.cluster.refund(refunds)) {
            self.node.lose_refunds(count);
        }
    }
}

// === Calls ===

/// The weight of these checks in a call.
fn weigh(checks: &[Check]) -> usize {
    checks.iter().map(script::weight).sum()
}

impl NodeWorker {
    /// Puts what waits into calls, up to the number of calls in flight.
    fn send(&mut self) {
        while self.calls.len() < CALLS_MAX {
            let Some(connected) = &self.connected else {
                return;
            };
            let connection = connected.opened.connection.clone();
            let now_us = self.now_us();
            let mut batches = VecDeque::new();
            let mut weight = 0;
            // Refunds free hits in buckets, so they go first.
            while weight < script::CHECKS_MAX
                && let Some((refunds, until_us)) = self.refunds.pop()
            {
                weight += weigh(&refunds);
                batches.push_back(self.refund_batch(refunds, now_us, until_us));
            }
            while let Some(batch) = self.waiting.pop_front() {
                let more = weight + weigh(&batch.batch.checks);
                if more > script::CHECKS_MAX && !batches.is_empty() {
                    self.waiting.push_front(batch);
                    break;
                }
                if batch.batch.is_abandoned() {
                    let count = batch.batch.checks.len() as u64;
                    self.node.shed_caller_gone.inc_by(count);
                    self.node.send_back(batch.batch);
                    continue;
                }
                weight = more;
                batches.push_back(batch);
            }
            if batches.is_empty() {
                return;
            }
            let call = Call {
                node: Arc::clone(&self.node),
                batches,
                began_us: now_us,
                connection: self.connection,
                address: self.address(),
                kept_refunds: Vec::new(),
            };
            self.calls.spawn(call.run(connection));
        }
    }

    /// A batch of refunds, which no caller waits for.
    fn refund_batch(&self, refunds: Vec<Check>, now_us: u64, until_us: u64) -> CallBatch {
        let mut request = BatchRequest::new(0, Deadline::NEVER, Purpose::Decide);
        request.checks = refunds.len();
        // `send_back` frees the queue space of every batch, and this one has none.
        let waiting = &self.node.levels.waiting;
        waiting.fetch_add(refunds.len(), Ordering::AcqRel);
        let batch = Batch {
            requests: vec![request],
            checks: refunds,
            ..Batch::default()
        };
        CallBatch {
            batch: Box::new(batch),
            due_us: now_us.saturating_add(self.node.deadline_us),
            refunds_until_us: Some(until_us),
        }
    }

    fn call_ended(&mut self, ended: Result<CallReport, JoinError>) {
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // Its batches are gone; their callers see a closed channel.
                tracing::error!(
                    target: "tollgate::store::redis::worker::calls",
                    %error,
                    "this is a defect in tollgate: a call to the store was lost"
                );
                return;
            }
        };
        let again_us = self.now_us().saturating_add(REFUND_AGAIN_US);
        for (refunds, until_us) in ended.kept_refunds {
            if self.is_vacant() {
                self.refund_elsewhere(refunds);
            } else {
                let lost = self.refunds.add_again(refunds, until_us, again_us);
                self.node.lose_refunds(lost);
            }
        }
        match ended.error {
            None => self.breaker.answered(),
            // An old connection says nothing about the present one.
            Some(_) if ended.connection != self.connection => {}
            Some(error) => self.failed(error),
        }
    }
}

// === Probes, heartbeats, and what they change: the breaker, the connection and the log ===

impl NodeWorker {
    fn heartbeat_every_us(&self) -> u64 {
        if self.connector.asks_sentinels() {
            SENTINEL_HEARTBEAT_EVERY_US
        } else {
            HEARTBEAT_EVERY_US
        }
    }

    /// Starts a probe or a heartbeat if one is due.
    fn start_due_probe(&mut self) {
        if !self.probing.is_empty() || self.is_vacant() {
            return;
        }
        let now_us = self.now_us();
        let connected = match (self.breaker.probe_at_us(), &self.connected) {
            (Some(due_us), _) if due_us <= now_us => None,
            (None, Some(connected)) if self.heartbeat_at_us <= now_us => Some(connected.clone()),
            _ => return,
        };
        let is_probe = connected.is_none();
        if !is_probe {
            self.heartbeat_at_us = now_us.saturating_add(self.heartbeat_every_us());
        }
        let address = self.address();
        // Results for another connection, or for the node before this one, are discarded.
        let connection = self.connection;
        let (node, connector) = (Arc::clone(&self.node), Arc::clone(&self.connector));
        let replica = Arc::clone(&self.replica);
        self.probing.spawn(async move {
            let result = match connected {
                None => probe::probe(&node, &connector, &replica, address).await,
                Some(connected) => probe::heartbeat(&node, &connector, &replica, connected).await,
            };
            ProbeReport {
                connection,
                is_probe,
                result,
            }
        });
    }

    fn probe_ended(&mut self, report: Result<ProbeReport, JoinError>) {
        let now_us = self.now_us();
        let report = report.unwrap_or_else(|error| ProbeReport {
            connection: self.connection,
            is_probe: self.breaker.fault().is_some(),
            result: Err(ServerError::new(
                StoreFault::NotConnected,
                format!("this is a defect in tollgate: {error}"),
            )),
        });
        if report.connection != self.connection {
            // The connection was given up meanwhile, or the slot's node has changed.
            return;
        }
        let connected = match report.result {
            Ok(connected) => connected,
            Err(error) if report.is_probe => {
                let mut part = [0];
                // Without randomness replicas probe in step.
                let _ = getrandom::fill(&mut part);
                self.breaker.probe_failed(error.fault, now_us, part[0]);
                self.trip(error);
                self.node.refresh();
                return;
            }
            Err(error) => return self.failed(error),
        };
        if self.counts_replicas
            && let Some(replicas) = connected.replicas
        {
            let replicas = i64::try_from(replicas).unwrap_or(1);
            self.node.metrics.replicas.set(replicas);
        }
        if report.is_probe {
            self.connection += 1;
            self.breaker.readmit(now_us);
            self.heartbeat_at_us = now_us.saturating_add(self.heartbeat_every_us());
            self.node.note_success();
            let failure = self.logged.take();
            let was_quiet = self.quiet.is_some_and(|(_, until_us)| now_us < until_us);
            if self.node.readmit() {
                let (store, message) = (self.node.address(), "connected to the store");
                match failure {
                    Some(_) => tracing::warn!(target: HEALTH_LOG, %store, "{message}"),
                    // The end of a failure that was not logged is not logged either.
                    None if was_quiet => {}
                    None => tracing::info!(target: HEALTH_LOG, %store, "{message}"),
                }
            }
        }
        let link = Link::Up(connected.opened.connection.clone());
        self.node.publish(link);
        self.connected = Some(connected);
    }

    /// A call or a heartbeat has failed.
    fn failed(&mut self, error: ServerError) {
        let fault = error.fault;
        if matches!(
            fault,
            StoreFault::ScriptDenied | StoreFault::UnexpectedReply
        ) {
            self.log_failed_call(&error);
        }
        if !self.breaker.failed(fault, self.now_us()) {
            return;
        }
        self.disconnect();
        self.node.refresh();
        // A lost connection may be made again before any deadline passes.
        if fault != StoreFault::ConnectionLost {
            self.trip(error);
        }
    }

    /// Logs a call that failed for a reason that may concern its checks alone, once in a while.
    fn log_failed_call(&mut self, error: &ServerError) {
        let now_us = self.now_us();
        self.failed_calls += 1;
        if now_us < self.failed_calls_quiet_until_us {
            return;
        }
        self.failed_calls_quiet_until_us = now_us.saturating_add(QUIET_US);
        tracing::error!(
            target: HEALTH_LOG,
            store = %self.node.address(),
            fault = %error.fault,
            error = error.text,
            calls = std::mem::take(&mut self.failed_calls),
            "the store did not decide a call"
        );
    }

    /// Opens the breaker for all callers, and records why.
    fn trip(&mut self, ServerError { fault, text }: ServerError) {
        if self.node.trip(fault) {
            self.node.metrics.breaker_opened.inc();
        }
        self.node.publish(Link::Down(fault));
        let now_us = self.now_us();
        // Probes may pass and calls fail, in turn.
        let is_quiet = self
            .quiet
            .is_some_and(|(quiet, until_us)| quiet == fault && now_us < until_us);
        if self.logged != Some(fault) && !is_quiet {
            self.logged = Some(fault);
            self.quiet = Some((fault, now_us.saturating_add(QUIET_US)));
            tracing::warn!(
                target: HEALTH_LOG,
                store = %self.node.address(),
                %fault,
                error = text,
                "the store is unavailable; --on-store-failure applies"
            );
        }
        self.node.remember_error(text);
        while let Some(batch) = self.waiting.pop_front() {
            self.node.undecided(batch.batch, fault.while_breaker_open());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::probe::tests::{connector, live};
    use super::*;
    use crate::node::tests::node;
    use crate::target::Password;
    use tollgate_system::clock::ManualClock;

    #[tokio::test]
    async fn a_store_that_fails_again_and_again_is_logged_with_its_failures_only() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let writer = Arc::new(log.reopen().unwrap());
        let subscriber = tracing_subscriber::fmt().with_writer(writer).finish();
        let _logged = tracing::subscriber::set_default(subscriber);
        let lines = || {
            let text = std::fs::read_to_string(log.path()).unwrap();
            let has = |words: &str| text.matches(words).count();
            let failures = has("the store is unavailable");
            (failures, has("connected to the store"))
        };
        let clock = Arc::<ManualClock>::default();
        let node = node(None, Arc::clone(&clock), &Arc::default());
        let (_sender, queue) = mpsc::unbounded_channel();
        let connector = connector(Password::None);
        let mut worker = NodeWorker::new(node, queue, connector, "replica".into(), true);
        let live = live().await;
        let recovers = |worker: &mut NodeWorker| {
            worker.probe_ended(Ok(ProbeReport {
                connection: worker.connection,
                is_probe: true,
                result: Ok(live.clone()),
            }));
        };
        recovers(&mut worker);
        assert_eq!(lines(), (0, 1));
        for failures in 1..=2 {
            worker.failed(ServerError::new(StoreFault::ReadOnly, ""));
            recovers(&mut worker);
            assert_eq!(lines(), (failures, failures + 1));
            for _ in 0..9 {
                clock.advance_us(1_000_000);
                worker.failed(ServerError::new(StoreFault::ReadOnly, ""));
                recovers(&mut worker);
            }
            assert_eq!(lines(), (failures, failures + 1));
            clock.advance_us(1_000_000);
        }
    }
}
