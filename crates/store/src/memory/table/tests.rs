//! The table against a map of the standard library, its promises about memory and moves, and its
//! sweep.
//!
//! What it deliberately does not do: know buckets.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

/// A key, whether it is kept, and a rank.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Entry {
    key: [u64; 2],
    used: bool,
    kept: bool,
    rank: u64,
}

impl Slot for Entry {
    fn key(&self) -> Key {
        Key((u128::from(self.key[0]) << 64) | u128::from(self.key[1]))
    }

    fn is_free(&self) -> bool {
        !self.used
    }

    fn is_kept(&self) -> bool {
        self.kept
    }
}

/// Spread as a keyed hash would.
fn entry(number: u64, kept: bool, rank: u64) -> Entry {
    let key = u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let key = key ^ (key >> 61);
    let key = key.wrapping_mul(0xd6e8_feb8_6659_fd93_2127_599b_f432_5c37);
    Entry {
        key: [(key >> 64) as u64, (key ^ (key >> 64)) as u64],
        used: true,
        kept,
        rank,
    }
}

impl Table<Entry> {
    /// Puts one in if it may.
    fn insert(&mut self, entry: Entry, bytes_max: usize) -> Result<(), Entry> {
        if !self.make_space(entry.key(), bytes_max) {
            return Err(entry);
        }
        self.put(entry);
        Ok(())
    }
}

fn table(count: u64) -> Table<Entry> {
    let mut table = Table::new();
    for number in 0..count {
        table
            .insert(entry(number, false, number), usize::MAX)
            .unwrap();
    }
    table
}

/// What the table says of itself, counted again.
fn hold(table: &Table<Entry>, expected: &HashMap<u128, Entry>) {
    let entries: Vec<_> = table.segments.iter().flat_map(Segment::entries).collect();
    assert_eq!(entries.len(), expected.len());
    assert_eq!(table.len(), expected.len());
    let may_go = expected.values().filter(|entry| !entry.kept).count();
    assert_eq!(table.may_go(), may_go);
    for entry in entries {
        assert_eq!(expected.get(&entry.key().0), Some(entry));
        let place = table.find(entry.key()).expect("is found");
        assert_eq!(table.get(place), Some(entry));
    }
    let in_segments: usize = table.segments.iter().map(Segment::bytes).sum();
    assert_eq!(table.in_segments, in_segments);
    for segment in &table.segments {
        let may_go = segment.entries().filter(|entry| !entry.kept).count();
        assert_eq!(
            (segment.len(), segment.may_go()),
            (segment.entries().count(), may_go)
        );
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert { number: u64, kept: bool, rank: u64 },
    Cram { number: u64 },
    Replace { number: u64, kept: bool },
    Remove { number: u64 },
    Sweep { looks: usize, divisor: u64 },
    Forget { number: u64, most: usize },
    DropFresh { number: u64, until: u64 },
    Tighten { number: u64 },
    GiveBackSpare,
    Many { from: u64, count: u64 },
    Few { from: u64, count: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let number = 0..400_u64;
    prop_oneof![
        8 => (number.clone(), any::<bool>(), 0..50_u64)
            .prop_map(|(number, kept, rank)| Step::Insert { number, kept, rank }),
        2 => number.clone().prop_map(|number| Step::Cram { number }),
        4 => (number.clone(), any::<bool>())
            .prop_map(|(number, kept)| Step::Replace { number, kept }),
        4 => number.clone().prop_map(|number| Step::Remove { number }),
        2 => (0..300_usize, 1..9_u64).prop_map(|(looks, divisor)| Step::Sweep { looks, divisor }),
        2 => (number.clone(), 0..60_usize).prop_map(|(number, most)| Step::Forget { number, most }),
        1 => (number.clone(), 0..50_u64).prop_map(|(number, until)| Step::DropFresh { number, until }),
        1 => number.prop_map(|number| Step::Tighten { number }),
        1 => Just(Step::GiveBackSpare),
        1 => (0..4_000_u64, 0..3_000_u64).prop_map(|(from, count)| Step::Many { from, count }),
        1 => (0..4_000_u64, 0..5_000_u64).prop_map(|(from, count)| Step::Few { from, count }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn it_holds_the_same_as_a_std_map(
        steps in prop::collection::vec(step(), 1..60),
        bytes_max in prop_oneof![Just(usize::MAX), 300..200_000_usize],
    ) {
        let mut table = Table::new();
        let mut map: HashMap<u128, Entry> = HashMap::new();
        let insert = |table: &mut Table<Entry>, map: &mut HashMap<u128, Entry>, entry: Entry| {
            if !map.contains_key(&entry.key().0) && table.insert(entry, bytes_max).is_ok() {
                map.insert(entry.key().0, entry);
            }
        };
        for step in steps {
            match step {
                Step::Insert { number, kept, rank } => insert(&mut table, &mut map, entry(number, kept, rank)),
                Step::Cram { number } => {
                    let entry = entry(number, true, 0);
                    if !map.contains_key(&entry.key().0) && table.has_slot(entry.key()) {
                        table.put(entry);
                        map.insert(entry.key().0, entry);
                    }
                }
                Step::Replace { number, kept } => {
                    let with = entry(number, kept, 7);
                    if let Some(place) = table.find(with.key()) {
                        table.replace(place, with);
                        map.insert(with.key().0, with);
                    }
                }
                Step::Remove { number } => {
                    let key = entry(number, false, 0).key();
                    let removed = table.find(key).map(|place| table.remove(place));
                    prop_assert_eq!(removed, map.remove(&key.0));
                }
                Step::Sweep { looks, divisor } => {
                    let before = table.len();
                    let gone = table.sweep(looks, |entry| {
                        let goes = entry.rank % divisor == 0;
                        if goes {
                            assert_eq!(map.remove(&entry.key().0), Some(*entry));
                        }
                        goes
                    });
                    prop_assert_eq!(table.len() + gone, before);
                }
                Step::Forget { number, most } => {
                    let segment = table.segment_of(entry(number, false, 0).key());
                    let forgotten = forget(&mut table, segment, most, &mut map);
                    let there = table.segments.get(segment).map_or(0, Segment::may_go);
                    prop_assert!(forgotten == most || there == 0);
                }
                Step::DropFresh { number, until } => {
                    let segment = table.segment_of(entry(number, false, 0).key());
                    let mut dropped = 0;
                    let count = table.drop_fresh(segment, until, |entry| entry.rank, |gone| {
                        assert!(gone.rank <= until);
                        assert_eq!(map.remove(&gone.key().0), Some(gone));
                        dropped += 1;
                    });
                    prop_assert_eq!(count, dropped);
                }
                Step::Tighten { number } => {
                    let segment = table.segment_of(entry(number, false, 0).key());
                    table.tighten(segment);
                }
                Step::GiveBackSpare => table.give_back_spare(),
                Step::Many { from, count } => {
                    for number in from..from + count {
                        insert(&mut table, &mut map, entry(number, number % 5 == 0, number));
                    }
                }
                Step::Few { from, count } => {
                    for number in from..from + count {
                        let key = entry(number, false, 0).key();
                        let removed = table.find(key).map(|place| table.remove(place));
                        prop_assert_eq!(removed, map.remove(&key.0));
                    }
                }
            }
            hold(&table, &map);
            prop_assert!(table.bytes() <= bytes_max.saturating_add(20_000));
        }
    }
}

/// Forgets, and holds what went against what stayed.
fn forget(
    table: &mut Table<Entry>,
    segment: usize,
    most: usize,
    map: &mut HashMap<u128, Entry>,
) -> usize {
    let mut highest = 0;
    let forgotten = table.forget(
        segment,
        most,
        |entry| entry.rank,
        |gone| {
            assert!(!gone.kept, "what is kept is not forgotten");
            highest = highest.max(gone.rank);
            assert_eq!(map.remove(&gone.key().0), Some(gone));
        },
    );
    if forgotten > 0
        && let Some(present) = table.segments.get(segment)
    {
        let mut stay = present.entries().filter(|entry| !entry.kept);
        assert!(
            stay.all(|entry| entry.rank >= highest),
            "the lowest go first"
        );
    }
    forgotten
}

#[test]
fn no_insertion_and_no_removal_moves_more_than_two_segments() {
    let mut table = Table::new();
    let mut most = 0;
    let mut step = |table: &mut Table<Entry>, act: &mut dyn FnMut(&mut Table<Entry>)| {
        let before = table.moved;
        act(table);
        most = most.max(table.moved - before);
    };
    for number in 0..400_000 {
        step(&mut table, &mut |table| {
            table.insert(entry(number, false, 0), usize::MAX).unwrap();
        });
    }
    let largest = table.segments.iter().map(Segment::len).max().unwrap();
    assert!(largest < 3 * MEAN_MAX, "{largest}");
    for number in 0..400_000 {
        step(&mut table, &mut |table| {
            let place = table.find(entry(number, false, 0).key()).unwrap();
            table.remove(place);
        });
    }
    assert!(
        most <= 5 * MEAN_MAX as u64,
        "{most} entries move in one step"
    );
    assert_eq!((table.len(), table.segments.len()), (0, 1));
    assert!(
        table.bytes() < 100_000,
        "{} bytes for nothing",
        table.bytes()
    );
}

#[test]
fn at_any_size_an_entry_costs_little_more_than_itself() {
    let mut table = Table::new();
    let mut dearest = 0.0_f64;
    for number in 0..1_000_000_u64 {
        table.insert(entry(number, false, 0), usize::MAX).unwrap();
        if number > 50_000 && number % 997 == 0 {
            let mean = table.bytes() as f64 / table.len() as f64;
            dearest = dearest.max(mean / size_of::<Entry>() as f64);
        }
    }
    assert!(dearest < 1.27, "{dearest:.3} times itself");
}

#[test]
fn a_bound_on_bytes_is_kept_to_while_it_fills_and_while_it_churns() {
    for bytes_max in [10_000, 64 << 10, 1 << 20] {
        let mut table: Table<Entry> = Table::new();
        let mut refused = 0;
        for number in 0..60_000 {
            if let Err(entry) = table.insert(entry(number, number % 9 == 0, number), bytes_max) {
                refused += 1;
                let segment = table.segment_of(entry.key());
                let most = table.segments.get(segment).map_or(0, Segment::len) / 16 + 1;
                table.forget(segment, most, |entry| entry.rank, drop);
            }
            // Only the buffer of ranks is not checked against the bound beforehand.
            let ranks = allocated::<u64>(table.ranks.capacity());
            assert!(
                table.bytes() <= bytes_max + ranks,
                "{} of {bytes_max}",
                table.bytes()
            );
        }
        let used = table.len() * size_of::<Entry>();
        assert!(refused > 0 && used > bytes_max / 3, "{used} of {bytes_max}");
    }
}

#[test]
fn a_sweep_sees_all_though_the_table_changes_below_it() {
    let mut table = table(30_000);
    let mut seen = HashSet::new();
    let mut number = 30_000;
    for lap in 0..2 {
        for _ in 0..30_000 {
            table.sweep(4, |entry| {
                seen.insert(entry.key().0);
                false
            });
            // It grows in the first lap and shrinks in the second.
            if lap == 0 {
                table.insert(entry(number, false, 0), usize::MAX).unwrap();
                number += 1;
            } else if number > 30_000 {
                number -= 1;
                let place = table.find(entry(number, false, 0).key()).unwrap();
                table.remove(place);
            }
        }
    }
    for number in 0..30_000 {
        assert!(seen.contains(&entry(number, false, 0).key().0), "{number}");
    }
}

#[test]
fn the_eviction_search_finds_every_evictable_bucket() {
    let mut table = Table::new();
    for number in 0..20_000 {
        table
            .insert(entry(number, number != 777, 0), usize::MAX)
            .unwrap();
    }
    let segment = table.segment_of(entry(777, false, 0).key());
    for _ in 0..3 {
        assert_eq!(table.next_that_may_give(), Some(segment));
    }
    assert_eq!(table.forget(segment, 9, |entry| entry.rank, drop), 1);
    assert_eq!(table.next_that_may_give(), None);
}

proptest! {
    /// Whatever is inserted and removed between the steps of a scan, it visits each entry at most
    /// once, and every entry that is there from the first step to the last.
    #[test]
    fn a_scan_visits_every_entry_once_while_the_table_changes(
        count in 0..6_000_u64,
        changes in prop::collection::vec((any::<bool>(), 0..1_500_u64), 0..40),
    ) {
        let mut table = table(count);
        let mut present: HashSet<u64> = (0..count).collect();
        let mut next = count;
        let mut changes = changes.into_iter();
        let (mut cursor, mut visited) = (0, HashMap::new());
        while cursor < SCAN_END {
            cursor = table.scan(cursor, |entry| *visited.entry(entry.key()).or_insert(0) += 1);
            let Some((grows, by)) = changes.next() else {
                continue;
            };
            for _ in 0..by {
                if grows {
                    table.insert(entry(next, false, 0), usize::MAX).unwrap();
                    next += 1;
                } else if let Some(gone) = present.iter().next().copied() {
                    present.remove(&gone);
                    let place = table.find(entry(gone, false, 0).key()).unwrap();
                    table.remove(place);
                }
            }
        }
        prop_assert!(visited.values().all(|times| *times == 1));
        for stays in present {
            prop_assert!(visited.contains_key(&entry(stays, false, 0).key()), "{stays}");
        }
    }
}
