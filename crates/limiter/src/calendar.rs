//! Windows that begin when people think they do: at midnight where they live.
//!
//! Why: "10,000 a month" is read off a calendar on a wall. A window of 30 days counted from 1970 is not that month,
//! and a window of 24 hours is not every day. How: a [`Calendar`] says which [`Span`] holds an instant. Spans adjoin,
//! so every instant lies in exactly one; a span's length may differ from the next one's. A calendar is known by its
//! name, which says all that decides its spans, so a limit can hold a plain reference and still be compared and
//! hashed.
//!
//! What it deliberately does not do: know any zone or how long a month is. Zones are data, and the data is not
//! `std`'s: whoever implements the trait brings them.

use std::fmt;
use std::hash::{Hash, Hasher};

use super::timestamp::Timestamp;

/// A stretch of time: from `start`, up to and without `end`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Span {
    /// Its first instant.
    pub start: Timestamp,
    /// The first instant after it.
    pub end: Timestamp,
}

/// The day a week starts on.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Weekday {
    /// As ISO 8601 has it, and nearly everybody who says "this week" at work.
    #[default]
    Monday,
    /// The day after Monday.
    Tuesday,
    /// The day after Tuesday.
    Wednesday,
    /// The day 1970 began on.
    Thursday,
    /// The day after Thursday.
    Friday,
    /// As in much of the Arab world.
    Saturday,
    /// As in the Americas and much of Asia.
    Sunday,
}

/// Windows that begin when people think they do.
pub trait Calendar: Send + Sync {
    /// Unit, how many, zone and beginning of weeks, in words: `3 months in Europe/Paris`, `1 week from Monday in UTC`.
    /// Equal names are equal calendars.
    fn name(&self) -> &str;

    /// The window that holds `now`: start <= now < end. What lies before 1970 or after [`Timestamp::MAX_US`] is cut
    /// off, so the last instant of all has a window that ends with it: there `end` is `now`.
    fn window_at(&self, now: Timestamp) -> Span;

    /// No window is longer, in microseconds. A bound, and not a tight one: days of 49 hours are possible, since zones
    /// have jumped across the date line.
    fn window_max_us(&self) -> u64;
}

// === impl Weekday ===

impl Weekday {
    /// Every day, Monday first.
    pub const ALL: [Self; 7] = [
        Self::Monday,
        Self::Tuesday,
        Self::Wednesday,
        Self::Thursday,
        Self::Friday,
        Self::Saturday,
        Self::Sunday,
    ];

    /// The name, with a capital.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Monday => "Monday",
            Self::Tuesday => "Tuesday",
            Self::Wednesday => "Wednesday",
            Self::Thursday => "Thursday",
            Self::Friday => "Friday",
            Self::Saturday => "Saturday",
            Self::Sunday => "Sunday",
        }
    }

    /// The day of that name, in any case.
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
