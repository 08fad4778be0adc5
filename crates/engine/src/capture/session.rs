//! What is recorded, and the channel of full buffers. The threads that write share it with the
//! recording.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, TryLockError};

use tokio::sync::mpsc;
use tollgate_limiter::{Request, Timestamp};

use crate::value_hash::ShownValues;
use tollgate_system::event_rate::EventRate;
use tollgate_system::per_thread::lock;

/// The capacity of a buffer, in bytes.
pub(super) const BUFFER_BYTES: usize = 128 << 10;

/// The longest message that is recorded, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// How many full buffers wait for the reader: 16 MiB.
const BUFFERS_MAX: usize = 128;

/// How many empty buffers are kept for later.
const SPARE_MAX: usize = 2 * BUFFERS_MAX;

/// What a recording has.
#[derive(Clone, Debug, Default)]
pub struct RecordingOptions {
    /// Only requests with some values of an entry.
    pub sampling: Option<Sampling>,
    /// At most so many requests a second.
    pub per_second_max: Option<NonZeroU32>,
}

/// All requests that share a value of an entry, or none.
#[derive(Clone, Debug)]
pub struct Sampling {
    /// The key of the entry.
    pub key: Vec<u8>,
    /// One in so many values.
    pub one_in: NonZeroU32,
    /// The keyed hash that chooses values.
    pub values: ShownValues,
}

/// One recording, as the threads that write see it.
#[derive(Debug)]
pub(super) struct Session {
    /// Counted from 1.
    pub(super) number: u64,
    sampling: Option<Sampling>,
    rate: Option<EventRate>,
    pub(super) full: mpsc::Sender<FullBuffer>,
    pub(super) spare: Arc<SpareBuffers>,
}

/// Items that a thread has written.
#[derive(Debug, Default)]
pub(super) struct FullBuffer {
    pub(super) bytes: Vec<u8>,
    pub(super) requests: u64,
}

/// Empty buffers, to be used again.
#[derive(Debug, Default)]
pub(super) struct SpareBuffers(Mutex<Vec<Vec<u8>>>);

// === impl Session ===

impl Session {
    /// A recording, and the receiver of its full buffers.
    pub(super) fn new(
        number: u64,
        options: RecordingOptions,
    ) -> (Self, mpsc::Receiver<FullBuffer>) {
        let (full, buffers) = mpsc::channel(BUFFERS_MAX);
        let session = Self {
            number,
            sampling: options.sampling,
            rate: options.per_second_max.map(EventRate::new),
            full,
            spare: Arc::default(),
        };
        (session, buffers)
    }

    /// Whether the recording has this request, as far as its values say. None without the entry.
    pub(super) fn samples(&self, request: &Request<'_>) -> Option<bool> {
        self.sampling
            .as_ref()
            .map_or(Some(true), |sampling| sampling.samples(request))
    }

    /// Whether the rate admits one more request.
    pub(super) fn admits(&self, now: impl FnOnce() -> Timestamp) -> bool {
        self.rate.as_ref().is_none_or(|rate| rate.passes(now()))
    }
}

// === impl Sampling ===

impl Sampling {
    /// Whether one of the request's values of the entry is sampled. None without the entry.
    fn samples(&self, request: &Request<'_>) -> Option<bool> {
        let mut found = None;
        for descriptor in request.descriptors() {
            for entry in descriptor.entries {
                if entry.key == self.key {
                    let hash = self.values.sample(entry.value);
                    let chosen = hash.checked_rem(u64::from(self.one_in.get())) == Some(0);
                    found = Some(found.unwrap_or(false) || chosen);
                }
            }
        }
        found
    }
}

// === impl SpareBuffers ===

impl SpareBuffers {
    /// An empty buffer.
    pub(super) fn take(&self) -> Vec<u8> {
        // A thread that decides does not wait for another.
        let spare = match self.0.try_lock() {
            Ok(mut spare) => spare.pop(),
            Err(TryLockError::Poisoned(spare)) => spare.into_inner().pop(),
            Err(TryLockError::WouldBlock) => None,
        };
        spare.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES))
    }

    /// Frees all of them.
    pub(super) fn free(&self) {
        lock(&self.0).clear();
    }

    /// Keeps a buffer for later.
    pub(super) fn put(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let mut spare = lock(&self.0);
        if spare.len() < SPARE_MAX && buffer.capacity() == BUFFER_BYTES {
            spare.push(buffer);
        }
    }
}
