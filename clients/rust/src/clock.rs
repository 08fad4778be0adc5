//! Time of the breaker, the denial cache, the local bucket and the log.

use std::time::{Duration, Instant};

/// A monotonic clock.
///
/// Tests replace it by [`ClientBuilder::clock`](crate::ClientBuilder::clock). Deadlines and
/// [`Decision::elapsed`](crate::Decision::elapsed) always use the real clock.
pub trait Clock: Send + Sync + 'static {
    /// Time since a fixed point. It never decreases.
    fn now(&self) -> Duration;
}

/// The monotonic clock of the operating system.
#[derive(Debug)]
pub(crate) struct SystemClock {
    start: Instant,
}

impl SystemClock {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}
