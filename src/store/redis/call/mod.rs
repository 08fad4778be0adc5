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
mod step_reply;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{Cmd, Value};

use self::cluster_call::ClusterCall;
use self::command::{LOST_SCRIPT, Sent, UNEXPECTED_REPLY, load, step};
use self::progress::{NodeStatus, Progress};
use super::connection::Connection;
use super::error_class::{ErrorClass, classify, value};
use super::node::Node;
use super::script::CheckTerms;
use super::target::Address;
use crate::metrics::Counter;
use crate::store::queue::Batch;
use crate::store::{CheckResult, Purpose, StoreError, StoreFault, TentativeTake};
use tollgate_limiter::{Check, Outcome};

/// A batch in a call or waiting for one.
pub(super) struct CallBatch {
    pub(super) batch: Box<Batch>,
    /// When it must be answered, in uptime.
    pub(super) due_us: u64,
    /// For refunds, which no caller waits for: until when they are retried.
    pub(super) gives_back_until_us: Option<u64>,
}

/// Batches, and what is needed to send them.
pub(super) struct Call {
    pub(super) node: Arc<Node>,
    pub(super) parts: VecDeque<CallBatch>,
    /// When the call was put together, in uptime. Requests past their deadline by then are not
    /// sent.
    pub(super) began_us: u64,
    /// The number of its connection.
    pub(super) connection: u64,
    /// The address of that connection, in a cluster.
    pub(super) address: Option<Address>,
    /// Refunds to retry, and until when.
    pub(super) kept: Vec<(Vec<Check>, u64)>,
}

/// How a call ended.
pub(super) struct CallReport {
    /// None when it was answered in time.
    pub(super) fault: Option<StoreFault>,
    /// The error text of the server or of the system.
    pub(super) words: Option<String>,
    /// The number of its connection.
    pub(super) connection: u64,
    /// Refunds that were not carried out.
    pub(super) kept: Vec<(Vec<Check>, u64)>,
}

/// How a call is sent.
enum CallPlan {
    /// One script run, for these checks of the call.
    One { command: Cmd, checks: Vec<usize> },
    /// To a cluster.
    ClusterCall(ClusterCall, Address),
}

// === impl Call ===

impl Call {
    /// How many checks it carries.
    pub(super) fn checks(&self) -> usize {
        self.parts.iter().map(|part| part.batch.checks.len()).sum()
    }

    /// Sends the checks and answers every batch.
    pub(super) async fn run(mut self, connection: Connection) -> CallReport {
        let metrics = self.node.metrics.clone();
        metrics.call_checks.observe(to_f64(self.checks() as u64));
        metrics.calls_in_flight.inc();
        let again = metrics.scripts_sent_again.clone();
        let batches = self.parts.iter().map(|part| &part.batch);
        let sent = batches.flat_map(|batch| self.asked_of(batch));
        let terms: Vec<_> = sent.map(|(check, _)| CheckTerms::of(check)).collect();
        let asked = terms.len();
        let progress = Arc::new(Progress::new(terms));
        let mut way = self.way(asked, &progress);
        // Where the first batch's checks begin among the checks that were sent.
        let mut from = 0_usize;
        let mut undecided = None;
        let status = loop {
            let (connection, again) = (connection.clone(), again.clone());
            let asking = async {
                match way {
                    CallPlan::One { command, checks } => {
                        one(&command, checks, &progress, connection, again).await
                    }
                    CallPlan::ClusterCall(spread, address) => spread.ask(connection, address).await,
                }
            };
            let mut asking = std::pin::pin!(asking);
            let status = loop {
                let Some(due_us) = self.parts.front().map(|part| part.due_us) else {
                    break None;
                };
                let wait_us = due_us.saturating_sub(self.node.clock.uptime_us());
                match tokio::time::timeout(Duration::from_micros(wait_us), &mut asking).await {
                    Ok(status) => break Some(status),
                    Err(_) => from = self.answer_first(from, &progress, &mut undecided),
                }
            };
            match status {
                Some(status) if status.left.iter().any(|at| *at >= from) => {
                    way = self.rest(from, status.left);
                }
                status => break status,
            }
        };
        metrics.calls_in_flight.dec();
        let took_us = self.node.clock.uptime_us().saturating_sub(self.began_us);
        while !self.parts.is_empty() {
            from = self.answer_first(from, &progress, &mut undecided);
        }
        self.node.count_share(from, undecided);
        let (fault, words) = match status {
            Some(NodeStatus {
                fault: Some((fault, words)),
                ..
            }) => (Some(fault), Some(words)),
            Some(NodeStatus { elsewhere, .. }) => {
                #[allow(clippy::cast_precision_loss)] // a latency of 2^53 µs is not one
                metrics.call_seconds.observe(took_us as f64 / 1e6);
                let late = took_us > self.node.deadline_us && !elsewhere;
                (late.then_some(StoreFault::TimedOut), None)
            }
            None => (
                progress.is_under_way().then_some(StoreFault::TimedOut),
                None,
            ),
        };
        CallReport {
            fault,
            words,
            connection: self.connection,
            kept: self.kept,
        }
    }

    fn way(&self, asked: usize, progress: &Arc<Progress>) -> CallPlan {
        let near = self.node.clock.now();
        let checks = || {
            let batches = self.parts.iter().map(|part| &part.batch);
            batches.flat_map(|batch| self.asked_of(batch))
        };
        match (&self.node.member, &self.address) {
            (Some(member), Some(address)) => {
                let spread = ClusterCall {
                    node: Arc::clone(&self.node),
                    member: member.clone(),
                    checks: checks()
                        .map(|(check, resets)| (check.clone(), resets))
                        .collect(),
                    near,
                    progress: Arc::clone(progress),
                };
                CallPlan::ClusterCall(spread, address.clone())
            }
            _ => CallPlan::One {
                command: step(&self.node.prefix, near, false, checks),
                checks: (0..asked).collect(),
            },
        }
    }

    /// The run for the checks that a single server has left, with the keys of their reservations.
    /// The checks of the first batch begin at `from`.
    fn rest(&self, from: usize, mut left: Vec<usize>) -> CallPlan {
        left.retain(|at| *at >= from);
        let batches = || self.parts.iter().map(|part| &part.batch);
        let numbered = || (from..).zip(batches().flat_map(|batch| self.asked_of(batch)));
        let checks = || {
            let left = numbered().filter(|(at, _)| left.binary_search(at).is_ok());
            left.map(|(_, sent)| sent)
        };
        CallPlan::One {
            command: step(&self.node.prefix, self.node.clock.now(), true, checks),
            checks: left,
        }
    }

    /// The checks of a batch that are sent: those of requests whose deadline had not passed.
    fn asked_of<'b>(&self, batch: &'b Batch) -> impl Iterator<Item = Sent<'b>> {
        let began_us = self.began_us;
        let mut rest = batch.checks.as_slice();
        batch.requests.iter().flat_map(move |request| {
            let (own, others) = rest.split_at(request.checks.min(rest.len()));
            rest = others;
            let sent = if request.deadline.passed(began_us) {
                &[]
            } else {
                own
            };
            sent.iter()
                .map(|check| (check, request.purpose == Purpose::Reset))
        })
    }

    fn asked(&self, batch: &Batch) -> usize {
        self.asked_of(batch).count()
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
        let Some(part) = self.parts.pop_front() else {
            return from;
        };
        let to = from.saturating_add(self.asked(&part.batch));
        let answers = progress.answers(from, to);
        for fault in answers.iter().filter_map(|answer| answer.err()) {
            let before = undecided.map_or(0, |(checks, _)| checks);
            *undecided = Some((before.saturating_add(1), fault));
        }
        self.answer(part, &mut answers.into_iter());
        to
    }

    /// Answers a batch.
    fn answer(
        &mut self,
        mut part: CallBatch,
        outcomes: &mut impl Iterator<Item = Result<Outcome, StoreFault>>,
    ) {
        let now_us = self.node.clock.uptime_us();
        if let Some(until_us) = part.gives_back_until_us {
            self.conclude_give_back(&part.batch.checks, outcomes, now_us, until_us);
            self.node.send_back(part);
            return;
        }
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
            answers.extend(
                own.iter()
                    .map(|check| self.node.answer_of(check, outcomes.next(), now_us)),
            );
            if request.purpose == Purpose::Reset {
                let decided = answers.get(before..).unwrap_or_default();
                for (check, answer) in own.iter().zip(decided) {
                    self.node.refused.reset(check, answer.as_ref().ok(), now_us);
                }
            }
            if request.purpose == Purpose::DecideTentatively
                && let Some(store) = refund_sink
            {
                let decided = answers.get(before..).unwrap_or_default();
                request.tentative = Some(TentativeTake::new(
                    Arc::clone(store),
                    own.iter().zip(decided),
                ));
            }
        }
        self.node.send_back(part);
    }

    /// Counts the refunds that were carried out, and keeps those that were not and can be retried.
    fn conclude_give_back(
        &mut self,
        checks: &[Check],
        outcomes: &mut impl Iterator<Item = Result<Outcome, StoreFault>>,
        now_us: u64,
        until_us: u64,
    ) {
        let mut kept = Vec::new();
        for (check, outcome) in checks.iter().zip(outcomes) {
            match outcome {
                Ok(outcome) => {
                    self.node.given_back.inc();
                    self.node.refused.see(check, &outcome, now_us);
                }
                Err(fault) => {
                    self.node.count_undecided(fault, 1);
                    if fault.outcome_unknown() {
                        self.node.metrics.unknown_outcomes.inc();
                    }
                    // What is not a bucket now is not one later either.
                    if fault.outcome_unknown() || fault == StoreFault::InvalidBucket {
                        self.node.metrics.give_backs_lost.inc();
                    } else {
                        kept.push(check.clone());
                    }
                }
            }
        }
        if !kept.is_empty() {
            self.kept.push((kept, until_us));
        }
    }
}

/// Sends one script run to one server.
async fn one(
    command: &Cmd,
    checks: Vec<usize>,
    progress: &Progress,
    mut connection: Connection,
    again: Counter,
) -> NodeStatus {
    progress.under_way(&checks);
    let reply = value(connection.send_packed_command(command).await);
    let reply = match reply {
        Err(error) if classify(&error) == ErrorClass::NoScript => {
            // Nothing ran.
            again.inc();
            match value(connection.send_packed_command(&load()).await) {
                Ok(_) => value(connection.send_packed_command(command).await),
                Err(error) => Err(error),
            }
        }
        reply => reply,
    };
    let (fault, words) = match reply {
        Ok(Value::BulkString(bytes)) => {
            return NodeStatus {
                left: progress.outcomes(&checks, &bytes),
                ..NodeStatus::default()
            };
        }
        Ok(_) => (StoreFault::UnexpectedReply, UNEXPECTED_REPLY.to_owned()),
        Err(error) => match classify(&error) {
            ErrorClass::Fault(fault) => (fault, error.to_string()),
            ErrorClass::NoScript => (StoreFault::Sharded, LOST_SCRIPT.to_owned()),
        },
    };
    progress.fail(&checks, fault);
    NodeStatus {
        fault: Some((fault, words)),
        ..NodeStatus::default()
    }
}

fn to_f64(count: u64) -> f64 {
    #[allow(clippy::cast_precision_loss)] // no call has so many
    let count = count as f64;
    count
}

// === impl Node ===

impl Node {
    /// A check's result, counted.
    fn answer_of(
        &self,
        check: &Check,
        outcome: Option<Result<Outcome, StoreFault>>,
        now_us: u64,
    ) -> CheckResult {
        match outcome.unwrap_or(Err(StoreFault::InvalidBucket)) {
            Ok(outcome) => {
                self.refused.see(check, &outcome, now_us);
                Ok(outcome)
            }
            Err(fault) => {
                if fault.outcome_unknown() {
                    self.metrics.unknown_outcomes.inc();
                }
                self.count_undecided(fault, 1);
                Err(StoreError::Unavailable(fault))
            }
        }
    }

    /// Answers a batch that was not sent with a fault.
    pub(super) fn undecided(&self, mut part: CallBatch, fault: StoreFault) {
        let checks = part.batch.checks.len();
        self.count_undecided(fault, checks);
        part.batch.answer_all(&StoreError::Unavailable(fault));
        self.send_back(part);
    }

    /// Sends an answered batch back and frees its space in the queue.
    pub(super) fn send_back(&self, part: CallBatch) {
        let checks = part.batch.checks.len();
        self.levels.waiting.fetch_sub(checks, Ordering::AcqRel);
        part.batch.send_back();
    }
}
