//! Short numbers: rates, counts and sizes that fit a column.

/// A rate in at most 6 characters.
pub(super) fn rate(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 10.0 => format!("{value:.1}"),
        value if value < 10_000.0 => format!("{value:.0}"),
        value if value < 1e6 => format!("{:.1}k", value / 1e3),
        value if value < 1e9 => format!("{:.1}M", value / 1e6),
        value => format!("{:.1}G", value / 1e9),
    }
}

/// A count in at most 7 characters.
pub(super) fn count(value: u64) -> String {
    match value {
        0..100_000 => value.to_string(),
        100_000..1_000_000 => format!("{}k", value / 1_000),
        1_000_000..1_000_000_000 => format!("{}.{}M", value / 1_000_000, value / 100_000 % 10),
        1_000_000_000..1_000_000_000_000 => {
            format!("{}.{}G", value / 1_000_000_000, value / 100_000_000 % 10)
        }
        _ => format!("{}T", value / 1_000_000_000_000),
    }
}

/// A size in at most 9 characters.
pub(super) fn bytes(value: u64) -> String {
    match value {
        0..10_240 => format!("{value} B"),
        10_240..10_485_760 => format!("{} KiB", value >> 10),
        10_485_760..10_737_418_240 => format!("{} MiB", value >> 20),
        _ => format!("{} GiB", value >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_their_columns() {
        for (value, text) in [
            (0.0, "0"),
            (0.04, "0.0"),
            (9.96, "10.0"),
            (12.0, "12"),
            (12_345.0, "12.3k"),
            (1e7, "10.0M"),
            (2e12, "2000.0G"),
        ] {
            assert_eq!(rate(value), text);
        }
        for value in [
            99_999,
            999_999,
            999_999_999,
            999_999_999_999,
            u64::MAX / 1_000_000,
        ] {
            assert!(count(value).len() <= 8, "{}", count(value));
        }
        for value in [10_239, 10_485_759, 10_737_418_239] {
            assert!(bytes(value).len() <= 9, "{}", bytes(value));
        }
    }
}
