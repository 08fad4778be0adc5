//! What travels to a worker and back: the checks of many requests, and then their answers.
//!
//! Why one thing both ways: a message a request, and a channel of its own for the answer, cost several times what deciding
//! does. A batch goes there with checks and comes back with answers, and its vectors go round again and again, so that in
//! the steady state neither side allocates.
//!
//! What it deliberately does not do: bound how many checks wait (the sender does), decide, know who asks.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::store::{CheckResult, Deadline, RefundSink, StoreError, TentativeTake, Ticket};
use tollgate_limiter::Check;

/// Checks for one worker, and after it has seen them their answers.
#[derive(Default)]
pub(crate) struct Batch {
    /// One a request, in the order asked.
    pub(crate) requests: Vec<BatchRequest>,
    /// The checks of all requests, one after the other.
    pub(crate) checks: Vec<Check>,
    /// Where each check stands among those of its request.
    pub(crate) positions: Vec<usize>,
    /// One a check, once decided.
    pub(crate) answers: Vec<CheckResult>,
    /// Where what was taken tentatively goes back to when nobody says that its request passed; none when nothing is on tentative.
    pub(crate) refund_sink: Option<Arc<dyn RefundSink>>,
    /// Where it goes when it is decided.
    pub(crate) reply: Option<ReplySender>,
}

/// What one request asks of one worker.
pub(crate) struct BatchRequest {
    pub(crate) ticket: Ticket,
    /// How many of the batch's checks are its own.
    pub(crate) checks: usize,
    pub(crate) deadline: Deadline,
    pub(crate) is_tentative: bool,
    /// Whether its answers come in another batch.
    pub(crate) is_elsewhere: bool,
    /// What it took tentatively, once decided.
    pub(crate) tentative: Option<TentativeTake>,
}

/// Where a batch goes back to.
pub(crate) enum ReplySender {
    /// To somebody who waits for this one.
    Once(oneshot::Sender<Box<Batch>>),
    /// To somebody who sends many.
    Many(mpsc::UnboundedSender<Box<Batch>>),
}

// === impl Batch ===

impl Batch {
    /// Adds a check to the request that is the last.
    pub(crate) fn push(&mut self, position: usize, check: Check) {
        self.positions.push(position);
        self.checks.push(check);
        if let Some(request) = self.requests.last_mut() {
            request.checks = request.checks.saturating_add(1);
        }
    }

    /// Whether nobody waits for the answers.
    pub(crate) fn is_abandoned(&self) -> bool {
        match &self.reply {
            None => true,
            Some(ReplySender::Once(reply)) => reply.is_closed(),
            Some(ReplySender::Many(reply)) => reply.is_closed(),
        }
    }

    /// Answers every check that nobody will decide it.
    pub(crate) fn answer_all(&mut self, error: &StoreError) {
        self.answers.clear();
        let undecided = self.checks.iter().map(|_| Err(error.clone()));
        self.answers.extend(undecided);
    }

    /// Back to where it came from. Whoever asked may have left: what was taken then stays taken, or, tentatively, goes back
    /// with the batch that nobody took.
    pub(crate) fn send_back(mut self: Box<Self>) {
        match self.reply.take() {
            None => {}
            Some(ReplySender::Once(reply)) => drop(reply.send(self)),
            Some(ReplySender::Many(reply)) => drop(reply.send(self)),
        }
    }

    /// Ready for other checks, in the same memory.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.checks.clear();
        self.positions.clear();
        self.answers.clear();
        self.refund_sink = None;
    }
}
