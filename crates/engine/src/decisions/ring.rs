//! The ring of the last decisions of one worker thread.
//!
//! Its thread writes, and readers of other threads load the slots: no lock, no message, and a
//! reader never stops the writer. A token bucket says which decisions are kept. At low rates these
//! are all. At high rates they are a sample of [`KEPT_PER_SECOND_MAX`] a second, which spans
//! seconds and not milliseconds; the others are counted.
//!
//! Memory of the decision that a new one replaces is used again, unless a reader still has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwapOption;

use super::kept_decision::KeptDecision;

/// How many decisions a second one thread keeps, after a burst of as many as the ring has slots.
const KEPT_PER_SECOND_MAX: u64 = 1_000;

/// The interval of decisions at that rate, in microseconds.
const INTERVAL_US: u64 = 1_000_000 / KEPT_PER_SECOND_MAX;

/// How many bytes a ring may use for each slot, on average.
const SLOT_BYTES_MAX: usize = 1_024;

/// What readers see of a ring.
#[derive(Debug)]
pub(super) struct Ring {
    slots: Box<[ArcSwapOption<KeptDecision>]>,
    skipped: AtomicU64,
}

/// The writing end of a ring. There is one.
#[derive(Debug)]
pub(super) struct RingWriter {
    ring: Arc<Ring>,
    /// The token bucket: when the next decision is due at the steady rate, in the clock's uptime.
    due_us: u64,
    /// How far ahead of the time that may be.
    burst_us: u64,
    /// Decisions that were not kept since the last flush.
    skipped: u64,
    /// How many decisions were put in, and the number of the oldest that is still there.
    head: usize,
    tail: usize,
    /// Memory of those that are there.
    bytes: usize,
    /// A decision that was replaced, with its memory.
    spare: Option<Arc<KeptDecision>>,
}

// === impl Ring ===

impl Ring {
    /// A ring with this many slots. With none it keeps nothing.
    pub(super) fn new(slots: usize) -> Self {
        let empty = || ArcSwapOption::empty();
        Self {
            slots: std::iter::repeat_with(empty).take(slots).collect(),
            skipped: AtomicU64::new(0),
        }
    }

    /// The decisions in it, in no order.
    pub(super) fn decisions(&self) -> impl Iterator<Item = Arc<KeptDecision>> {
        self.slots.iter().filter_map(ArcSwapOption::load_full)
    }

    /// How many decisions were not kept.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }
}

// === impl RingWriter ===

impl RingWriter {
    /// The writing end of this ring.
    pub(super) fn new(ring: Arc<Ring>) -> Self {
        let slots = ring.slots.len();
        let burst = INTERVAL_US.saturating_mul(slots as u64);
        Self {
            ring,
            // Without slots no decision is ever due.
            due_us: if slots == 0 { u64::MAX } else { 0 },
            burst_us: burst.saturating_sub(INTERVAL_US),
            skipped: 0,
            head: 0,
            tail: 0,
            bytes: 0,
            spare: None,
        }
    }

    /// Whether to keep a decision now. If not, it counts as skipped.
    #[inline]
    pub(super) fn admit(&mut self, now_us: u64) -> bool {
        if self.due_us.saturating_sub(now_us) > self.burst_us {
            self.skipped = self.skipped.wrapping_add(1);
            return false;
        }
        self.due_us = self.due_us.max(now_us).saturating_add(INTERVAL_US);
        true
    }

    /// Shows readers how many decisions were skipped.
    #[inline]
    pub(super) fn flush(&mut self) {
        if self.skipped > 0 {
            self.ring.skipped.fetch_add(self.skipped, Ordering::Relaxed);
            self.skipped = 0;
        }
    }

    /// A decision to fill, in memory that was used before if no reader has it.
    pub(super) fn blank(&mut self) -> Arc<KeptDecision> {
        match self.spare.take() {
            Some(spare) if Arc::strong_count(&spare) == 1 => spare,
            _ => Arc::default(),
        }
    }

    /// Puts a decision in, in place of the oldest if the ring is full.
    pub(super) fn put(&mut self, decision: Arc<KeptDecision>) {
        let slots = self.ring.slots.len();
        let bytes_max = slots.saturating_mul(SLOT_BYTES_MAX);
        let Some(slot) = self.head.checked_rem(slots) else {
            return;
        };
        self.bytes = self.bytes.saturating_add(decision.bytes());
        self.take(slot, Some(decision));
        self.head = self.head.wrapping_add(1);
        self.tail = self.tail.max(self.head.saturating_sub(slots));
        while self.bytes > bytes_max && self.tail < self.head {
            if let Some(oldest) = self.tail.checked_rem(slots) {
                self.take(oldest, None);
            }
            self.tail = self.tail.saturating_add(1);
        }
    }

    /// Replaces what is in a slot.
    fn take(&mut self, slot: usize, new: Option<Arc<KeptDecision>>) {
        let Some(slot) = self.ring.slots.get(slot) else {
            return;
        };
        if let Some(old) = slot.swap(new) {
            self.bytes = self.bytes.saturating_sub(old.bytes());
            self.spare = Some(old);
        }
    }
}

#[cfg(test)]
mod tests {
    use tollgate_limiter::{Entry, Hits, Request, Timestamp};

    use super::*;
    use crate::ended::{End, Ended, RequestError};

    fn decision(writer: &mut RingWriter, value: &[u8], at: u64) -> Arc<KeptDecision> {
        let mut request = Request::new(b"d");
        request.push_descriptor([Entry { key: b"k", value }], Hits::Take(1), None);
        let mut blank = writer.blank();
        let ended = Ended {
            request: &request,
            message: &[],
            took_us: 0,
            end: End::Failed(&RequestError::NoRules),
            live_verdict: None,
        };
        let at = Timestamp::from_us(at);
        Arc::get_mut(&mut blank).unwrap().fill(&ended, at);
        blank
    }

    fn times(ring: &Ring) -> Vec<u64> {
        let mut times: Vec<_> = ring.decisions().map(|one| one.at.as_us()).collect();
        times.sort_unstable();
        times
    }

    #[test]
    fn it_has_the_last_decisions_and_counts_the_others() {
        let mut writer = RingWriter::new(Arc::new(Ring::new(4)));
        let ring = Arc::clone(&writer.ring);
        let mut kept = 0;
        // A burst of as many as there are slots, then one each millisecond.
        for now_us in (0..10_000).step_by(100) {
            if writer.admit(now_us) {
                kept += 1;
                let one = decision(&mut writer, b"v", now_us);
                writer.put(one);
            }
        }
        writer.flush();
        assert_eq!(kept, 4 + 9);
        assert_eq!(ring.skipped(), 100 - kept);
        assert_eq!(times(&ring), [6_000, 7_000, 8_000, 9_000]);
    }

    #[test]
    fn without_slots_it_keeps_nothing() {
        let mut writer = RingWriter::new(Arc::new(Ring::new(0)));
        assert!(!writer.admit(0) && !writer.admit(u64::MAX - 1));
        writer.flush();
        assert_eq!(writer.ring.skipped(), 2);
    }

    #[test]
    fn its_memory_is_bounded_whatever_requests_hold() {
        let mut writer = RingWriter::new(Arc::new(Ring::new(64)));
        let ring = Arc::clone(&writer.ring);
        let long = vec![b'x'; 100_000];
        let half = vec![b'x'; 6_000];
        for at in 0..1_000 {
            let value = if at % 3 == 0 { &long } else { &half };
            let one = decision(&mut writer, value, at);
            writer.put(one);
            let bytes: usize = ring.decisions().map(|one| one.bytes()).sum();
            assert!(bytes <= 64 * SLOT_BYTES_MAX, "{bytes} bytes");
            assert_eq!(bytes, writer.bytes);
        }
        // The newest ones are there.
        assert!(times(&ring).contains(&999));
    }

    #[test]
    fn memory_is_used_again_unless_a_reader_has_it() {
        let mut writer = RingWriter::new(Arc::new(Ring::new(2)));
        let ring = Arc::clone(&writer.ring);
        for at in 0..3 {
            let one = decision(&mut writer, b"v", at);
            writer.put(one);
        }
        let read: Vec<_> = ring.decisions().collect();
        for at in 3..9 {
            let one = decision(&mut writer, b"v", at);
            writer.put(one);
        }
        let mut read: Vec<_> = read.iter().map(|one| one.at.as_us()).collect();
        read.sort_unstable();
        assert_eq!(read, [1, 2]);
        assert_eq!(times(&ring), [7, 8]);
        let one = writer.blank();
        drop(one);
        let allocated = allocation_counter::measure(|| {
            for at in 9..100 {
                let now_us = at * INTERVAL_US;
                assert!(writer.admit(now_us));
                // The error's text and the request are made by the test.
                let blank = writer.blank();
                writer.put(blank);
            }
        });
        assert_eq!(allocated.count_total, 1, "{allocated:?}");
    }
}
