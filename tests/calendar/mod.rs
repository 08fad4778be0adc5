//! Calendar windows: `tollgate::rules::calendar`, with the worst zones and midnights.
//!
//! `laws` alone fills half of the table of calendars, which a process has once.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `vectors` | windows computed by hand (`vectors.txt`); names and errors |
//! | `laws` | what holds in every zone, around every change of clocks and at random |
//! | `zoneinfo` | the same windows from Python's zoneinfo, which shares no code or data with ours |
//! | `cost` | no allocation to find a window |
//! | `days` | dates as numbers, counted in the simplest way |
//!
//! What it deliberately does not do: count hits (`crates/limiter/tests/laws`), or read rules
//! files (`tests/rules`).

mod cost;
mod days;
mod laws;
mod vectors;
mod zoneinfo;

use std::num::NonZeroU32;

use tollgate::rules::calendar::{CalendarError, calendar};
use tollgate_limiter::{Calendar, Timestamp, Unit, Weekday};

/// A calendar, or its error, in one line.
fn asked(
    unit: Unit,
    count: u32,
    zone: &str,
    week_start: Option<Weekday>,
) -> Result<&'static dyn Calendar, CalendarError> {
    calendar(unit, NonZeroU32::new(count).unwrap(), zone, week_start)
}

/// A calendar that exists.
fn given(unit: Unit, count: u32, zone: &str, week_start: Option<Weekday>) -> &'static dyn Calendar {
    asked(unit, count, zone, week_start).unwrap_or_else(|error| panic!("{error}"))
}

/// The same with weeks from Monday.
fn plain(unit: Unit, count: u32, zone: &str) -> &'static dyn Calendar {
    given(unit, count, zone, None)
}

fn at(us: i64) -> Timestamp {
    Timestamp::from_us(u64::try_from(us).unwrap())
}

fn us(timestamp: Timestamp) -> i64 {
    i64::try_from(timestamp.as_us()).unwrap()
}
