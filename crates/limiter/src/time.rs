//! Time: instants, the units of limits, and windows that follow a calendar.
//!
//! Why microseconds in 53 bits: a limit of three billion a second needs finer steps than
//! milliseconds, and a script in Redis computes with doubles, which hold whole numbers exactly up
//! to 2^53 − 1 (in microseconds: the year 2255). All arithmetic saturates at both ends, so no clock
//! and no window can make it wrap.
//!
//! Why calendars: "10,000 a month" means a calendar month. A window of 30 days counted from 1970 is
//! not that month, and a window of 24 hours is not every day. A [`Calendar`] gives the [`Span`]
//! that contains an instant. Spans adjoin, so every instant is in exactly one. Spans can differ in
//! length. A calendar is identified by its name, which states all that decides its spans, so a
//! limit can hold a reference and still be compared and hashed.
//!
//! What it deliberately does not do: read a clock, measure how long work took, know zones or the
//! length of a month. Zones are data that `std` does not have. Implementations of the trait bring
//! them.

use std::fmt;
use std::hash::{Hash, Hasher};

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

crate::named! {
    /// The units of time in rules files and in Envoy's protocol, shortest first. A month is 30 days
    /// and a year 365, as in Envoy's reference service.
    pub enum Unit {
        /// 1 second.
        Second = "second",
        /// 60 seconds.
        Minute = "minute",
        /// 3,600 seconds.
        Hour = "hour",
        /// 86,400 seconds; days begin at midnight UTC.
        Day = "day",
        /// 7 days; weeks begin on Thursday, as 1970 did.
        Week = "week",
        /// 30 days, counted from 1970.
        Month = "month",
        /// 365 days, counted from 1970.
        Year = "year",
    }
}

// === impl Unit ===

impl Unit {
    /// Length in seconds.
    #[inline]
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 604_800,
            Self::Month => 2_592_000,
            Self::Year => 31_536_000,
        }
    }

    /// The unit with that name, in any case.
    #[inline]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|unit| unit.name().eq_ignore_ascii_case(name))
    }
}

/// A half-open interval of time: includes `start`, excludes `end`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Span {
    /// Its first instant.
    pub start: Timestamp,
    /// The first instant after it.
    pub end: Timestamp,
}

crate::named! {
    /// The day a week starts on.
    #[derive(Default)]
    pub enum Weekday {
        /// The first day of the week in ISO 8601.
        #[default]
        Monday = "Monday",
        /// The day after Monday.
        Tuesday = "Tuesday",
        /// The day after Tuesday.
        Wednesday = "Wednesday",
        /// The day of 1970-01-01.
        Thursday = "Thursday",
        /// The day after Thursday.
        Friday = "Friday",
        /// The first day of the week in much of the Arab world.
        Saturday = "Saturday",
        /// The first day of the week in the Americas and much of Asia.
        Sunday = "Sunday",
    }
}

/// Windows that follow a calendar.
pub trait Calendar: Send + Sync {
    /// Unit, multiplier, zone and start of the week, in words: `3 months in Europe/Paris`, `1 week
    /// from Monday in UTC`. Calendars with equal names are equal.
    fn name(&self) -> &str;

    /// The window that contains `now`: start <= now < end. It is clipped to 1970 and to
    /// [`Timestamp::MAX_US`], so the window of the last instant ends with it: there `end` is `now`.
    fn window_at(&self, now: Timestamp) -> Span;

    /// An upper bound of the length of a window, in microseconds. The bound is not tight: days of
    /// 49 hours are possible, since zones have crossed the date line.
    fn window_max_us(&self) -> u64;
}

// === impl Weekday ===

impl Weekday {
    /// The day with that name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|day| day.name().eq_ignore_ascii_case(name))
    }
}

// === impl Calendar ===

impl fmt::Debug for dyn Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calendar({})", self.name())
    }
}

impl PartialEq for dyn Calendar {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Calendar {}

impl Hash for dyn Calendar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}
