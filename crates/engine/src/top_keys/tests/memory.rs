//! Tests of the memory of recorders: counted bytes in floods of keys and rules, allocations, and
//! the texts that are kept.
//!
//! What it deliberately does not do: test the error of counts (`tests`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allocation_counter::measure;

use super::{key, merged, number_of, recorder};
use crate::top_keys::recorder::Recorder;
use crate::top_keys::text::{AskedEntry, Text};
use crate::value_hash::ShownValues;
use tollgate_admin_api::{Entry, RankBy, ValueMode, Window};
use tollgate_telemetry::metrics::Metrics;

fn text(value: &str) -> Text {
    let values = ShownValues::derived_from(ValueMode::Plain, b"key");
    let entry = tollgate_limiter::Entry {
        key: b"user",
        value: value.as_bytes(),
    };
    Text::new(None, b"d", &[entry], &values)
}

/// Endless new keys, with texts, in several rules; the counted bytes and those of the allocator.
fn flood(keys: u64) {
    const BYTES_MAX: usize = 4 << 20;
    let all = Arc::new(AtomicU64::new(0));
    let (mut heavy, mut now_us) = (0, 0);
    let (metrics, mut kept) = (Metrics::new().unwrap().top_keys, None);
    let allocated = measure(|| {
        let recorder = kept.insert(Recorder::new(BYTES_MAX, &all, metrics));
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
    let (_new, of_new) = super::recorder(256 << 10);
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
        AskedEntry::new(&entry, &values)
    };
    let value = "x".repeat(200_000);
    assert!(text.has(&[asked("a", &value)]));
    assert!(!text.has(&[asked("a", "y")]));
    assert!(!text.has(&[asked("b", &value)]));
}
