//! Metrics of the process, under the names that Prometheus clients use.
//!
//! How: read from `/proc/self` whenever metrics are. On a system without it they are absent.
//!
//! Why not the collector of the crate `prometheus`: it needs the crate `procfs`, and panics where
//! `/proc` cannot be read.

use std::fs;

use super::declaration::metrics;
use super::gauges::{PolledGauge, PolledSeconds};

/// Clock ticks per second in `/proc`: USER_HZ, which is 100 on every architecture that Rust's
/// standard library runs on.
const TICKS_PER_SECOND: f64 = 100.0;

metrics! {
    /// Metrics of the process.
    pub(super) struct ProcessMetrics {
        /// Seconds of CPU time that the process has used, in user and system mode.
        PolledSeconds "process_cpu_seconds_total" => cpu_seconds;

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
        self.cpu_seconds.read_from(cpu_seconds);
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

/// A field by its number in proc(5).
fn ticks(fields: &[String], number: usize) -> Option<f64> {
    fields.get(number.checked_sub(3)?)?.parse().ok()
}

fn cpu_seconds() -> Option<f64> {
    let fields = stat()?;
    Some((ticks(&fields, 14)? + ticks(&fields, 15)?) / TICKS_PER_SECOND)
}

/// In whole seconds.
fn start_time() -> Option<u64> {
    let since_boot = ticks(&stat()?, 22)? / TICKS_PER_SECOND;
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = field(&system, "btime")?.parse().ok()?;
    // A number of seconds is far below 2^53, and not negative.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let since_boot = since_boot as u64;
    Some(boot.saturating_add(since_boot))
}

fn status_bytes(name: &str) -> Option<u64> {
    status(name)?.checked_mul(1_024)
}

fn status(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    field(&text, name)?.parse().ok()
}

/// The word after a line's first word.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next()? == name).then(|| words.next())?
    })
}

fn open_fds() -> Option<u64> {
    let open = fs::read_dir("/proc/self/fd").ok()?.count();
    // Reading the directory opens one more.
    u64::try_from(open.saturating_sub(1)).ok()
}

fn max_fds() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/limits").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => None,
        number => number.parse().ok(),
    }
}
