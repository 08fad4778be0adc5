//! Durations in files, such as `500ms` or `1h30m`.

use std::time::Duration;

use crate::excerpt::excerpt;

/// Units of durations. Months and years have different lengths, so they are none.
const UNITS: [&str; 7] = ["us", "ms", "s", "m", "h", "d", "w"];

/// The longest duration, in microseconds: a hundred years.
const DURATION_MAX_US: u64 = 36_525 * 86_400_000_000;

/// A text that is none of what a field takes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InvalidText {
    /// What is wrong with it, to follow the name of the field.
    pub message: String,
    /// What to do.
    pub help: String,
}

impl InvalidText {
    /// A text with this wrong, and what to do.
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        let (message, help) = (message.into(), help.into());
        Self { message, help }
    }
}

/// Parses a duration such as `500ms` or `1h30m`, in microseconds.
///
/// # Errors
///
/// When it has an unknown unit, is no duration, or is longer than 100 years.
pub fn duration(text: &str) -> Result<u64, InvalidText> {
    let letters = |c: char| c.is_ascii_alphabetic();
    let mut units = text
        .split(|c: char| !letters(c))
        .filter(|it| !it.is_empty());
    if let Some(unit) = units.find(|unit| !UNITS.contains(unit)) {
        let message = format!("has the unknown unit '{}'", excerpt(unit));
        let help = format!("use one of {}; a day is 24 hours", UNITS.join(", "));
        return Err(InvalidText::new(message, help));
    }
    let duration = humantime::parse_duration(text).ok();
    let us = duration.and_then(|it: Duration| u64::try_from(it.as_micros()).ok());
    let message = "is not a duration of at most 100 years";
    let help = "write numbers with units, such as 500ms, 1h30m or 28d";
    us.filter(|us| *us <= DURATION_MAX_US)
        .ok_or_else(|| InvalidText::new(message, help))
}
