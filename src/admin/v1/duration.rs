//! Durations as text: `60s`, `1.5s`, `5m`, `1h30m`. Protobuf's form, `1.000000500s`, is one of
//! them.

use std::num::NonZeroU32;

use tollgate_limiter::EXPIRY_MS_MAX;

use crate::rules::duration::duration;

/// The most decimals of a number: nanoseconds of a second, as in protobuf.
const DECIMALS_MAX: usize = 9;

/// Units, and how many microseconds each has.
const UNITS: [(&str, u128); 5] = [
    ("ms", 1_000),
    ("s", 1_000_000),
    ("m", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];

/// An expiry in milliseconds, rounded up. The error says what is wrong, to follow the name of the
/// field.
pub(super) fn expiry_ms(text: &str) -> Result<NonZeroU32, String> {
    let invalid = || "is no duration; write a text such as \"60s\", \"1.5s\" or \"5m\"".to_owned();
    if text.starts_with('-') {
        return Err("is negative; write a duration from 1ms to 1d".to_owned());
    }
    let us = match decimal_us(text) {
        Some(us) => us,
        None => u128::from(duration(text).map_err(|_| invalid())?),
    };
    let ms = us.div_ceil(1_000);
    match u32::try_from(ms).ok().filter(|ms| *ms <= EXPIRY_MS_MAX) {
        None => Err("is longer than a day; write a duration from 1ms to 1d".to_owned()),
        Some(ms) => {
            NonZeroU32::new(ms).ok_or_else(|| "is 0; write a duration from 1ms to 1d".to_owned())
        }
    }
}

/// A number with decimals and one unit, in microseconds, rounded up.
fn decimal_us(text: &str) -> Option<u128> {
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at_checked(unit_at)?;
    let (_, unit_us) = UNITS.iter().find(|(name, _)| *name == unit)?;
    let (whole, decimals) = number.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > DECIMALS_MAX {
        return None;
    }
    let scale = 10_u128.checked_pow(u32::try_from(decimals.len()).ok()?)?;
    let whole: u128 = whole.parse::<u64>().ok()?.into();
    let decimals: u128 = decimals.parse().ok()?;
    let scaled = whole.checked_mul(scale)?.checked_add(decimals)?;
    Some(scaled.checked_mul(*unit_us)?.div_ceil(scale))
}

/// A duration as text in seconds, such as `12.5s`.
pub(super) fn seconds_text(us: u64) -> String {
    let (seconds, rest) = (us / 1_000_000, us % 1_000_000);
    if rest == 0 {
        return format!("{seconds}s");
    }
    let decimals = format!("{rest:06}");
    format!("{seconds}.{}s", decimals.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_exactly_and_rounded_up_to_milliseconds() {
        for (text, ms) in [
            ("60s", 60_000),
            ("1.5s", 1_500),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("0.5m", 30_000),
            ("1.000000001s", 1_001),
            ("0.000000001s", 1),
            ("1ms", 1),
            ("1us", 1),
            ("1d", 86_400_000),
            ("24h", 86_400_000),
            ("86400.000s", 86_400_000),
        ] {
            assert_eq!(expiry_ms(text).map(NonZeroU32::get), Ok(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_expiry_is_refused() {
        for (text, why) in [
            ("", "is no duration"),
            ("60", "is no duration"),
            ("s", "is no duration"),
            ("1.s", "is no duration"),
            (".5s", "is no duration"),
            ("1.0000000001s", "is no duration"),
            ("1.5", "is no duration"),
            ("1e3s", "is no duration"),
            ("NaNs", "is no duration"),
            ("60 parsecs", "is no duration"),
            ("٣s", "is no duration"),
            ("-1s", "is negative"),
            ("0s", "is 0"),
            ("0.0s", "is 0"),
            ("86400.001s", "is longer than a day"),
            ("25h", "is longer than a day"),
            ("99999999999999999999.5d", "is no duration"),
        ] {
            let refused = expiry_ms(text).unwrap_err();
            assert!(refused.starts_with(why), "{text}: {refused}");
        }
    }

    #[test]
    fn seconds_have_no_more_decimals_than_they_need() {
        for (us, text) in [
            (0, "0s"),
            (1, "0.000001s"),
            (12_500_000, "12.5s"),
            (60_000_000, "60s"),
            (u64::MAX, "18446744073709.551615s"),
        ] {
            assert_eq!(seconds_text(us), text);
        }
    }
}
