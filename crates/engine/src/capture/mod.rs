//! Captures requests while they are decided, for a recording: each with its answer, and with the
//! order and the time at which partition workers decided its checks.
//!
//! | file | what |
//! | --- | --- |
//! | `writer` | what one thread writes: requests, refunds, resets |
//! | `buffer` | the buffer of one thread |
//! | `in_flight` | the requests of one thread that are not written yet |
//! | `item` | the protobuf encoding of items, by hand |
//! | `session` | what is recorded: sampling, rate; the channel of full buffers |
//! | `recording` | the reader's side: buffers, watermarks, what was skipped |
//! | `walk` | reads items again, to cut or to hash them |
//! | `compared`, `hashing` | values that rules compare, and hashes of the others |
//!
//! How: while a recording runs, workers take numbers from one counter, once a batch. The numbers
//! come back with the replies. A thread that has answered a request writes it into a buffer of its
//! own. Full buffers go over a bounded channel, and the recording takes the others every 50 ms. A
//! full channel skips requests and counts them; no thread waits.
//!
//! Without a recording a batch and a request cost one relaxed load.
//!
//! What it deliberately does not do: HTTP (`admin/record`), files (the client writes them).

mod buffer;
mod compared;
mod hashing;
mod in_flight;
mod item;
mod recording;
mod session;
mod walk;
mod writer;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use self::buffer::SharedWriter;
pub use self::compared::{ComparedKey, ComparedKeys};
pub use self::hashing::hash_values;
pub use self::item::encode_item;
pub use self::recording::{Buffer, Recording, Window};
use self::session::Session;
pub use self::session::{RecordingOptions, Sampling};
pub(crate) use self::writer::{CaptureWriter, CapturedRequest};
use tollgate_store::{PartitionRecorder, RefundRecorder};
use tollgate_system::per_thread::{PerThread, lock};

/// Captures the requests of one service. There is at most one recording at a time.
#[derive(Debug)]
pub struct Capture {
    /// The number of the recording that runs; 0 for none.
    running: AtomicU64,
    orders: Orders,
    current: Mutex<Current>,
    /// What each thread writes into.
    writers: PerThread<SharedWriter>,
}

/// The counter of checks, in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Orders(AtomicU64);

#[derive(Debug, Default)]
struct Current {
    session: Option<Arc<Session>>,
    /// How many recordings there were.
    count: u64,
}

/// There is a recording already.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a recording is running already; end it, or wait for its end")]
pub struct AlreadyRecording;

// === impl Capture ===

impl Capture {
    /// Captures nothing until [`Capture::record`].
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            running: AtomicU64::new(0),
            // 0 stands for no number.
            orders: Orders(AtomicU64::new(1)),
            current: Mutex::default(),
            writers: PerThread::default(),
        })
    }

    /// The number of the recording that runs; 0 for none.
    #[inline]
    fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }

    /// The number that the next check gets.
    fn next_order(&self) -> u64 {
        self.orders.0.load(Ordering::Acquire)
    }

    /// What one more thread, or one more worker, writes with.
    pub(crate) fn writer(self: &Arc<Self>) -> CaptureWriter {
        let shared = self.writers.add(SharedWriter::default());
        CaptureWriter::new(Arc::clone(self), shared)
    }

    /// Starts a recording. It ends when it is dropped.
    ///
    /// # Errors
    ///
    /// When one is running.
    pub fn record(
        self: &Arc<Self>,
        options: RecordingOptions,
    ) -> Result<Recording, AlreadyRecording> {
        let mut current = lock(&self.current);
        if current.session.is_some() {
            return Err(AlreadyRecording);
        }
        current.count = current.count.saturating_add(1);
        let (session, buffers) = Session::new(current.count, options);
        let session = Arc::new(session);
        current.session = Some(Arc::clone(&session));
        self.running.store(session.number, Ordering::Release);
        drop(current);
        Ok(Recording::new(Arc::clone(self), session, buffers))
    }

    /// Stops capturing, and frees what threads have written and nobody reads.
    fn stop(&self) {
        let mut current = lock(&self.current);
        self.running.store(0, Ordering::Release);
        let ended = current.session.take();
        drop(current);
        if let Some(ended) = ended {
            ended.spare.free();
        }
        for writer in self.writers.all() {
            writer.free();
        }
    }

    /// The recording of this number, if it runs.
    fn session(&self, number: u64) -> Option<Arc<Session>> {
        let current = lock(&self.current);
        current
            .session
            .clone()
            .filter(|session| session.number == number)
    }
}

impl PartitionRecorder for Capture {
    fn is_running(&self) -> bool {
        self.running() != 0
    }

    fn take_orders(&self, checks: usize) -> u64 {
        self.orders.0.fetch_add(checks as u64, Ordering::AcqRel)
    }

    fn refunds(self: Arc<Self>) -> Box<dyn RefundRecorder> {
        Box::new(self.writer())
    }
}
