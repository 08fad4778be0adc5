//! What refused hits leave, worked out by hand: nothing, all of them, or at most two bursts in
//! total.
//!
//! What it deliberately does not do: ask several limits (`all_or_nothing` is tested with the
//! store).

use tollgate_limiter::algorithm::{FixedWindow, TokenBucket, count_refused, from_name};
use tollgate_limiter::{ALGORITHMS, CountRefused, Hits, Limit, State, Unit};

use Hits::{Refund, Take};
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
