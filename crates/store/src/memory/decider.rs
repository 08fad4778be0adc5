//! A partition, and what decides its messages: batches of checks, and refunds.
//!
//! It reads the clock once per batch, keeps the metrics of the partition, and writes what a
//! recording needs. Checks whose deadline has passed are dropped before they are decided, and take
//! nothing.
//!
//! What it deliberately does not do: say which task it belongs to (`ownership`), or receive
//! messages (`worker`).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::partition::Partition;
use crate::queue::{Batch, Message};
use crate::{BatchStamp, CheckResult, PartitionRecorder, Refund, RefundRecorder, StoreError};
use tollgate_limiter::{Check, Timestamp};
use tollgate_system::clock::Clock;
use tollgate_telemetry::metrics::{Metrics, PartitionLevels, count_decided};

/// How many checks a batch must have for looking ahead to pay.
const LOOK_AHEAD_CHECKS_MIN: usize = 4;

/// How many slots a sweep visits per check: more than one check can add, so that the sweep keeps up
/// with any flood.
const SWEEP_LOOKS_PER_CHECK: usize = 2;

/// How many slots a sweep visits when no message has come for a while.
const SWEEP_LOOKS_QUIET: usize = 65_536;

/// A partition with its clock, metrics and capture.
pub(super) struct PartitionDecider {
    pub(super) partition: Partition,
    /// Shared with the sending side and the metrics.
    levels: Arc<PartitionLevels>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    /// Checks that were refused and that passed, since the start.
    decided: [u64; 2],
    /// The numbers of buckets and marks that the metrics have.
    reported: [usize; 2],
    /// Records decisions, and what writes refunds; none where nothing is recorded.
    recorder: Option<(Arc<dyn PartitionRecorder>, Box<dyn RefundRecorder>)>,
}

/// The time of a batch, by both clocks.
#[derive(Clone, Copy)]
struct BatchTime {
    now: Timestamp,
    uptime_us: u64,
}

// === impl PartitionDecider ===

impl PartitionDecider {
    pub(super) fn new(
        partition: Partition,
        levels: Arc<PartitionLevels>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        recorder: Option<Arc<dyn PartitionRecorder>>,
    ) -> Self {
        Self {
            partition,
            levels,
            clock,
            metrics,
            decided: [0; 2],
            reported: [0; 2],
            recorder: recorder.map(|one| (Arc::clone(&one), one.refunds())),
        }
    }

    /// Answers these messages, in order.
    pub(super) fn answer_all(&mut self, messages: &mut Vec<Message>) {
        let mut checks = 0;
        let time = self.begin();
        for message in messages.drain(..) {
            match message {
                Message::Decide(batch) => {
                    checks += batch.checks.len();
                    self.answer(batch, time);
                }
                Message::Refund(refunds) => {
                    checks += refunds.len();
                    self.refund(refunds, time.now);
                }
            }
        }
        self.end(time, checks);
    }

    /// Decides a batch that was not sent. Its caller is there.
    pub(super) fn decide_unsent(&mut self, batch: &mut Batch) {
        let checks = batch.checks.len();
        let time = self.begin();
        self.levels.waiting.fetch_sub(checks, Ordering::AcqRel);
        self.decide_all(batch, time);
        self.report_records();
        self.end(time, checks);
    }

    /// Sweeps when no message has come for a while.
    pub(super) fn sweep_quietly(&mut self) {
        let time = self.begin();
        self.partition.sweep(time.now, SWEEP_LOOKS_QUIET);
        self.report_levels(true);
    }

    fn begin(&mut self) -> BatchTime {
        let now = self.clock.now();
        let uptime_us = self.clock.uptime_us();
        self.partition.resets.expire(uptime_us);
        BatchTime { now, uptime_us }
    }

    fn end(&mut self, time: BatchTime, checks: usize) {
        let looks_max = checks.saturating_mul(SWEEP_LOOKS_PER_CHECK);
        self.partition.sweep(time.now, looks_max);
        self.report_levels(false);
    }

    /// Updates the metrics of the partition. Its bytes change with its buckets and marks, or when
    /// a quiet tick gives memory back.
    pub(super) fn report_levels(&mut self, was_quiet: bool) {
        let levels = &self.levels;
        let now = [self.partition.len(), self.partition.marks()];
        if now != self.reported || was_quiet {
            self.reported = now;
            let [buckets, marks] = now;
            levels.buckets.store(buckets, Ordering::Relaxed);
            levels.marks.store(marks, Ordering::Relaxed);
            levels
                .bytes
                .store(self.partition.bytes(), Ordering::Relaxed);
        }
        self.report_records();
        let levels = &self.levels;
        levels.set_decided(self.decided);
        let counts = self.partition.take_counts();
        for (level, count) in [
            (&levels.freed, counts.freed),
            (&levels.forgotten, counts.forgotten),
        ] {
            if count > 0 {
                level.fetch_add(count, Ordering::Relaxed);
            }
        }
        for (counter, count) in [
            (&self.metrics.buckets.freed, counts.freed),
            (&self.metrics.buckets.forgotten, counts.forgotten),
            (&self.metrics.buckets.unplaced_shared, counts.shared),
            (&self.metrics.buckets.unplaced_allowed, counts.allowed),
            (&self.metrics.buckets.unplaced_denied, counts.denied),
        ] {
            if count > 0 {
                counter.inc_by(count);
            }
        }
    }

    /// Updates the numbers of reservations, if they changed. Before a reply is sent: a settle that
    /// follows it is sent to this store only if there are records.
    #[inline]
    fn report_records(&mut self) {
        if self.partition.take_records_changed() {
            self.report_changed_records();
        }
    }

    #[cold]
    fn report_changed_records(&mut self) {
        let [records, open] = self.partition.records();
        self.levels.records.store(records, Ordering::Relaxed);
        self.levels.open.store(open, Ordering::Relaxed);
        self.levels
            .bytes
            .store(self.partition.bytes(), Ordering::Relaxed);
        let counts = self.partition.take_record_counts();
        let buckets = &self.metrics.buckets;
        buckets.expired_charged.inc_by(counts.charged);
        buckets.expired_released.inc_by(counts.released);
        buckets.records_dropped.inc_by(counts.dropped);
        buckets
            .reservations_without_space
            .inc_by(counts.without_space);
        buckets.reservations_too_many.inc_by(counts.too_many);
    }

    fn answer(&mut self, mut batch: Box<Batch>, time: BatchTime) {
        let count = batch.checks.len();
        self.levels.waiting.fetch_sub(count, Ordering::AcqRel);
        if batch.is_abandoned() {
            self.metrics.buckets.shed_caller_gone.inc_by(count as u64);
            return;
        }
        self.decide_all(&mut batch, time);
        self.report_records();
        batch.send_back();
    }

    /// Decides the checks of all requests of a batch.
    fn decide_all(&mut self, batch: &mut Batch, time: BatchTime) {
        let BatchTime { now, uptime_us } = time;
        let count = batch.checks.len();
        let Batch {
            requests,
            checks,
            answers,
            refund_sink,
            ..
        } = batch;
        self.partition.resets.void_refunds(checks);
        if checks.len() >= LOOK_AHEAD_CHECKS_MIN {
            self.partition.look_ahead(checks);
        }
        let recorder = self.recorder.as_ref().map(|(recorder, _)| recorder);
        let recorder = recorder.filter(|recorder| recorder.is_running());
        let mut stamp = recorder.map(|recorder| BatchStamp {
            order: recorder.take_orders(count),
            at: now,
            by_own_buckets: true,
        });
        let mut rest: &mut [Check] = checks;
        for request in requests {
            let own = request.checks.min(rest.len());
            let (checks, others) = rest.split_at_mut(own);
            rest = others;
            if let Some(stamp) = &mut stamp {
                request.stamp = Some(*stamp);
                stamp.order += own as u64;
            }
            if request.deadline.passed(uptime_us) {
                self.metrics.buckets.shed_deadline.inc_by(own as u64);
                answers.extend(checks.iter().map(|_| Err(StoreError::DeadlineExceeded)));
                continue;
            }
            if !request.purpose.decides() {
                let (partition, purpose) = (&mut self.partition, request.purpose);
                let outcomes = checks
                    .iter()
                    .map(|check| partition.reset_or_deny(check, purpose, now, uptime_us));
                answers.extend(outcomes);
                continue;
            }
            let decided_before = answers.len();
            let without_space = self.partition.without_space_count();
            answers.extend(checks.iter_mut().map(|check| self.decide(check, now)));
            if let Some(stamp) = &mut request.stamp {
                stamp.by_own_buckets = self.partition.without_space_count() == without_space;
            }
            let decided = answers.get(decided_before..).unwrap_or_default();
            request.keep_tentative(refund_sink.as_ref(), checks, decided);
        }
    }

    fn decide(&mut self, check: &mut Check, now: Timestamp) -> CheckResult {
        let answer = self.partition.apply(check, now);
        match &answer {
            Ok(outcome) => count_decided(&mut self.decided, outcome.allowed),
            Err(StoreError::Full { .. }) => self.metrics.buckets.shed_memory_full.inc(),
            Err(_) => {}
        }
        answer
    }

    fn refund(&mut self, refunds: Vec<Refund>, now: Timestamp) {
        if let Some((recorder, writer)) = &mut self.recorder
            && recorder.is_running()
        {
            let orders = refunds.iter().map(|refund| refund.order);
            let recorded: Vec<u64> = orders.filter(|order| *order > 0).collect();
            if !recorded.is_empty() {
                writer.refund(now, &recorded);
            }
        }
        let refunded = &self.metrics.buckets.given_back;
        refunded.inc_by(refunds.len() as u64);
        for Refund { mut check, .. } in refunds {
            self.partition.refund(&mut check, now);
        }
    }
}
