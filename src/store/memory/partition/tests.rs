//! What a partition keeps, frees and forgets, and what it takes of the heap meanwhile.
//!
//! What it deliberately does not do: repeat the algorithms' arithmetic (`tests/laws`), or the
//! table's own promises (`table/tests`).

use std::collections::HashMap;
use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use tollgate_limiter::algorithm::{Concurrency, FixedWindow, SlidingLog, TokenBucket};
use tollgate_limiter::{ALGORITHMS, Algorithm, Holder, Limit, Operation, Unit};

const BEGIN: Timestamp = Timestamp::from_seconds(600);

/// Room for three buckets and for none more.
const THREE: usize = 300;

fn per_minute(requests: u32) -> Limit {
    Limit::per(requests, Unit::Minute, NonZeroU32::MIN)
}

/// Spread as a keyed hash would.
fn key(number: u64) -> Key {
    let key = u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let key = (key ^ (key >> 61)).wrapping_mul(0xd6e8_feb8_6659_fd93_2127_599b_f432_5c37);
    Key(key ^ (key >> 64))
}

fn check(number: u64, requests: u32) -> Check {
    Check {
        key: key(number),
        limit: per_minute(requests),
        algorithm: &FixedWindow,
        operation: Hits::Take(1).into(),
        fingerprint: 77,
        shared_bucket: false,
        may_fall_back: false,
        bucket_name: None,
    }
}

fn partition(bytes_max: usize) -> Partition {
    Partition::new(bytes_max, WhenFull::Share)
}

/// Applies it, whether or not it is asked of another bucket.
fn ask(partition: &mut Partition, check: &Check, now: Timestamp) -> Outcome {
    partition.apply(&mut check.clone(), now).unwrap()
}

fn forgotten(partition: &mut Partition) -> u64 {
    partition.take_counts().forgotten
}

// --- what is forgotten ---

#[test]
fn at_the_bound_the_one_nearest_to_its_reset_is_forgotten_and_counted() {
    let mut partition = partition(THREE);
    let hourly = Check {
        limit: Limit::per(10, Unit::Hour, NonZeroU32::MIN),
        ..check(1, 10)
    };
    ask(&mut partition, &hourly, BEGIN);
    ask(&mut partition, &check(2, 10), BEGIN);
    ask(&mut partition, &check(3, 1), BEGIN);
    assert_eq!((partition.len(), forgotten(&mut partition)), (3, 0));
    ask(&mut partition, &check(4, 10), BEGIN);
    assert_eq!((partition.len(), forgotten(&mut partition)), (3, 1));
    // Of the two that were not exhausted it was the one whose window ends sooner.
    let left = |partition: &mut Partition, check: Check| {
        let look = Check {
            operation: Hits::PEEK.into(),
            ..check
        };
        ask(partition, &look, BEGIN).remaining
    };
    assert_eq!(left(&mut partition, hourly), 9);
    assert_eq!(left(&mut partition, check(2, 10)), 10);
    assert_eq!(left(&mut partition, check(3, 1)), 0);
    assert_eq!(left(&mut partition, check(4, 10)), 9);
}

#[test]
fn what_is_as_good_as_new_goes_first_exhausted_or_not_and_is_not_counted_as_forgotten() {
    let mut partition = partition(THREE);
    ask(&mut partition, &check(1, 1), BEGIN);
    let hourly = |number| Check {
        limit: Limit::per(10, Unit::Hour, NonZeroU32::MIN),
        ..check(number, 10)
    };
    ask(&mut partition, &hourly(2), BEGIN);
    ask(&mut partition, &hourly(3), BEGIN);
    // The first window has turned; a life is longer, but nobody is forgotten for that.
    let turned = BEGIN.plus_us(60_300_000);
    ask(&mut partition, &hourly(4), turned);
    let counts = partition.take_counts();
    assert_eq!((partition.len(), counts.freed, counts.forgotten), (3, 1, 0));
    for number in [2, 3, 4] {
        let look = Check {
            operation: Hits::PEEK.into(),
            ..hourly(number)
        };
        assert_eq!(ask(&mut partition, &look, turned).remaining, 9);
    }
}

#[test]
fn a_key_that_never_passes_makes_nobody_go() {
    let mut partition = partition(THREE);
    for number in 0..3 {
        ask(&mut partition, &check(number, 10), BEGIN);
    }
    for algorithm in ALGORITHMS {
        for (requests, hits) in [(5, 6), (0, 1)] {
            let asked = Check {
                algorithm: *algorithm,
                operation: Hits::Take(hits).into(),
                ..check(9, requests)
            };
            let outcome = ask(&mut partition, &asked, BEGIN);
            assert!(
                !outcome.allowed && outcome.retry_us.is_none(),
                "{algorithm:?}"
            );
        }
    }
    assert_eq!((partition.len(), forgotten(&mut partition)), (3, 0));
}

#[test]
fn a_refusal_that_leaves_nothing_takes_no_bucket() {
    for algorithm in ALGORITHMS {
        let mut partition = partition(1 << 20);
        let asked = Check {
            algorithm: *algorithm,
            operation: Hits::Take(2).into(),
            ..check(1, 1)
        };
        assert!(!ask(&mut partition, &asked, BEGIN).allowed);
        let counts = algorithm.default_count_refused() != CountRefused::None;
        assert_eq!(partition.len(), usize::from(counts), "{algorithm:?}");
    }
}

// --- when nothing may be forgotten ---

/// A partition of three exhausted buckets, with capacity for no more.
fn exhausted(when_full: WhenFull) -> Partition {
    let mut partition = Partition::new(THREE, when_full);
    for number in 0..3 {
        assert!(ask(&mut partition, &check(number, 1), BEGIN).allowed);
    }
    partition
}

#[test]
fn without_anything_to_forget_new_keys_of_a_rule_share_a_bucket() {
    let mut partition = exhausted(WhenFull::Share);
    let mut ask = |check: Check| {
        let mut check = check;
        let outcome = partition.apply(&mut check, BEGIN).unwrap();
        (outcome.allowed, outcome.remaining, check.shared_bucket)
    };
    assert_eq!(ask(check(10, 2)), (true, 1, true));
    assert_eq!(ask(check(11, 2)), (true, 0, true));
    assert_eq!(ask(check(12, 2)), (false, 0, true));
    // Who has a bucket of its own still has it.
    for number in 0..3 {
        assert_eq!(ask(check(number, 1)), (false, 0, false));
    }
    let counts = partition.take_counts();
    assert_eq!((counts.shared, counts.forgotten), (3, 0));
}

#[test]
fn what_was_taken_from_a_shared_bucket_goes_back_there_and_nowhere_else() {
    let mut partition = exhausted(WhenFull::Share);
    let mut taken = check(10, 2);
    let outcome = partition.apply(&mut taken, BEGIN).unwrap();
    assert_eq!((taken.shared_bucket, outcome.remaining), (true, 1));
    let hits = Hits::Undo {
        hits: 1,
        taken_at: outcome.bucket_time,
    };
    // One that does not say so has no bucket.
    ask(
        &mut partition,
        &Check {
            operation: hits.into(),
            ..check(10, 2)
        },
        BEGIN,
    );
    let look = Check {
        operation: Hits::PEEK.into(),
        ..taken.clone()
    };
    assert_eq!(ask(&mut partition, &look, BEGIN).remaining, 1);
    ask(
        &mut partition,
        &Check {
            operation: hits.into(),
            ..taken
        },
        BEGIN,
    );
    assert_eq!(ask(&mut partition, &look, BEGIN).remaining, 2);
}

#[test]
fn or_they_pass_uncounted_or_are_refused() {
    for (when_full, allowed) in [(WhenFull::Allow, true), (WhenFull::Deny, false)] {
        let mut partition = exhausted(when_full);
        for number in 10..20 {
            let mut asked = check(number, 1);
            let outcome = partition.apply(&mut asked, BEGIN).unwrap();
            assert_eq!(outcome.allowed, allowed);
            // Nothing was taken, so nothing can go back.
            assert!(!allowed || asked.operation.hits.requested() == 0);
        }
        for number in 0..3 {
            assert!(!ask(&mut partition, &check(number, 1), BEGIN).allowed);
        }
        let counts = partition.take_counts();
        let counted = if allowed {
            counts.allowed
        } else {
            counts.denied
        };
        assert_eq!((counted, counts.forgotten, partition.len()), (10, 0, 3));
    }
}

#[test]
fn when_not_even_a_shared_bucket_fits_it_is_an_error_and_nothing_is_taken() {
    let mut partition = exhausted(WhenFull::Share);
    // Four slots: three are taken, and one is kept for the first rule that needs it.
    ask(&mut partition, &check(10, 1), BEGIN);
    let mut other_rule = Check {
        fingerprint: 78,
        ..check(11, 1)
    };
    let full = Err(StoreError::Full { bytes_max: THREE });
    assert_eq!(partition.apply(&mut other_rule, BEGIN), full);
    assert!(!ask(&mut partition, &check(12, 1), BEGIN).allowed);
    assert_eq!(partition.len(), 4);
}

// --- the sweep ---

#[test]
fn a_sweep_frees_idle_buckets_and_looks_at_no_more_than_it_may() {
    let mut partition = partition(1 << 20);
    for number in 0..100 {
        ask(&mut partition, &check(number, 1), BEGIN);
    }
    partition.sweep(BEGIN.plus_us(59_999_999), 1_000);
    assert_eq!(partition.take_counts().freed, 0);
    // A life is rounded up, by one part in 512 at most.
    let after = BEGIN.plus_us(60_120_000);
    partition.sweep(after, 30);
    let freed = partition.take_counts().freed;
    assert!((10..=30).contains(&freed), "{freed}");
    partition.sweep(after, 1_000);
    assert_eq!(partition.take_counts().freed, 100 - freed);
    assert_eq!(partition.len(), 0);
}

#[test]
fn a_bucket_seen_in_a_future_that_did_not_come_is_freed_in_time() {
    for algorithm in ALGORITHMS {
        let mut partition = partition(1 << 20);
        let asked = Check {
            algorithm: *algorithm,
            ..check(1, 10)
        };
        ask(&mut partition, &asked, Timestamp::from_seconds(1_000_000));
        partition.sweep(BEGIN, 10);
        assert_eq!(partition.len(), 1);
        partition.sweep(BEGIN.plus_us(121_000_000), 10);
        assert_eq!(
            (partition.len(), partition.marks()),
            (0, 0),
            "{algorithm:?}"
        );
    }
}

#[test]
fn a_flood_that_has_passed_gives_its_memory_back() {
    let mut partition = partition(1 << 30);
    for number in 0..50_000 {
        ask(&mut partition, &check(number, 1), BEGIN);
    }
    let before = partition.bytes();
    for _ in 0..200 {
        partition.sweep(BEGIN.plus_us(60_120_000), 1_000);
    }
    assert_eq!(partition.len(), 0);
    assert!(
        partition.bytes() < before / 20,
        "{} of {before}",
        partition.bytes()
    );
}

// --- marks ---

fn logged(number: u64, hits: u64) -> Check {
    Check {
        algorithm: &SlidingLog,
        operation: Hits::Take(hits).into(),
        ..check(number, 100)
    }
}

/// A partition that lets one log grow until it is full: how many hits that were, all of them
/// exhausting.
fn full_of_one_log(bytes_max: usize) -> (Partition, u64) {
    let mut partition = Partition::new(bytes_max, WhenFull::Deny);
    for us in 0..100 {
        let outcome = ask(&mut partition, &logged(1, 1), BEGIN.plus_us(us));
        assert!(partition.bytes() <= bytes_max);
        if !outcome.allowed {
            assert_eq!(partition.take_counts().denied, 1);
            return (partition, us);
        }
    }
    panic!("a log of 100 fits in {bytes_max} bytes")
}

#[test]
fn a_log_grows_no_further_than_the_bound_allows_while_it_grows() {
    for (bytes_max, hits) in [(1_000, 8), (1_800, 16), (3_500, 64)] {
        let (partition, came) = full_of_one_log(bytes_max);
        assert_eq!((came, partition.marks() as u64), (hits, hits));
    }
}

#[test]
fn what_is_not_exhausted_goes_for_a_log_to_grow() {
    let mut partition = Partition::new(20_000, WhenFull::Deny);
    let mut forgotten = 0;
    for number in 10..600 {
        ask(&mut partition, &check(number, 10), BEGIN);
    }
    for us in 0..100 {
        let outcome = ask(&mut partition, &logged(1, 1), BEGIN.plus_us(us));
        forgotten += partition.take_counts().forgotten;
        assert!(outcome.allowed, "{us}");
        assert!(partition.bytes() <= 20_000);
    }
    assert!(forgotten > 300, "{forgotten}");
    assert!(!ask(&mut partition, &logged(1, 1), BEGIN.plus_us(100)).allowed);
}

#[test]
fn marks_that_have_expired_free_space_when_there_is_no_other() {
    let (mut partition, came) = full_of_one_log(1_000);
    let end = BEGIN.plus_us(60_000_000);
    assert!(!ask(&mut partition, &logged(1, 1), end.minus_us(1)).allowed);
    assert_eq!(partition.take_counts().denied, 1);
    assert!(ask(&mut partition, &logged(1, 1), end).allowed);
    assert!(!ask(&mut partition, &logged(1, 1), end).allowed || came > 1);
}

#[test]
fn a_known_refusal_needs_no_space_and_leaves_no_mark() {
    let (mut partition, came) = full_of_one_log(1_000);
    let counting = Check {
        limit: per_minute(100).with_count_refused(CountRefused::All),
        ..logged(1, 100)
    };
    let refused = ask(&mut partition, &counting, BEGIN.plus_us(came));
    assert_eq!((refused.allowed, refused.remaining), (false, 100 - came));
    assert_eq!(partition.take_counts().denied, 0);
    // When the last mark has run out, and not later: no debt.
    assert_eq!(refused.retry_us, Some(60_000_000 - 1));
    assert_eq!(partition.marks() as u64, came);
}

#[test]
fn slots_are_held_beside_and_go_with_their_bucket() {
    let mut partition = partition(1 << 20);
    for number in 0..1_000 {
        let asked = Check {
            algorithm: &Concurrency,
            operation: Operation {
                hits: Hits::Take(1),
                holder: Some(Holder::from_hash(number)),
            },
            ..check(number, 2)
        };
        assert!(ask(&mut partition, &asked, BEGIN).allowed);
    }
    assert_eq!(partition.marks(), 4_000);
    partition.sweep(BEGIN.plus_us(60_120_000), 10_000);
    assert_eq!(
        (
            partition.len(),
            partition.marks(),
            partition.tables.marks.bytes() > 20_000
        ),
        (0, 0, false)
    );
}

// --- all of it ---

#[derive(Clone, Copy, Debug)]
struct Ask1 {
    number: u64,
    algorithm: usize,
    requests: u32,
    hits: u64,
    passes_us: u64,
}

fn asks() -> impl Strategy<Value = Vec<Ask1>> {
    let one = (
        prop_oneof![3 => 0..40_u64, 5 => 0..100_000_u64],
        prop_oneof![4 => 0..2_usize, 1 => 0..ALGORITHMS.len()],
        prop_oneof![Just(1_u32), Just(2), Just(5)],
        prop_oneof![6 => Just(1_u64), 1 => 0..4_u64],
        prop_oneof![8 => 0..1_000_u64, 1 => 0..20_000_000_u64],
    );
    let one = one.prop_map(|(number, algorithm, requests, hits, passes_us)| Ask1 {
        number,
        algorithm,
        requests,
        hits,
        passes_us,
    });
    prop::collection::vec(one, 1..1_500)
}

/// A bucket as it is if nobody has forgotten it.
struct Kept {
    state: State,
    exhausted_until: Option<Timestamp>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The promise: an exhausted bucket is never forgotten before its reset, whoever comes; what
    /// was not exhausted is as it was or begins anew; and nothing grows beyond its bound.
    #[test]
    fn exhausted_buckets_stay_others_may_go_and_the_bound_holds(
        asks in asks(),
        bytes_max in prop_oneof![300..6_000_usize, 6_000..60_000_usize],
    ) {
        let mut partition = Partition::new(bytes_max, WhenFull::Deny);
        let mut model: HashMap<u64, Kept> = HashMap::new();
        let mut now = BEGIN;
        for one in asks {
            now = now.plus_us(one.passes_us);
            // The algorithm is a part of what a bucket is.
            let number = one.number * 16 + one.algorithm as u64;
            // As is its size here: a reload is none of this test's business.
            let requests = one.requests.max(1 + (number % 3) as u32);
            let algorithm: &dyn Algorithm = ALGORITHMS[one.algorithm];
            let check = Check {
                algorithm: ALGORITHMS[one.algorithm],
                // What never passes is remembered only where there is space.
                operation: Hits::Take(one.hits.min(requests.into())).into(),
                ..check(number, requests)
            };
            let fresh = || Kept { state: State::default(), exhausted_until: None };
            let outcome = ask(&mut partition, &check, now);
            partition.sweep(now, 4);
            prop_assert!(partition.bytes() <= bytes_max + bytes_max / 8);
            let counts = partition.take_counts();
            if counts.denied > 0 {
                // Never a key with a bucket of its own that needs no more space.
                let kept = model.get(&number).and_then(|kept| kept.exhausted_until);
                prop_assert!(kept.is_none_or(|until| until <= now) || algorithm.has_marks());
                continue;
            }
            let mut kept = model.remove(&number).unwrap_or_else(fresh);
            let exhausted = kept.exhausted_until.is_some_and(|until| now < until);
            let mut anew = State::default();
            let as_kept = kept.state.apply(algorithm, &check.limit, check.operation, now);
            let as_new = anew.apply(algorithm, &check.limit, check.operation, now);
            if outcome != as_kept {
                prop_assert!(!exhausted, "{:?} {:?} and not {:?}", one, outcome, as_kept);
                prop_assert_eq!(outcome, as_new);
                kept.state = anew;
            }
            let is_exhausted = !outcome.allowed || outcome.remaining == 0;
            kept.exhausted_until = is_exhausted.then(|| now.plus_us(outcome.reset_us));
            model.insert(number, kept);
        }
    }
}

#[test]
fn keys_that_are_known_cost_no_allocation() {
    for algorithm in [&FixedWindow as &'static dyn Algorithm, &TokenBucket] {
        let mut partition = partition(1 << 24);
        let asked = |number| Check {
            algorithm,
            ..check(number, 1_000)
        };
        for number in 0..20_000 {
            ask(&mut partition, &asked(number), BEGIN);
        }
        let allocated = allocation_counter::measure(|| {
            for number in 0..20_000 {
                ask(&mut partition, &asked(number), BEGIN.plus_us(number));
            }
        });
        assert_eq!(allocated.count_total, 0, "{algorithm:?}");
    }
}

#[test]
fn once_it_is_full_new_keys_cost_no_allocation_either() {
    let mut partition = partition(1 << 20);
    for number in 0..60_000 {
        ask(&mut partition, &check(number, 10), BEGIN);
    }
    assert!(forgotten(&mut partition) > 20_000);
    let allocated = allocation_counter::measure(|| {
        for number in 60_000..80_000 {
            ask(&mut partition, &check(number, 10), BEGIN);
        }
    });
    assert!(allocated.count_total < 100, "{allocated:?}");
}
