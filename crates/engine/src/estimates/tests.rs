//! Estimates follow the quantile of what commits said, within stated errors and within memory.

#![allow(clippy::cast_precision_loss)] // amounts are far below 2^53
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use std::sync::atomic::{AtomicU64, Ordering};

use super::histogram::WINDOW;
use super::key_table::KEY_COMMITS_MIN;
use super::rule_table::RULE_COMMITS_MIN;
use super::*;
use tollgate_telemetry::metrics::Metrics;

/// Random numbers of a fixed seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 to below 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

type Distribution = fn(&mut Random) -> u64;

fn uniform(random: &mut Random) -> u64 {
    1 + random.next() % 4_000
}

/// Median 400, and 95 % below 2,072.
fn log_normal(random: &mut Random) -> u64 {
    let (radius, angle) = (random.unit().max(1e-300), random.unit());
    let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
    (400.0 * normal.exp()) as u64
}

/// Short answers, and one in five long ones.
fn bimodal(random: &mut Random) -> u64 {
    match random.next() % 5 {
        0 => 8_000 + random.next() % 1_000,
        _ => 400 + random.next() % 200,
    }
}

fn constant(_: &mut Random) -> u64 {
    1_000
}

const DISTRIBUTIONS: [(&str, Distribution); 4] = [
    ("uniform", uniform),
    ("log-normal", log_normal),
    ("bimodal", bimodal),
    ("constant", constant),
];

fn estimates(memory_max: usize) -> (Estimates, EstimateMetrics) {
    let metrics = Metrics::new().unwrap().estimates;
    (Estimates::new(memory_max, metrics.clone()), metrics)
}

fn of(percent: u8, scope: EstimateScope) -> Estimate {
    Estimate {
        percent,
        floor: 1,
        ceiling: 1 << 40,
        scope,
    }
}

fn key(n: u64) -> Key {
    let mut random = Random(n);
    Key::from_halves([random.next(), random.next()])
}

/// The exact quantile.
fn quantile(amounts: &mut [u64], percent: u8) -> u64 {
    amounts.sort_unstable();
    amounts[(amounts.len() * usize::from(percent)).div_ceil(100) - 1]
}

/// The share of the next amounts that fit in what is reserved for them.
fn coverage(scope: EstimateScope, percent: u8, distribution: Distribution, seed: u64) -> f64 {
    let (estimates, _) = estimates(4 << 20);
    let estimate = of(percent, scope);
    let mut random = Random(seed);
    let mut covered = 0;
    for n in 0..24_000 {
        let amount = distribution(&mut random);
        if n >= 4_000 {
            covered += u32::from(amount <= estimates.amount(7, key(1), &estimate));
        }
        estimates.learn(7, key(1), &estimate, amount);
    }
    f64::from(covered) / 20_000.0
}

#[test]
fn a_rule_s_estimate_is_at_most_an_eighth_off() {
    for (name, distribution) in DISTRIBUTIONS {
        for percent in [50, 90, 95, 99] {
            let (estimates, _) = estimates(4 << 20);
            let estimate = of(percent, EstimateScope::Rule);
            let mut random = Random(u64::from(percent));
            let amounts = (0..WINDOW - 1).map(|_| distribution(&mut random));
            let mut amounts: Vec<u64> = amounts.collect();
            for amount in &amounts {
                estimates.learn(7, key(1), &estimate, *amount);
            }
            let exact = quantile(&mut amounts, percent);
            let learnt = estimates.amount(7, key(1), &estimate);
            // The quantile is at most 16 commits old.
            assert!(
                learnt.abs_diff(exact) <= exact / 8,
                "{name} p{percent}: {learnt}, not {exact}"
            );
        }
    }
}

#[test]
fn the_share_of_commits_that_an_estimate_covers_is_its_percentage() {
    for (name, distribution) in DISTRIBUTIONS {
        for percent in [50, 75, 90, 95, 99] {
            // A bucket's upper bound covers more, never less. All amounts can be one bucket.
            let rule = coverage(EstimateScope::Rule, percent, distribution, 11);
            let wanted = f64::from(percent) / 100.0;
            assert!(rule >= wanted - 0.01, "{name} p{percent} per rule: {rule}");
            if name == "uniform" || name == "log-normal" {
                assert!(rule <= wanted + 0.05, "{name} p{percent} per rule: {rule}");
            }
            let of_key = coverage(EstimateScope::Key, percent, distribution, 12);
            assert!(
                (of_key - wanted).abs() <= 0.01,
                "{name} p{percent} per key: {of_key}"
            );
        }
    }
}

#[test]
fn a_key_s_estimate_is_near_the_quantile() {
    for (name, distribution) in DISTRIBUTIONS {
        if name == "bimodal" {
            // Between its two modes every amount has the same share: coverage is what counts.
            continue;
        }
        let (estimates, _) = estimates(4 << 20);
        let estimate = of(95, EstimateScope::Key);
        let mut random = Random(3);
        let mut amounts = Vec::new();
        let mut sum = 0.0;
        for n in 0..12_000 {
            let amount = distribution(&mut random);
            estimates.learn(7, key(1), &estimate, amount);
            if n >= 2_000 {
                amounts.push(amount);
                let learnt = estimates.amount(7, key(1), &estimate);
                sum += (learnt as f64).log2();
            }
        }
        let exact = (quantile(&mut amounts, 95) as f64).log2();
        let off = sum / 10_000.0 - exact;
        assert!(off.abs() <= 0.25, "{name}: {off} octaves");
    }
}

#[test]
fn an_estimate_follows_a_change_of_amounts() {
    for scope in EstimateScope::ALL {
        for (before, after) in [(200, 5_000), (5_000, 200)] {
            let (estimates, _) = estimates(4 << 20);
            let estimate = of(95, scope);
            let mut random = Random(5);
            let mut amount = |of: u64| of - of / 20 + random.next() % (of / 10);
            for _ in 0..20_000 {
                estimates.learn(7, key(1), &estimate, amount(before));
            }
            for _ in 0..4_096 {
                estimates.learn(7, key(1), &estimate, amount(after));
            }
            let learnt = estimates.amount(7, key(1), &estimate);
            assert!(
                learnt >= after * 4 / 5 && learnt <= after * 3 / 2,
                "{before} to {after} by {scope:?}: {learnt}"
            );
        }
    }
}

#[test]
fn floor_and_ceiling_hold() {
    for scope in EstimateScope::ALL {
        let (estimates, _) = estimates(1 << 20);
        let estimate = Estimate {
            percent: 95,
            floor: 100,
            ceiling: 2_000,
            scope,
        };
        for _ in 0..RULE_COMMITS_MIN {
            // Before anything was learnt.
            assert_eq!(estimates.amount(7, key(1), &estimate), 100);
            estimates.learn(7, key(1), &estimate, 700);
        }
        let learnt = estimates.amount(7, key(1), &estimate);
        assert!((700..800).contains(&learnt), "{learnt}");
        let mut random = Random(1);
        for _ in 0..2_000 {
            estimates.learn(7, key(1), &estimate, random.next());
            let learnt = estimates.amount(7, key(1), &estimate);
            assert!((100..=2_000).contains(&learnt), "{learnt}");
        }
        assert_eq!(estimates.amount(7, key(1), &estimate), 2_000);
        for _ in 0..10_000 {
            estimates.learn(7, key(1), &estimate, 0);
        }
        assert_eq!(estimates.amount(7, key(1), &estimate), 100);
    }
}

#[test]
fn a_key_has_the_rule_s_estimate_until_it_has_its_own() {
    let (estimates, _) = estimates(4 << 20);
    let estimate = of(95, EstimateScope::Key);
    for _ in 0..500 {
        estimates.learn(7, key(1), &estimate, 1_000);
    }
    let of_rule = estimates.amount(7, key(2), &estimate);
    assert!((1_000..1_063).contains(&of_rule), "{of_rule}");
    for n in 0..400 {
        let learnt = estimates.amount(7, key(2), &estimate);
        assert!(n >= KEY_COMMITS_MIN || learnt >= 900, "{n}: {learnt}");
        estimates.learn(7, key(2), &estimate, 50);
    }
    let (one, other) = (
        estimates.amount(7, key(1), &estimate),
        estimates.amount(7, key(2), &estimate),
    );
    assert!((1_000..1_200).contains(&one), "{one}");
    assert!((50..60).contains(&other), "{other}");
    // Another rule knows neither.
    assert_eq!(estimates.amount(8, key(1), &estimate), 1);
}

#[test]
fn a_million_keys_and_ten_thousand_rules_stay_within_memory() {
    const MEMORY: usize = 1 << 20;
    let (estimates, metrics) = estimates(MEMORY);
    assert_eq!(metrics.memory_bytes.get(), 0, "nothing is used before");
    let estimate = of(95, EstimateScope::Key);
    for n in 0..1_000_000 {
        estimates.learn(n % 10_000, key(n), &estimate, n);
    }
    let keys = estimates.keys.get().unwrap();
    let rules = estimates.rules.get().unwrap();
    assert!(keys.bytes() + rules.bytes() <= MEMORY);
    assert!(keys.bytes() + rules.bytes() > MEMORY * 9 / 10);
    assert_eq!(
        metrics.memory_bytes.get(),
        bytes(keys.bytes() + rules.bytes())
    );
    let places = keys.bytes() as u64 / 8;
    assert!(metrics.keys_replaced.get() >= 1_000_000 - places);
    assert!(metrics.rules_replaced.get() > 0);
}

#[test]
fn a_key_in_use_outlives_a_flood_of_others() {
    let (estimates, _) = estimates(64 << 10);
    let estimate = of(95, EstimateScope::Key);
    for _ in 0..1_000 {
        estimates.learn(7, key(1), &estimate, 1_000);
    }
    for n in 2..200_000 {
        estimates.learn(7, key(n), &estimate, 10);
        if n % 1_000 == 0 {
            let learnt = estimates.amount(7, key(1), &estimate);
            assert!(learnt >= 1_000, "after {n} keys: {learnt}");
        }
    }
}

#[test]
fn threads_learn_at_once() {
    let (estimates, _) = estimates(1 << 20);
    let learnt = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (estimates, learnt) = (&estimates, &learnt);
            scope.spawn(move || {
                let mut random = Random(thread);
                let estimate = of(95, EstimateScope::Key);
                for _ in 0..50_000 {
                    estimates.learn(7, key(1), &estimate, uniform(&mut random));
                    let amount = estimates.amount(7, key(1), &estimate);
                    learnt.fetch_max(amount, Ordering::Relaxed);
                }
            });
        }
    });
    for scope in EstimateScope::ALL {
        let amount = estimates.amount(7, key(1), &of(95, scope));
        assert!((3_000..6_000).contains(&amount), "{scope:?}: {amount}");
    }
}
