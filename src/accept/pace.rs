//! How much of a core's time handshakes may take.
//!
//! Why: their number is whatever strangers like. How: one is worked on at a time, and the thread's own clock of processor time
//! says what its work has come to. When that is a millisecond or more, nobody has a turn for as long as it takes until
//! the share is right again: at 25 percent three milliseconds for each. So what others notice does not depend on keys or
//! machines, and no flood makes it more. What is not taken is not saved up: a crowd that comes after a quiet hour has the same share.
//!
//! What it deliberately does not do: say who comes first. Turns go in the order in which they were asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use crate::metrics::Counter;

/// How much work goes by before there is a rest; a timer is no finer.
const WORK_US: u64 = 1_000;

/// How long a rest is at most: the thread's time may be that of other things as well.
const REST_MAX: Duration = Duration::from_millis(200);

/// By how much others go first. Ten is about a tenth of the time on a core that is all taken, so that whoever comes anew gets
/// in even then.
const NICE: i32 = 10;

/// Who may work, and when.
#[derive(Debug)]
pub(super) struct Pace {
    turn: Arc<Semaphore>,
    resting: Arc<AtomicBool>,
    /// The thread's time up to which work has been rested for.
    rested_us: AtomicU64,
    percent: u64,
    /// Turns that had to wait for a rest to be over.
    waited: Counter,
}

/// A turn at the work.
pub(super) struct Turn<'a> {
    pace: &'a Pace,
    permit: Option<OwnedSemaphorePermit>,
}

/// Gives the thread that calls it a lower priority, where the system lets it.
pub(super) fn let_others_go_first() {
    // Of no process is of this thread: so Linux has it.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "handshakes have the priority of all else");
    }
}

/// How much of a processor's time this thread has had.
fn thread_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000_000)
        .saturating_add(nanoseconds / 1_000)
}

/// For how long nobody works who has worked for so long.
fn rest(work_us: u64, percent: u64) -> Duration {
    let others = 100_u64.saturating_sub(percent);
    let us = work_us.saturating_mul(others).checked_div(percent);
    Duration::from_micros(us.unwrap_or(u64::MAX)).min(REST_MAX)
}

// === impl Pace ===

impl Pace {
    /// So many percent of a core.
    pub(super) fn new(percent: u8, waited: Counter) -> Self {
        Self {
            turn: Arc::new(Semaphore::new(1)),
            resting: Arc::default(),
            rested_us: AtomicU64::new(0),
            percent: u64::from(percent),
            waited,
        }
    }

    /// Waits for a turn. To be asked for and ended on one and the same thread, without a wait between.
    pub(super) async fn turn(&self) -> Turn<'_> {
        if self.resting.load(Ordering::Relaxed) {
            self.waited.inc();
        }
        // None were only if it were closed.
        let permit = Arc::clone(&self.turn).acquire_owned().await.ok();
        Turn { pace: self, permit }
    }
}

impl Turn<'_> {
    /// The work is done.
    pub(super) fn end(self) {
        let Self { pace, permit } = self;
        let now_us = thread_us();
        let work_us = now_us.saturating_sub(pace.rested_us.load(Ordering::Relaxed));
        if work_us < WORK_US {
            return;
        }
        pace.rested_us.store(now_us, Ordering::Relaxed);
        let rest = rest(work_us, pace.percent);
        if rest.is_zero() {
            return;
        }
        pace.resting.store(true, Ordering::Relaxed);
        let resting = Arc::clone(&pace.resting);
        tokio::spawn(async move {
            sleep(rest).await;
            resting.store(false, Ordering::Relaxed);
            drop(permit);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_kept_by_resting() {
        assert_eq!(rest(1_000, 25), Duration::from_millis(3));
        assert_eq!(rest(1_000, 50), Duration::from_millis(1));
        assert_eq!(rest(700, 100), Duration::ZERO);
        assert_eq!(rest(1_000_000, 1), REST_MAX);
        assert_eq!(rest(1, 0), REST_MAX);
    }
}
