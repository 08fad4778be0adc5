//! Metrics of the process, under the names that Prometheus clients use.
//!
//! How: read from `/proc/self` whenever metrics are. On a system without it they are absent.
//!
//! Why not the collector of the crate `prometheus`: it needs the crate `procfs`, and panics where
//! `/proc` cannot be read.

use std::fs;

use super::declaration::metrics;
use super::gauges::{PolledCounter, PolledGauge};

/// Clock ticks per second in `/proc`: USER_HZ, which is 100 on every architecture that Rust's
/// standard library runs on.
const TICKS_PER_SECOND: f64 = 100.0;

metrics! {
    /// Metrics of the process.
    pub(super) struct ProcessMetrics {
        /// Seconds of CPU time that the process has used, in user and system mode.
        PolledCounter "process_cpu_seconds_total" => cpu_seconds;

        /// Bytes of physical memory that the process uses.
        PolledGauge "process_resident_memory_bytes" => resident_bytes;

        /// Bytes of virtual memory that the process has mapped.
        PolledGauge "process_virtual_memory_bytes" => virtual_bytes;

        /// File descriptors that the process has open.
        PolledGauge "process_open_fds" => open_fds;

        /// Maximum number of file descriptors that the process may open.
        PolledGauge "process_max_fds" => max_fds;

        /// Time at which the process started, in seconds since 1970.
        PolledGauge "process_start_time_seconds" => start_time;

        /// Threads of the process.
        PolledGauge "process_threads" => threads;
    }
}

// === impl ProcessMetrics ===

impl ProcessMetrics {
    /// Reads the values from `/proc` from now on, if it is there.
    pub(super) fn publish(&self) {
        if stat().is_none() {
            return;
        }
        let start_time = start_time();
        self.cpu_seconds.read_if_known(cpu_seconds);
        self.resident_bytes.read_if_known(|| status_bytes("VmRSS:"));
        self.virtual_bytes.read_if_known(|| status_bytes("VmSize:"));
        self.open_fds.read_if_known(open_fds);
        self.max_fds.read_if_known(max_fds);
        self.threads.read_if_known(|| status("Threads:"));
        self.start_time.read_if_known(move || start_time);
    }
}

/// The fields of `/proc/self/stat` after the name, which may hold spaces. The first is the state:
/// field 3 of proc(5).
fn stat() -> Option<Vec<String>> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// A field by its number in proc(5), in seconds.
fn seconds(fields: &[String], number: usize) -> Option<f64> {
    let ticks: f64 = fields.get(number.checked_sub(3)?)?.parse().ok()?;
    Some(ticks / TICKS_PER_SECOND)
}

fn cpu_seconds() -> Option<f64> {
    let fields = stat()?;
    Some(seconds(&fields, 14)? + seconds(&fields, 15)?)
}

/// In whole seconds.
fn start_time() -> Option<f64> {
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot = field(&system, "btime")?;
    Some(boot + seconds(&stat()?, 22)?.floor())
}

fn status_bytes(name: &str) -> Option<f64> {
    Some(status(name)? * 1_024.0)
}

fn status(name: &str) -> Option<f64> {
    field(&fs::read_to_string("/proc/self/status").ok()?, name)
}

/// The number after the words at the start of a line.
fn field(text: &str, name: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[allow(clippy::cast_precision_loss)] // thousands at most
fn open_fds() -> Option<f64> {
    let open = fs::read_dir("/proc/self/fd").ok()?.count();
    // Reading the directory opens one more.
    Some(open.saturating_sub(1) as f64)
}

/// None if there is no bound.
fn max_fds() -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    field(&limits, "Max open files")
}
