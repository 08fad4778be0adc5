//! The settings of snapshots: a file that keeps the buckets in memory across restarts.
//!
//! What it deliberately does not do: open the file (`app/snapshot`).

use std::path::PathBuf;

use clap::Args;

use crate::settings::headings::WORKERS;

/// Snapshots of the buckets in memory.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = WORKERS)]
pub struct SnapshotSettings {
    /// File that keeps the buckets in memory across restarts
    ///
    /// It is read before the service is ready, and written at intervals and after the last request
    /// of a shutdown. Only one process may use it, and its folder must be writable. It holds the
    /// hash key of the buckets. --store cannot be set with it.
    ///
    /// Example: /var/lib/tollgate/buckets.snapshot
    #[arg(long, env = "TOLLGATE_SNAPSHOT", value_name = "FILE")]
    pub snapshot: Option<PathBuf>,

    /// Interval at which --snapshot is written, in seconds
    ///
    /// After a crash, what was counted since the last snapshot is forgotten.
    ///
    /// Range: 1 to 86400
    ///
    /// Example: 10
    #[arg(long, env = "TOLLGATE_SNAPSHOT_INTERVAL_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400), value_name = "SECONDS")]
    pub snapshot_interval_seconds: u64,
}
