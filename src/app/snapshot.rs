//! Snapshots: loads the buckets in memory, and the overrides of limits, from a file at start, and
//! writes them at intervals and at the end of a drain.
//!
//! A snapshot is written by a thread of its own, which runs at idle priority so that decisions come
//! first. On a machine without idle time such a thread does not end in [`IDLE_MAX`]; then one of
//! lower, but normal priority does the same. The last snapshot is written at normal priority, when
//! no request is decided any more.
//!
//! A snapshot that cannot be read is set aside, and the service starts with empty buckets.

use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::clock::Clock;
use crate::keyed_hash::KeyedHash;
use crate::metrics::Metrics;
use crate::net::{lower_priority, use_idle_scheduling};
use crate::pipeline::Generations;
use crate::regular_file;
use crate::store::memory::{self, BucketCopier, CopyFailed, LoadCounts, PartitionWorker};
use crate::store::snapshot::{
    Header, LockedPath, NewFile, ReadError, Reader, Writer, Written, remove_leftover, set_aside,
};

/// How long a snapshot at idle priority may take.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// How long one at another priority may take, also the last one.
const OTHERS_MAX: Duration = Duration::from_secs(30);

/// The bytes that one write to the file has.
const WRITE_BYTES: usize = 256 << 10;

/// Writes the snapshots of a service.
#[derive(Clone)]
pub(super) struct Snapshots {
    parts: Arc<SnapshotParts>,
    /// Held while one is written.
    writing: Arc<Mutex<()>>,
}

/// What the thread that writes a snapshot needs.
pub(super) struct SnapshotParts {
    pub(super) path: LockedPath,
    pub(super) interval: Duration,
    pub(super) copier: BucketCopier,
    pub(super) hash: KeyedHash,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
    /// Has the overrides.
    pub(super) generations: Arc<Generations>,
    /// Only the last snapshot is written any more.
    pub(super) is_stopping: AtomicBool,
}

/// How urgent a snapshot is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Urgency {
    /// Whenever a core has nothing else to do.
    Idle,
    /// At low priority.
    Low,
    /// At once: no other follows.
    Last,
}

/// Why a snapshot was not written.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it took too long")]
    TooSlow,
    #[error("{0}")]
    Copy(#[from] CopyFailed),
    /// The last snapshot is due.
    #[error("the service stops")]
    Stopping,
}

/// What a snapshot is loaded with.
pub(super) struct Loading<'l> {
    pub(super) path: &'l PathBuf,
    /// The hash that the settings name.
    pub(super) configured: Option<KeyedHash>,
    pub(super) clock: &'l Arc<dyn Clock>,
    pub(super) metrics: &'l Metrics,
    /// Gets the overrides.
    pub(super) generations: &'l Generations,
}

// === impl Loading ===

impl Loading<'_> {
    /// Loads the snapshot into the partitions of these workers, if there is one. Returns the hash
    /// of its keys. One that cannot be read is set aside.
    pub(super) fn load(&self, workers: &mut [PartitionWorker]) -> Option<KeyedHash> {
        self.clean_up();
        let hash = self.load_file(workers);
        // Found now, and not at the first interval.
        if let Err(error) = NewFile::create(self.path) {
            let snapshot = self.path.display();
            tracing::error!(%snapshot, %error, "the folder of the snapshot cannot be written");
        }
        hash
    }

    /// Removes what a killed process left.
    fn clean_up(&self) {
        let shown = self.path.display();
        match remove_leftover(self.path) {
            Ok(false) => {}
            Ok(true) => {
                tracing::info!(snapshot = %shown, "removed a snapshot that was not complete");
            }
            Err(error) => {
                tracing::warn!(snapshot = %shown, %error, "cannot remove an incomplete snapshot");
            }
        }
    }

    fn load_file(&self, workers: &mut [PartitionWorker]) -> Option<KeyedHash> {
        let shown = self.path.display();
        let began_us = self.clock.uptime_us();
        let error = match self.read(workers) {
            Ok((header, counts)) => {
                let overrides = header.overrides.iter();
                let overrides = overrides.filter_map(|one| serde_json::from_slice(one).ok());
                self.generations.replace_overrides(overrides);
                self.report(&header, counts, began_us);
                return Some(KeyedHash::with_secret(header.hash_secret));
            }
            Err(ReadError::Unreadable(error)) if error.kind() == io::ErrorKind::NotFound => {
                tracing::info!(snapshot = %shown, "no snapshot yet; buckets start empty");
                return None;
            }
            Err(error) => error,
        };
        self.metrics.snapshots.refused(error.cause());
        match set_aside(self.path) {
            Ok(aside) => tracing::error!(
                snapshot = %shown, %error, kept_as = %aside.display(),
                "snapshot refused; buckets start empty"
            ),
            Err(kept) => tracing::error!(
                snapshot = %shown, %error, not_kept = %kept,
                "snapshot refused and not set aside; buckets start empty"
            ),
        }
        None
    }

    fn read(&self, workers: &mut [PartitionWorker]) -> Result<(Header, LoadCounts), ReadError> {
        let file = regular_file::open(self.path).map_err(ReadError::Unreadable)?;
        let mut reader = Reader::new(file)?;
        let header = reader.header().clone();
        let configured = self.configured.map(KeyedHash::secret);
        if configured.is_some_and(|secret| secret != header.hash_secret) {
            return Err(ReadError::HashKey);
        }
        let counts = memory::load(workers, &mut reader, self.clock.now())?;
        Ok((header, counts))
    }

    fn report(&self, header: &Header, counts: LoadCounts, began_us: u64) {
        let took_ms = self.clock.uptime_us().saturating_sub(began_us) / 1_000;
        let LoadCounts {
            loaded,
            reservations,
            expired,
            no_space,
        } = counts;
        let now = self.clock.now();
        let age_s = now.since_us(header.written_at) / 1_000_000;
        tracing::info!(
            loaded,
            reservations,
            expired,
            no_space,
            age_s,
            took_ms,
            "snapshot loaded"
        );
        if header.written_at > now {
            let ahead_s = header.written_at.since_us(now) / 1_000_000;
            tracing::warn!(ahead_s, "the snapshot is newer than the clock");
        }
        if no_space > 0 {
            tracing::warn!(
                no_space,
                "buckets of the snapshot have no space; raise --memory-max"
            );
        }
        let metrics = &self.metrics.snapshots;
        metrics.buckets_read([loaded, expired, no_space]);
        metrics.load_milliseconds.set(gauge(took_ms));
        metrics
            .timestamp
            .set(gauge(header.written_at.as_us() / 1_000_000));
    }
}

// === impl Snapshots ===

impl Snapshots {
    pub(super) fn new(parts: SnapshotParts) -> Self {
        Self {
            parts: Arc::new(parts),
            writing: Arc::default(),
        }
    }

    /// Spawns the task that writes them, if they are configured.
    pub(super) fn spawn(snapshots: Option<&Self>, tasks: &mut JoinSet<()>) {
        if let Some(snapshots) = snapshots {
            tasks.spawn(snapshots.clone().write_regularly());
        }
    }

    /// Writes a snapshot at each interval until the service stops.
    async fn write_regularly(self) {
        let mut ticks = interval(self.parts.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        loop {
            ticks.tick().await;
            if self.parts.is_stopping.load(Ordering::Acquire) {
                return;
            }
            let mut written = self.write(Urgency::Idle).await;
            if let Err(WriteError::TooSlow) = written {
                tracing::debug!("no idle time for a snapshot; trying at low priority");
                written = self.write(Urgency::Low).await;
            }
            self.report(written);
        }
    }

    /// Writes the last snapshot. No check may follow.
    pub(super) async fn write_last(&self) {
        self.parts.is_stopping.store(true, Ordering::Release);
        let written = timeout(OTHERS_MAX, self.write(Urgency::Last)).await;
        // A writer that is still at it keeps the lock until the process ends.
        if written.is_ok() {
            self.parts.path.unlock();
        }
        self.report(written.unwrap_or(Err(WriteError::TooSlow)));
    }

    async fn write(&self, urgency: Urgency) -> Result<(), WriteError> {
        let _writing = self.writing.lock().await;
        let (done, result) = oneshot::channel();
        let parts = Arc::clone(&self.parts);
        let run = move || {
            match urgency {
                Urgency::Idle => use_idle_scheduling(),
                Urgency::Low => lower_priority(),
                Urgency::Last => {}
            }
            // The service may have stopped waiting.
            drop(done.send(parts.write(urgency)));
        };
        thread::Builder::new()
            .name("snapshot".to_owned())
            .spawn(run)?;
        result.await.unwrap_or(Err(CopyFailed.into()))
    }

    fn report(&self, written: Result<(), WriteError>) {
        let metrics = &self.parts.metrics.snapshots;
        let Err(error) = written else {
            return;
        };
        match &error {
            WriteError::Stopping => return,
            WriteError::Io(error) => match error.kind() {
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge => {
                    metrics.disk_full.inc();
                }
                _ => metrics.io.inc(),
            },
            WriteError::TooSlow => metrics.too_slow.inc(),
            WriteError::Copy(_) => metrics.stopped.inc(),
        }
        let snapshot = self.parts.path.path().display();
        tracing::error!(%snapshot, %error, "snapshot not written; the one before it stays");
    }
}

// === impl SnapshotParts ===

impl SnapshotParts {
    /// Writes a snapshot in the calling thread.
    fn write(&self, urgency: Urgency) -> Result<(), WriteError> {
        let began_us = self.clock.uptime_us();
        let took = || Duration::from_micros(self.clock.uptime_us().saturating_sub(began_us));
        let took_max = match urgency {
            Urgency::Idle => IDLE_MAX,
            Urgency::Low | Urgency::Last => OTHERS_MAX,
        };
        let overrides = self.generations.kept_overrides().into_iter();
        let overrides = overrides.filter_map(|one| serde_json::to_vec(&one).ok());
        let header = Header {
            hash_secret: self.hash.secret(),
            written_at: self.clock.now(),
            partitions: u32::try_from(self.copier.partitions()).unwrap_or(u32::MAX),
            overrides: overrides.collect(),
        };
        let file = BufWriter::with_capacity(WRITE_BYTES, NewFile::create(self.path.path())?);
        let mut writer = Writer::new(file, &header)?;
        self.copier.copy_all(|block| {
            if urgency != Urgency::Last && self.is_stopping.load(Ordering::Acquire) {
                return Err(WriteError::Stopping);
            }
            if took() > took_max {
                return Err(WriteError::TooSlow);
            }
            Ok(writer.write(block)?)
        })?;
        let (file, Written { buckets, bytes }) = writer.finish()?;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.complete()?;
        let took_ms = u64::try_from(took().as_millis()).unwrap_or(u64::MAX);
        let metrics = &self.metrics.snapshots;
        metrics.writes.inc();
        metrics.buckets.set(gauge(buckets));
        metrics.bytes.set(gauge(bytes));
        metrics.write_milliseconds.set(gauge(took_ms));
        metrics
            .timestamp
            .set(gauge(header.written_at.as_us() / 1_000_000));
        if urgency == Urgency::Last {
            tracing::info!(buckets, bytes, took_ms, "last snapshot written");
        } else {
            tracing::debug!(buckets, bytes, took_ms, "snapshot written");
        }
        Ok(())
    }
}

fn gauge(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
