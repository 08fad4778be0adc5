//! The table of algorithms: what a rules file may say of each, and what its buckets can do.

use tollgate_limiter::algorithm::from_name;
use tollgate_limiter::{ALGORITHMS, Algorithm, AlgorithmOption};

/// Name, options, and whether its buckets can have reservations, refill, and keep marks.
const TABLE: [(&str, &[AlgorithmOption], [bool; 3]); 8] = {
    use AlgorithmOption::{Burst, Calendar, CountRefused, Refill, Segments, Slots};
    [
        (
            "fixed_window",
            &[Calendar, CountRefused],
            [true, false, false],
        ),
        (
            "sliding_window",
            &[Segments, CountRefused],
            [true, false, false],
        ),
        (
            "sliding_window_segments",
            &[Segments, CountRefused],
            [false, false, true],
        ),
        ("sliding_log", &[CountRefused], [false, false, true]),
        (
            "token_bucket",
            &[Burst, Refill, CountRefused],
            [true, true, false],
        ),
        (
            "token_bucket_interval",
            &[Burst, CountRefused],
            [true, true, false],
        ),
        ("leaky_bucket", &[Burst, CountRefused], [true, true, false]),
        ("concurrency", &[Slots], [false, false, true]),
    ]
};

#[test]
fn each_algorithm_has_its_row() {
    assert_eq!(ALGORITHMS.len(), TABLE.len());
    assert_eq!(ALGORITHMS[0].name(), "fixed_window", "the default");
    for (name, options, [can_reserve, refills, has_marks]) in TABLE {
        let algorithm = from_name(name).unwrap();
        assert_eq!(algorithm.name(), name);
        assert_eq!(algorithm.facts().options, options, "{name}");
        assert_eq!(algorithm.facts().can_reserve, can_reserve, "{name}");
        assert_eq!(algorithm.facts().refills, refills, "{name}");
        assert_eq!(algorithm.facts().has_marks, has_marks, "{name}");
        assert!(algorithm.facts().promise.contains('N'), "{name}");
    }
    assert_eq!(from_name("gcra").map(Algorithm::name), Some("token_bucket"));
    for unknown in ["Fixed_Window", "unknown", ""] {
        assert!(from_name(unknown).is_none(), "{unknown}");
    }
}
