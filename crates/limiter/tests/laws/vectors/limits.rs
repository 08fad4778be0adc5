//! Windows and rates: where a window begins, how long until it ends, and what cannot be built.
//!
//! What it deliberately does not do: count hits.

use std::num::NonZeroU32;

use tollgate_limiter::algorithm::FixedWindow;
use tollgate_limiter::{Check, Hits, Limit, LimitError, Penalty, State, Timestamp, Unit, Window};

use tollgate_test_model::fixtures::{SECOND_US, at, per};

/// Unit, clock, start of its window, seconds until reset.
const WINDOWS: &[(Unit, u64, u64, u64)] = &[
    // A second begins at each second, and a whole one is left of it.
    (Unit::Second, 1_234, 1_234, 1),
    // 1234 = 20 × 60 + 34, and 60 − 34 = 26.
    (Unit::Minute, 1_234, 1_200, 26),
    // The reference's own figure for its header: 2222 = 37 × 60 + 2, and 60 − 2 = 58.
    (Unit::Minute, 2_222, 2_220, 58),
    // 1,000,000 = 277 × 3600 + 2800, and 3600 − 2800 = 800.
    (Unit::Hour, 1_000_000, 997_200, 800),
    // 1,000,000 = 11 × 86400 + 49600, and 86400 − 49600 = 36800.
    (Unit::Day, 1_000_000, 950_400, 36_800),
    // 1,000,000 = 1 × 604800 + 395200, and 604800 − 395200 = 209600.
    (Unit::Week, 1_000_000, 604_800, 209_600),
    // Within the first 30 days of 1970: 2592000 − 1000000.
    (Unit::Month, 1_000_000, 0, 1_592_000),
    // Within its first 365 days: 31536000 − 1000000.
    (Unit::Year, 1_000_000, 0, 30_536_000),
    // At the very edge a whole window is left: 1260 = 21 × 60.
    (Unit::Minute, 1_260, 1_260, 60),
    // And one second before it, one.
    (Unit::Minute, 1_259, 1_200, 1),
];

#[test]
fn windows_begin_at_whole_units_since_1970() {
    for &(unit, clock, start, reset) in WINDOWS {
        let limit = per(10, unit);
        assert_eq!(limit.window().start_of(at(clock)), at(start), "{unit:?}");
        // Every algorithm uses the window; this one reports it, whether the hits pass or not.
        let mut state = State::default();
        for hits in [1, 10] {
            let outcome = state.apply(&FixedWindow, &limit, Hits::Take(hits), at(clock));
            assert_eq!(outcome.reset_us, reset * SECOND_US, "{unit:?}, {hits} hits");
        }
    }
}

#[test]
fn a_part_of_a_second_is_left_as_a_part() {
    let now = at(1_234).plus_us(400_000);
    let outcome = State::default().apply(&FixedWindow, &per(10, Unit::Second), Hits::PEEK, now);
    assert_eq!(outcome.reset_us, 600_000); // 1235 − 1234.4; whole seconds are the wire's affair
}

#[test]
fn a_multiplier_makes_longer_windows_counted_from_1970() {
    let minutes = |count| Window::new(Unit::Minute, NonZeroU32::new(count).unwrap());
    // 1234 = 4 × 300 + 34.
    assert_eq!(minutes(5).start_of(at(1_234)), at(1_200));
    // 1234 = 1 × 900 + 334: quarters of an hour do not begin where 5 minutes do.
    assert_eq!(minutes(15).start_of(at(1_234)), at(900));
    // 60 seconds are one minute.
    assert_eq!(
        Window::new(Unit::Second, NonZeroU32::new(60).unwrap()),
        minutes(1)
    );
}

#[test]
fn the_longest_window_is_all_the_time_there_is() {
    // 2^32 − 1 years are 1.4 × 10^17 seconds; time ends at 9 × 10^9.
    let window = Window::new(Unit::Year, NonZeroU32::MAX);
    assert_eq!(window.as_us(), Timestamp::MAX_US);
    assert_eq!(window.start_of(at(1_234)), at(0));
}

#[test]
fn time_saturates_at_both_ends() {
    let last = Timestamp::from_us(u64::MAX);
    assert_eq!(last.as_us(), (1 << 53) - 1);
    assert_eq!(last.plus_us(u64::MAX), last);
    assert_eq!(Timestamp::from_seconds(u64::MAX), last);
    assert_eq!(at(1).minus_us(u64::MAX), at(0));
    assert_eq!(at(1).since_us(at(2)), 0);
}

#[test]
fn a_rate_is_in_lowest_terms_and_knows_by_how_much() {
    let rate = |requests, unit| {
        let rate = per(requests, unit).rate();
        (rate.hits, rate.per_us, rate.divisor)
    };
    // 10 in 60,000,000 µs: both by 10.
    assert_eq!(rate(10, Unit::Minute), (1, 6_000_000, 10));
    // 7 does not divide 10^6.
    assert_eq!(rate(7, Unit::Second), (7, 1_000_000, 1));
    // 3 × 10^9 in 10^6 µs: both by 10^6.
    assert_eq!(rate(3_000_000_000, Unit::Second), (3_000, 1, 1_000_000));
    // 2^53 − 1 is odd, and no multiple of 5.
    assert_eq!(
        rate((1 << 53) - 1, Unit::Second),
        ((1 << 53) - 1, 1_000_000, 1)
    );
    // Nothing in 10^6 µs is nothing in 1.
    assert_eq!(rate(0, Unit::Second), (0, 1, 1_000_000));
}

#[test]
fn a_limit_that_never_passes_cannot_be_built() {
    let with = |requests, burst| Limit::new(requests, Unit::Second, NonZeroU32::MIN, burst);
    assert_eq!(with(10, Some(0)), Err(LimitError::ZeroBurst));
    assert_eq!(with(0, Some(0)), Err(LimitError::ZeroBurst));
    assert_eq!(with(0, Some(5)), Err(LimitError::BurstWithoutRate));
    assert_eq!(with(10, None).unwrap().burst(), 10);
    assert_eq!(with(10, Some(25)).unwrap().burst(), 25);
    assert_eq!(with(0, None).unwrap().burst(), 0);
    let most = Limit::REQUESTS_MAX;
    assert_eq!(with(most, Some(most)).unwrap().requests(), most);
    assert_eq!(with(most + 1, None), Err(LimitError::TooManyRequests));
    assert_eq!(with(1, Some(most + 1)), Err(LimitError::TooManyRequests));
}

#[test]
fn a_limit_is_no_larger_than_one_of_32_bits_was() {
    // Beside its penalty.
    let [limit, check] = [size_of::<Limit>(), size_of::<Check>()];
    let penalty = size_of::<Option<Penalty>>();
    assert!(limit <= 56 + penalty, "{limit}");
    assert!(check <= 160 + penalty, "{check}");
}
