//! The names that a rules file may have at each place, as hints list them.
//!
//! Why: several test binaries compare whole hints, and a new name is one line here. The lists are
//! not taken from the loader, which would then be compared with itself.

use tollgate_limiter::{ALGORITHMS, AlgorithmOption};

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
    "limits_from",
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
    "reserve",
    "cost",
    "budget",
    "rlqs",
    "candidate",
];

/// In `reserve`.
const IN_RESERVE: &[&str] = &[
    "key",
    "amount",
    "floor",
    "ceiling",
    "per",
    "expires",
    "on_expiry",
];

/// Replaces `AT_THE_ROOT`, `IN_A_DESCRIPTOR`, `IN_A_LIMIT` and `IN_RESERVE` by these lists,
/// `EVERY_ALGORITHM` by all names of algorithms, `RESERVING` by those that have reservations, and
/// `ALGORITHM_WITH_BURST` and the like by the setting that a hint suggests. The algorithms come
/// from the limiter's table, so a new one changes no test here.
pub fn with_names(text: &str) -> String {
    let text = [
        ("AT_THE_ROOT", AT_THE_ROOT),
        ("IN_A_DESCRIPTOR", IN_A_DESCRIPTOR),
        ("IN_A_LIMIT", IN_A_LIMIT),
        ("IN_RESERVE", IN_RESERVE),
    ]
    .iter()
    .fold(text.to_owned(), |text, (place, names)| {
        text.replace(place, &names.join(", "))
    });
    let every: Vec<_> = ALGORITHMS
        .iter()
        .flat_map(|one| std::iter::once(one.name()).chain(one.aliases().iter().copied()))
        .collect();
    let reserving = ALGORITHMS.iter().filter(|one| one.can_reserve());
    let reserving: Vec<_> = reserving.map(|one| one.name()).collect();
    OPTIONS.iter().fold(
        text.replace("EVERY_ALGORITHM", &every.join(", "))
            .replace("RESERVING", &reserving.join(", ")),
        |text, (place, option)| text.replace(place, &algorithm_with(*option)),
    )
}

/// The options that a hint suggests another algorithm for.
const OPTIONS: &[(&str, AlgorithmOption)] = &[
    ("ALGORITHM_WITH_BURST", AlgorithmOption::Burst),
    ("ALGORITHM_WITH_SEGMENTS", AlgorithmOption::Segments),
    ("ALGORITHM_WITH_REFILL", AlgorithmOption::Refill),
    ("ALGORITHM_WITH_CALENDAR", AlgorithmOption::Calendar),
    (
        "ALGORITHM_WITH_COUNT_REFUSED",
        AlgorithmOption::CountRefused,
    ),
    ("ALGORITHM_WITH_SLOTS", AlgorithmOption::Slots),
];

fn algorithm_with(option: AlgorithmOption) -> String {
    let with: Vec<_> = ALGORITHMS
        .iter()
        .filter(|algorithm| algorithm.options().contains(&option))
        .map(|algorithm| algorithm.name())
        .collect();
    match with.as_slice() {
        [one] => format!("`algorithm: {one}`"),
        several => format!("`algorithm` to one of {}", several.join(", ")),
    }
}
