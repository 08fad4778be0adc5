//! The reader's side of a recording: takes what threads have written, and says what is complete.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::Capture;
use super::buffer::SKIPS;
use super::item::encode_item;
use super::session::{FullBuffer, Session, SpareBuffers};
use super::walk::items;
use tollgate_wire::proto::tollgate::recording::v1::item::Item as Kind;
use tollgate_wire::proto::tollgate::recording::v1::{Skipped, Watermark};

/// A request that waits for more windows, a second, does not hold the watermark. It is marked when
/// it comes.
const WAIT_WINDOWS_MAX: u32 = 20;

/// A recording. It captures until it is dropped.
#[derive(Debug)]
pub struct Recording {
    capture: Arc<Capture>,
    session: Arc<Session>,
    full: mpsc::Receiver<FullBuffer>,
    /// How long each thread has had its lowest order in flight.
    waits: Vec<Wait>,
    watermark: u64,
    /// Where the recording is cut: set when it is to end.
    cut_at: Option<u64>,
    /// What threads had skipped when it was last reported, by cause.
    skipped: [u64; SKIPS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Wait {
    lowest: u64,
    windows: u32,
}

/// What was captured since the last window.
#[derive(Debug)]
pub struct Window {
    /// Requests, refunds and resets.
    pub buffers: Vec<Buffer>,
    /// No item with a lower order follows.
    pub watermark: u64,
    /// What was skipped, by cause.
    pub skipped: [u64; SKIPS],
    /// Whether the recording is to end and this was the last window.
    pub is_last: bool,
}

/// Items that one thread has written. Its memory is used again.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    /// How many requests it has.
    pub requests: u64,
    spare: Arc<SpareBuffers>,
}

// === impl Recording ===

impl Recording {
    pub(super) fn new(
        capture: Arc<Capture>,
        session: Arc<Session>,
        full: mpsc::Receiver<FullBuffer>,
    ) -> Self {
        let mut recording = Self {
            capture,
            session,
            full,
            waits: Vec::new(),
            watermark: 0,
            cut_at: None,
            skipped: [0; SKIPS],
        };
        recording.take_skipped();
        recording
    }

    /// Ends the recording at the checks that are decided next. Windows follow until one is the
    /// last: what is in flight is still captured, because it may have numbers below.
    pub fn cut(&mut self) {
        self.cut_at.get_or_insert(self.capture.next_order());
    }

    /// What was captured since the last call. It is called 20 times a second.
    pub fn window(&mut self) -> Window {
        let next = self.capture.next_order();
        let writers = self.capture.writers.all();
        self.waits.resize_with(writers.len(), Wait::default);
        let mut watermark = next;
        for (writer, wait) in writers.iter().zip(&mut self.waits) {
            let Some(lowest) = writer.lowest() else {
                continue;
            };
            if wait.lowest != lowest {
                *wait = Wait { lowest, windows: 0 };
            }
            wait.windows = wait.windows.saturating_add(1);
            if wait.windows <= WAIT_WINDOWS_MAX {
                watermark = watermark.min(lowest);
            }
        }
        self.watermark = self.watermark.max(watermark);
        let mut buffers = Vec::new();
        for writer in &writers {
            buffers.push(writer.take(&self.session, self.watermark));
        }
        while let Ok(full) = self.full.try_recv() {
            buffers.push(full);
        }
        let buffers = buffers.into_iter().map(|full| self.cut_buffer(full));
        let buffers: Vec<_> = buffers.filter(|buffer| !buffer.bytes.is_empty()).collect();
        let cut_at = self.cut_at.unwrap_or(u64::MAX);
        Window {
            buffers,
            watermark: self.watermark.min(cut_at),
            skipped: self.take_skipped(),
            is_last: self.watermark >= cut_at,
        }
    }

    /// A buffer without what comes after the end.
    fn cut_buffer(&self, full: FullBuffer) -> Buffer {
        let mut buffer = Buffer {
            bytes: full.bytes,
            requests: full.requests,
            spare: Arc::clone(&self.session.spare),
        };
        if let Some(cut_at) = self.cut_at {
            buffer.retain(cut_at);
        }
        buffer
    }

    fn take_skipped(&mut self) -> [u64; SKIPS] {
        let mut now = [0_u64; SKIPS];
        for writer in self.capture.writers.all() {
            for (sum, count) in now.iter_mut().zip(writer.skipped()) {
                *sum = sum.wrapping_add(count);
            }
        }
        let before = std::mem::replace(&mut self.skipped, now);
        let mut skipped = [0; SKIPS];
        for (count, (now, before)) in skipped.iter_mut().zip(now.into_iter().zip(before)) {
            *count = now.wrapping_sub(before);
        }
        skipped
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.capture.stop();
    }
}

// === impl Window ===

impl Window {
    /// What is known of the window as a whole, encoded: what was skipped, and the watermark.
    pub fn summary(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if self.skipped.iter().any(|count| *count > 0) {
            let [rate, slow_reader, without_entry, too_long, caller_left] = self.skipped;
            bytes = encode_item(Kind::Skipped(Skipped {
                rate,
                slow_reader,
                without_entry,
                too_long,
                caller_left,
            }));
        }
        let order = self.watermark;
        bytes.extend(encode_item(Kind::Watermark(Watermark { order })));
        bytes
    }
}

// === impl Buffer ===

impl Buffer {
    /// The items.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The items, without a copy. The memory is used again when all of it is dropped.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }

    /// Keeps the items whose order is lower.
    fn retain(&mut self, cut_at: u64) {
        let mut kept = Vec::with_capacity(self.bytes.len());
        let mut requests = 0_u64;
        for item in items(&self.bytes) {
            if item.order() < cut_at {
                kept.extend_from_slice(item.whole);
                requests = requests.saturating_add(u64::from(item.is_request()));
            }
        }
        self.bytes = kept;
        self.requests = requests;
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.spare.put(std::mem::take(&mut self.bytes));
    }
}
