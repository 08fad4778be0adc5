//! Durations in files, such as `500ms` or `1h30m`.

use std::time::Duration;

use crate::excerpt::excerpt;

/// Units of durations. Months and years have different lengths, so they are none.
const UNITS: [&str; 7] = ["us", "ms", "s", "m", "h", "d", "w"];

/// The longest duration, in microseconds: a hundred years.
const DURATION_MAX_US: u64 = 36_525 * 86_400_000_000;

/// What is wrong with a text that is no duration.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InvalidDuration {
    /// What it is, to follow the name of a field.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// Parses a duration such as `500ms` or `1h30m`, in microseconds.
///
/// # Errors
///
/// When it has an unknown unit, is no duration, or is longer than 100 years.
pub fn duration(text: &str) -> Result<u64, InvalidDuration> {
    let letters = |c: char| c.is_ascii_alphabetic();
    let mut units = text
        .split(|c: char| !letters(c))
        .filter(|it| !it.is_empty());
    if let Some(unit) = units.find(|unit| !UNITS.contains(unit)) {
        return Err(InvalidDuration {
            message: format!("has the unknown unit '{}'", excerpt(unit)),
            help: format!("use one of {}; a day is 24 hours", UNITS.join(", ")),
        });
    }
    let duration = humantime::parse_duration(text).ok();
    let us = duration.and_then(|it: Duration| u64::try_from(it.as_micros()).ok());
    us.filter(|us| *us <= DURATION_MAX_US)
        .ok_or(InvalidDuration {
            message: "is not a duration of at most 100 years".to_owned(),
            help: "write numbers with units, such as 500ms, 1h30m or 28d".to_owned(),
        })
}
