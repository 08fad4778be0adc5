//! A point in time, in microseconds.
//!
//! Why microseconds in 53 bits: a limit of three billion a second needs finer steps than
//! milliseconds, and a script in Redis computes with doubles, which hold whole numbers exactly up
//! to 2^53 − 1 (in microseconds: the year 2255). All arithmetic saturates at both ends, so no clock
//! and no window can make it wrap.
//!
//! What it deliberately does not do: read a clock, know calendars or zones, measure how long work
//! took.

/// Microseconds since 1970-01-01T00:00:00Z, from 0 to [`Timestamp::MAX_US`].
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Timestamp(u64);

// === impl Timestamp ===

impl Timestamp {
    /// The last instant that a double holds exactly, in microseconds since 1970.
    pub const MAX_US: u64 = (1 << 53) - 1;

    /// The instant `us` microseconds after 1970 began; later ones than [`Self::MAX_US`] become it.
    #[inline]
    pub const fn from_us(us: u64) -> Self {
        Self(if us > Self::MAX_US { Self::MAX_US } else { us })
    }

    /// The instant `seconds` after 1970 began, saturating.
    #[inline]
    pub const fn from_seconds(seconds: u64) -> Self {
        Self::from_us(seconds.saturating_mul(1_000_000))
    }

    /// Microseconds since 1970.
    #[inline]
    pub const fn as_us(self) -> u64 {
        self.0
    }

    /// This instant moved `us` microseconds into the future, saturating.
    #[must_use]
    #[inline]
    pub const fn plus_us(self, us: u64) -> Self {
        Self::from_us(self.0.saturating_add(us))
    }

    /// This instant moved `us` microseconds into the past, saturating.
    #[must_use]
    #[inline]
    pub const fn minus_us(self, us: u64) -> Self {
        Self(self.0.saturating_sub(us))
    }

    /// Microseconds from `earlier` to this instant; 0 when `earlier` is later.
    #[inline]
    pub const fn since_us(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
