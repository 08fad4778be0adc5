//! Times in logs, by their format.

use jiff::fmt::strtime;
use jiff::tz::TimeZone;

/// The latest time of a request, in microseconds: that of the limiter.
const LATEST_US: u64 = tollgate_limiter::Timestamp::MAX_US;

/// The format of times.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum TimeFormat {
    /// RFC 3339 with an offset.
    Rfc3339,
    /// A number since 1970, with an optional fraction; so many microseconds each.
    Unix { numerator: u64, denominator: u64 },
    /// A format of strptime. Without an offset, times are in UTC.
    Strptime(String),
}

/// The names of formats.
pub(super) const FORMATS: [&str; 5] = [
    "rfc3339",
    "unix_seconds",
    "unix_milliseconds",
    "unix_microseconds",
    "unix_nanoseconds",
];

// === impl TimeFormat ===

impl TimeFormat {
    /// The format of this name, or of strptime if it has a `%`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let unix = |numerator, denominator| Self::Unix {
            numerator,
            denominator,
        };
        Some(match text {
            "" | "rfc3339" => Self::Rfc3339,
            "unix_seconds" => unix(1_000_000, 1),
            "unix_milliseconds" => unix(1_000, 1),
            "unix_microseconds" => unix(1, 1),
            "unix_nanoseconds" => unix(1, 1_000),
            _ if text.contains('%') => Self::Strptime(text.to_owned()),
            _ => return None,
        })
    }

    /// The microseconds since 1970 of a time. The error says why there are none.
    pub(super) fn read(&self, text: &str) -> Result<u64, String> {
        let us = match self {
            Self::Rfc3339 => {
                let time: Option<jiff::Timestamp> = text.parse().ok();
                time.map(jiff::Timestamp::as_microsecond)
            }
            Self::Unix {
                numerator,
                denominator,
            } => unix_us(text, *numerator, *denominator),
            Self::Strptime(format) => strptime_us(format, text),
        };
        let us = us.ok_or_else(|| match self {
            Self::Rfc3339 => "is no time in RFC 3339 with an offset".to_owned(),
            Self::Unix { .. } => "is no number".to_owned(),
            Self::Strptime(format) => format!("is no time of the format {format}"),
        })?;
        let us = u64::try_from(us).ok().filter(|us| *us <= LATEST_US);
        us.ok_or_else(|| "is before 1970 or after 2255".to_owned())
    }
}

/// A number with an optional fraction, in microseconds.
fn unix_us(text: &str, numerator: u64, denominator: u64) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let whole: i128 = whole.parse().ok()?;
    let digits = fraction.get(..fraction.len().min(9)).unwrap_or_default();
    let padded: i128 = format!("{digits:0<9}").parse().ok()?;
    let billionths = whole.checked_mul(1_000_000_000)?.checked_add(padded)?;
    let us = billionths.checked_mul(i128::from(numerator))?;
    let divisor = i128::from(denominator).checked_mul(1_000_000_000)?;
    i64::try_from(us.checked_div(divisor)?).ok()
}

fn strptime_us(format: &str, text: &str) -> Option<i64> {
    let time = strtime::parse(format, text).ok()?;
    let timestamp = match time.to_timestamp() {
        Ok(timestamp) => timestamp,
        // Without an offset.
        Err(_) => time
            .to_datetime()
            .ok()?
            .to_zoned(TimeZone::UTC)
            .ok()?
            .timestamp(),
    };
    Some(timestamp.as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: &str, text: &str) -> Result<u64, String> {
        TimeFormat::parse(format).expect("format").read(text)
    }

    #[test]
    fn times_are_read_by_their_format() {
        let us = 1_700_006_410_500_000;
        for (format, text) in [
            ("rfc3339", "2023-11-15T00:00:10.500Z"),
            ("rfc3339", "2023-11-15T01:00:10.5+01:00"),
            ("unix_seconds", "1700006410.5"),
            ("unix_milliseconds", "1700006410500"),
            ("unix_microseconds", "1700006410500000"),
            ("unix_nanoseconds", "1700006410500000999"),
            ("%d/%b/%Y:%H:%M:%S%.f %z", "15/Nov/2023:01:00:10.5 +0100"),
            ("%Y-%m-%d %H:%M:%S%.f", "2023-11-15 00:00:10.5"),
        ] {
            assert_eq!(read(format, text), Ok(us), "{format} {text}");
        }
        for (format, text) in [
            ("rfc3339", "2023-11-15 00:00"),
            ("unix_seconds", "12.x"),
            ("unix_seconds", "-1"),
            ("unix_seconds", "99999999999999999999999999999999999999999"),
            ("%Y", "tomorrow"),
        ] {
            assert!(read(format, text).is_err(), "{format} {text}");
        }
        assert_eq!(TimeFormat::parse("epoch"), None);
    }
}
