//! CPU budget and scheduling class of the handshake threads.
//!
//! Why: clients decide how many handshakes there are. How: after each piece of work a thread reads
//! its own CPU clock. When it has worked for a millisecond or more, it sleeps until its share is
//! right again: at 25 percent, three milliseconds for each. The share therefore does not depend on
//! keys or machines, and a flood does not raise it. Unused time is not saved: a burst after a quiet
//! hour has the same share.
//!
//! Threads that write snapshots use the same scheduling.
//!
//! What it deliberately does not do: order the handshakes (`handshake_pool` does).

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// Work before a pause, in microseconds of CPU time; a sleep is hardly finer.
const WORK_BEFORE_PAUSE_US: u64 = 1_000;

/// Longest pause; it bounds the pause when the share is small and one piece of work was long.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Nice value of the backup thread. Ten is about a tenth of a fully busy core, so that new clients
/// still get in.
const NICE: i32 = 10;

/// Limits one thread to a share of a core.
#[derive(Debug)]
pub(crate) struct CpuThrottle {
    percent: u64,
    /// CPU time since the last pause.
    worked_us: u64,
}

/// Lowers the priority of the calling thread, if the system allows it.
pub(crate) fn lower_priority() {
    // Without a process id, Linux applies this to the calling thread.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "cannot lower the priority of a thread");
    }
}

/// Moves the calling thread to the idle scheduling class, if the system allows it: any thread that
/// wakes preempts it at once. A lower priority alone is weaker: such a thread runs until its time
/// slice ends, some milliseconds.
pub(crate) fn use_idle_scheduling() {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    let set = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
    if let Err(error) = set {
        tracing::debug!(?error, "cannot move a thread to the idle scheduling class");
        lower_priority();
    }
}

/// CPU time of the calling thread, in microseconds.
pub(crate) fn thread_cpu_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000)
        .saturating_add(nanoseconds / 1_000)
}

// === impl CpuThrottle ===

impl CpuThrottle {
    /// Limits to `percent` of a core.
    pub(crate) fn new(percent: u8) -> Self {
        Self {
            percent: u64::from(percent),
            worked_us: 0,
        }
    }

    /// Records `work_us` of CPU time and returns the pause that is due, if any.
    pub(crate) fn pause_after(&mut self, work_us: u64) -> Option<Duration> {
        self.worked_us = self.worked_us.saturating_add(work_us);
        if self.worked_us < WORK_BEFORE_PAUSE_US {
            return None;
        }
        let rest_percent = 100_u64.saturating_sub(self.percent);
        let us = self.worked_us.saturating_mul(rest_percent);
        let us = us.checked_div(self.percent).unwrap_or(u64::MAX);
        self.worked_us = 0;
        let pause = Duration::from_micros(us).min(PAUSE_MAX);
        (!pause.is_zero()).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_keep_the_share() {
        let pause = |us, percent| CpuThrottle::new(percent).pause_after(us);
        assert_eq!(pause(1_000, 25), Some(Duration::from_millis(3)));
        assert_eq!(pause(1_000, 50), Some(Duration::from_millis(1)));
        assert_eq!(pause(7_000, 100), None);
        assert_eq!(pause(1_000_000, 1), Some(PAUSE_MAX));
        assert_eq!(pause(1_000, 0), Some(PAUSE_MAX));
    }

    #[test]
    fn small_pieces_of_work_add_up() {
        let mut throttle = CpuThrottle::new(50);
        assert_eq!(throttle.pause_after(400), None);
        assert_eq!(throttle.pause_after(500), None);
        assert_eq!(
            throttle.pause_after(300),
            Some(Duration::from_micros(1_200))
        );
        assert_eq!(throttle.pause_after(500), None);
    }
}
