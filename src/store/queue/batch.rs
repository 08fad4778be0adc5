//! A batch: the checks of many requests on the way to a worker, and their results on the way back.
//!
//! One message per request, with a channel of its own for the answer, costs several times what a
//! decision costs. A batch travels both ways and is reused with its vectors, so in the steady state
//! neither side allocates.
//!
//! The sender bounds how many checks wait.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::store::{
    BatchStamp, CheckResult, Deadline, Purpose, RefundSink, StoreError, TentativeTake, Ticket,
};
use tollgate_limiter::Check;

/// Checks for one worker, and then their results.
#[derive(Default)]
pub(crate) struct Batch {
    /// One per request, in order.
    pub(crate) requests: Vec<BatchRequest>,
    /// The checks of all requests, in order.
    pub(crate) checks: Vec<Check>,
    /// The position of each check in its request.
    pub(crate) positions: Vec<usize>,
    /// One per check, once decided.
    pub(crate) answers: Vec<CheckResult>,
    /// Where refunds of tentative takes go; none when nothing is tentative.
    pub(crate) refund_sink: Option<Arc<dyn RefundSink>>,
    /// Where the batch goes once decided.
    pub(crate) reply: Option<mpsc::UnboundedSender<Box<Batch>>>,
}

/// The checks of one request in a batch.
pub(crate) struct BatchRequest {
    pub(crate) ticket: Ticket,
    /// How many of the batch's checks it has.
    pub(crate) checks: usize,
    pub(crate) deadline: Deadline,
    pub(crate) purpose: Purpose,
    /// Whether its results come in another batch.
    pub(crate) is_elsewhere: bool,
    /// Its tentative takes, once decided.
    pub(crate) tentative: Option<TentativeTake>,
    /// When its checks were decided, while a recording runs.
    pub(crate) stamp: Option<BatchStamp>,
}

// === impl Batch ===

impl Batch {
    /// Adds a check to the last request.
    pub(crate) fn push(&mut self, position: usize, check: Check) {
        self.positions.push(position);
        self.checks.push(check);
        if let Some(request) = self.requests.last_mut() {
            request.checks = request.checks.saturating_add(1);
        }
    }

    /// Whether the caller has left.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.reply
            .as_ref()
            .is_none_or(mpsc::UnboundedSender::is_closed)
    }

    /// Whether it asks to forget buckets. Such a batch has no other request.
    pub(crate) fn is_reset(&self) -> bool {
        let first = self.requests.first();
        first.is_some_and(|first| first.purpose == Purpose::Reset)
    }

    /// Gives every check this error.
    pub(crate) fn answer_all(&mut self, error: &StoreError) {
        self.answers.clear();
        let undecided = self.checks.iter().map(|_| Err(error.clone()));
        self.answers.extend(undecided);
    }

    /// Sends the batch back. If the caller has left, tentative takes are given back with the
    /// dropped batch, and other takes stay.
    pub(crate) fn send_back(mut self: Box<Self>) {
        if let Some(reply) = self.reply.take() {
            drop(reply.send(self));
        }
    }

    /// Empties the batch and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.checks.clear();
        self.positions.clear();
        self.answers.clear();
        self.refund_sink = None;
    }
}
