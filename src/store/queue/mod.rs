//! Queues: how checks come to the workers that decide them, however many ask and however many decide.
//!
//! Why a room of its own: the memory store has one worker a partition, the Redis store one a server, and both want the same
//! of the way there: a bound that is exact, one message for all that is ready, answers in the order asked, and what was
//! taken tentatively never lost on the way.
//!
//! How: a check's queue is chosen by [`Route`]. A request whose checks lie in several sends each its share and waits for
//! all. The bound counts checks: room is reserved in every queue concerned before anything is sent, so for want of room a
//! request is shed whole, at once. Later a check may still go undecided; the others of its request keep their outcomes.
//!
//! What it deliberately does not do: decide, look into a check further than its route, bound what goes back.

mod batch;
mod batch_client;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};

pub(crate) use self::batch::{Batch, BatchRequest, ReplySender};
pub(crate) use self::batch_client::QueueBatchClient;
use crate::metrics::{Counter, PartitionLevels};
use crate::store::{
    CheckResult, CommitMode, Deadline, RefundSink, StoreError, StoreReply, TentativeTake,
};
use tollgate_limiter::Check;

/// What one worker is told.
pub(crate) enum Message {
    /// Decide these.
    Decide(Box<Batch>),
    /// Undo what these name.
    Refund(Vec<Check>),
}

/// One a worker; never empty, never changed.
#[derive(Debug)]
pub(crate) struct Queues {
    each: Vec<Queue>,
    route: Route,
    bounds: QueueLimits,
}

/// Which queue a check belongs in.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// By its key, evenly.
    ByKey,
    /// As this says, from one moment to the next.
    Selected(Arc<dyn QueueSelector>),
}

/// Chooses queues by number.
pub(crate) trait QueueSelector: fmt::Debug + Send + Sync {
    fn queue_of(&self, check: &Check) -> usize;
}

/// What a queue holds, and what it says when it is full.
#[derive(Debug)]
pub(crate) struct QueueLimits {
    /// How many checks may wait in each.
    pub(crate) waiting_max: usize,
    /// How much the checks in one message may weigh together; one that weighs more goes alone.
    pub(crate) batch_weight_max: usize,
    /// What a check weighs.
    pub(crate) weigh: fn(&Check) -> usize,
    /// What whoever finds it full is told.
    pub(crate) full: StoreError,
    /// Counts checks that were.
    pub(crate) shed: Counter,
}

/// The way to one worker.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Unbounded on purpose: `levels.waiting` is the bound, in checks, and costs no lock.
    pub(crate) sender: mpsc::UnboundedSender<Message>,
    pub(crate) levels: Arc<PartitionLevels>,
}

/// QueuePermit reserved in a queue; given back if nothing is sent.
struct QueuePermit<'m> {
    waiting: &'m AtomicUsize,
    checks: usize,
}

// === impl Queues ===

impl Queues {
    /// Queues with these bounds. There must be one at least.
    pub(crate) fn new(queues: Vec<Queue>, route: Route, bounds: QueueLimits) -> Self {
        Self {
            each: queues,
            route,
            bounds,
        }
    }

    /// The queue of a check. A partition's table finds a key by its lower half, so the upper half chooses the partition.
    fn number_of(&self, check: &Check) -> usize {
        match &self.route {
            Route::ByKey => {
                let upper = check.key.0.checked_shr(64).unwrap_or_default();
                let count = self.each.len() as u128;
                usize::try_from(upper.checked_rem(count).unwrap_or_default()).unwrap_or_default()
            }
            Route::Selected(choose) => choose.queue_of(check),
        }
    }

    /// Asks, and waits for the answers.
    pub(crate) async fn apply(
        self: &Arc<Self>,
        checks: Vec<Check>,
        deadline: Deadline,
        commit_mode: CommitMode,
    ) -> Result<StoreReply, StoreError> {
        // A share that was not decided leaves its checks without an outcome; the others keep theirs.
        let mut answers: Vec<CheckResult> = vec![Err(StoreError::Stopped); checks.len()];
        let mut tentative: Option<TentativeTake> = None;
        for reply in self.send(checks, deadline, commit_mode)? {
            let Ok(mut batch) = reply.await else {
                continue;
            };
            for (position, answer) in batch.positions.iter().zip(batch.answers.drain(..)) {
                if let Some(slot) = answers.get_mut(*position) {
                    *slot = answer;
                }
            }
            for request in &mut batch.requests {
                TentativeTake::merge(&mut tentative, request.tentative.take());
            }
        }
        match undecided(&answers) {
            Some(error) => Err(error),
            None => Ok(StoreReply { answers, tentative }),
        }
    }

    /// Sends every share or none.
    fn send(
        self: &Arc<Self>,
        checks: Vec<Check>,
        deadline: Deadline,
        commit_mode: CommitMode,
    ) -> Result<Vec<oneshot::Receiver<Box<Batch>>>, StoreError> {
        let count = checks.len();
        let shares = self.shares(checks);
        let rooms: Option<Vec<(&Queue, QueuePermit<'_>)>> = shares
            .iter()
            .map(|(number, batch)| {
                let queue = self.each.get(*number)?;
                let room = queue.reserve(batch.checks.len(), self.bounds.waiting_max)?;
                Some((queue, room))
            })
            .collect();
        let rooms = rooms.ok_or_else(|| self.full(count))?;
        shares
            .into_iter()
            .zip(rooms)
            .map(|((_, mut batch), (queue, room))| {
                let (reply, outcomes) = oneshot::channel();
                let is_tentative = commit_mode == CommitMode::Tentative;
                batch.requests.push(BatchRequest {
                    ticket: 0,
                    checks: batch.checks.len(),
                    deadline,
                    is_tentative,
                    is_elsewhere: false,
                    tentative: None,
                });
                batch.refund_sink = is_tentative.then(|| Arc::clone(self) as Arc<dyn RefundSink>);
                batch.reply = Some(ReplySender::Once(reply));
                queue
                    .sender
                    .send(Message::Decide(batch))
                    .map_err(|_| StoreError::Stopped)?;
                room.keep();
                Ok(outcomes)
            })
            .collect()
    }

    /// What is said of so many checks for which there is no room; it is counted.
    fn full(&self, checks: usize) -> StoreError {
        self.bounds.shed.inc_by(checks as u64);
        self.bounds.full.clone()
    }

    /// Which of `checks` go where: a queue's number, and a batch without a request yet.
    fn shares(&self, checks: Vec<Check>) -> Vec<(usize, Box<Batch>)> {
        let mut shares: Vec<(usize, Box<Batch>)> = Vec::with_capacity(1);
        for (position, check) in checks.into_iter().enumerate() {
            let number = self.number_of(&check);
            if let Some((_, batch)) = shares.iter_mut().find(|(known, _)| *known == number) {
                batch.push(position, check);
            } else {
                let mut batch = Box::<Batch>::default();
                batch.push(position, check);
                shares.push((number, batch));
            }
        }
        shares
    }
}

impl RefundSink for Queues {
    fn refund(&self, checks: Vec<Check>) {
        for (number, batch) in self.shares(checks) {
            if let Some(queue) = self.each.get(number) {
                // A worker that has gone has taken its buckets along, or says itself that it could not give back.
                drop(queue.sender.send(Message::Refund(batch.checks)));
            }
        }
    }
}

/// Why not a single check was decided, if no worker even looked at one.
fn undecided(answers: &[CheckResult]) -> Option<StoreError> {
    let not_looked_at = |answer: &CheckResult| {
        matches!(
            answer,
            Err(StoreError::DeadlineExceeded | StoreError::Stopped | StoreError::Unavailable(_))
        )
    };
    match answers.first() {
        Some(Err(error)) if answers.iter().all(not_looked_at) => Some(error.clone()),
        _ => None,
    }
}

// === impl Message ===

impl Message {
    /// How many checks it carries.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Decide(batch) => batch.checks.len(),
            Self::Refund(checks) => checks.len(),
        }
    }
}

// === impl Queue ===

impl Queue {
    /// QueuePermit for so many checks more, where all that wait are then no more than `waiting_max`: at no instant are they, even
    /// while others reserve.
    fn reserve(&self, checks: usize, waiting_max: usize) -> Option<QueuePermit<'_>> {
        let waiting = &self.levels.waiting;
        let more = |waiting: usize| {
            let waiting = waiting.checked_add(checks)?;
            (waiting <= waiting_max).then_some(waiting)
        };
        waiting
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .ok()?;
        Some(QueuePermit { waiting, checks })
    }
}

// === impl QueuePermit ===

impl QueuePermit<'_> {
    /// The checks are on their way: the worker gives the room back.
    fn keep(mut self) {
        self.checks = 0;
    }
}

impl Drop for QueuePermit<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.checks, Ordering::AcqRel);
    }
}
