//! Sends counters and gauges to a statsd server, over TCP or UDP.
//!
//! How: a task wakes once an interval, connects if necessary, and only then reads what has changed
//! (`metrics::MetricDelta`): a change that could not be sent because the server was unreachable is
//! part of the next flush. Text is built and sent in chunks of [`CHUNK_BYTES_MAX`]. The hot path is
//! not involved.
//!
//! Why no library: a line is one `write!` (`lines`). What a statsd client adds (queues and threads
//! to count from anywhere, no TCP, tags in another dialect than the reference's) is not needed
//! here.
//!
//! What it deliberately does not do: block on an unreachable server, or log each failure.

mod lines;
mod server;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{self, JoinHandle};
use tokio::time::{sleep, timeout};

use self::lines::Lines;
pub use self::server::StatsdTarget;
use self::server::{Connection, Server};
use crate::metrics::{MetricDelta, Metrics};

/// Target of log lines: the module as operators know it.
const LOG: &str = "tollgate::statsd";

/// Text that is built before it is sent.
const CHUNK_BYTES_MAX: usize = 256 * 1024;

/// Most chunks of one flush; the rest is part of the next flush.
const CHUNKS_PER_FLUSH_MAX: usize = 64;

/// How long shutdown waits for the last flush.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Handle of the task that flushes.
#[derive(Debug)]
pub struct Statsd {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// State of the task.
struct StatsdFlusher {
    server: Server,
    connection: Option<Connection>,
    delta: MetricDelta,
    lines: Lines,
    metrics: Arc<Metrics>,
    /// The last flush failed.
    unreachable: bool,
}

// === impl Statsd ===

impl Statsd {
    /// Starts the task. Must be called within a runtime.
    pub fn start(target: &StatsdTarget, metrics: &Arc<Metrics>) -> Self {
        let server = Server::new(target);
        metrics.expect_statsd();
        tracing::info!(
            target: LOG,
            interval_s = target.interval.as_secs_f64(),
            server = %server.display_address(),
            "counters are sent to statsd"
        );
        let mut flusher = StatsdFlusher {
            server,
            connection: None,
            delta: MetricDelta::default(),
            lines: Lines::new(&target.tags),
            metrics: Arc::clone(metrics),
            unreachable: false,
        };
        let interval = target.interval;
        let (stop, mut stopped) = oneshot::channel();
        let task = task::spawn(async move {
            loop {
                let last = tokio::select! {
                    () = sleep(interval) => false,
                    _ = &mut stopped => true,
                };
                flusher.flush().await;
                if last {
                    return;
                }
            }
        });
        Self { stop, task }
    }

    /// Flushes once more, for at most [`STOP_TIMEOUT`].
    pub async fn stop(self) {
        // The receiver is gone if the task has ended.
        let _ = self.stop.send(());
        let abort = self.task.abort_handle();
        let _ = timeout(STOP_TIMEOUT, self.task).await;
        abort.abort();
    }
}

// === impl StatsdFlusher ===

impl StatsdFlusher {
    /// Sends what has changed; logs only the first failure and the recovery.
    async fn flush(&mut self) {
        let sent = match self.connect().await {
            Ok(()) => self.send_changes().await,
            Err(error) => Err(error),
        };
        let place = self.server.display_address();
        match sent {
            Ok(()) => {
                self.metrics.statsd.flushes.inc();
                if std::mem::take(&mut self.unreachable) {
                    // At the level of the failure.
                    tracing::warn!(target: LOG, server = %place, "statsd is reachable again");
                }
            }
            Err(error) => {
                self.metrics.statsd.failures.inc();
                self.connection = None;
                if !std::mem::replace(&mut self.unreachable, true) {
                    tracing::warn!(
                        target: LOG,
                        server = %place,
                        %error,
                        "cannot send to statsd; counters are sent once it is reachable"
                    );
                }
            }
        }
    }

    async fn connect(&mut self) -> io::Result<()> {
        let usable = self.connection.as_ref().is_some_and(Connection::is_usable);
        if !usable {
            self.connection = None;
            self.connection = Some(self.server.connect().await?);
        }
        Ok(())
    }

    async fn send_changes(&mut self) -> io::Result<()> {
        for _ in 0..CHUNKS_PER_FLUSH_MAX {
            // On a blocking thread: it may be many thousand numbers, and this thread has other
            // tasks.
            let mut delta = std::mem::take(&mut self.delta);
            let mut lines = std::mem::take(&mut self.lines);
            let metrics = Arc::clone(&self.metrics);
            let built = task::spawn_blocking(move || {
                lines.clear();
                let all = delta.of(&metrics, |name, kind, value| {
                    let has_space = lines.bytes() < CHUNK_BYTES_MAX;
                    if has_space {
                        lines.push(name, kind, value);
                    }
                    has_space
                });
                (delta, lines, all)
            });
            // Fails only if that code panics, which would be a defect.
            let (delta, lines, all) = built.await.map_err(io::Error::other)?;
            (self.delta, self.lines) = (delta, lines);
            let Some(connection) = &mut self.connection else {
                return Err(io::ErrorKind::NotConnected.into());
            };
            if let Err(error) = connection.send(&self.lines).await {
                let lost = self.lines.count() as u64;
                self.metrics.statsd.lines_lost.inc_by(lost);
                return Err(error);
            }
            if all {
                break;
            }
        }
        Ok(())
    }
}
