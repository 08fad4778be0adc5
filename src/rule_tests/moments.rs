//! Times and durations, as a file of tests has them.

use std::fmt;

use jiff::Zoned;
use jiff::tz::TimeZone;
use tollgate_limiter::Timestamp;

use crate::rules::duration;

/// A time, and the zone in which it is shown.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Moment {
    pub(super) at: Timestamp,
    /// None for UTC.
    pub(super) zone: Option<TimeZone>,
}

/// A time to wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wait {
    /// In whole seconds.
    Seconds(u64),
    /// For ever.
    Never,
}

/// A text that is none of what a field takes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Invalid {
    pub(super) message: String,
    pub(super) help: String,
}

/// Parses a time: RFC 3339, with an optional `[Zone]`.
pub(super) fn moment(text: &str) -> Result<Moment, Invalid> {
    let parsed = if text.contains('[') {
        let zoned: Result<Zoned, _> = text.parse();
        zoned.map(|zoned| (zoned.timestamp(), Some(zoned.time_zone().clone())))
    } else {
        let timestamp: Result<jiff::Timestamp, _> = text.parse();
        timestamp.map(|timestamp| (timestamp, None))
    };
    let (timestamp, zone) = parsed.map_err(|error| Invalid {
        message: why_no_time(&error.to_string()).to_owned(),
        help: "write RFC 3339, such as 2026-03-29T00:00:00Z or 2026-03-29T01:30:00+01:00[Europe/Berlin]"
            .to_owned(),
    })?;
    let us = u64::try_from(timestamp.as_microsecond()).ok();
    match us.filter(|us| *us <= Timestamp::MAX_US) {
        Some(us) => Ok(Moment {
            at: Timestamp::from_us(us),
            zone,
        }),
        None => Err(Invalid {
            message: "is before 1970 or after 2255".to_owned(),
            help: "use a time between 1970 and 2255".to_owned(),
        }),
    }
}

/// What is wrong with a time, by jiff's error: its words are for programmers.
fn why_no_time(error: &str) -> &'static str {
    if error.contains("conflict resolution") {
        "has an offset that its zone does not have then"
    } else if error.contains("time zone database") {
        "names an unknown time zone"
    } else {
        "is not a time in RFC 3339 with an offset"
    }
}

/// Parses a duration such as `500ms` or `1h30m`, in microseconds.
pub(super) fn duration(text: &str) -> Result<u64, Invalid> {
    duration::duration(text).map_err(|error| Invalid {
        message: error.message,
        help: error.help,
    })
}

/// Parses a time to wait: whole seconds, a duration, or `never`.
pub(super) fn wait(text: &str) -> Result<Wait, Invalid> {
    if text == "never" {
        return Ok(Wait::Never);
    }
    if let Ok(seconds) = text.parse() {
        return Ok(Wait::Seconds(seconds));
    }
    let us = duration(text)?;
    if us % 1_000_000 == 0 {
        return Ok(Wait::Seconds(us / 1_000_000));
    }
    Err(Invalid {
        message: "has a fraction of a second".to_owned(),
        help: "write whole seconds; an answer has them rounded up".to_owned(),
    })
}

// === impl Moment ===

impl Moment {
    /// This moment in the zone of `other`, if it has none itself.
    pub(super) fn in_zone_of(mut self, other: &Self) -> Self {
        if self.zone.is_none() {
            self.zone.clone_from(&other.zone);
        }
        self
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = i64::try_from(self.at.as_us()).unwrap_or(i64::MAX);
        let Ok(at) = jiff::Timestamp::from_microsecond(us) else {
            return write!(f, "{us} µs after 1970");
        };
        match &self.zone {
            Some(zone) => at.to_zoned(zone.clone()).fmt(f),
            None => at.fmt(f),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seconds(seconds) => write!(f, "{seconds}s"),
            Self::Never => f.write_str("never"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_may_name_its_zone() {
        let berlin = moment("2026-03-29T01:30:00+01:00[Europe/Berlin]").unwrap();
        assert_eq!(berlin.at, moment("2026-03-29T00:30:00Z").unwrap().at);
        let later = Moment {
            at: berlin.at.plus_us(3_600_000_000),
            zone: berlin.zone.clone(),
        };
        // The clock skips an hour there.
        assert_eq!(
            later.to_string(),
            "2026-03-29T03:30:00+02:00[Europe/Berlin]"
        );
        for text in [
            "",
            "tomorrow",
            "2026-03-29",
            "2026-03-29T01:30:00",
            "2026-03-29T01:30:00+05:00[Europe/Berlin]",
            "2026-03-29T01:30:00+01:00[Europe/Nowhere]",
            "1969-12-31T23:59:59Z",
            "2300-01-01T00:00:00Z",
        ] {
            assert!(moment(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_duration_has_units_of_one_length() {
        assert_eq!(duration("500ms"), Ok(500_000));
        assert_eq!(duration("1h 30m"), Ok(5_400_000_000));
        assert_eq!(duration("1.5s"), Ok(1_500_000));
        assert_eq!(duration("28d"), Ok(28 * 86_400_000_000));
        assert!(duration("1month").unwrap_err().message.contains("month"));
        for text in ["", "5", "-1s", "s", "1y", "99999999999d"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert_eq!(wait("60"), Ok(Wait::Seconds(60)));
        assert_eq!(wait("1m"), Ok(Wait::Seconds(60)));
        assert_eq!(wait("never"), Ok(Wait::Never));
        assert!(wait("1500ms").is_err());
    }
}
