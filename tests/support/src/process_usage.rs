//! The memory and CPU time of a process, as the kernel counts them below `/proc`.

use std::fs;

/// A field of `/proc/PROCESS/status`, its words separated by single spaces.
pub fn status_field(process: u32, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let value = line.and_then(|rest| rest.strip_prefix(':')).expect(field);
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A size in `/proc/PROCESS/status`, in bytes: `VmRSS` and `VmHWM`, for example.
pub fn status_bytes(process: u32, field: &str) -> u64 {
    let value = status_field(process, field);
    let kib = value.strip_suffix(" kB").expect("a size in kB");
    kib.parse::<u64>().expect("a number") << 10
}

/// The CPU time in a `stat` file of a process or thread. The kernel counts hundredths of a second.
pub fn cpu_seconds(stat_file: &str) -> f64 {
    let stat = fs::read_to_string(stat_file).expect("it runs");
    let (_, after_name) = stat.rsplit_once(") ").expect("a name");
    let fields: Vec<_> = after_name.split(' ').collect();
    let ticks = |at: usize| fields[at].parse::<u32>().expect("ticks");
    f64::from(ticks(11) + ticks(12)) / 100.0
}
