//! Memory of answers that clients have not read, bounded for a connection and for the process.
//!
//! Why: a call of a few bytes can have an answer of megabytes, and a client need not read it. How:
//! a call takes what its answer can need before it is carried out, gives back the difference once
//! the answer is known, and the rest when the answer is sent. While a connection's own answers are
//! in the way, its next call waits for the client to read. A connection may hold as much as is free
//! afterwards ([`ByteBudget`]), so an answer to another one always finds some. Requests that wait,
//! and bodies that arrive, take from a budget of the same size.
//!
//! What it deliberately does not do: know what an answer is, or bound a single one.

use std::pin::pin;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tollgate_http2::ByteBudget;

use crate::metrics::{AnswerMetrics, Metrics};
use crate::per_thread::lock;
use crate::settings::Settings;
use crate::settings::memory_limit::answer_bytes;

/// The bound of the process.
#[derive(Debug)]
pub(crate) struct AnswerMemory {
    answers: ByteBudget,
    requests: ByteBudget,
    metrics: AnswerMetrics,
}

/// What one connection holds.
#[derive(Debug)]
pub(crate) struct ConnectionAnswers {
    memory: Arc<AnswerMemory>,
    held: Mutex<Held>,
    /// An answer of this connection was sent.
    sent: Notify,
    /// Held by the call that waits; later ones wait behind it.
    queue: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Held {
    answer_bytes: u64,
    request_bytes: u64,
}

/// Memory of one answer, until it is dropped.
#[derive(Debug)]
pub(crate) struct AnswerPermit {
    connection: Arc<ConnectionAnswers>,
    bytes: u64,
}

/// Memory of one request that waits or arrives, until it is dropped.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    connection: Arc<ConnectionAnswers>,
    bytes: u64,
}

/// There is no memory for the answer to a call, which was not carried out.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "too many answers wait to be read; read them, send fewer calls at a time, or raise --answer-memory-max"
)]
pub(crate) struct AnswerMemoryFull;

// === impl AnswerMemory ===

impl AnswerMemory {
    /// Memory as the settings say.
    pub(crate) fn of(settings: &Settings, metrics: &Metrics) -> Arc<Self> {
        let bytes_max = settings
            .answer_memory_max
            .unwrap_or_else(|| answer_bytes(settings.answer_size_max));
        Self::new(bytes_max, metrics.answers.clone())
    }

    /// Memory for answers of this many bytes, and for as many of requests.
    fn new(bytes_max: u64, metrics: AnswerMetrics) -> Arc<Self> {
        let memory = Arc::new(Self {
            answers: ByteBudget::new(bytes_max),
            requests: ByteBudget::new(bytes_max),
            metrics,
        });
        let held = |of: fn(&Self) -> &ByteBudget| {
            let memory = Arc::downgrade(&memory);
            move || {
                memory
                    .upgrade()
                    .map_or(0, |memory| of(&memory).held_bytes())
            }
        };
        let metrics = &memory.metrics;
        metrics
            .unread_bytes
            .read_from(held(|memory| &memory.answers));
        metrics
            .waiting_bytes
            .read_from(held(|memory| &memory.requests));
        memory
    }

    /// Counts an answer for which there is no memory because of other connections.
    pub(crate) fn count_refused(&self) {
        self.metrics.refused_process.inc();
    }

    /// A connection that holds nothing yet.
    pub(crate) fn connection(self: &Arc<Self>) -> Arc<ConnectionAnswers> {
        Arc::new(ConnectionAnswers {
            memory: Arc::clone(self),
            held: Mutex::default(),
            sent: Notify::new(),
            queue: tokio::sync::Mutex::new(()),
        })
    }
}

// === impl ConnectionAnswers ===

impl ConnectionAnswers {
    /// Memory of an answer that has no bytes yet.
    pub(crate) fn no_bytes(self: &Arc<Self>) -> AnswerPermit {
        AnswerPermit {
            connection: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Takes memory for an answer now, if there is any.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Option<AnswerPermit> {
        let mut held = lock(&self.held);
        if !self.memory.answers.take(held.answer_bytes, bytes) {
            return None;
        }
        held.answer_bytes = held.answer_bytes.saturating_add(bytes);
        let mut permit = self.no_bytes();
        permit.bytes = bytes;
        Some(permit)
    }

    /// Memory of a request of which nothing has arrived yet.
    pub(crate) fn request(self: &Arc<Self>) -> RequestPermit {
        RequestPermit {
            connection: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Takes memory for an answer of at most `answer_bytes`, to a request of `request_bytes`. Waits
    /// while other answers of this connection are in the way.
    ///
    /// # Errors
    ///
    /// When other connections hold the memory, or too many requests of this one wait.
    pub(crate) async fn reserve(
        self: &Arc<Self>,
        answer_bytes: u64,
        request_bytes: u64,
    ) -> Result<AnswerPermit, AnswerMemoryFull> {
        let bytes_max = self.memory.answers.connection_bytes_max();
        let bytes = answer_bytes.saturating_add(request_bytes).min(bytes_max);
        if let Ok(_first) = self.queue.try_lock()
            && let Some(permit) = self.take(bytes)
        {
            return Ok(permit);
        }
        let metrics = &self.memory.metrics;
        let mut waiting = self.request();
        if !waiting.grow(request_bytes) {
            if lock(&self.held).request_bytes > 0 {
                metrics.refused_connection.inc();
            } else {
                metrics.refused_process.inc();
            }
            return Err(AnswerMemoryFull);
        }
        metrics.waited.inc();
        let _first = self.queue.lock().await;
        loop {
            let mut sent = pin!(self.sent.notified());
            sent.as_mut().enable();
            if let Some(permit) = self.take(bytes) {
                return Ok(permit);
            }
            if lock(&self.held).answer_bytes == 0 {
                metrics.refused_process.inc();
                return Err(AnswerMemoryFull);
            }
            sent.await;
        }
    }
}

// === impl AnswerPermit ===

impl AnswerPermit {
    /// How many bytes it holds.
    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or_default()
    }

    /// The answer is known to have this many bytes. It keeps them even where there are fewer free.
    pub(crate) fn resize(&mut self, bytes: u64) {
        let answers = &self.connection.memory.answers;
        let mut held = lock(&self.connection.held);
        let more = bytes.saturating_sub(self.bytes);
        let less = self.bytes.saturating_sub(bytes);
        answers.take_always(more);
        answers.release(less);
        held.answer_bytes = held.answer_bytes.saturating_add(more).saturating_sub(less);
        drop(held);
        self.bytes = bytes;
        if less > 0 {
            self.connection.sent.notify_waiters();
        }
    }
}

impl Drop for AnswerPermit {
    fn drop(&mut self) {
        self.resize(0);
    }
}

// === impl RequestPermit ===

impl RequestPermit {
    /// Takes memory for more of the request. False if there is none.
    pub(crate) fn grow(&mut self, bytes: u64) -> bool {
        let mut held = lock(&self.connection.held);
        let taken = self
            .connection
            .memory
            .requests
            .take(held.request_bytes, bytes);
        if taken {
            held.request_bytes = held.request_bytes.saturating_add(bytes);
            self.bytes = self.bytes.saturating_add(bytes);
        }
        taken
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let mut held = lock(&self.connection.held);
        held.request_bytes = held.request_bytes.saturating_sub(self.bytes);
        self.connection.memory.requests.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    fn memory(bytes_max: u64) -> (Arc<AnswerMemory>, Metrics) {
        let metrics = Metrics::new().unwrap();
        let memory = AnswerMemory::new(bytes_max, metrics.answers.clone());
        (memory, metrics)
    }

    /// Whether a future is ready when it is polled once.
    async fn now<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        tokio::select! {
            biased;
            done = future => Some(done),
            () = std::future::ready(()) => None,
        }
    }

    #[tokio::test]
    async fn a_call_waits_for_the_answers_of_its_connection_in_turn() {
        let (memory, metrics) = memory(1_000);
        let connection = memory.connection();
        let mut first = connection.reserve(400, 100).await.unwrap();
        let mut large = pin!(connection.reserve(300, 100));
        let mut small = pin!(connection.reserve(50, 10));
        assert!(now(large.as_mut()).await.is_none());
        assert!(
            now(small.as_mut()).await.is_none(),
            "it would pass the large one"
        );
        assert_eq!(metrics.answers.waited.get(), 2);
        first.resize(400);
        assert!(
            now(large.as_mut()).await.is_none(),
            "it needs 400 more, and 600 are free"
        );
        drop(first);
        let large = now(large.as_mut()).await.expect("memory").unwrap();
        let small = now(small.as_mut()).await.expect("memory").unwrap();
        assert_eq!(memory.answers.held_bytes(), 460);
        drop((large, small));
        assert_eq!(memory.answers.held_bytes(), 0);
        assert_eq!(memory.requests.held_bytes(), 0);
    }

    #[tokio::test]
    async fn a_call_is_refused_when_others_hold_the_memory_or_too_many_wait() {
        let (memory, metrics) = memory(1_000);
        let (greedy, other) = (memory.connection(), memory.connection());
        // More than half is never asked for.
        let held = greedy.reserve(5_000, 0).await.unwrap();
        assert_eq!(memory.answers.held_bytes(), 500);
        let refused = other.reserve(251, 0).await.map(drop);
        assert_eq!(refused, Err(AnswerMemoryFull), "249 would be free");
        assert_eq!(metrics.answers.refused_process.get(), 1);
        let more = other.reserve(250, 0).await.unwrap();
        let third = memory.connection();
        assert!(third.take(126).is_none());
        assert!(third.take(125).is_some(), "as much is left for it");
        // Requests that wait hold memory, too.
        let mut waiting = pin!(greedy.reserve(1, 500));
        assert!(now(waiting.as_mut()).await.is_none());
        let refused = greedy.reserve(1, 1).await.map(drop);
        assert_eq!(refused, Err(AnswerMemoryFull));
        assert_eq!(metrics.answers.refused_connection.get(), 1);
        assert_eq!(metrics.answers.waiting_bytes.value(), 500);
        let refused = other.reserve(300, 251).await.map(drop);
        assert_eq!(refused, Err(AnswerMemoryFull));
        assert_eq!(metrics.answers.refused_process.get(), 2, "others wait");
        drop((held, more));
        assert!(now(waiting.as_mut()).await.is_some());
    }
}
