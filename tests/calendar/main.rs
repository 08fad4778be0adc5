//! Calendar windows: `tollgate::rules::calendar`, where zones and midnights are at their worst.
//!
//! Why a binary of its own: counting allocations takes an allocator of its own, and filling the
//! table of calendars must not be another test's trouble.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `vectors` | windows worked out by hand, each with its derivation; names and refusals |
//! | `laws` | what must hold in every zone there is, around every change of clocks and at random |
//! | `twin` | the same windows out of Python's zoneinfo, which shares neither code nor data with ours |
//! | `cost` | no allocation to find a window |
//! | `days` | dates as numbers, counted in the plainest way |
//!
//! What it deliberately does not do: count hits (`tests/laws`), or read rules files
//! (`tests/rules`).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "all of this is test code, of which clippy.toml knows only the functions marked #[test]"
)]

mod cost;
mod days;
mod laws;
mod twin;
mod vectors;

use std::num::NonZeroU32;

use tollgate::rules::calendar::{CalendarError, calendar};
use tollgate_limiter::{Calendar, Timestamp, Unit, Weekday};

/// What a test asks for, in one line.
fn asked(
    unit: Unit,
    count: u32,
    zone: &str,
    week_start: Option<Weekday>,
) -> Result<&'static dyn Calendar, CalendarError> {
    calendar(unit, NonZeroU32::new(count).unwrap(), zone, week_start)
}

/// The same, known to be there.
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
