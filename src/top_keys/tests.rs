//! Tests of summaries and recorders: the bound of the error, Zipf traffic, floods, bytes, windows.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allocation_counter::measure;

use super::budget::Budget;
use super::history::TICK_US;
use super::merge::{Merged, merge};
use super::recorder::{BoundCounters, Piece, Recorder};
use super::summary::{Extract, Hit, Pair, Summary};
use super::text::Text;
use crate::admin_api::{Entry, RankBy, ValueMode, Window};
use crate::metrics::Metrics;
use crate::value_hash::ShownValues;

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

fn counters() -> BoundCounters {
    let metrics = Metrics::new().unwrap();
    BoundCounters {
        shared: metrics.top_keys.shared.clone(),
        texts_not_kept: metrics.top_keys.texts_not_kept.clone(),
    }
}

impl Recorder {
    /// Counts one check, as the pipeline does.
    fn count(&mut self, now_us: u64, rule: u64, key: u128, hits: u64, is_over: bool) {
        self.begin(now_us);
        self.record(now_us, rule, key, hits, is_over);
    }
}

fn recorder(bytes_max: usize) -> (Recorder, Arc<AtomicU64>) {
    let all = Arc::new(AtomicU64::new(0));
    (Recorder::new(bytes_max, &all, counters()), all)
}

fn merged(pieces: &[Piece]) -> Merged {
    merge(pieces, true, |_, _| true)
}

fn text(value: &str) -> Text {
    let values = ShownValues::derived_from(ValueMode::Plain, b"key");
    let entry = tollgate_limiter::Entry {
        key: b"user",
        value: value.as_bytes(),
    };
    Text::new(None, b"d", &[entry], &values)
}

/// The true hits of each key, beside what was recorded.
type True = HashMap<u128, Pair>;

fn count(true_hits: &mut True, key: u128, hits: Pair) {
    let sum = true_hits.entry(key).or_default();
    for (sum, hits) in sum.iter_mut().zip(hits) {
        *sum += hits;
    }
}

/// true − error ≤ count ≤ true, for every key and both kinds.
fn assert_bounds(true_hits: &True, reported: impl Fn(u128) -> (Pair, Pair)) {
    for (key, true_hits) in true_hits {
        let (counts, errors) = reported(*key);
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
        let mut total = [0; 2];
        let mut parts: Vec<Summary> = (0..3).map(|_| Summary::new(capacity)).collect();
        for _ in 0..3_000 {
            let number = numbers.below(keys).min(numbers.below(keys));
            let hits = 1 + numbers.below(hits_max);
            let is_over = numbers.below(refused_of) == 0;
            let hit = Hit {
                rule: 0,
                key: key(number),
                hits,
                refused_at: u32::from(is_over),
            };
            let both = [hits, if is_over { hits } else { 0 }];
            let part = usize::try_from(numbers.below(3)).unwrap();
            parts[part].record(&hit, &mut budget, scratch);
            count(&mut true_hits, key(number), both);
            total = super::summary::plus(total, both);
        }
        let mut whole = Summary::new(capacity);
        for part in &parts {
            whole.merge(part, &mut budget, scratch);
        }
        let reported = |key| {
            let counts = whole.get(key).map_or([0; 2], |counts| counts.hits);
            (counts, whole.error())
        };
        assert_bounds(&true_hits, reported);
        // Merging three streams costs at most what each costs, and once more.
        for (error, total) in whole.error().iter().zip(total) {
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
        let read: HashMap<_, _> = read.keys.iter().map(|key| (key.key, key)).collect();
        assert_bounds(&true_hits, |key| match read.get(&key) {
            Some(key) => (key.counts.hits, key.error),
            None => (
                [0; 2],
                super::summary::plus(extract.error, extract.left_out),
            ),
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

/// Endless new keys, with texts, in several rules; the counted bytes and those of the allocator.
fn flood(keys: u64) {
    const BYTES_MAX: usize = 4 << 20;
    let all = Arc::new(AtomicU64::new(0));
    let (mut heavy, mut now_us) = (0, 0);
    let (counters, mut kept) = (counters(), None);
    let allocated = measure(|| {
        let recorder = kept.insert(Recorder::new(BYTES_MAX, &all, counters));
        for number in 0..keys {
            // Half an hour in all.
            now_us = number * (1_800_000_000 / keys);
            let rule = 1 + number % 40;
            let key = key(number);
            if recorder.wants_text(rule, key) {
                recorder.keep_text(key, text(&format!("{number:0>200}")));
            }
            recorder.count(now_us, rule, key, 1, number % 3 == 0);
            if number % 100 == 0 {
                // One key of 1 % of all hits, and none of them refused, stays.
                recorder.count(now_us, 1, u128::MAX, 1, false);
                heavy += 1;
            }
            assert!(all.load(Ordering::Relaxed) <= BYTES_MAX as u64);
        }
    });
    println!(
        "{keys} keys: at most {} bytes allocated",
        allocated.bytes_max
    );
    // A table that grows is copied.
    assert!(
        allocated.bytes_max <= BYTES_MAX as u64 / 4 * 5,
        "{allocated:?}"
    );
    let mut merged = merged(&kept.as_mut().unwrap().pieces(Window::Hour, now_us));
    merged.rank(RankBy::Asked, 1);
    assert_eq!(merged.keys[0].key, u128::MAX);
    let counted = merged.keys[0].counts.hits[0];
    assert!(counted * 10 >= heavy * 9, "{counted} of {heavy}");
    drop(kept);
    assert_eq!(all.load(Ordering::Relaxed), 0, "everything was given back");
}

#[test]
fn a_flood_of_keys_stays_within_its_bytes() {
    flood(number_of("TOP_KEYS_KEYS", 300_000));
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
    assert_eq!((quiet.keys.len(), quiet.total), (5, [5, 5]));
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

#[test]
fn the_steady_state_allocates_nothing_across_intervals() {
    let (mut recorder, _) = recorder(4 << 20);
    let turn = |recorder: &mut Recorder, minutes: std::ops::Range<u64>| {
        for minute in minutes {
            for request in 0..6_000 {
                // 3,000 keys in three rules, the same every minute.
                let number = request % 3_000;
                let now_us = minute * 60_000_000 + request * 10_000;
                recorder.count(now_us, 1 + number % 3, key(number), 1, number % 2 == 0);
            }
        }
    };
    turn(&mut recorder, 0..125);
    let allocated = measure(|| turn(&mut recorder, 125..190));
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
    // Or this test would show nothing.
    let allocated = measure(|| recorder.count(u64::MAX / 2, 4, 1, 1, true));
    assert!(allocated.count_total > 0);
}

#[test]
fn thousands_of_rules_share_what_there_is() {
    let (mut recorder, all) = recorder(256 << 10);
    // Each reload has new rules; only those of the last hour can have a summary.
    for rule in 1..20_000 {
        recorder.count(rule * 1_000_000, rule, key(rule), 1, true);
        assert!(all.load(Ordering::Relaxed) <= 256 << 10);
    }
    let now_us = 20_000 * 1_000_000;
    let read = merged(&recorder.pieces(Window::Hour, now_us));
    assert!(read.total[0] >= 3_000, "{:?}", read.total);
    let rules = tollgate_limiter::RuleSet::default();
    recorder.retain_rules(&rules);
    // What is left is what a new one has.
    let (_new, of_new) = self::recorder(256 << 10);
    let left = all.load(Ordering::Relaxed) - of_new.load(Ordering::Relaxed);
    assert!(left < 4 << 10, "{left}");
}

#[test]
fn texts_of_heavy_keys_are_kept_in_a_flood() {
    let (mut recorder, _) = recorder(1 << 20);
    let ask = |recorder: &mut Recorder, now_us, key: u128| {
        let wanted = recorder.wants_text(1, key);
        recorder.count(now_us, 1, key, 1, false);
        if wanted {
            recorder.keep_text(key, text(&key.to_string()));
        }
    };
    for number in 0..400_000 {
        let now_us = number * 200;
        ask(&mut recorder, now_us, key(number));
        // It begins in the middle of the flood.
        if number > 200_000 && number % 50 == 0 {
            ask(&mut recorder, now_us, u128::MAX);
        }
    }
    let found = recorder.texts(Some(&[u128::MAX]));
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].1.entries[0].key, "user");
}

#[test]
fn a_text_is_bounded_and_hostile_bytes_are_shown() {
    let values = ShownValues::derived_from(ValueMode::Plain, b"key");
    let long = vec![b'x'; 200_000];
    let binary = b"\xff\0\n";
    let entries = [(&b"a"[..], &long[..]), (&long, &binary[..])];
    let entries = entries.map(|(key, value)| tollgate_limiter::Entry { key, value });
    let text = Text::new(None, &long, &entries, &values);
    assert_eq!(text.entries[0].value.len(), 128 + '…'.len_utf8());
    assert_eq!(text.entries[1].value, "\\xff\\x00\\n");
    let deep = vec![entries[0]; 24];
    let text = Text::new(None, b"d", &deep, &values);
    assert_eq!(text.entries.len(), 24);
    assert!(text.bytes() < 8 << 10, "{}", text.bytes());
    let asked = |key: &str, value: &str| {
        let entry = Entry {
            key: key.into(),
            value: value.into(),
        };
        super::text::AskedEntry::new(&entry, &values)
    };
    let value = "x".repeat(200_000);
    assert!(text.has(&[asked("a", &value)]));
    assert!(!text.has(&[asked("a", "y")]));
    assert!(!text.has(&[asked("b", &value)]));
}
