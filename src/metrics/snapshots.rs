//! Metrics of snapshots. Shown only if `--snapshot` is set.

use super::declaration::{Counter, Gauge, metrics};

metrics! {
    /// Metrics of snapshots.
    pub struct SnapshotMetrics {
        /// Snapshots written.
        Counter "tollgate_snapshot_writes_total" => pub writes;

        /// Snapshots that were not written, by cause: disk_full, io, too_slow, or stopped (a worker
        /// had ended).
        Counter "tollgate_snapshot_write_failures_total" by cause {
            disk_full = "disk_full",
            io = "io",
            too_slow = "too_slow",
            stopped = "stopped",
        }

        /// When the last snapshot was begun, in seconds since 1970; after a start, the one that was
        /// loaded.
        Gauge "tollgate_snapshot_timestamp_seconds" => pub timestamp;

        /// Milliseconds that the last write took.
        Gauge "tollgate_snapshot_write_milliseconds" => pub write_milliseconds;

        /// Bytes of the last snapshot.
        Gauge "tollgate_snapshot_bytes" => pub bytes;

        /// Buckets in the last snapshot.
        Gauge "tollgate_snapshot_buckets" => pub buckets;

        /// Snapshots that were refused at start, by cause: unreadable, foreign, version, damaged,
        /// or hash_key.
        Counter "tollgate_snapshot_load_failures_total" by cause {
            unreadable = "unreadable",
            foreign = "foreign",
            version = "version",
            damaged = "damaged",
            hash_key = "hash_key",
        }

        /// Milliseconds that loading took at start.
        Gauge "tollgate_snapshot_load_milliseconds" => pub load_milliseconds;

        /// Buckets of the snapshot at start, by what became of them: loaded, expired, or no_space.
        Counter "tollgate_snapshot_loaded_buckets_total" by result {
            loaded = "loaded",
            expired = "expired",
            no_space = "no_space",
        }
    }
}

// === impl SnapshotMetrics ===

impl SnapshotMetrics {
    /// Counts a snapshot that was refused, by its cause.
    pub fn refused(&self, cause: &str) {
        let counter = match cause {
            "unreadable" => &self.unreadable,
            "foreign" => &self.foreign,
            "version" => &self.version,
            "hash_key" => &self.hash_key,
            _ => &self.damaged,
        };
        counter.inc();
    }

    /// Counts the buckets of a snapshot: loaded, expired, without space.
    pub fn buckets_read(&self, [loaded, expired, no_space]: [u64; 3]) {
        self.loaded.inc_by(loaded);
        self.expired.inc_by(expired);
        self.no_space.inc_by(no_space);
    }
}
