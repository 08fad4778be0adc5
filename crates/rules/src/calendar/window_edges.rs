//! The dates on which calendar windows begin, without a time zone.

use jiff::civil::{Date, Time};
use jiff::tz::Offset;

use tollgate_limiter::{Timestamp, Weekday};

const DAY_SECONDS: i64 = 86_400;

/// How much longer than its days a window can be. Offsets are within 26 hours of UTC on either
/// side.
const OFFSETS_APART_SECONDS: u64 = 52 * 3_600;

/// The dates on which windows begin. Windows are numbered: number 0 begins near 1970-01-01, or in
/// year 0.
#[derive(Clone, Copy)]
pub(super) enum WindowEdges {
    /// Every `every` days, one of them `from` days after 1970-01-01.
    Days { every: i64, from: i64 },
    /// On the first of every `every` months, one of them January of year 0.
    Months { every: i64 },
}

// === impl WindowEdges ===

impl WindowEdges {
    /// The number of the window that holds that date.
    pub(super) fn number_of(self, date: Date) -> Option<i64> {
        match self {
            Self::Days { every, from } => {
                let midnight = Offset::UTC.to_timestamp(date.to_datetime(Time::midnight()));
                let day = midnight.ok()?.as_second().div_euclid(DAY_SECONDS);
                Some((day - from).div_euclid(every))
            }
            Self::Months { every } => {
                let month = i64::from(date.year()) * 12 + i64::from(date.month()) - 1;
                Some(month.div_euclid(every))
            }
        }
    }

    /// The first date of the window of that number.
    pub(super) fn first_date(self, number: i64) -> Option<Date> {
        match self {
            Self::Days { every, from } => {
                let day = from + number * every;
                let midnight = jiff::Timestamp::from_second(day * DAY_SECONDS).ok()?;
                Some(Offset::UTC.to_datetime(midnight).date())
            }
            Self::Months { every } => {
                let month = number * every;
                let year = i16::try_from(month.div_euclid(12)).ok()?;
                Date::new(year, i8::try_from(month.rem_euclid(12) + 1).ok()?, 1).ok()
            }
        }
    }

    pub(super) fn longest_us(self) -> u64 {
        let days = match self {
            Self::Days { every, .. } => every,
            Self::Months { every } => every * 31,
        };
        let seconds = u64::try_from(days * DAY_SECONDS).unwrap_or(u64::MAX);
        Timestamp::from_seconds(seconds.saturating_add(OFFSETS_APART_SECONDS)).as_us()
    }
}

/// The first day of the week that holds 1970-01-01, a Thursday, in days after that: never later.
pub(super) const fn week_of_1970(start: Weekday) -> i64 {
    match start {
        Weekday::Monday => -3,
        Weekday::Tuesday => -2,
        Weekday::Wednesday => -1,
        Weekday::Thursday => 0,
        Weekday::Friday => -6,
        Weekday::Saturday => -5,
        Weekday::Sunday => -4,
    }
}
