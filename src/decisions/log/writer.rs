//! The thread that writes the decision log.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use serde::Serialize;
use tollgate_limiter::Timestamp;

use super::destination::{LogDestination, Output};
use crate::admin_api::{DecisionRecord, Verdict, instance_name};
use crate::clock::Clock;
use crate::decisions::kept_decision::KeptDecision;
use crate::event_rate::EventRate;
use crate::metrics::DecisionLogMetrics;
use crate::tracing::LogEntry;
use crate::value_hash::ShownValues;

/// The module of log lines about the decision log. `tollgate::decisions` logs each decision, and
/// only where the log filter names it.
pub(super) const LOG_TARGET: &str = "tollgate::decision_log";

/// Value of `waiting` after all lines were abandoned. No queue is that long.
const ABANDONED: usize = usize::MAX;

/// The longest sleep before the next line.
const PACE_MAX: Duration = Duration::from_millis(100);

/// How many lines wait. Each is counted once: by the thread that writes, or when they are
/// abandoned.
#[derive(Debug)]
pub(super) struct Backlog {
    waiting: AtomicUsize,
    metrics: DecisionLogMetrics,
}

/// Writes lines, no more than so many in any second.
pub(super) struct Writer {
    output: Output,
    rate: EventRate,
    values: ShownValues,
    instance: String,
    clock: Arc<dyn Clock>,
    backlog: Arc<Backlog>,
    /// Lines lost since the last one that was written.
    lost: u64,
}

/// One line.
#[derive(Serialize)]
struct LogLine<'a> {
    /// The replica: its host name.
    instance: &'a str,
    #[serde(flatten)]
    record: DecisionRecord,
}

// === impl Backlog ===

impl Backlog {
    pub(super) fn new(metrics: DecisionLogMetrics) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            metrics,
        }
    }

    /// Counts a line in. False after all were abandoned.
    pub(super) fn enter(&self) -> bool {
        let more = |waiting: usize| (waiting != ABANDONED).then(|| waiting.saturating_add(1));
        let entered = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        entered.is_ok()
    }

    /// Counts a line out. False if it was abandoned, and so is already counted.
    pub(super) fn leave(&self) -> bool {
        let less = |waiting: usize| (waiting != ABANDONED).then(|| waiting.saturating_sub(1));
        let left = self
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        left.is_ok()
    }

    /// How many lines wait or are being written.
    pub(super) fn waiting(&self) -> usize {
        match self.waiting.load(Ordering::Relaxed) {
            ABANDONED => 0,
            waiting => waiting,
        }
    }

    /// Gives up all lines that wait, and counts them as failed. Returns their number.
    pub(super) fn abandon(&self) -> usize {
        let waiting = self.waiting.swap(ABANDONED, Ordering::Relaxed);
        if waiting == ABANDONED {
            return 0;
        }
        self.metrics.write_failed.inc_by(waiting as u64);
        waiting
    }
}

// === impl Writer ===

impl Writer {
    pub(super) fn new(
        destination: LogDestination,
        rate: EventRate,
        values: ShownValues,
        clock: Arc<dyn Clock>,
        backlog: Arc<Backlog>,
    ) -> Self {
        Self {
            output: Output::new(destination),
            rate,
            values,
            instance: instance_name(),
            clock,
            backlog,
            lost: 0,
        }
    }

    /// Writes until the last sender is dropped.
    pub(super) fn run(mut self, decisions: &Receiver<Arc<KeptDecision>>) {
        let batch_max = self.output.batch_max();
        while let Ok(decision) = decisions.recv() {
            let mut lines = Vec::new();
            let mut next = Some(decision);
            while let Some(decision) = next.take() {
                self.wait_for_rate();
                lines.push(self.line(&decision));
                if lines.len() < batch_max {
                    next = decisions.try_recv().ok();
                }
            }
            let count = lines.len();
            let result = self.output.write(lines);
            let counted = (0..count).filter(|_| self.backlog.leave()).count();
            if counted > 0 {
                self.count(&result, counted as u64);
            }
        }
    }

    /// Waits until a line passes the rate.
    fn wait_for_rate(&self) {
        let uptime = || Timestamp::from_us(self.clock.uptime_us());
        while let Err(retry_us) = self.rate.admit(uptime) {
            std::thread::sleep(Duration::from_micros(retry_us).min(PACE_MAX));
        }
    }

    fn line(&self, decision: &KeptDecision) -> LogEntry {
        let line = LogLine {
            instance: &self.instance,
            record: decision.record(&self.values),
        };
        // A record holds nothing that JSON does not have.
        let body = serde_json::to_string(&line).unwrap_or_default();
        LogEntry {
            at: decision.at(),
            is_error: decision.verdict() == Verdict::Error,
            body,
        }
    }

    fn count(&mut self, result: &io::Result<()>, lines: u64) {
        let destination = self.output.name();
        match result {
            Ok(()) => {
                self.backlog.metrics.written.inc_by(lines);
                let lost = std::mem::take(&mut self.lost);
                if lost > 0 {
                    tracing::warn!(
                        target: LOG_TARGET,
                        destination,
                        lines_lost = lost,
                        "the decision log is written again"
                    );
                }
            }
            Err(error) => {
                self.backlog.metrics.write_failed.inc_by(lines);
                // Logged once until a line is written; the metric counts all.
                if self.lost == 0 {
                    tracing::error!(
                        target: LOG_TARGET,
                        destination,
                        %error,
                        "cannot write the decision log; lines are dropped until it can be written"
                    );
                }
                self.lost = self.lost.saturating_add(lines);
            }
        }
    }
}
