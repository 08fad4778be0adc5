//! Tests of summaries and recorders: the bound of the error, Zipf traffic, windows.
//!
//! What it deliberately does not do: test bytes and texts (`memory`).

mod memory;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::history::TICK_US;
use super::key_table::Budget;
use super::merge::{Merged, merge};
use super::recorder::{Piece, Recorder};
use super::summary::{Counts, Extract, Hit, Pair, Summary, Totals, plus};
use tollgate_admin_api::{RankBy, Window};
use tollgate_telemetry::metrics::{HitOutcome, Metrics};

/// A source of numbers that are the same in each run: `SplitMix64`.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// From 0 to 1.
    #[allow(clippy::cast_precision_loss)]
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// How long a test is: the variable, for `make test-top-keys`, or this number.
fn number_of(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

/// The key of a number, spread over the table as hashes are.
fn key(number: u64) -> u128 {
    let mut numbers = Numbers(number);
    (u128::from(numbers.next()) << 64) | u128::from(numbers.next())
}

fn became(is_over: bool) -> HitOutcome {
    if is_over {
        HitOutcome::Refused
    } else {
        HitOutcome::Admitted
    }
}

impl Recorder {
    /// Counts one check, as the pipeline does.
    fn count(&mut self, now_us: u64, rule: u64, key: u128, hits: u64, is_over: bool) {
        self.begin(now_us);
        self.record(&Hit::new(now_us, rule, key, hits, became(is_over)));
    }
}

fn recorder(bytes_max: usize) -> (Recorder, Arc<AtomicU64>) {
    let all = Arc::new(AtomicU64::new(0));
    (
        Recorder::new(bytes_max, &all, Metrics::new().unwrap().top_keys),
        all,
    )
}

fn merged(pieces: &[Piece]) -> Merged {
    merge(pieces, true, |_, _| true)
}

/// The true hits of each key, beside what was recorded.
type True<const N: usize> = HashMap<u128, [u64; N]>;

fn count<const N: usize>(true_hits: &mut True<N>, key: u128, hits: [u64; N]) {
    let sum = true_hits.entry(key).or_insert([0; N]);
    for (sum, hits) in sum.iter_mut().zip(hits) {
        *sum += hits;
    }
}

/// true − error ≤ count ≤ true, for every key and all kinds. Hits that would have been refused have
/// the error of hits asked for.
fn assert_bounds(true_hits: &True<3>, reported: impl Fn(u128) -> (Totals, Pair)) {
    for (key, true_hits) in true_hits {
        let (counts, [asked_error, refused_error]) = reported(*key);
        let errors = [asked_error, refused_error, asked_error];
        for ((count, error), true_hits) in counts.iter().zip(errors).zip(true_hits) {
            assert!(count <= true_hits, "{count} of {true_hits}");
            assert!(
                count + error >= *true_hits,
                "{count} + {error} of {true_hits}"
            );
        }
    }
}

#[test]
fn any_stream_keeps_the_bounds_of_the_error() {
    for seed in 0..200 {
        let mut numbers = Numbers(seed);
        let capacity = 24 << numbers.below(4);
        let all = Arc::new(AtomicU64::new(0));
        let mut budget = Budget::new(1 << 20, all);
        let scratch = &mut Vec::new();
        // Some streams have many keys, some refuse few, some take many hits at once.
        let (keys, refused_of) = (1 << numbers.below(11), 1 + numbers.below(20));
        let hits_max = 1 + numbers.below(1_000) * numbers.below(2);
        let mut true_hits = True::new();
        let mut total = [0; 3];
        let mut parts: Vec<Summary> = (0..3).map(|_| Summary::new(capacity)).collect();
        for _ in 0..3_000 {
            let number = numbers.below(keys).min(numbers.below(keys));
            let hits = 1 + numbers.below(hits_max);
            let is_over = numbers.below(refused_of) == 0;
            let would_refuse = !is_over && numbers.below(3) == 0;
            let hit = Hit {
                rule: 0,
                key: key(number),
                hits,
                refused_at: u32::from(is_over),
                would_refuse,
            };
            let all = [true, is_over, would_refuse].map(|is| if is { hits } else { 0 });
            let part = usize::try_from(numbers.below(3)).unwrap();
            parts[part].record(&hit, &mut budget, scratch);
            count(&mut true_hits, key(number), all);
            total = plus(total, all);
        }
        let mut whole = Summary::new(capacity);
        for part in &parts {
            whole.merge(part, &mut budget, scratch);
        }
        let reported = |key| {
            let counts = whole.table.get(key).map_or([0; 3], Counts::totals);
            (counts, whole.error)
        };
        assert_bounds(&true_hits, reported);
        // Merging three streams costs at most what each costs, and once more.
        for (error, total) in whole.error.iter().zip(total) {
            let capacity = u64::try_from(capacity).unwrap();
            assert!(error * 3 * capacity <= 2 * 16 * total, "{error} of {total}");
        }
        // What a reader sees keeps them too, with keys left out.
        let mut extract = Extract::default();
        whole.extract(&mut extract, &mut budget, scratch);
        let read = merged(&[Piece {
            rule: Some(0),
            extract: extract.clone(),
        }]);
        assert_eq!(read.total, total);
        let read: HashMap<_, _> = read.keys.iter().map(|key| (key.key, key)).collect();
        assert_bounds(&true_hits, |key| match read.get(&key) {
            Some(key) => (key.counts.totals(), key.error),
            None => ([0; 3], plus(extract.error, extract.left_out)),
        });
    }
}

/// Zipf's law with this exponent over keys from 0: key 0 is asked for most.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(keys: u32, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=keys).map(|rank| {
            sum += f64::from(rank).powf(-exponent);
            sum
        });
        Self(sums.collect())
    }

    fn next(&self, numbers: &mut Numbers) -> u64 {
        let at = numbers.share() * self.0.last().unwrap();
        self.0.partition_point(|sum| *sum <= at) as u64
    }
}

/// Each key may have `limit` hits; the others are refused. Several threads count, over a minute.
fn zipf_on_threads(requests: u64, bytes_max: usize) {
    const THREADS: usize = 4;
    let (zipf, mut numbers) = (Zipf::new(1_000_000, 1.1), Numbers(1));
    let mut threads: Vec<_> = (0..THREADS)
        .map(|_| recorder(bytes_max / (THREADS + 1)).0)
        .collect();
    let limit = requests / 10_000;
    let mut true_hits = True::new();
    // 55 s in all: the reader's minute holds all of it.
    let us_each = 55_000_000 / requests;
    for request in 0..requests {
        let key = key(zipf.next(&mut numbers));
        let is_over = true_hits.get(&key).is_some_and(|hits| hits[0] >= limit);
        count(&mut true_hits, key, [1, u64::from(is_over)]);
        let thread = usize::try_from(numbers.below(THREADS as u64)).unwrap();
        threads[thread].count(request * us_each, 7, key, 1, is_over);
    }
    let now_us = (requests - 1) * us_each;
    for window in [Window::Minute, Window::Hour] {
        let pieces: Vec<_> = threads
            .iter_mut()
            .flat_map(|thread| thread.pieces(window, now_us))
            .collect();
        for (by, kind) in [(RankBy::Refused, 1), (RankBy::Asked, 0)] {
            let mut merged = merged(&pieces);
            assert_eq!(merged.total[0], requests);
            merged.rank(by, 50);
            let reported: HashMap<_, _> = merged.keys.iter().map(|key| (key.key, key)).collect();
            let mut heaviest: Vec<_> = true_hits.iter().collect();
            heaviest.sort_unstable_by_key(|(_, hits)| std::cmp::Reverse(hits[kind]));
            let mut worst = 0;
            for (key, hits) in heaviest.iter().take(20) {
                let found = reported.get(key).expect("each of the true top 20");
                let counts = found.counts.hits;
                for kind in 0..2 {
                    let missing = hits[kind] - counts[kind];
                    assert!(missing <= found.error[kind], "{missing}: {found:?}");
                    assert!(missing * 1_000 <= requests, "{missing} of {requests}");
                    worst = worst.max(missing);
                }
            }
            println!(
                "{by:?} {window:?}: at most {worst} of {requests} hits are missing from a key"
            );
        }
    }
}

#[test]
fn the_top_20_of_zipf_traffic_are_found() {
    zipf_on_threads(number_of("TOP_KEYS_REQUESTS", 400_000), 16 << 20);
}

#[test]
fn a_key_with_most_refusals_is_found_among_keys_with_more_hits() {
    let (mut recorder, _) = recorder(1 << 20);
    let mut numbers = Numbers(5);
    for number in 0..200_000 {
        recorder.count(0, 1, key(numbers.below(20_000)), 1, false);
        if number % 1_000 == 0 {
            recorder.count(0, 1, u128::MAX, 1, true);
        }
    }
    let mut merged = merged(&recorder.pieces(Window::Minute, 0));
    merged.rank(RankBy::Refused, 10);
    assert_eq!(merged.keys.len(), 1);
    assert_eq!(merged.keys[0].counts.hits[1], 200);
}

#[test]
fn a_noisy_rule_does_not_push_out_the_keys_of_a_quiet_one() {
    let (mut recorder, _) = recorder(1 << 20);
    for number in 0..100_000 {
        recorder.count(0, 1, key(number), 1, true);
    }
    for number in 0..5 {
        recorder.count(0, 2, key(1_000_000 + number), 1, true);
    }
    for number in 0..100_000 {
        recorder.count(0, 1, key(number), 1, true);
    }
    let pieces = recorder.pieces(Window::Minute, 0);
    let quiet = merge(&pieces, false, |_, rule| rule == 2);
    assert_eq!((quiet.keys.len(), quiet.total), (5, [5, 5, 0]));
    assert!(quiet.keys.iter().all(|key| key.error == [0, 0]));
}

#[test]
fn intervals_leave_their_window_also_when_nothing_more_comes() {
    let (mut recorder, _) = recorder(1 << 20);
    let hits = |recorder: &mut Recorder, window, now_us| {
        let merged = merged(&recorder.pieces(window, now_us));
        assert!(merged.keys.len() <= 1);
        merged.keys.first().map_or(0, |key| key.counts.hits[0])
    };
    // One hit every second for two hours.
    let (second, hour) = (1_000_000, 3_600_000_000);
    for at in 0..7_200 {
        recorder.count(at * second, 1, 9, 1, false);
    }
    let now = 2 * hour - 1;
    assert_eq!(hits(&mut recorder, Window::Minute, now), 60);
    assert_eq!(hits(&mut recorder, Window::Hour, now), 3_600);
    // Nothing comes any more.
    assert_eq!(hits(&mut recorder, Window::Minute, now + TICK_US), 50);
    assert_eq!(hits(&mut recorder, Window::Minute, now + 6 * TICK_US), 0);
    assert_eq!(hits(&mut recorder, Window::Hour, now + hour / 2), 1_800);
    assert_eq!(hits(&mut recorder, Window::Hour, now + hour), 0);
}

#[test]
fn a_refusal_keeps_its_first_and_its_last_time() {
    let (mut recorder, _) = recorder(1 << 20);
    for (at, is_over) in [(5, false), (7, true), (25, true), (31, false)] {
        recorder.count(at * 1_000_000, 1, 9, 1, is_over);
    }
    let read = merged(&recorder.pieces(Window::Minute, 31_000_000));
    assert_eq!(read.keys[0].counts.refused_at, [71, 251]);
}
