//! How much of a core's time handshakes may take, and who goes first on it.
//!
//! Why: their number is whatever strangers like. How: a thread's own clock of processor time says what its work has come to.
//! When that is a millisecond or more, it rests for as long as it takes until the share is right again: at 25 percent three
//! milliseconds for each. So what others notice does not depend on keys or machines, and no flood makes it more. What is not
//! taken is not saved up: a crowd that comes after a quiet hour has the same share.
//!
//! What it deliberately does not do: say who comes first of those who shake hands.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// How much work goes by before there is a rest; a sleep is hardly finer.
const WORK_US: u64 = 1_000;

/// How long a rest is at most, where a share is small and one piece of work was long.
pub(crate) const REST_MAX: Duration = Duration::from_millis(200);

/// By how much others go first. Ten is about a tenth of the time on a core that is all taken, so that whoever comes anew gets
/// in even then.
const NICE: i32 = 10;

/// The share of one thread, and what it has done since it rested.
#[derive(Debug)]
pub(crate) struct Pace {
    percent: u64,
    worked_us: u64,
}

/// Gives the thread that calls it a lower priority, where the system lets it.
pub(crate) fn let_others_go_first() {
    // Of no process is of this thread: so Linux has it.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "handshakes have the priority of all else");
    }
}

/// Gives the thread that calls it only what time nobody else wants, where the system lets it: whoever wakes has the core at
/// once, however short a while this thread has had it. A lower priority alone is no such thing: it goes on until its slice is
/// over, some milliseconds.
pub(crate) fn take_spare_time_only() {
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    let set = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
    if let Err(error) = set {
        tracing::debug!(?error, "handshakes may take more than spare time");
        let_others_go_first();
    }
}

/// How much of a processor's time this thread has had.
pub(crate) fn thread_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000)
        .saturating_add(nanoseconds / 1_000)
}

// === impl Pace ===

impl Pace {
    /// So many percent of a core.
    pub(crate) fn new(percent: u8) -> Self {
        Self {
            percent: u64::from(percent),
            worked_us: 0,
        }
    }

    /// Takes note of work of so long, and says how long a rest is due.
    pub(crate) fn rest_after(&mut self, work_us: u64) -> Option<Duration> {
        self.worked_us = self.worked_us.saturating_add(work_us);
        if self.worked_us < WORK_US {
            return None;
        }
        let others = 100_u64.saturating_sub(self.percent);
        let us = self.worked_us.saturating_mul(others);
        let us = us.checked_div(self.percent).unwrap_or(u64::MAX);
        self.worked_us = 0;
        let rest = Duration::from_micros(us).min(REST_MAX);
        (!rest.is_zero()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_kept_by_resting() {
        let rest = |us, percent| Pace::new(percent).rest_after(us);
        assert_eq!(rest(1_000, 25), Some(Duration::from_millis(3)));
        assert_eq!(rest(1_000, 50), Some(Duration::from_millis(1)));
        assert_eq!(rest(7_000, 100), None);
        assert_eq!(rest(1_000_000, 1), Some(REST_MAX));
        assert_eq!(rest(1_000, 0), Some(REST_MAX));
    }

    #[test]
    fn small_work_adds_up() {
        let mut pace = Pace::new(50);
        assert_eq!(pace.rest_after(400), None);
        assert_eq!(pace.rest_after(500), None);
        assert_eq!(pace.rest_after(300), Some(Duration::from_micros(1_200)));
        assert_eq!(pace.rest_after(500), None);
    }
}
