//! Calendar windows: days, weeks, months or years in a time zone of the IANA database.
//!
//! A time zone is what the operator writes, and the limiter has no data. The data is part of the
//! binary (jiff and its bundled database), not of the machine: a container image of one binary has
//! none, and two replicas with different data would count in different windows.
//!
//! A day begins at the first instant at which the zone's clocks have reached that date. So:
//!
//! - where midnight does not exist (clocks go forward over it), a day begins when they have gone
//!   forward;
//! - where midnight comes twice (clocks go back across it), a day begins at the first, and the
//!   repeated time belongs to the new day although clocks show the old date;
//! - a date that clocks skip has no window.
//!
//! The dates that clocks have reached never decrease, so windows adjoin and every instant is in
//! exactly one. Windows of several units are counted from a fixed origin: days from 1970-01-01,
//! weeks from the week that holds it, months from January of year 0 (3 are quarters), years from
//! year 0.
//!
//! Calendars are never freed: a limit is copied into every check, so it holds a `&'static`. Equal
//! calendars are interned in a table of the process. There are as many as there are different
//! windows in the rules. A process whose rules bring new ones again and again stops at
//! [`CALENDARS_MAX`].
//!
//! What it deliberately does not do: windows shorter than a day (they are the same in every zone,
//! up to part of an hour), zones made of offsets or rules (`+02:00`, `CET-1CEST`), the machine's
//! own zone, leap seconds.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Mutex;

use jiff::civil::{Date, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};

use crate::excerpt::excerpt;
use tollgate_limiter::{Calendar, Span, Timestamp, Unit, Weekday};
use tollgate_system::per_thread::lock;

/// How many different calendars a process may ever use.
pub const CALENDARS_MAX: usize = 10_000;

/// How many units a calendar window may last.
pub const MULTIPLIER_MAX: u32 = 1_000;

/// The longest zone name for which a similar one is suggested, in bytes. The longest in the
/// database has 32.
const GUESSED_BYTES_MAX: usize = 64;

const DAY_SECONDS: i64 = 86_400;

/// How much longer than its days a window can be. Offsets are within 26 hours of UTC on either
/// side.
const OFFSETS_APART_SECONDS: u64 = 52 * 3_600;

/// Every calendar that is or was in use.
static CALENDARS: Mutex<CalendarTable> = Mutex::new(CalendarTable::new(CALENDARS_MAX));

/// Why there is no such calendar. `Display` is the error, [`advice`](Self::advice) is what to do.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CalendarError {
    /// Seconds, minutes and hours have no calendar.
    #[error(
        "calendar windows last a day at least, not {} {}",
        if *unit == Unit::Hour { "an" } else { "a" },
        unit.name()
    )]
    UnitTooShort {
        /// The requested unit.
        unit: Unit,
    },
    /// `week_start` with days, months or years.
    #[error("week_start needs unit week, not {}", unit.name())]
    WeekStartWithoutWeek {
        /// The requested unit.
        unit: Unit,
    },
    /// A multiplier above [`MULTIPLIER_MAX`].
    #[error(
        "unit_multiplier of a calendar window must be at most {MULTIPLIER_MAX}, not {multiplier}"
    )]
    MultiplierTooLarge {
        /// The requested multiplier.
        multiplier: NonZeroU32,
    },
    /// There is no zone of that name.
    #[error("unknown time_zone {zone:?}")]
    UnknownZone {
        /// The beginning of the requested name.
        zone: String,
        /// A zone with a similar name.
        suggestion: Option<String>,
    },
    /// There are [`CALENDARS_MAX`] calendars already.
    #[error("more than {CALENDARS_MAX} different calendars since the start")]
    TooMany,
}

/// The calendars, by name.
struct CalendarTable {
    known: BTreeMap<&'static str, &'static dyn Calendar>,
    max: usize,
}

/// A calendar in a time zone.
struct ZonedCalendar {
    name: String,
    edges: WindowEdges,
    zone: TimeZone,
    longest_us: u64,
}

/// The dates on which windows begin. Windows are numbered: number 0 begins near 1970-01-01, or in
/// year 0.
#[derive(Clone, Copy)]
enum WindowEdges {
    /// Every `every` days, one of them `from` days after 1970-01-01.
    Days { every: i64, from: i64 },
    /// On the first of every `every` months, one of them January of year 0.
    Months { every: i64 },
}

/// The calendar of windows of `multiplier` units in the zone of that name; default first day of
/// weeks: Monday. Equal arguments give the same calendar.
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
    lock(&CALENDARS).intern(new)
}

/// The zone of that name, in the database's spelling.
fn zone_named(name: &str) -> Result<TimeZone, CalendarError> {
    let zones = TimeZoneDatabase::bundled();
    let found = zones.get(name).ok();
    // The database also finds other cases, and `Etc/Unknown`, which has no name.
    let exact = found.filter(|zone| zone.iana_name() == Some(name));
    exact.ok_or_else(|| CalendarError::UnknownZone {
        zone: excerpt(name).into_owned(),
        suggestion: similar_zone(&zones, name),
    })
}

/// The zone of that name in another case or with spaces, or else one whose city has the name.
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
    /// What to do about the error.
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

    /// The known calendar of the same name, or else this one, added to the table.
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
            // Clocks went back and show a date of the window before, or this window was skipped.
            start_us = end_us;
        }
    }

    /// When the window of that number begins: the first instant at which clocks have reached its
    /// first date.
    fn begin_us(&self, number: i64) -> Option<i64> {
        let midnight = self.edges.first_date(number)?.to_datetime(Time::midnight());
        let instant = match self.zone.to_ambiguous_timestamp(midnight).offset() {
            // Of two midnights, the first.
            AmbiguousOffset::Unambiguous { offset }
            | AmbiguousOffset::Fold { before: offset, .. } => offset.to_timestamp(midnight).ok()?,
            AmbiguousOffset::Gap { before, .. } => {
                // Clocks that had not gone forward would show midnight now, so they have gone
                // forward just before.
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

/// The timestamp of an instant, or the nearest one.
fn timestamp(us: i64) -> Timestamp {
    Timestamp::from_us(u64::try_from(us).unwrap_or(0))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn days(count: u32) -> ZonedCalendar {
        let count = NonZeroU32::new(count).unwrap();
        ZonedCalendar::new(Unit::Day, count, "UTC", None).unwrap()
    }

    #[test]
    fn a_skipped_or_repeated_midnight_is_handled() {
        // Every gap of the database that holds a midnight begins with it, so this zone is invented:
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
