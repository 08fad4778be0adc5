//! The names that a rules file may have at each place, as hints list them.
//!
//! Why: several test binaries compare whole hints, and a new name is one line here. The lists are
//! not taken from the loader, which would then be compared with itself.

/// At the top of a file.
const AT_THE_ROOT: &[&str] = &[
    "domain",
    "descriptors",
    "all_or_nothing",
    "on_store_failure",
];

/// In a descriptor.
const IN_A_DESCRIPTOR: &[&str] = &[
    "key",
    "value",
    "values",
    "cidr",
    "ipv6_prefix",
    "regex",
    "rate_limit",
    "rate_limits",
    "over_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
];

/// In a limit.
const IN_A_LIMIT: &[&str] = &[
    "unit",
    "unit_multiplier",
    "requests_per_unit",
    "unlimited",
    "name",
    "replaces",
    "algorithm",
    "burst",
    "segments",
    "refill",
    "calendar",
    "time_zone",
    "week_start",
    "count_refused",
    "holder_key",
    "slot_seconds",
];

/// A text in which `AT_THE_ROOT`, `IN_A_DESCRIPTOR` and `IN_A_LIMIT` stand for these lists.
pub fn with_names(text: &str) -> String {
    [
        ("AT_THE_ROOT", AT_THE_ROOT),
        ("IN_A_DESCRIPTOR", IN_A_DESCRIPTOR),
        ("IN_A_LIMIT", IN_A_LIMIT),
    ]
    .iter()
    .fold(text.to_owned(), |text, (place, names)| {
        text.replace(place, &names.join(", "))
    })
}
