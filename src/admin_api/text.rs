//! Texts that several parts of the JSON share: times, names of rules, limits, the replica's name.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate_limiter::{Algorithm, Limit, Rule, Timestamp};

use super::limit_figures::LimitFigures;

/// Longest text of a time that is parsed, in bytes.
const TIME_BYTES_MAX: usize = 64;

/// A time as RFC 3339 in UTC with milliseconds.
pub fn time_text(at: Timestamp) -> String {
    let since_1970 = Duration::from_micros(at.as_us());
    let at = UNIX_EPOCH.checked_add(since_1970).unwrap_or(UNIX_EPOCH);
    humantime::format_rfc3339_millis(at).to_string()
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

// === impl LimitFigures ===

impl LimitFigures {
    /// The figures of a limit with this algorithm.
    pub fn of(limit: &Limit, algorithm: &dyn Algorithm) -> Self {
        let text = if limit.unit().is_none() {
            format!("{} in flight", limit.requests_per_unit())
        } else {
            let window = limit.describe_window();
            let window = window.strip_prefix("1 ").unwrap_or(&window);
            format!("{} per {window}", limit.requests_per_unit())
        };
        Self {
            requests_per_unit: limit.requests(),
            unit: limit.unit().map(|unit| unit.name().to_owned()),
            unit_multiplier: limit.unit_multiplier().get(),
            algorithm: algorithm.name().to_owned(),
            burst: limit.burst(),
            text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
