//! What one thread writes into a recording.
//!
//! The buffer is behind a mutex that only the recording locks besides, every 50 ms and for the time
//! of an exchange of two pointers. The alternative, a timer on each thread, would wake idle
//! threads.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollgate_limiter::{Code, Outcome, Request, Timestamp};

use super::Capture;
use super::buffer::{IDLE, SharedWriter, Skip};
use super::in_flight::InFlight;
use super::item::CapturedCheck;
use super::item::{RequestItem, put_refund, put_reset};
use super::session::{BUFFER_BYTES, MESSAGE_BYTES_MAX, Session};
use crate::ended::{End, Ended, Matched};
use tollgate_store::{CheckStamp, PartitionRecorder as _, RefundRecorder};

/// Writes what one thread, or one partition worker, does.
#[derive(Debug)]
pub(crate) struct CaptureWriter {
    capture: Arc<Capture>,
    shared: Arc<SharedWriter>,
    in_flight: InFlight,
    /// The last recording that this thread wrote into.
    session: Option<Arc<Session>>,
    /// The checks and codes of a request, while it is written.
    checks: Vec<CapturedCheck>,
    codes: Vec<u8>,
}

/// A request that is being captured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CapturedRequest {
    /// The number of the recording.
    recording: u64,
    epoch: u64,
}

// === impl CaptureWriter ===

impl CaptureWriter {
    pub(super) fn new(capture: Arc<Capture>, shared: Arc<SharedWriter>) -> Self {
        Self {
            capture,
            shared,
            in_flight: InFlight::default(),
            session: None,
            checks: Vec::new(),
            codes: Vec::new(),
        }
    }

    /// Begins to capture a request, if a recording runs and is to have it. Each must be ended by
    /// [`CaptureWriter::end`].
    #[inline]
    pub(crate) fn begin(
        &mut self,
        request: &Request<'_>,
        message: &[u8],
        now_us: u64,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<CapturedRequest> {
        match self.capture.running() {
            0 => None,
            number => self.begin_in(number, request, message, now_us, now),
        }
    }

    fn begin_in(
        &mut self,
        number: u64,
        request: &Request<'_>,
        message: &[u8],
        now_us: u64,
        now: impl FnOnce() -> Timestamp,
    ) -> Option<CapturedRequest> {
        self.find_session(number);
        let session = self.session.as_ref()?;
        let skip = match session.samples(request) {
            None => Some(Skip::WithoutEntry),
            Some(false) => return None,
            Some(true) if message.len() > MESSAGE_BYTES_MAX => Some(Skip::TooLong),
            Some(true) => (!session.admits(now)).then_some(Skip::Rate),
        };
        if let Some(skip) = skip {
            self.shared.skip(skip);
            return None;
        }
        let capture = &self.capture;
        let epoch = self.in_flight.begin(now_us, || capture.next_order());
        self.publish_lowest();
        Some(CapturedRequest {
            recording: number,
            epoch,
        })
    }

    /// Writes a request that has ended. `call` is what a call of the API asks, encoded; empty for
    /// other requests. `now` is the time where no partition worker has said it.
    pub(crate) fn end(
        &mut self,
        request: CapturedRequest,
        ended: &Ended<'_>,
        call: &[u8],
        now: impl FnOnce() -> Timestamp,
    ) {
        put_checks(&mut self.checks, ended.end.matched());
        put_codes(&mut self.codes, &ended.end);
        if self.capture.running() == request.recording {
            self.find_session(request.recording);
        }
        if let Some(session) = self.session.as_ref()
            && self.capture.running() == request.recording
        {
            let stamps = self.checks.iter().map(|check| check.stamp);
            let known = stamps.filter(|stamp| stamp.order != 0);
            let first = known.min_by_key(|stamp| stamp.order);
            let (order, at) = match first {
                Some(first) => (first.order, first.at),
                None => (self.capture.take_orders(1), now()),
            };
            let mut item = RequestItem {
                order,
                at,
                message: ended.message,
                code: ended.end.code().map_or(0, code_number),
                descriptor_codes: &self.codes,
                generation: ended.end.matched().map_or(0, |matched| matched.generation),
                checks: &self.checks,
                is_late: false,
                call,
            };
            let written = self.shared.write(session, 1, |watermark, bytes| {
                item.is_late = order < watermark;
                item.write(bytes, BUFFER_BYTES)
            });
            if !written {
                self.shared.skip(Skip::SlowReader);
            }
        }
        self.leave(request);
    }

    fn leave(&mut self, request: CapturedRequest) {
        self.in_flight.end(request.epoch);
        self.publish_lowest();
    }

    /// Begins to capture a reset, if a recording runs.
    pub(crate) fn begin_reset(&mut self, now_us: u64) -> Option<CapturedRequest> {
        let recording = self.capture.running();
        if recording == 0 {
            return None;
        }
        let capture = &self.capture;
        let epoch = self.in_flight.begin(now_us, || capture.next_order());
        self.publish_lowest();
        Some(CapturedRequest { recording, epoch })
    }

    /// Writes a reset that was carried out; the stamps are those of its checks. Without stamps
    /// nothing is written.
    pub(crate) fn end_reset(
        &mut self,
        reset: CapturedRequest,
        message: &[u8],
        stamps: &[CheckStamp],
    ) {
        if !stamps.is_empty() {
            self.write_event(|_, bytes| put_reset(message, stamps, bytes));
        }
        self.leave(reset);
    }

    /// Writes an item with a number of its own.
    fn write_event(&mut self, write: impl FnOnce(u64, &mut Vec<u8>)) {
        match self.capture.running() {
            0 => return,
            number => self.find_session(number),
        }
        let Some(session) = self.session.as_ref() else {
            return;
        };
        let idle = self.shared.lowest.load(Ordering::Relaxed);
        let lowest = idle.min(self.capture.next_order());
        self.shared.lowest.store(lowest, Ordering::Release);
        let order = self.capture.take_orders(1);
        let mut write = Some(write);
        let written = self.shared.write(session, 0, |_, bytes| {
            let fits = bytes.len() <= BUFFER_BYTES / 2;
            if fits && let Some(write) = write.take() {
                write(order, bytes);
            }
            fits
        });
        if !written {
            self.shared.skip(Skip::SlowReader);
        }
        self.publish_lowest();
    }

    /// Finds the recording of this number, if it runs.
    fn find_session(&mut self, number: u64) {
        let known = self.session.as_ref();
        if known.is_none_or(|session| session.number != number) {
            self.session = self.capture.session(number);
        }
    }

    fn publish_lowest(&self) {
        let lowest = self.in_flight.lowest().unwrap_or(IDLE);
        if self.shared.lowest.load(Ordering::Relaxed) != lowest {
            self.shared.lowest.store(lowest, Ordering::Release);
        }
    }
}

impl RefundRecorder for CaptureWriter {
    fn refund(&mut self, at: Timestamp, taken: &[u64]) {
        self.write_event(|order, bytes| put_refund(order, at, taken, bytes));
    }
}

/// The number of a code in the format; 0 stands for none.
fn code_number(code: Code) -> u8 {
    match code {
        Code::Ok => 1,
        Code::OverLimit => 2,
    }
}

/// The checks of a request as they are written.
fn put_checks(into: &mut Vec<CapturedCheck>, matched: Option<&Matched<'_>>) {
    into.clear();
    let Some(matched) = matched else {
        return;
    };
    let outcomes = matched.outcomes.iter().enumerate();
    into.extend(outcomes.map(|(position, outcome)| {
        let stamp = matched.stamps.get(position).copied();
        let planned = matched.plan.planned_check(position);
        CapturedCheck {
            rule: planned
                .and_then(|check| check.origin.rule())
                .map_or(0, |rule| u32::try_from(rule.index + 1).unwrap_or_default()),
            is_refused: outcome.is_some_and(|outcome: Outcome| !outcome.allowed),
            is_decided: outcome.is_some()
                && !matched.from_denial_cache
                && stamp.is_none_or(|stamp| stamp.order == 0 || stamp.by_own_bucket),
            stamp: stamp.unwrap_or_default(),
        }
    }));
}

/// The codes of the descriptors.
fn put_codes(into: &mut Vec<u8>, end: &End<'_>) {
    into.clear();
    if let End::Decided(matched) = end {
        let statuses = matched.decision.statuses.iter();
        into.extend(statuses.map(|status| code_number(status.code)));
    }
}
