//! Clock: the only file that reads the time.
//!
//! Why a trait: everything else takes the time as an argument, so no test sleeps to see a window
//! turn. Two readings, because they answer two questions: [`Clock::now`] is the time of day, which
//! windows are aligned to and which may jump; [`Clock::uptime_us`] is monotonic, for deadlines and
//! latencies.
//!
//! What it deliberately does not do: smooth, cache or correct the system clock. The limiter's two
//! clock laws define what a jump means (`crates/limiter/src/algorithm`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tollgate_limiter::Timestamp;

/// Source of time.
pub trait Clock: Send + Sync + 'static {
    /// Time of day. May jump in both directions.
    fn now(&self) -> Timestamp;

    /// Microseconds since a fixed instant of this process. Monotonic.
    fn uptime_us(&self) -> u64;
}

/// The system's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    started: Instant,
}

/// A clock that changes only when it is set, for tests and simulations.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_us: AtomicU64,
    uptime_us: AtomicU64,
}

// === impl SystemClock ===

impl SystemClock {
    /// A clock whose uptime begins now.
    #[allow(clippy::disallowed_methods)] // this is the file
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)] // this is the file
    fn now(&self) -> Timestamp {
        // A clock before 1970 counts as 1970: late is safer than never.
        let since_1970 = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_us(u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX))
    }

    fn uptime_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

// === impl ManualClock ===

impl ManualClock {
    /// A clock that shows `now`.
    pub fn at(now: Timestamp) -> Self {
        let clock = Self::default();
        clock.set(now);
        clock
    }

    /// Sets the time of day, in either direction. Uptime stays.
    pub fn set(&self, now: Timestamp) {
        self.now_us.store(now.as_us(), Ordering::Release);
    }

    /// Moves both readings forward.
    pub fn advance_us(&self, us: u64) {
        // In one step: of two threads that move the clock, neither sets it back.
        let later = |now| Some(Timestamp::from_us(now).plus_us(us).as_us());
        let _ = self
            .now_us
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
        self.uptime_us.fetch_add(us, Ordering::AcqRel);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_us(self.now_us.load(Ordering::Acquire))
    }

    fn uptime_us(&self) -> u64 {
        self.uptime_us.load(Ordering::Acquire)
    }
}
