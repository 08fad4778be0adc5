//! The thread that writes the decision log.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use serde::Serialize;
use tollgate_limiter::Timestamp;

use super::destination::LogDestination;
use crate::decisions::kept_decision::KeptDecision;
use crate::value_hash::ShownValues;
use tollgate_admin_api::{DecisionRecord, Verdict};
use tollgate_system::backlog::Backlog;
use tollgate_system::clock::Clock;
use tollgate_system::event_rate::EventRate;
use tollgate_telemetry::metrics::DecisionLogMetrics;
use tollgate_telemetry::tracing::LogEntry;

/// The module of log lines about the decision log. `tollgate::decisions` logs each decision, and
/// only where the log filter names it.
pub(super) const LOG_TARGET: &str = "tollgate::decision_log";

/// The longest sleep before the next line.
const PACE_MAX: Duration = Duration::from_millis(100);

/// What is written: a line for each.
pub(super) enum Item {
    Decision(Arc<KeptDecision>),
    Event(LogEntry),
}

/// Writes lines, no more than so many in any second.
pub(super) struct Writer {
    pub(super) output: LogDestination,
    pub(super) rate: EventRate,
    pub(super) values: ShownValues,
    pub(super) instance: String,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) backlog: Arc<Backlog>,
    pub(super) metrics: DecisionLogMetrics,
    /// Lines lost since the last one that was written.
    pub(super) lost: u64,
}

/// One line.
#[derive(Serialize)]
struct LogLine<'a> {
    /// The replica: its host name.
    instance: &'a str,
    #[serde(flatten)]
    record: DecisionRecord,
}

// === impl Writer ===

impl Writer {
    /// Writes until the last sender is dropped.
    pub(super) fn run(mut self, items: &Receiver<Item>) {
        let batch_max = self.output.batch_max();
        while let Ok(item) = items.recv() {
            let mut lines = Vec::new();
            let mut next = Some(item);
            while let Some(item) = next.take() {
                self.wait_for_rate();
                lines.push(match item {
                    Item::Decision(decision) => self.line(&decision),
                    Item::Event(event) => event,
                });
                if lines.len() < batch_max {
                    next = items.try_recv().ok();
                }
            }
            let count = lines.len();
            let result = self.output.write(lines);
            let counted = (0..count).filter(|_| self.backlog.leave(1)).count();
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
            at: decision.at,
            is_error: decision.verdict == Verdict::Error,
            body,
        }
    }

    fn count(&mut self, result: &io::Result<()>, lines: u64) {
        let destination = self.output.name();
        match result {
            Ok(()) => {
                self.metrics.written.inc_by(lines);
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
                self.metrics.write_failed.inc_by(lines);
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
