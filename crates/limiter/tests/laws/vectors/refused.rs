//! What refused hits leave, worked out by hand: nothing, all of them, or at most two bursts in
//! total.
//!
//! What it deliberately does not do: ask several limits (`all_or_nothing` is tested with the
//! store).

use std::num::NonZeroU16;

use tollgate_limiter::algorithm::{FixedWindow, TokenBucket, count_refused, from_name};
use tollgate_limiter::{ALGORITHMS, CountRefused, Hits, Limit, State, Unit};

use Hits::{Charge, Refund, Take};
use tollgate_test_model::fixtures::{SECOND_US, at, per, with_burst};

/// Of ten, four are taken, nine refused, and a hundred refused. Gives what is used after each
/// refusal.
fn used(algorithm: &str, count_refused: Option<CountRefused>) -> [u64; 2] {
    let algorithm = tollgate_limiter::algorithm::from_name(algorithm).unwrap();
    let limit = per(10, Unit::Minute);
    let limit = count_refused.map_or(limit, |answer| limit.with_count_refused(answer));
    let mut state = State::default();
    let mut ask = |hits| state.apply(algorithm, &limit, hits, at(1_234));
    assert!(ask(Take(4)).allowed);
    [9, 100].map(|hits| {
        assert!(!ask(Take(hits)).allowed);
        ask(Hits::PEEK).used_before
    })
}

const NOTHING: [u64; 2] = [4, 4];

/// 4 + 9, and then as many as the debt allows: 2 × 10.
const DEBT: [u64; 2] = [13, 20];

/// 4 + 9, 13 + 100.
const ALL: [u64; 2] = [13, 113];

#[test]
fn refused_hits_consume_what_count_refused_says() {
    for algorithm in ALGORITHMS {
        let name = algorithm.name();
        let (usual, blocking, all) = match name {
            "fixed_window" => (ALL, ALL, DEBT),
            "concurrency" => (NOTHING, NOTHING, NOTHING), // it has no such choice
            _ => (NOTHING, DEBT, DEBT),
        };
        assert_eq!(used(name, None), usual, "{name}");
        assert_eq!(used(name, Some(CountRefused::None)), NOTHING, "{name}");
        assert_eq!(used(name, Some(CountRefused::Blocking)), blocking, "{name}");
        assert_eq!(used(name, Some(CountRefused::All)), all, "{name}");
        let in_full = if name == "concurrency" { NOTHING } else { ALL };
        assert_eq!(used(name, Some(CountRefused::InFull)), in_full, "{name}");
    }
}

#[test]
fn by_default_only_fixed_windows_count_refused_hits() {
    for algorithm in ALGORITHMS {
        let limit = per(10, Unit::Minute);
        let usual = match algorithm.name() {
            "fixed_window" => CountRefused::Blocking,
            _ => CountRefused::None,
        };
        assert_eq!(count_refused(*algorithm, &limit), usual, "{algorithm:?}");
        for told in CountRefused::ALL {
            let limit = limit.with_count_refused(told);
            assert_eq!(count_refused(*algorithm, &limit), told, "{algorithm:?}");
        }
    }
}

#[test]
fn a_bucket_in_debt_refuses_until_it_is_paid() {
    // One hit comes every six seconds.
    let limit = per(10, Unit::Minute).with_count_refused(CountRefused::All);
    let mut state = State::default();
    let mut ask = |hits, clock| {
        let outcome = state.apply(&TokenBucket, &limit, hits, at(clock));
        (outcome.allowed, outcome.remaining, outcome.retry_us)
    };
    let seconds = |seconds: u64| Some(seconds * SECOND_US);
    assert_eq!(ask(Take(7), 0), (true, 3, Some(0)));
    // A charge after the work: 7 + 9 = 16 used. Nine more fit when one is used: 15 × 6.
    assert_eq!(ask(Take(9), 0), (false, 0, seconds(90)));
    // A peek passes when no more than ten are used: 6 × 6.
    assert_eq!(ask(Take(0), 0), (false, 0, seconds(36)));
    assert_eq!(ask(Take(0), 36), (true, 0, Some(0)));
    assert_eq!(ask(Refund(1), 36), (true, 1, Some(0)));
}

/// The marks of a log are bounded although its debt is not.
#[test]
fn charges_deep_in_debt_add_no_marks() {
    for algorithm in ["sliding_log", "sliding_window_segments"] {
        let algorithm = from_name(algorithm).unwrap();
        let limit = per(10, Unit::Minute).with_count_refused(CountRefused::InFull);
        let limit = limit.with_segments(NonZeroU16::new(60).unwrap());
        let mut state = State::default();
        for second in 0..50 {
            state.apply(algorithm, &limit, Take(3), at(1_200 + second));
        }
        let looked = state.apply(algorithm, &limit, Hits::PEEK, at(1_250));
        assert_eq!((looked.allowed, looked.used_before), (false, 150));
        assert_eq!(state.marks.len(), 7, "three hits each, up to two bursts");
    }
}

#[test]
fn debt_deeper_than_its_bound_is_left_as_it_is() {
    let mut state = State::default();
    let limit = per(10, Unit::Minute);
    let all = limit.with_count_refused(CountRefused::All);
    let mut used = |limit, hits| {
        state.apply(&FixedWindow, limit, hits, at(1_234));
        state.registers[0]
    };
    assert_eq!(used(&limit, Take(95)), 95); // as the reference counts
    assert_eq!(used(&all, Take(1)), 95); // beyond 20 already
    assert_eq!(used(&all, Refund(80)), 15);
    assert_eq!(used(&all, Take(95)), 20);
}

#[test]
fn a_bucket_is_kept_for_as_long_as_it_may_be_in_debt_and_no_longer() {
    // 10 a minute fill in a minute, and twice as many in two.
    for (algorithm, fills_us) in [
        ("token_bucket", 60_000_001), // a part of a hit is rounded up
        ("leaky_bucket", 60_000_001),
        ("token_bucket_interval", 60_000_000),
    ] {
        let algorithm = from_name(algorithm).unwrap();
        let life_us = |limit: Limit| algorithm.ttl_us(&limit);
        let limit = with_burst(10, Unit::Minute, 10);
        assert_eq!(life_us(limit), fills_us, "{algorithm:?}");
        let none = limit.with_count_refused(CountRefused::None);
        assert_eq!(life_us(none), fills_us, "{algorithm:?}");
        for counting in [CountRefused::Blocking, CountRefused::All] {
            let limit = limit.with_count_refused(counting);
            assert_eq!(life_us(limit), fills_us + 60_000_000, "{algorithm:?}");
        }
    }
}

#[test]
fn a_fixed_window_forgets_what_only_a_lower_limit_refused() {
    let mut state = State::default();
    let mut ask =
        |requests, hits| state.apply(&FixedWindow, &per(requests, Unit::Minute), hits, at(1_234));
    let mut seen = Vec::new();
    // Seven of ten are taken, five refused, two charged, one given back; one is refused by five.
    for (requests, hits) in [
        (10, Take(7)),
        (10, Take(5)),
        (10, Charge(2)),
        (10, Refund(1)),
        (5, Take(1)),
        (0, Take(9)),
    ] {
        ask(requests, hits);
        // By the limit that refused, and by one that is higher.
        let used = [10, 30].map(|requests| ask(requests, Hits::PEEK).used_before);
        seen.push(used);
    }
    let expected = [[7, 7], [12, 10], [14, 12], [13, 12], [14, 12], [23, 12]];
    assert_eq!(seen, expected);
    // A raise takes effect with the next hit, for good.
    assert!(ask(13, Take(1)).allowed);
    assert_eq!(ask(10, Hits::PEEK).used_before, 13);
}

#[test]
fn a_limit_raised_from_0_lets_all_of_it_pass() {
    let mut state = State::default();
    let mut ask =
        |requests, hits| state.apply(&FixedWindow, &per(requests, Unit::Minute), hits, at(1_234));
    assert!(!ask(0, Take(3)).allowed);
    assert!(ask(2, Take(2)).allowed);
    // Here refused hits are use that was charged.
    let charged = per(10, Unit::Minute).with_count_refused(CountRefused::All);
    let mut state = State::default();
    state.apply(&FixedWindow, &charged, Take(14), at(1_234));
    let more = per(20, Unit::Minute).with_count_refused(CountRefused::All);
    let looked = state.apply(&FixedWindow, &more, Hits::PEEK, at(1_234));
    assert_eq!(looked.remaining, 6);
}
