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

mod partition;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};

use self::partition::Partition;
pub use self::worker::PartitionWorker;
use self::worker::{Message, Question};
use super::{Answer, Applied, Applying, Deadline, GiveBack, Store, StoreError, Terms, Trial};
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
    /// How many buckets all partitions hold together.
    pub buckets_max: usize,
    /// How many marks (logged hits, segments, slots) all buckets hold together.
    pub marks_max: usize,
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

/// Which checks of a request go to one partition.
struct Share {
    partition: usize,
    /// Their positions in the request; none said where there is one share of one check.
    positions: Vec<usize>,
    checks: Vec<Check>,
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
        let buckets_max = bounds.buckets_max.div_ceil(partitions).max(1);
        let marks_max = bounds.marks_max.div_ceil(partitions);
        let (mailboxes, workers) = (0..partitions)
            .map(|number| {
                let (sender, receiver) = mpsc::unbounded_channel();
                let levels = metrics.partition_levels(number);
                let mailbox = Mailbox {
                    sender,
                    levels: Arc::clone(&levels),
                };
                let worker = PartitionWorker::new(
                    Partition::new(buckets_max, marks_max),
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
    ) -> Result<Vec<(Vec<usize>, Reply)>, StoreError> {
        let count = checks.len();
        let shares = self.mailboxes.shares(checks);
        let rooms: Option<Vec<(&Mailbox, Room<'_>)>> = shares
            .iter()
            .map(|share| {
                let mailbox = self.mailboxes.0.get(share.partition)?;
                Some((
                    mailbox,
                    mailbox.reserve(share.checks.len(), self.waiting_max)?,
                ))
            })
            .collect();
        let rooms = rooms.ok_or_else(|| self.overloaded(count))?;
        shares
            .into_iter()
            .zip(rooms)
            .map(|(share, (mailbox, room))| {
                let (reply, outcomes) = oneshot::channel();
                let message = Message::Ask(Question {
                    checks: share.checks,
                    deadline,
                    on_trial: match terms {
                        Terms::Final => None,
                        Terms::OnTrial => Some(Arc::clone(&self.mailboxes) as Arc<dyn GiveBack>),
                    },
                    reply,
                });
                mailbox
                    .sender
                    .send(message)
                    .map_err(|_| StoreError::Stopped)?;
                room.keep();
                Ok((share.positions, outcomes))
            })
            .collect()
    }
}

type Reply = oneshot::Receiver<Result<Applied, StoreError>>;

impl Store for MemoryStore {
    fn apply(&self, checks: Vec<Check>, deadline: Deadline, terms: Terms) -> Applying<'_> {
        Box::pin(async move {
            let count = checks.len();
            let mut sent = self.send(checks, deadline, terms)?;
            if sent.len() == 1
                && let Some((_, reply)) = sent.pop()
            {
                return reply.await.map_err(|_| StoreError::Stopped)?;
            }
            // A share that was not decided leaves its checks without an outcome; the others keep theirs.
            let mut answers: Vec<Answer> = vec![Err(StoreError::Stopped); count];
            let mut trial: Option<Trial> = None;
            for (positions, reply) in sent {
                let share = match reply.await.unwrap_or(Err(StoreError::Stopped)) {
                    Ok(share) => share,
                    Err(error) => Applied {
                        answers: vec![Err(error); positions.len()],
                        trial: None,
                    },
                };
                for (position, answer) in positions.into_iter().zip(share.answers) {
                    if let Some(slot) = answers.get_mut(position) {
                        *slot = answer;
                    }
                }
                match (&mut trial, share.trial) {
                    (Some(trial), Some(share)) => trial.join(share),
                    (None, share) => trial = share,
                    (Some(_), None) => {}
                }
            }
            Ok(Applied { answers, trial })
        })
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

    /// Which of `checks` go where.
    fn shares(&self, checks: Vec<Check>) -> Vec<Share> {
        // Most requests come to one check, which needs no sorting.
        if let [check] = checks.as_slice() {
            return vec![Share {
                partition: self.partition_of(check.key),
                positions: Vec::new(),
                checks,
            }];
        }
        let mut shares: Vec<Share> = Vec::with_capacity(1);
        for (position, check) in checks.into_iter().enumerate() {
            let partition = self.partition_of(check.key);
            match shares.iter_mut().find(|share| share.partition == partition) {
                Some(share) => {
                    share.positions.push(position);
                    share.checks.push(check);
                }
                None => shares.push(Share {
                    partition,
                    positions: vec![position],
                    checks: vec![check],
                }),
            }
        }
        shares
    }
}

impl GiveBack for Mailboxes {
    fn give_back(&self, checks: Vec<Check>) {
        for share in self.shares(checks) {
            if let Some(mailbox) = self.0.get(share.partition) {
                // A worker that has gone has taken its buckets along.
                drop(mailbox.sender.send(Message::GiveBack(share.checks)));
            }
        }
    }
}

// === impl Mailbox ===

impl Mailbox {
    fn reserve(&self, checks: usize, waiting_max: usize) -> Option<Room<'_>> {
        let room = Room {
            waiting: &self.levels.waiting,
            checks,
        };
        let waiting = room.waiting.fetch_add(checks, Ordering::AcqRel);
        // Dropping the room gives it back.
        (waiting.saturating_add(checks) <= waiting_max).then_some(room)
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
