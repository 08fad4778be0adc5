//! Windows that follow a calendar: days, weeks, months and years in a time zone.
//!
//! Why: "10,000 a month" means a calendar month. A window of 30 days counted from 1970 is not that
//! month, and a window of 24 hours is not every day. How: a [`Calendar`] gives the [`Span`] that
//! contains an instant. Spans adjoin, so every instant is in exactly one. Spans can differ in
//! length. A calendar is identified by its name, which states all that decides its spans, so a
//! limit can hold a reference and still be compared and hashed.
//!
//! What it deliberately does not do: know zones or the length of a month. Zones are data that `std`
//! does not have. Implementations of the trait bring them.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::timestamp::Timestamp;

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
