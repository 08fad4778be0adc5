//! The memory store: every bucket in this process, in partitions that each have one owner.
//!
//! Why partitions: a table that one task owns needs no lock, and a decision in it cannot be interrupted by another. How:
//! the upper half of a key's keyed hash picks the partition; the check goes into that partition's mailbox; its worker
//! answers. A request whose checks lie in several partitions sends each its share and waits for all.
//!
//! The bound on a mailbox counts checks, exactly: room is reserved in every mailbox concerned before anything is sent, so
//! for want of room there a request is shed whole, at once. Later a check may still go undecided (a full table, a
//! deadline); the others of its request keep their outcomes.
//!
//! What was taken on trial (`Trial`) goes back as a message of its own, which no bound refuses: there is never more of it
//! than was let in. It lies in wait wherever an answer may be lost: with the caller, in the reply's channel, in the worker.
//!
//! What it deliberately does not do: survive a restart, share with other processes, queue past a full mailbox.

mod asking;
mod batch;
mod bucket;
mod marks_table;
mod partition;
mod room;
mod table;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};

use self::asking::MemoryAsking;
use self::batch::{Batch, Question, Reply};
use self::partition::Partition;
use self::worker::Message;
pub use self::worker::PartitionWorker;
use super::{
    Answer, Applied, Applying, Asking, Deadline, GiveBack, Store, StoreError, Terms, Trial,
};
use crate::clock::Clock;
use crate::limiter::{Check, Key};
use crate::metrics::{Metrics, PartitionLevels};

/// The memory store's bounds.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many partitions; at least 1.
    pub partitions: usize,
    /// How many checks may wait in one partition's mailbox.
    pub mailbox_checks_max: usize,
    /// How many bytes buckets, marks (logged hits, segments, slots) and all that they need to grow may take together.
    pub memory_max: usize,
    /// What becomes of new keys when there is no room and nothing may be forgotten.
    pub when_full: WhenFull,
}

/// What becomes of a check for whose bucket there is no room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WhenFull {
    /// It is counted in a bucket that all such keys of its rule share, one a partition.
    Share,
    /// It passes and is not counted.
    Allow,
    /// It is refused.
    Deny,
    /// It is not decided.
    Error,
}

/// What a partition did for want of room, and for good order.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Buckets that were as good as new.
    freed: u64,
    /// Buckets that were not, but not exhausted either.
    forgotten: u64,
    /// Checks without room, by what became of them.
    shared: u64,
    allowed: u64,
    denied: u64,
}

/// The store's handle: where each partition's mailbox is.
#[derive(Debug)]
pub struct MemoryStore {
    mailboxes: Arc<Mailboxes>,
    /// How many checks may wait in each.
    waiting_max: usize,
    metrics: Arc<Metrics>,
}

/// One a partition; never empty, never changed.
#[derive(Debug)]
struct Mailboxes(Vec<Mailbox>);

#[derive(Debug)]
struct Mailbox {
    /// Unbounded on purpose: `levels.waiting` is the bound, in checks, and costs no lock.
    sender: mpsc::UnboundedSender<Message>,
    levels: Arc<PartitionLevels>,
}

/// Room reserved in a mailbox; given back if nothing is sent.
struct Room<'m> {
    waiting: &'m AtomicUsize,
    checks: usize,
}

// === impl MemoryStore ===

impl MemoryStore {
    /// A store and the workers that own its partitions. The caller spawns them; they end when the store is dropped.
    pub fn pair(
        bounds: &Bounds,
        clock: &Arc<dyn Clock>,
        metrics: &Arc<Metrics>,
    ) -> (Self, Vec<PartitionWorker>) {
        let partitions = bounds.partitions.max(1);
        let bytes_max = bounds.memory_max / partitions;
        metrics
            .memory_max_bytes
            .set(i64::try_from(bounds.memory_max).unwrap_or(i64::MAX));
        let (mailboxes, workers) = (0..partitions)
            .map(|number| {
                let (sender, receiver) = mpsc::unbounded_channel();
                let levels = metrics.partition_levels(number);
                let mailbox = Mailbox {
                    sender,
                    levels: Arc::clone(&levels),
                };
                let worker = PartitionWorker::new(
                    Partition::new(bytes_max, bounds.when_full),
                    receiver,
                    levels,
                    Arc::clone(clock),
                    Arc::clone(metrics),
                );
                (mailbox, worker)
            })
            .unzip();
        let store = Self {
            mailboxes: Arc::new(Mailboxes(mailboxes)),
            waiting_max: bounds.mailbox_checks_max,
            metrics: Arc::clone(metrics),
        };
        (store, workers)
    }

    fn overloaded(&self, checks: usize) -> StoreError {
        self.metrics.shed_mailbox_full.inc_by(checks as u64);
        StoreError::Overloaded {
            waiting_max: self.waiting_max,
        }
    }

    /// Sends every share or none.
    fn send(
        &self,
        checks: Vec<Check>,
        deadline: Deadline,
        terms: Terms,
    ) -> Result<Vec<oneshot::Receiver<Box<Batch>>>, StoreError> {
        let count = checks.len();
        let shares = self.mailboxes.shares(checks);
        let rooms: Option<Vec<(&Mailbox, Room<'_>)>> = shares
            .iter()
            .map(|(partition, batch)| {
                let mailbox = self.mailboxes.0.get(*partition)?;
                Some((
                    mailbox,
                    mailbox.reserve(batch.checks.len(), self.waiting_max)?,
                ))
            })
            .collect();
        let rooms = rooms.ok_or_else(|| self.overloaded(count))?;
        shares
            .into_iter()
            .zip(rooms)
            .map(|((_, mut batch), (mailbox, room))| {
                let (reply, outcomes) = oneshot::channel();
                let on_trial = terms == Terms::OnTrial;
                batch.questions.push(Question {
                    ticket: 0,
                    checks: batch.checks.len(),
                    deadline,
                    on_trial,
                    trial: None,
                });
                batch.give_back =
                    on_trial.then(|| Arc::clone(&self.mailboxes) as Arc<dyn GiveBack>);
                batch.reply = Some(Reply::Once(reply));
                mailbox
                    .sender
                    .send(Message::Ask(batch))
                    .map_err(|_| StoreError::Stopped)?;
                room.keep();
                Ok(outcomes)
            })
            .collect()
    }
}

impl Store for MemoryStore {
    fn apply(&self, checks: Vec<Check>, deadline: Deadline, terms: Terms) -> Applying<'_> {
        Box::pin(async move {
            // A share that was not decided leaves its checks without an outcome; the others keep theirs.
            let mut answers: Vec<Answer> = vec![Err(StoreError::Stopped); checks.len()];
            let mut trial: Option<Trial> = None;
            for reply in self.send(checks, deadline, terms)? {
                let Ok(mut batch) = reply.await else {
                    continue;
                };
                for (position, answer) in batch.positions.iter().zip(batch.answers.drain(..)) {
                    if let Some(slot) = answers.get_mut(*position) {
                        *slot = answer;
                    }
                }
                for question in &mut batch.questions {
                    Trial::join(&mut trial, question.trial.take());
                }
            }
            match undecided(&answers) {
                Some(error) => Err(error),
                None => Ok(Applied { answers, trial }),
            }
        })
    }

    fn asking(&self) -> Option<Box<dyn Asking>> {
        Some(Box::new(MemoryAsking::new(
            Arc::clone(&self.mailboxes),
            self.waiting_max,
            Arc::clone(&self.metrics),
        )))
    }
}

/// Why not a single check was decided, if no worker even looked at one.
fn undecided(answers: &[Answer]) -> Option<StoreError> {
    let not_looked_at = |answer: &Answer| {
        matches!(
            answer,
            Err(StoreError::DeadlineExceeded | StoreError::Stopped)
        )
    };
    match answers.first() {
        Some(Err(error)) if answers.iter().all(not_looked_at) => Some(error.clone()),
        _ => None,
    }
}

// === impl Mailboxes ===

impl Mailboxes {
    /// The partition that owns a key. The lower half of the key finds it in the partition's table, so the upper half
    /// chooses the partition.
    fn partition_of(&self, key: Key) -> usize {
        let upper = key.0.checked_shr(64).unwrap_or_default();
        let count = self.0.len() as u128;
        usize::try_from(upper.checked_rem(count).unwrap_or_default()).unwrap_or_default()
    }

    /// Which of `checks` go where: a partition's number, and a batch without a question yet.
    fn shares(&self, checks: Vec<Check>) -> Vec<(usize, Box<Batch>)> {
        let mut shares: Vec<(usize, Box<Batch>)> = Vec::with_capacity(1);
        for (position, check) in checks.into_iter().enumerate() {
            let partition = self.partition_of(check.key);
            if let Some((_, batch)) = shares.iter_mut().find(|(known, _)| *known == partition) {
                batch.push(position, check);
            } else {
                let mut batch = Box::<Batch>::default();
                batch.push(position, check);
                shares.push((partition, batch));
            }
        }
        shares
    }
}

impl GiveBack for Mailboxes {
    fn give_back(&self, checks: Vec<Check>) {
        for (partition, batch) in self.shares(checks) {
            if let Some(mailbox) = self.0.get(partition) {
                // A worker that has gone has taken its buckets along.
                drop(mailbox.sender.send(Message::GiveBack(batch.checks)));
            }
        }
    }
}

// === impl Mailbox ===

impl Mailbox {
    /// Room for so many checks more, where all that wait are then no more than `waiting_max`: at no instant are they, even
    /// while others reserve.
    fn reserve(&self, checks: usize, waiting_max: usize) -> Option<Room<'_>> {
        let waiting = &self.levels.waiting;
        let more = |waiting: usize| {
            let waiting = waiting.checked_add(checks)?;
            (waiting <= waiting_max).then_some(waiting)
        };
        waiting
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .ok()?;
        Some(Room { waiting, checks })
    }
}

// === impl Room ===

impl Room<'_> {
    /// The checks are on their way: the worker gives the room back.
    fn keep(mut self) {
        self.checks = 0;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.checks, Ordering::AcqRel);
    }
}
