//! The decision log: JSON lines of chosen decisions, at most N in any second.
//!
//! A decision is chosen by its verdict and by the rules that answered. The rate is enforced twice
//! by the sliding log: when a decision is made, so that the others cost nothing more, and when a
//! line is written, so that no burst follows a stall. A thread writes, behind a bounded queue: a
//! full disk, a closed pipe or a slow collector never slows a decision.
//!
//! Every chosen decision is counted once, as written or as skipped.

mod destination;
mod file;
mod writer;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate_limiter::Timestamp;

pub use self::destination::LogDestination;
pub use self::file::LogFile;
use self::writer::{Item, LOG_TARGET, Writer};
use super::kept_decision::KeptDecision;
use crate::value_hash::ShownValues;
use tollgate_admin_api::{Verdict, instance_name};
use tollgate_system::backlog::Backlog;
use tollgate_system::clock::Clock;
use tollgate_system::event_rate::EventRate;
use tollgate_telemetry::metrics::DecisionLogMetrics;
use tollgate_telemetry::tracing::LogEntry;

/// How many decisions wait to be written.
const QUEUE_MAX: usize = 1_024;

/// How long a stop waits for lines to be written.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// How often a stop looks whether all is written.
const STOP_POLL: Duration = Duration::from_millis(5);

/// What the decision log is built from.
pub struct LogSetup {
    /// Where lines go.
    pub destination: LogDestination,
    /// The verdicts that are logged.
    pub verdicts: Vec<Verdict>,
    /// Names of rules, or domains, that are logged; all if empty.
    pub rules: Vec<String>,
    /// At most so many lines in any second.
    pub per_second_max: NonZeroU32,
    /// How values are shown.
    pub values: ShownValues,
    /// The time of lines.
    pub clock: Arc<dyn Clock>,
    /// Where lines are counted.
    pub metrics: DecisionLogMetrics,
}

/// The decision log.
pub struct DecisionLog {
    verdicts: Vec<Verdict>,
    rules: Vec<String>,
    rate: EventRate,
    queue: SyncSender<Item>,
    backlog: Arc<Backlog>,
    metrics: DecisionLogMetrics,
}

// === impl DecisionLog ===

impl DecisionLog {
    /// Starts the thread that writes.
    ///
    /// # Errors
    ///
    /// When the system cannot start a thread.
    pub fn start(setup: LogSetup) -> std::io::Result<Self> {
        let (queue, decisions) = mpsc::sync_channel(QUEUE_MAX);
        // What the queue does not take is counted out again.
        let backlog = Arc::new(Backlog::new(usize::MAX));
        let writer = Writer {
            output: setup.destination,
            rate: EventRate::new(setup.per_second_max),
            values: setup.values,
            instance: instance_name(),
            clock: setup.clock,
            backlog: Arc::clone(&backlog),
            metrics: setup.metrics.clone(),
            lost: 0,
        };
        std::thread::Builder::new()
            .name("decision-log".to_owned())
            .spawn(move || writer.run(&decisions))?;
        Ok(Self {
            verdicts: setup.verdicts,
            rules: setup.rules,
            rate: EventRate::new(setup.per_second_max),
            queue,
            backlog,
            metrics: setup.metrics,
        })
    }

    /// Whether a decision with this verdict may be written at `now`. Counts it if it is chosen and
    /// the rate surely refuses it.
    pub(super) fn may_pass(&self, verdict: Verdict, now: Timestamp) -> bool {
        if !self.verdicts.contains(&verdict) {
            return false;
        }
        if self.rules.is_empty() && self.rate.is_closed(now) {
            self.metrics.rate.inc();
            return false;
        }
        true
    }

    /// Whether the rules of a decision are logged.
    pub(super) fn covers(&self, decision: &KeptDecision) -> bool {
        self.rules.is_empty()
            || self.rules.iter().any(|asked| {
                asked.as_bytes() == decision.domain() || decision.rules().any(|rule| rule == *asked)
            })
    }

    /// Admits a chosen decision and returns its time, or counts it as skipped.
    pub(super) fn admit(&self, clock: &dyn Clock) -> Option<Timestamp> {
        let admitted = self.rate.admit(|| clock.now());
        if admitted.is_err() {
            self.metrics.rate.inc();
        }
        admitted.ok()
    }

    /// Hands an admitted decision to the thread that writes, or counts it as skipped.
    pub(super) fn send(&self, decision: &Arc<KeptDecision>) {
        self.put(Item::Decision(Arc::clone(decision)));
    }

    /// Hands an event of a limit to the thread that writes, or counts it as skipped. Verdicts and
    /// rules do not choose it.
    pub(super) fn send_event(&self, event: LogEntry) {
        self.put(Item::Event(event));
    }

    fn put(&self, item: Item) {
        if !self.backlog.enter() {
            self.metrics.write_failed.inc();
        } else if self.queue.try_send(item).is_err() {
            self.backlog.leave(1);
            self.metrics.queue_full.inc();
        }
    }

    /// Waits until all is written, for two seconds at most. What is left then counts as failed.
    pub(super) async fn stop(&self) {
        let written = async {
            while self.backlog.waiting() > 0 {
                sleep(STOP_POLL).await;
            }
        };
        let _ = timeout(STOP_TIMEOUT, written).await;
        let left = self.backlog.abandon();
        self.metrics.write_failed.inc_by(left as u64);
        if left > 0 {
            tracing::warn!(
                target: LOG_TARGET,
                lines_lost = left,
                "stopped before the whole decision log was written"
            );
        }
    }
}
