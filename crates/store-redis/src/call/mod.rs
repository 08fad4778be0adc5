//! One call to a server: the checks that waited at the same moment, in one script run.
//!
//! Whole batches go into a call in order, and each is sent back when it is answered. A batch has a
//! time by which it must be answered. When the call takes longer, batches that are due are answered
//! singly, and the call continues for the others. A check that was sent and has no answer by then
//! may have been counted: `unknown_outcomes` counts it, and it is never sent again. Only what did
//! not run is sent again: a run that the server rejected for want of the script, and a check that
//! met reservations which are due, with their keys. `cluster_call` knows more such cases.
//!
//! Refunds that the server's state prevented are returned to the worker, which retries them.
//!
//! A call does not choose its batches and does not judge the server; `worker` and `breaker` do.

mod cluster_call;
pub(super) mod command;
mod progress;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Value};

use self::cluster_call::ClusterCall;
use self::command::{LOST_SCRIPT, Sent, UNEXPECTED_REPLY, load, step};
use self::progress::{NodeStatus, Progress};
use super::connection::Connection;
use super::error_class::{ServerError, fault_of};
use super::node::Node;
use super::script::CheckTerms;
use super::target::Address;
use tollgate_limiter::{Check, Outcome};
use tollgate_store::queue::Batch;
use tollgate_store::{CheckResult, Purpose, StoreError, StoreFault};
use tollgate_telemetry::metrics::Counter;

/// A batch in a call or waiting for one.
pub(super) struct CallBatch {
    pub(super) batch: Box<Batch>,
    /// When it must be answered, in uptime.
    pub(super) due_us: u64,
    /// For refunds, which no caller waits for: until when they are retried.
    pub(super) refunds_until_us: Option<u64>,
}

/// Batches, and what is needed to send them.
pub(super) struct Call {
    pub(super) node: Arc<Node>,
    pub(super) batches: VecDeque<CallBatch>,
    /// When the call was put together, in uptime. Requests past their deadline by then are not
    /// sent.
    pub(super) began_us: u64,
    /// The number of its connection.
    pub(super) connection: u64,
    /// The address of that connection, in a cluster.
    pub(super) address: Option<Address>,
    /// Refunds to retry, and until when.
    pub(super) kept_refunds: Vec<(Vec<Check>, u64)>,
}

/// How a call ended.
pub(super) struct CallReport {
    /// None when it was answered in time.
    pub(super) error: Option<ServerError>,
    /// The number of its connection.
    pub(super) connection: u64,
    /// Refunds that were not carried out.
    pub(super) kept_refunds: Vec<(Vec<Check>, u64)>,
}

/// Checks on their way to a server and back.
type Asking = Pin<Box<dyn Future<Output = NodeStatus> + Send>>;

// === impl Call ===

impl Call {
    /// Sends the checks and answers every batch.
    pub(super) async fn run(mut self, connection: Connection) -> CallReport {
        let metrics = self.node.metrics.clone();
        let checks: usize = self
            .batches
            .iter()
            .map(|part| part.batch.checks.len())
            .sum();
        #[allow(clippy::cast_precision_loss)] // no call has so many
        metrics.call_checks.observe(checks as f64);
        metrics.calls_in_flight.inc();
        let terms: Vec<_> = self
            .sent()
            .map(|(check, _)| CheckTerms::of(check))
            .collect();
        let sent_count = terms.len();
        let progress = Arc::new(Progress::new(terms));
        let mut asking = self.ask(sent_count, &connection, &progress);
        // Where the first batch's checks begin among the checks that were sent.
        let mut from = 0;
        let mut undecided = None;
        let status = loop {
            let Some(due_us) = self.batches.front().map(|batch| batch.due_us) else {
                break None;
            };
            let wait_us = due_us.saturating_sub(self.node.clock.uptime_us());
            match tokio::time::timeout(Duration::from_micros(wait_us), &mut asking).await {
                Err(_) => from = self.answer_first(from, &progress, &mut undecided),
                Ok(status) if status.left.iter().any(|index| *index >= from) => {
                    asking = self.ask_again(from, status.left, &connection, &progress);
                }
                Ok(status) => break Some(status),
            }
        };
        metrics.calls_in_flight.dec();
        let took_us = self.node.clock.uptime_us().saturating_sub(self.began_us);
        while !self.batches.is_empty() {
            from = self.answer_first(from, &progress, &mut undecided);
        }
        self.node.count_share(from, undecided);
        let is_late = match &status {
            Some(NodeStatus { error: Some(_), .. }) => false,
            Some(NodeStatus { elsewhere, .. }) => {
                #[allow(clippy::cast_precision_loss)] // a latency of 2^53 µs is not one
                metrics.call_seconds.observe(took_us as f64 / 1e6);
                took_us > self.node.deadline_us && !elsewhere
            }
            None => progress.is_under_way(),
        };
        let late = || ServerError::new(StoreFault::TimedOut, "it did not answer in time");
        CallReport {
            error: status
                .and_then(|status| status.error)
                .or(is_late.then(late)),
            connection: self.connection,
            kept_refunds: self.kept_refunds,
        }
    }

    /// The checks that are sent: those of requests whose deadline had not passed.
    fn sent(&self) -> impl Iterator<Item = Sent<'_>> {
        let batches = self.batches.iter();
        batches.flat_map(|part| sent_of(&part.batch, self.began_us))
    }

    fn ask(&self, sent_count: usize, connection: &Connection, progress: &Arc<Progress>) -> Asking {
        let near = self.node.clock.now();
        if let (Some(member), Some(address)) = (&self.node.member, &self.address) {
            let checks = self.sent().map(|(check, purpose)| (check.clone(), purpose));
            let cluster_call = ClusterCall {
                node: Arc::clone(&self.node),
                member: member.clone(),
                checks: checks.collect(),
                near,
                progress: Arc::clone(progress),
            };
            return Box::pin(cluster_call.ask(connection.clone(), address.clone()));
        }
        let command = step(&self.node.prefix, near, false, || self.sent());
        self.ask_server(command, (0..sent_count).collect(), connection, progress)
    }

    /// Asks a single server for the checks that it has left, with the keys of their reservations.
    /// The checks of the first batch begin at `from`.
    fn ask_again(
        &self,
        from: usize,
        mut left: Vec<usize>,
        connection: &Connection,
        progress: &Arc<Progress>,
    ) -> Asking {
        left.retain(|index| *index >= from);
        let checks = || {
            let numbered = (from..).zip(self.sent());
            let left = numbered.filter(|(index, _)| left.binary_search(index).is_ok());
            left.map(|(_, sent)| sent)
        };
        let command = step(&self.node.prefix, self.node.clock.now(), true, checks);
        self.ask_server(command, left, connection, progress)
    }

    fn ask_server(
        &self,
        command: Cmd,
        checks: Vec<usize>,
        connection: &Connection,
        progress: &Arc<Progress>,
    ) -> Asking {
        let scripts_sent_again = self.node.metrics.scripts_sent_again.clone();
        let (connection, progress) = (connection.clone(), Arc::clone(progress));
        Box::pin(run_script(
            command,
            checks,
            connection,
            progress,
            scripts_sent_again,
        ))
    }

    /// Answers the first batch with what is known by now, and adds up the checks that were not
    /// decided. The batch's checks begin at `from` among those sent. Returns where the next batch's
    /// begin.
    fn answer_first(
        &mut self,
        from: usize,
        progress: &Progress,
        undecided: &mut Option<(usize, StoreFault)>,
    ) -> usize {
        let Some(part) = self.batches.pop_front() else {
            return from;
        };
        let to = from + sent_of(&part.batch, self.began_us).count();
        let answers = progress.answers(from, to);
        for fault in answers.iter().filter_map(|answer| answer.err()) {
            let before = undecided.map_or(0, |(checks, _)| checks);
            *undecided = Some((before + 1, fault));
        }
        let now_us = self.node.clock.uptime_us();
        let mut answers = answers.into_iter();
        match part.refunds_until_us {
            Some(until_us) => self.end_refunds(part, answers, now_us, until_us),
            None => self.answer(part, &mut answers, now_us),
        }
        to
    }

    /// Answers a batch.
    fn answer(
        &self,
        mut part: CallBatch,
        outcomes: &mut impl Iterator<Item = Result<Outcome, StoreFault>>,
        now_us: u64,
    ) {
        let Batch {
            requests,
            checks,
            answers,
            refund_sink,
            ..
        } = &mut *part.batch;
        answers.clear();
        let mut rest = checks.as_slice();
        for request in requests {
            let (own, others) = rest.split_at(request.checks.min(rest.len()));
            rest = others;
            if request.deadline.passed(self.began_us) {
                self.node.shed_deadline.inc_by(own.len() as u64);
                answers.extend(own.iter().map(|_| Err(StoreError::DeadlineExceeded)));
                continue;
            }
            let before = answers.len();
            for check in own {
                let outcome = outcomes.next().unwrap_or(Err(StoreFault::InvalidBucket));
                let answer = self.node.answer_of(outcome);
                if let Ok(outcome) = &answer
                    && request.purpose != Purpose::TakeAhead
                {
                    // Counted from before the server decided, a denial ends no later than there.
                    self.node.denials.see(check, outcome, self.began_us);
                }
                answers.push(answer);
            }
            let decided = answers.get(before..).unwrap_or_default();
            if request.purpose == Purpose::Reset {
                for (check, answer) in own.iter().zip(decided) {
                    self.node.denials.reset(check, answer.as_ref().ok(), now_us);
                }
            }
            request.keep_tentative(refund_sink.as_ref(), own, decided);
        }
        self.node.send_back(part.batch);
    }

    /// Counts the refunds that were carried out, and keeps those that were not and can be retried.
    fn end_refunds(
        &mut self,
        part: CallBatch,
        outcomes: impl Iterator<Item = Result<Outcome, StoreFault>>,
        now_us: u64,
        until_us: u64,
    ) {
        let mut kept = Vec::new();
        for (refund, outcome) in part.batch.checks.iter().zip(outcomes) {
            match self.node.answer_of(outcome) {
                Ok(outcome) => {
                    self.node.denials.see(refund, &outcome, now_us);
                    self.node.given_back.inc();
                }
                Err(StoreError::Unavailable(fault)) if fault.lets_refunds_retry() => {
                    kept.push(refund.clone());
                }
                Err(_) => self.node.lose_refunds(1),
            }
        }
        if !kept.is_empty() {
            self.kept_refunds.push((kept, until_us));
        }
        self.node.send_back(part.batch);
    }
}

/// The checks of a batch that are sent by a call that began then.
fn sent_of(batch: &Batch, began_us: u64) -> impl Iterator<Item = Sent<'_>> {
    let mut rest = batch.checks.as_slice();
    batch.requests.iter().flat_map(move |request| {
        let (own, others) = rest.split_at(request.checks.min(rest.len()));
        rest = others;
        let is_sent = !request.deadline.passed(began_us);
        let sent = if is_sent { own } else { &[] };
        sent.iter().map(|check| (check, request.purpose))
    })
}

/// Sends one script run to one server. If the server does not have the script, loads it and sends
/// the run again: nothing ran.
async fn run_script(
    command: Cmd,
    checks: Vec<usize>,
    mut connection: Connection,
    progress: Arc<Progress>,
    scripts_sent_again: Counter,
) -> NodeStatus {
    progress.under_way(&checks);
    let mut reply = connection.ask(&command).await;
    if reply.as_ref().is_err_and(|error| fault_of(error).is_none()) {
        scripts_sent_again.inc();
        reply = connection.ask(&load()).await;
        if reply.is_ok() {
            reply = connection.ask(&command).await;
        }
    }
    let error = match reply {
        Ok(Value::BulkString(bytes)) => {
            return NodeStatus {
                left: progress.outcomes(&checks, &bytes),
                ..NodeStatus::default()
            };
        }
        Ok(_) => ServerError::new(StoreFault::UnexpectedReply, UNEXPECTED_REPLY),
        Err(error) => match fault_of(&error) {
            Some(fault) => ServerError::new(fault, error.to_string()),
            None => ServerError::new(StoreFault::Sharded, LOST_SCRIPT),
        },
    };
    progress.fail(&checks, error.fault);
    NodeStatus {
        error: Some(error),
        ..NodeStatus::default()
    }
}

// === impl Node ===

impl Node {
    /// A check's result. Faults are counted.
    fn answer_of(&self, outcome: Result<Outcome, StoreFault>) -> CheckResult {
        outcome.map_err(|fault| {
            if fault.outcome_unknown() {
                self.metrics.unknown_outcomes.inc();
            }
            self.count_undecided(fault, 1);
            StoreError::Unavailable(fault)
        })
    }

    /// Answers a batch that was not sent with a fault.
    pub(super) fn undecided(&self, mut batch: Box<Batch>, fault: StoreFault) {
        self.count_undecided(fault, batch.checks.len());
        batch.answer_all(&StoreError::Unavailable(fault));
        self.send_back(batch);
    }

    /// Sends an answered batch back and frees its space in the queue.
    pub(super) fn send_back(&self, batch: Box<Batch>) {
        let checks = batch.checks.len();
        self.levels.waiting.fetch_sub(checks, Ordering::AcqRel);
        batch.send_back();
    }
}
