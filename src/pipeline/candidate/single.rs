//! Candidates of single calls: `/json` and unusual gRPC calls.
//!
//! The caller has its answer when its request is put into the queue. One task decides the requests
//! one after the other. The queue is bounded in requests and in bytes; beyond that a request is
//! skipped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use crate::metrics::CandidateSums;
use crate::pipeline::pending::{KeyCounts, PendingRequest, Scratch};
use crate::pipeline::{Generation, Pipeline};
use crate::store::Deadline;

/// How many requests wait.
const WAITING_MAX: usize = 1_024;

/// How many bytes their messages have together.
const WAITING_BYTES_MAX: usize = 4 << 20;

type Waiting = PendingRequest<Arc<Generation>>;

/// The end of the queue that calls put requests in.
#[derive(Debug)]
pub(in crate::pipeline) struct SingleSender {
    queue: mpsc::Sender<Waiting>,
    bytes: Arc<AtomicUsize>,
}

/// The requests of single calls that wait for the candidate.
#[derive(Debug)]
pub struct SingleQueue {
    queue: mpsc::Receiver<Waiting>,
    bytes: Arc<AtomicUsize>,
}

pub(super) fn pair() -> (SingleSender, SingleQueue) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let bytes = Arc::<AtomicUsize>::default();
    let sender = SingleSender {
        queue: sender,
        bytes: Arc::clone(&bytes),
    };
    let queue = SingleQueue {
        queue: receiver,
        bytes,
    };
    (sender, queue)
}

// === impl SingleSender ===

impl SingleSender {
    /// Puts a request into the queue. Returns whether there was space.
    pub(in crate::pipeline) fn put(&self, pending: Waiting) -> bool {
        let bytes = pending.message.len();
        let more = |waiting: usize| {
            let waiting = waiting.checked_add(bytes)?;
            (waiting <= WAITING_BYTES_MAX).then_some(waiting)
        };
        let reserved = self
            .bytes
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        if reserved.is_err() {
            return false;
        }
        let put = self.queue.try_send(pending).is_ok();
        if !put {
            self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        }
        put
    }
}

// === impl Pipeline ===

impl Pipeline {
    /// Decides the requests of single calls by the candidate, until the pipeline's callers are
    /// gone.
    pub async fn decide_candidates(self: Arc<Self>, mut queue: SingleQueue) {
        let Some(partitions) = &self.candidates else {
            return;
        };
        let recorder = self.decisions.tap_recorder();
        let mut scratch = Scratch::new(&self.metrics, KeyCounts::Off, Some(recorder));
        let mut sums = CandidateSums::default();
        while let Some(mut pending) = queue.queue.recv().await {
            let bytes = pending.message.len();
            if self.begin_candidate(&mut pending, &mut scratch) {
                let checks = pending.checks().to_vec();
                if !checks.is_empty() {
                    let all: Vec<usize> = (0..checks.len()).collect();
                    let commit_mode = pending.commit_mode();
                    let store = &partitions.store;
                    let applied = store.apply(checks, Deadline::NEVER, commit_mode).await;
                    pending.results().record_at(&all, applied);
                }
                let now_us = self.uptime_us();
                self.finish_candidate(&mut pending, &mut scratch, &mut sums, now_us);
                sums.flush();
            }
            queue.bytes.fetch_sub(bytes, Ordering::AcqRel);
        }
    }
}
