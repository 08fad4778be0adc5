//! Values in the text of `/metrics`.

/// The value of a series, found by its name and labels as they are written; 0 when it is absent.
pub fn series_value(text: &str, series: &str) -> u64 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0, |value| value.parse().expect("a whole number"))
}

/// The sum of all series whose name and labels begin with this.
pub fn series_sum(text: &str, prefix: &str) -> u64 {
    let lines = text.lines().filter(|line| line.starts_with(prefix));
    let values = lines.map(|line| line.rsplit(' ').next().expect("a value"));
    values
        .map(|value| value.parse::<u64>().expect("a whole number"))
        .sum()
}

/// The hash of the rules in use, from the label of the one series that has it.
pub fn rules_hash(text: &str) -> u64 {
    let mut hashes = text.lines().filter_map(|line| {
        line.strip_prefix("tollgate_rules_info{hash=\"")?
            .strip_suffix("\"} 1")
    });
    let hash = hashes.next().expect("rules are in use");
    assert_eq!(hashes.next(), None, "one series that does not grow");
    u64::from_str_radix(hash, 16).expect("a hash")
}
