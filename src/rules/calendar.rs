//! Calendars: which window of days, weeks, months or years holds an instant, in a zone of the IANA
//! time zone database.
//!
//! Why here: a zone is something the operator writes, and the limiter knows no data. The data comes
//! with the binary (jiff and its bundled database), never from the machine: an image of one binary
//! has none, and two replicas with different data would count in different windows.
//!
//! How a window is found. Days begin at the first instant at which the zone's clocks have reached
//! that date. So:
//!
//! - where midnight does not exist (clocks go forward over it) a day begins when they have gone
//!   forward;
//! - where midnight comes twice (clocks go back across it) a day begins at the first, and the
//!   repeated time belongs to the new day although clocks show the old date;
//! - a date that clocks jump over altogether has no window.
//!
//! Dates reached never turn back, so windows adjoin, and every instant lies in exactly one. Several
//! units to a window are counted from where nobody has to look it up: days from 1970-01-01, weeks
//! from the week that holds it, months from January of year 0 (3 are quarters), years from year 0.
//!
//! Why calendars are never freed: a limit is copied into every check, so it holds a `&'static`.
//! Equal calendars are one, kept in a table of the process. There are few, as many as different
//! windows in the rules; a process that is given ever new ones by ever new rules is stopped at
//! [`CALENDARS_MAX`].
//!
//! What it deliberately does not do: windows shorter than a day (they are the same in every zone,
//! give or take part of an hour), zones made of offsets or rules (`+02:00`, `CET-1CEST`), the
//! machine's own zone, leap seconds.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};

use jiff::civil::{Date, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};

use crate::rules::excerpt::excerpt;
use tollgate_limiter::{Calendar, Span, Timestamp, Unit, Weekday};

/// How many different calendars a process may ever use.
pub const CALENDARS_MAX: usize = 10_000;

/// How many units a calendar window may last.
pub const MULTIPLIER_MAX: u32 = 1_000;

/// The longest zone name that is worth a guess at what was meant, in bytes. The database's longest
/// has 32.
const GUESSED_BYTES_MAX: usize = 64;

const DAY_SECONDS: i64 = 86_400;

/// How much longer than its days a window can be. Offsets lie within 26 hours of UTC on either
/// side.
const OFFSETS_APART_SECONDS: u64 = 52 * 3_600;

/// Every calendar in use, and those that were.
static CALENDARS: Mutex<CalendarTable> = Mutex::new(CalendarTable::new(CALENDARS_MAX));

/// Why there is no such calendar. The sentence is the error itself, what to do is its
/// [`advice`](Self::advice).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CalendarError {
    /// Seconds, minutes and hours are no matter of calendars.
    #[error(
        "calendar windows last a day at least, not {} {}",
        if *unit == Unit::Hour { "an" } else { "a" },
        unit.name()
    )]
    UnitTooShort {
        /// The unit asked for.
        unit: Unit,
    },
    /// `week_start` beside days, months or years.
    #[error("week_start needs unit week, not {}", unit.name())]
    WeekStartWithoutWeek {
        /// The unit asked for.
        unit: Unit,
    },
    /// More units than anyone plans for.
    #[error(
        "unit_multiplier of a calendar window must be at most {MULTIPLIER_MAX}, not {multiplier}"
    )]
    MultiplierTooLarge {
        /// The multiplier asked for.
        multiplier: NonZeroU32,
    },
    /// No zone has that name.
    #[error("unknown time_zone {zone:?}")]
    UnknownZone {
        /// The name asked for, as much of it as is shown.
        zone: String,
        /// A zone of nearly that name.
        suggestion: Option<String>,
    },
    /// [`CALENDARS_MAX`] is met.
    #[error("more than {CALENDARS_MAX} different calendars since the start")]
    TooMany,
}

/// Calendars by name.
struct CalendarTable {
    known: BTreeMap<&'static str, &'static dyn Calendar>,
    max: usize,
}

/// A calendar in a zone.
struct ZonedCalendar {
    name: String,
    edges: WindowEdges,
    zone: TimeZone,
    longest_us: u64,
}

/// On which dates windows begin. Windows are numbered: number 0 begins on 1970-01-01 or
/// thereabouts, or in year 0.
#[derive(Clone, Copy)]
enum WindowEdges {
    /// Every so many days, one of them the day `from` days after 1970-01-01.
    Days { every: i64, from: i64 },
    /// On the first of every so many months, January of year 0 being one of them.
    Months { every: i64 },
}

/// The calendar of windows of `multiplier` units in the zone of that name; weeks start on Monday
/// unless said. Equal arguments give the same calendar.
///
/// # Errors
///
/// When there is no such window or zone, or there are too many calendars.
pub fn calendar(
    unit: Unit,
    multiplier: NonZeroU32,
    zone: &str,
    week_start: Option<Weekday>,
) -> Result<&'static dyn Calendar, CalendarError> {
    let new = ZonedCalendar::new(unit, multiplier, zone, week_start)?;
    CALENDARS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .intern(new)
}

/// The zone of that name, spelled as the database spells it.
fn zone_named(name: &str) -> Result<TimeZone, CalendarError> {
    let zones = TimeZoneDatabase::bundled();
    let found = zones.get(name).ok();
    // The database also answers to other cases, and to `Etc/Unknown`, which has no name.
    let exact = found.filter(|zone| zone.iana_name() == Some(name));
    exact.ok_or_else(|| CalendarError::UnknownZone {
        zone: excerpt(name).into_owned(),
        suggestion: similar_zone(&zones, name),
    })
}

/// A zone of that name in another case or with spaces in it, or else one whose city it is.
fn similar_zone(zones: &TimeZoneDatabase, name: &str) -> Option<String> {
    if name.len() > GUESSED_BYTES_MAX {
        return None;
    }
    let name = name.trim().replace(' ', "_");
    let is_like = |part: &str| part.eq_ignore_ascii_case(&name);
    let zone = zones.available().find(|zone| is_like(zone.as_str()));
    let city = || {
        zones
            .available()
            .find(|zone| zone.as_str().rsplit('/').next().is_some_and(is_like))
    };
    Some(zone.or_else(city)?.as_str().to_owned())
}

// === impl CalendarError ===

impl CalendarError {
    /// What to do about it.
    pub fn advice(&self) -> String {
        match self {
            Self::UnitTooShort { .. } => {
                "use unit day, week, month or year, or leave out `calendar`".to_owned()
            }
            Self::WeekStartWithoutWeek { .. } => {
                "leave out `week_start`, or use unit week".to_owned()
            }
            Self::MultiplierTooLarge { .. } => "use a larger unit".to_owned(),
            Self::UnknownZone {
                suggestion: Some(zone),
                ..
            } => {
                format!("did you mean {zone}? Names are those of the IANA time zone database")
            }
            Self::UnknownZone {
                suggestion: None, ..
            } => {
                "use a name of the IANA time zone database, such as Europe/Paris or UTC".to_owned()
            }
            Self::TooMany => "use fewer different units, multipliers, zones and week starts; \
                 those of earlier rules count until the next start"
                .to_owned(),
        }
    }
}

// === impl CalendarTable ===

impl CalendarTable {
    const fn new(max: usize) -> Self {
        Self {
            known: BTreeMap::new(),
            max,
        }
    }

    /// The calendar of the same name that is there already, or this one from now on.
    fn intern(&mut self, new: ZonedCalendar) -> Result<&'static dyn Calendar, CalendarError> {
        if let Some(known) = self.known.get(new.name.as_str()) {
            return Ok(*known);
        }
        if self.known.len() >= self.max {
            return Err(CalendarError::TooMany);
        }
        let new: &'static dyn Calendar = Box::leak(Box::new(new));
        self.known.insert(new.name(), new);
        Ok(new)
    }
}

// === impl ZonedCalendar ===

impl ZonedCalendar {
    fn new(
        unit: Unit,
        multiplier: NonZeroU32,
        zone: &str,
        week_start: Option<Weekday>,
    ) -> Result<Self, CalendarError> {
        if week_start.is_some() && unit != Unit::Week {
            return Err(CalendarError::WeekStartWithoutWeek { unit });
        }
        if multiplier.get() > MULTIPLIER_MAX {
            return Err(CalendarError::MultiplierTooLarge { multiplier });
        }
        let many = i64::from(multiplier.get());
        let week_start = week_start.unwrap_or_default();
        let edges = match unit {
            Unit::Second | Unit::Minute | Unit::Hour => {
                return Err(CalendarError::UnitTooShort { unit });
            }
            Unit::Day => WindowEdges::Days {
                every: many,
                from: 0,
            },
            Unit::Week => WindowEdges::Days {
                every: 7 * many,
                from: week_of_1970(week_start),
            },
            Unit::Month => WindowEdges::Months { every: many },
            Unit::Year => WindowEdges::Months { every: 12 * many },
        };
        let (s, from) = match (many, unit) {
            (1, Unit::Week) => ("", format!(" from {}", week_start.name())),
            (_, Unit::Week) => ("s", format!(" from {}", week_start.name())),
            (1, _) => ("", String::new()),
            _ => ("s", String::new()),
        };
        Ok(Self {
            name: format!("{many} {}{s}{from} in {zone}", unit.name()),
            edges,
            zone: zone_named(zone)?,
            longest_us: edges.longest_us(),
        })
    }

    /// The window that holds `now`; none only for years that no timestamp has.
    fn window_containing(&self, now: Timestamp) -> Option<Span> {
        let now_us = i64::try_from(now.as_us()).ok()?;
        let instant = jiff::Timestamp::from_microsecond(now_us).ok()?;
        let mut number = self
            .edges
            .number_of(self.zone.to_datetime(instant).date())?;
        let mut start_us = self.begin_us(number)?;
        loop {
            number += 1;
            let end_us = self.begin_us(number)?;
            if now_us < end_us {
                return Some(Span {
                    start: timestamp(start_us),
                    end: timestamp(end_us),
                });
            }
            // Clocks went back and show a date of the window before, or nobody ever saw this
            // window.
            start_us = end_us;
        }
    }

    /// When the window of that number begins: the first instant at which clocks have reached its
    /// first date.
    fn begin_us(&self, number: i64) -> Option<i64> {
        let midnight = self.edges.first_date(number)?.to_datetime(Time::midnight());
        let instant = match self.zone.to_ambiguous_timestamp(midnight).offset() {
            // Of two midnights the first.
            AmbiguousOffset::Unambiguous { offset }
            | AmbiguousOffset::Fold { before: offset, .. } => offset.to_timestamp(midnight).ok()?,
            AmbiguousOffset::Gap { before, .. } => {
                // Clocks that had not gone forward would show midnight now: they have gone forward
                // just before.
                let not_before = before.to_timestamp(midnight).ok()?.as_microsecond();
                let after = jiff::Timestamp::from_microsecond(not_before + 1).ok()?;
                self.zone.preceding(after).next()?.timestamp()
            }
        };
        Some(instant.as_microsecond())
    }
}

impl Calendar for ZonedCalendar {
    fn name(&self) -> &str {
        &self.name
    }

    fn window_at(&self, now: Timestamp) -> Span {
        self.window_containing(now).unwrap_or(Span {
            start: Timestamp::from_us(0),
            end: Timestamp::from_us(Timestamp::MAX_US),
        })
    }

    fn window_max_us(&self) -> u64 {
        self.longest_us
    }
}

// === impl WindowEdges ===

impl WindowEdges {
    /// The number of the window that holds that date.
    fn number_of(self, date: Date) -> Option<i64> {
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
    fn first_date(self, number: i64) -> Option<Date> {
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

    fn longest_us(self) -> u64 {
        let days = match self {
            Self::Days { every, .. } => every,
            Self::Months { every } => every * 31,
        };
        let seconds = u64::try_from(days * DAY_SECONDS).unwrap_or(u64::MAX);
        Timestamp::from_seconds(seconds.saturating_add(OFFSETS_APART_SECONDS)).as_us()
    }
}

/// The first day of the week that holds 1970-01-01, a Thursday, in days after that: never later.
const fn week_of_1970(start: Weekday) -> i64 {
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

/// That instant, or the nearest one that a timestamp can hold.
fn timestamp(us: i64) -> Timestamp {
    Timestamp::from_us(u64::try_from(us).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(count: u32) -> ZonedCalendar {
        let count = NonZeroU32::new(count).unwrap();
        ZonedCalendar::new(Unit::Day, count, "UTC", None).unwrap()
    }

    #[test]
    fn a_midnight_in_the_midst_of_what_clocks_skip_or_repeat_is_no_trouble() {
        // Every gap of the database that holds a midnight begins with it, so this zone is made up:
        // on March 1st 23:30 (+0) becomes 00:30 (+1), at 23:30 UTC; on October 27th 00:30 (+1)
        // becomes 23:30 (+0).
        let calendar = ZonedCalendar {
            zone: TimeZone::posix("AAA0BBB,J60/23:30,J300/0:30").unwrap(),
            ..days(1)
        };
        let at = |text: &str| {
            let instant: jiff::Timestamp = text.parse().unwrap();
            timestamp(instant.as_microsecond())
        };
        for (now, start, end) in [
            (
                "2026-03-02T12:00Z",
                "2026-03-01T23:30Z",
                "2026-03-02T23:00Z",
            ),
            (
                "2026-03-01T23:45Z",
                "2026-03-01T23:30Z",
                "2026-03-02T23:00Z",
            ),
            (
                "2026-03-01T23:15Z",
                "2026-03-01T00:00Z",
                "2026-03-01T23:30Z",
            ),
            (
                "2026-10-26T23:45Z",
                "2026-10-26T23:00Z",
                "2026-10-28T00:00Z",
            ),
        ] {
            let (start, end) = (at(start), at(end));
            assert_eq!(calendar.window_at(at(now)), Span { start, end }, "{now}");
        }
    }

    #[test]
    fn a_full_table_takes_no_new_calendar_and_still_gives_the_old_ones() {
        let mut table = CalendarTable::new(2);
        let first = table.intern(days(1)).unwrap();
        table.intern(days(2)).unwrap();
        assert_eq!(table.intern(days(3)), Err(CalendarError::TooMany));
        assert!(std::ptr::addr_eq(table.intern(days(1)).unwrap(), first));
    }
}
