//! Counters, told to a statsd server now and then, by TCP or UDP.
//!
//! How: a task wakes once an interval, connects if need be, and only then asks what is new (`metrics::MetricDelta`): so what could not
//! be sent because nobody was there is told the next time, in one number. Text is made and sent in parts of
//! [`CHUNK_BYTES_MAX`]. The hot path knows nothing of it.
//!
//! Why no library: the lines are one `write!` (`lines`), and what a statsd client brings besides (queues and threads to count from
//! anywhere, datagrams without streams, tags in another dialect than the reference's) is what is not wanted here.
//!
//! What it deliberately does not do: wait for a server that is away, keep a file of what it did not hear.

mod lines;
mod server;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::{self, JoinHandle};
use tokio::time::{sleep, timeout};

use self::lines::Lines;
use self::server::{Connection, Server};
use crate::metrics::{MetricDelta, Metrics};
use crate::settings::StatsdSettings;

/// How much text is made before it is sent.
const CHUNK_BYTES_MAX: usize = 256 * 1024;

/// How many parts go out in one turn: what is left is told in the next.
const CHUNKS_PER_FLUSH_MAX: usize = 64;

/// How long a stop waits for the last delta to go out.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// A task that tells a server.
#[derive(Debug)]
pub struct Statsd {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// What it knows.
struct StatsdFlusher {
    server: Server,
    connection: Option<Connection>,
    delta: MetricDelta,
    lines: Lines,
    metrics: Arc<Metrics>,
    /// Nobody was there the last time.
    unreachable: bool,
}

// === impl Statsd ===

impl Statsd {
    /// Begins to tell, where the settings say so. Must be called within a runtime.
    pub fn start(settings: &StatsdSettings, metrics: &Arc<Metrics>) -> Option<Self> {
        let (host, port) = settings.server()?;
        let server = Server::new(host, port, settings.statsd_protocol);
        metrics.expect_statsd();
        tracing::info!(
            interval = ?settings.stats_flush_interval,
            "counters go to statsd at {}",
            server.display_address()
        );
        let mut flusher = StatsdFlusher {
            server,
            connection: None,
            delta: MetricDelta::default(),
            lines: Lines::new(&settings.extra_tags),
            metrics: Arc::clone(metrics),
            unreachable: false,
        };
        let interval = settings.stats_flush_interval;
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
        Some(Self { stop, task })
    }

    /// Tells the last delta, but does not wait long for them to go.
    pub async fn stop(self) {
        // A task that has ended needs no telling.
        let _ = self.stop.send(());
        let abort = self.task.abort_handle();
        let _ = timeout(STOP_TIMEOUT, self.task).await;
        abort.abort();
    }
}

// === impl StatsdFlusher ===

impl StatsdFlusher {
    /// Tells what is new, and says once when nobody is there to hear it.
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
                    tracing::info!("statsd at {place} hears again");
                }
            }
            Err(error) => {
                self.metrics.statsd.failures.inc();
                self.connection = None;
                if !std::mem::replace(&mut self.unreachable, true) {
                    tracing::warn!(
                        "statsd at {place} does not hear: {error}; it is told when it does, and nothing else waits for it"
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
            // It may be many thousand numbers; this thread has other tasks to run.
            let mut delta = std::mem::take(&mut self.delta);
            let mut lines = std::mem::take(&mut self.lines);
            let metrics = Arc::clone(&self.metrics);
            let made = task::spawn_blocking(move || {
                lines.clear();
                let all = delta.of(&metrics, |name, kind, value| {
                    let room = lines.bytes() < CHUNK_BYTES_MAX;
                    if room {
                        lines.push(name, kind, value);
                    }
                    room
                });
                (delta, lines, all)
            });
            // It does not fail: what panics there would be a defect.
            let (delta, lines, all) = made.await.map_err(io::Error::other)?;
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
