//! The buffer of one thread, which the thread and the recording share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::session::{FullBuffer, Session};
use tollgate_system::per_thread::lock;

/// No request is in flight.
pub(super) const IDLE: u64 = u64::MAX;

/// Why a request is not in the recording; the order is that of the format.
#[derive(Clone, Copy, Debug)]
pub(super) enum Skip {
    Rate,
    SlowReader,
    WithoutEntry,
    TooLong,
}

/// How many causes the format has. The last is of earlier versions, in which a caller that left
/// took its request out of the recording.
pub(super) const SKIPS: usize = 5;

/// What a thread shares with the recording.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct SharedWriter {
    /// No item that follows has a lower order, as far as this thread knows.
    pub(super) lowest: AtomicU64,
    /// What was skipped since the start, by cause.
    skipped: [AtomicU64; SKIPS],
    buffer: Mutex<WriterBuffer>,
}

/// The buffer of a thread.
#[derive(Debug, Default)]
struct WriterBuffer {
    /// The number of the recording that it belongs to.
    recording: u64,
    items: FullBuffer,
    /// The recording has said that no request with a lower order follows.
    watermark: u64,
}

// === impl SharedWriter ===

impl SharedWriter {
    /// The buffer of this recording. It is empty if it was another one's.
    fn buffer_of(&self, session: &Session) -> MutexGuard<'_, WriterBuffer> {
        let mut buffer = lock(&self.buffer);
        if buffer.recording != session.number {
            *buffer = WriterBuffer {
                recording: session.number,
                ..WriterBuffer::default()
            };
        }
        buffer
    }

    /// Lets `put` write into the buffer of this recording. When `put` returns false for want of
    /// space, the full buffer is sent and it is asked again. False if the channel is full.
    pub(super) fn write(
        &self,
        session: &Session,
        requests: u64,
        mut put: impl FnMut(u64, &mut Vec<u8>) -> bool,
    ) -> bool {
        let mut buffer = self.buffer_of(session);
        if buffer.items.bytes.capacity() == 0 {
            buffer.items.bytes = session.spare.take();
        }
        let watermark = buffer.watermark;
        if !put(watermark, &mut buffer.items.bytes) {
            let Ok(permit) = session.full.try_reserve() else {
                return false;
            };
            let empty = FullBuffer {
                bytes: session.spare.take(),
                requests: 0,
            };
            permit.send(std::mem::replace(&mut buffer.items, empty));
            put(watermark, &mut buffer.items.bytes);
        }
        buffer.items.requests = buffer.items.requests.saturating_add(requests);
        true
    }

    /// Counts a request that is skipped. Only one thread counts.
    pub(super) fn skip(&self, skip: Skip) {
        if let Some(count) = self.skipped.get(skip as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What was skipped since the start, by cause.
    pub(super) fn skipped(&self) -> impl Iterator<Item = u64> {
        self.skipped
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
    }

    /// No item that follows has a lower order; none while no request is in flight.
    pub(super) fn lowest(&self) -> Option<u64> {
        let lowest = self.lowest.load(Ordering::Acquire);
        (lowest != IDLE).then_some(lowest)
    }

    /// Takes what the thread has written for this recording, in exchange for an empty buffer.
    /// Requests below `watermark` that come later are marked.
    pub(super) fn take(&self, session: &Session, watermark: u64) -> FullBuffer {
        // Also where the next item begins the buffer; it must know of the watermark.
        let mut buffer = self.buffer_of(session);
        buffer.watermark = watermark;
        if buffer.items.bytes.is_empty() {
            return FullBuffer::default();
        }
        let items = std::mem::take(&mut buffer.items);
        drop(buffer);
        items
    }

    /// Frees the buffer.
    pub(super) fn free(&self) {
        let old = std::mem::take(&mut *lock(&self.buffer));
        drop(old);
    }
}

impl Default for SharedWriter {
    fn default() -> Self {
        Self {
            lowest: AtomicU64::new(IDLE),
            skipped: Default::default(),
            buffer: Mutex::default(),
        }
    }
}
