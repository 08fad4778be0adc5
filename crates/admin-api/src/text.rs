//! Texts that several parts of the JSON share: times, entries, names of rules, the replica's name.

use std::fmt::Display;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_limiter::{Rule, Timestamp};

use crate::Entry;

/// Longest text of a time that is parsed, in bytes.
const TIME_BYTES_MAX: usize = 64;

/// Units of a printed time, in seconds.
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A time as RFC 3339 in UTC with milliseconds.
pub fn time_text(at: Timestamp) -> String {
    let since_1970 = Duration::from_micros(at.as_us());
    let at = UNIX_EPOCH.checked_add(since_1970).unwrap_or(UNIX_EPOCH);
    humantime::format_rfc3339_millis(at).to_string()
}

/// A time in its largest unit and the next one: `49 s`, `16 h 44 min`, `3 d 4 h`. Rounded up, so
/// that a retry after it is not too early. A negative time is 0.
pub fn duration_text(seconds: impl TryInto<u64>) -> String {
    let exact = seconds.try_into().unwrap_or_default();
    let step = match exact {
        DAY.. => HOUR,
        HOUR.. => MINUTE,
        _ => 1,
    };
    let rounded = exact.div_ceil(step).saturating_mul(step);
    let (unit, name, smaller_unit, smaller_name) = match rounded {
        DAY.. => (DAY, "d", HOUR, "h"),
        HOUR.. => (HOUR, "h", MINUTE, "min"),
        MINUTE.. => (MINUTE, "min", 1, "s"),
        _ => return format!("{rounded} s"),
    };
    let (whole, rest) = (rounded / unit, rounded % unit / smaller_unit);
    if rest == 0 {
        format!("{whole} {name}")
    } else {
        format!("{whole} {name} {rest} {smaller_name}")
    }
}

/// A limit in words: `10 per minute`, `10 per 15 minutes`, or `10 in flight` without a window.
pub fn limit_text(requests: impl Display, window: Option<&str>) -> String {
    match window {
        None => format!("{requests} in flight"),
        Some(window) => {
            let window = window.strip_prefix("1 ").unwrap_or(window);
            format!("{requests} per {window}")
        }
    }
}

/// A number with a comma between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun: `1 key`, `12 keys`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!(
        "{} {}",
        grouped(number),
        if number == 1 { one } else { many }
    )
}

/// Parses a time in RFC 3339, in UTC. None if it is another text.
pub fn parse_time(text: &str) -> Option<Timestamp> {
    if text.len() > TIME_BYTES_MAX || !text.ends_with('Z') {
        return None;
    }
    let at: SystemTime = humantime::parse_rfc3339(text).ok()?;
    let since_1970 = at.duration_since(UNIX_EPOCH).ok()?;
    let us = u64::try_from(since_1970.as_micros()).ok()?;
    Some(Timestamp::from_us(us))
}

/// Entries as `KEY=VALUE,KEY=VALUE`, without escapes.
pub fn entries_text<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> String {
    let entries = entries.into_iter();
    let pairs = entries.map(|entry| format!("{}={}", entry.key, entry.value));
    pairs.collect::<Vec<_>>().join(",")
}

/// Parses the entries of a descriptor, `KEY=VALUE,KEY=VALUE`. A comma of a value has a backslash in
/// front; two backslashes in front of a comma are one, and the comma ends the entry.
///
/// # Errors
///
/// The first entry without a key or a `=`.
pub fn parse_entries(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut entries = vec![String::new()];
    let mut backslashes = 0_usize;
    for c in text.chars() {
        let ends = c == ',' && backslashes.is_multiple_of(2);
        if let Some(entry) = entries.last_mut() {
            if c == ',' {
                // Half of the backslashes were for the comma and for one another.
                let kept = entry.len().saturating_sub(backslashes.div_ceil(2));
                entry.truncate(kept);
            }
            if !ends {
                entry.push(c);
            }
        }
        if ends {
            entries.push(String::new());
        }
        backslashes = match c {
            '\\' => backslashes.saturating_add(1),
            _ => 0,
        };
    }
    let entries = entries.into_iter();
    entries
        .map(|entry| match entry.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(entry),
        })
        .collect()
}

/// The name of a rule: its full name, with ` name=NAME` appended if it has a name.
pub fn rule_name(rule: &Rule) -> String {
    let mut name = rule.full_name();
    if !rule.name.is_empty() {
        name.push_str(" name=");
        name.push_str(&rule.name);
    }
    name
}

/// The name of this replica: the host name of the machine or container.
pub fn instance_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_end_at_commas_without_a_backslash() {
        for (text, expected) in [
            ("a=b", Ok(vec![("a", "b")])),
            ("a=,b=c=d", Ok(vec![("a", ""), ("b", "c=d")])),
            (
                r"name=Doe\, Jane,b=c",
                Ok(vec![("name", "Doe, Jane"), ("b", "c")]),
            ),
            (
                r"path=C:\dir,b=\d+",
                Ok(vec![("path", r"C:\dir"), ("b", r"\d+")]),
            ),
            (r"path=C:\\,b=c", Ok(vec![("path", r"C:\"), ("b", "c")])),
            (r"a=\\\,,b=c", Ok(vec![("a", r"\,"), ("b", "c")])),
            ("a=b,", Err("")),
            ("a=b,c", Err("c")),
            ("=b", Err("=b")),
        ] {
            let pair = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
            let expected = expected.map(|pairs| pairs.into_iter().map(pair).collect());
            let expected = expected.map_err(str::to_owned);
            assert_eq!(parse_entries(text), expected, "{text}");
        }
    }

    #[test]
    fn times_have_two_units_and_are_rounded_up() {
        for (seconds, words) in [
            (-1_i64, "0 s"),
            (0, "0 s"),
            (49, "49 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (3_599, "59 min 59 s"),
            (3_600, "1 h"),
            (3_601, "1 h 1 min"),
            (60_240, "16 h 44 min"),
            (60_241, "16 h 45 min"),
            (86_341, "1 d"),
            (86_401, "1 d 1 h"),
            (3 * 86_400 + 4 * 3_600, "3 d 4 h"),
            (i64::MAX, "106751991167300 d 16 h"),
        ] {
            assert_eq!(duration_text(seconds), words, "{seconds}");
        }
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_000), "1,000");
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(counted(1, "key", "keys"), "1 key");
    }

    #[test]
    fn a_time_is_read_as_it_is_written() {
        let at = Timestamp::from_us(1_700_006_410_500_000);
        assert_eq!(time_text(at), "2023-11-15T00:00:10.500Z");
        assert_eq!(parse_time("2023-11-15T00:00:10.500Z"), Some(at));
        let whole = Timestamp::from_us(1_700_006_410_000_000);
        assert_eq!(parse_time("2023-11-15T00:00:10Z"), Some(whole));
        for text in [
            "",
            "Z",
            "now",
            "1700006410",
            "2023-11-15",
            "2023-11-15T00:00:10",
            "1969-12-31T23:59:59Z",
            "2023-13-15T00:00:10Z",
            "2023-11-15T00:00:10Z\0",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
    }
}
