//! Times, durations and rates, as a file of tests has them.

use std::fmt;

use jiff::Zoned;
use jiff::tz::TimeZone;
use tollgate_limiter::Timestamp;

use tollgate_engine::quota::proxy::MilliRate;
use tollgate_rules::duration::InvalidText;
pub(super) use tollgate_rules::duration::duration;
use tollgate_rules::excerpt::excerpt;
use tollgate_rules::file::RATE_MAX;

/// One request a second.
const ONE: MilliRate = 1_000;

/// Decimals of a rate.
const DECIMALS_MAX: usize = 3;

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

/// Rates that are expected: from the lowest to the highest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct RateRange {
    pub(super) lowest: MilliRate,
    pub(super) highest: MilliRate,
}

/// Parses a time: RFC 3339, with an optional `[Zone]`.
pub(super) fn moment(text: &str) -> Result<Moment, InvalidText> {
    let parsed = if text.contains('[') {
        let zoned: Result<Zoned, _> = text.parse();
        zoned.map(|zoned| (zoned.timestamp(), Some(zoned.time_zone().clone())))
    } else {
        let timestamp: Result<jiff::Timestamp, _> = text.parse();
        timestamp.map(|timestamp| (timestamp, None))
    };
    let (timestamp, zone) = parsed.map_err(|error| {
        let help = "write RFC 3339, such as 2026-03-29T00:00:00Z or 2026-03-29T01:30:00+01:00[Europe/Berlin]";
        InvalidText::new(why_no_time(&error.to_string()), help)
    })?;
    let us = u64::try_from(timestamp.as_microsecond()).ok();
    let us = us.filter(|us| *us <= Timestamp::MAX_US).ok_or_else(|| {
        let message = "is before 1970 or after 2255";
        InvalidText::new(message, "use a time between 1970 and 2255")
    })?;
    let at = Timestamp::from_us(us);
    Ok(Moment { at, zone })
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

/// Parses a time to wait: whole seconds, a duration, or `never`.
pub(super) fn wait(text: &str) -> Result<Wait, InvalidText> {
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
    let help = "write whole seconds; an answer has them rounded up";
    Err(InvalidText::new("has a fraction of a second", help))
}

/// Parses requests a second: a number with at most three decimals.
pub(super) fn rate(text: &str) -> Result<MilliRate, InvalidText> {
    parsed(text).ok_or_else(|| {
        let help = format!(
            "write requests a second: a number from 0 to {RATE_MAX} with at most {DECIMALS_MAX} decimals"
        );
        InvalidText::new(format!("is '{}'", excerpt(text)), help)
    })
}

/// Parses a rate, or two of them as `LOW to HIGH`.
pub(super) fn rate_range(text: &str) -> Result<RateRange, InvalidText> {
    let words: Vec<_> = text.split_whitespace().collect();
    let range = match words.as_slice() {
        [one] => parsed(one).map(|rate| (rate, rate)),
        [lowest, "to", highest] => parsed(lowest).zip(parsed(highest)),
        _ => None,
    };
    let range = range.filter(|(lowest, highest)| lowest <= highest);
    let (lowest, highest) = range.ok_or_else(|| {
        let help = "write requests a second such as `50`, or the lowest and the highest such as `45 to 55`";
        InvalidText::new(format!("is '{}'", excerpt(text)), help)
    })?;
    Ok(RateRange { lowest, highest })
}

fn parsed(text: &str) -> Option<MilliRate> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > DECIMALS_MAX {
        return None;
    }
    let whole: MilliRate = whole.parse().ok()?;
    let thousandths: MilliRate = format!("{decimals:0<DECIMALS_MAX$}").parse().ok()?;
    let rate = whole.checked_mul(ONE)?.checked_add(thousandths)?;
    (rate <= MilliRate::from(RATE_MAX) * ONE).then_some(rate)
}

/// A rate as a file has it.
pub(super) fn rate_text(rate: MilliRate) -> String {
    let text = format!("{}.{:03}", rate / ONE, rate % ONE);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
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

// === impl RateRange ===

impl RateRange {
    pub(super) fn contains(self, rate: MilliRate) -> bool {
        (self.lowest..=self.highest).contains(&rate)
    }
}

impl fmt::Display for RateRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rate_text(self.lowest))?;
        if self.lowest < self.highest {
            write!(f, " to {}", rate_text(self.highest))?;
        }
        Ok(())
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

    #[test]
    fn rates_have_three_decimals_and_ranges_two_rates() {
        for (text, milli) in [("0", 0), ("50", 50_000), ("0.5", 500), ("22.375", 22_375)] {
            assert_eq!(rate(text), Ok(milli));
            assert_eq!(rate_text(milli), text);
        }
        for text in [
            "",
            "-5",
            "1e3",
            "0.1234",
            ".5",
            "5.",
            "1000000000.001",
            "a",
            "1 to 2",
        ] {
            assert!(rate(text).is_err(), "{text}");
        }
        let range = rate_range("45 to 55.5").unwrap();
        assert_eq!(range.to_string(), "45 to 55.5");
        assert!(range.contains(45_000) && range.contains(55_500) && !range.contains(55_501));
        assert_eq!(rate_range("50").unwrap().to_string(), "50");
        for text in [
            "",
            "55 to 45",
            "45 to",
            "45-55",
            "45 until 55",
            "1 to 2 to 3",
        ] {
            assert!(rate_range(text).is_err(), "{text}");
        }
    }
}
