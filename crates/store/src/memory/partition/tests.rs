//! Tests of a partition: which buckets it keeps, frees and evicts, and how much heap it uses.
//!
//! What it deliberately does not do: test the algorithms (`crates/limiter/tests/laws`) or
//! the table (`table/tests`).

mod penalties;
mod record_bytes;
mod reservations;

use std::collections::HashMap;
use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use tollgate_limiter::algorithm::{Concurrency, FixedWindow, SlidingLog, TokenBucket};
use tollgate_limiter::{ALGORITHMS, Algorithm, Holder, Limit, Operation, Unit};

const BEGIN: Timestamp = Timestamp::from_seconds(600);

/// Memory for exactly three buckets.
const THREE: usize = 300;

fn per_minute(requests: u64) -> Limit {
    Limit::per(requests, Unit::Minute, NonZeroU32::MIN)
}

/// A key, distributed like a keyed hash.
fn key(number: u64) -> Key {
    let key = u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let key = (key ^ (key >> 61)).wrapping_mul(0xd6e8_feb8_6659_fd93_2127_599b_f432_5c37);
    Key(key ^ (key >> 64))
}

fn check(number: u64, requests: u64) -> Check {
    Check {
        key: key(number),
        limit: per_minute(requests),
        algorithm: &FixedWindow,
        operation: Hits::Take(1).into(),
        fingerprint: 77,
        shared_bucket: false,
        may_fall_back: false,
        is_exact: false,
        bucket_name: None,
    }
}

fn partition(bytes_max: usize) -> Partition {
    Partition::new(bytes_max, WhenFull::Share)
}

/// Applies a check, to its own bucket or to a shared one.
fn ask(partition: &mut Partition, check: &Check, now: Timestamp) -> Outcome {
    partition.apply(&mut check.clone(), now).unwrap()
}

fn evicted(partition: &mut Partition) -> u64 {
    partition.take_counts().forgotten
}

// --- eviction ---

#[test]
fn a_full_partition_evicts_and_counts_the_bucket_nearest_to_its_reset() {
    let mut partition = partition(THREE);
    let hourly = Check {
        limit: Limit::per(10, Unit::Hour, NonZeroU32::MIN),
        ..check(1, 10)
    };
    ask(&mut partition, &hourly, BEGIN);
    ask(&mut partition, &check(2, 10), BEGIN);
    ask(&mut partition, &check(3, 1), BEGIN);
    assert_eq!((partition.len(), evicted(&mut partition)), (3, 0));
    ask(&mut partition, &check(4, 10), BEGIN);
    assert_eq!((partition.len(), evicted(&mut partition)), (3, 1));
    // Of the two buckets that are not exhausted, the one whose window ends sooner.
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
fn idle_buckets_are_freed_first_and_not_counted_as_evicted() {
    let mut partition = partition(THREE);
    ask(&mut partition, &check(1, 1), BEGIN);
    let hourly = |number| Check {
        limit: Limit::per(10, Unit::Hour, NonZeroU32::MIN),
        ..check(number, 10)
    };
    ask(&mut partition, &hourly(2), BEGIN);
    ask(&mut partition, &hourly(3), BEGIN);
    // The first window has ended. Buckets live longer, but none is evicted for that.
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
fn a_key_that_never_passes_evicts_no_bucket() {
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
    assert_eq!((partition.len(), evicted(&mut partition)), (3, 0));
}

#[test]
fn a_refusal_without_state_needs_no_bucket() {
    for algorithm in ALGORITHMS {
        let mut partition = partition(1 << 20);
        let asked = Check {
            algorithm: *algorithm,
            operation: Hits::Take(2).into(),
            ..check(1, 1)
        };
        assert!(!ask(&mut partition, &asked, BEGIN).allowed);
        let counts = algorithm.facts().default_count_refused != CountRefused::None;
        assert_eq!(partition.len(), usize::from(counts), "{algorithm:?}");
    }
}

// --- when nothing can be evicted ---

/// A full partition of three exhausted buckets.
fn exhausted(when_full: WhenFull) -> Partition {
    let mut partition = Partition::new(THREE, when_full);
    for number in 0..3 {
        assert!(ask(&mut partition, &check(number, 1), BEGIN).allowed);
    }
    partition
}

#[test]
fn when_nothing_can_be_evicted_new_keys_of_a_rule_share_a_bucket() {
    let mut partition = exhausted(WhenFull::Share);
    let mut ask = |check: Check| {
        let mut check = check;
        let outcome = partition.apply(&mut check, BEGIN).unwrap();
        (outcome.allowed, outcome.remaining, check.shared_bucket)
    };
    assert_eq!(ask(check(10, 2)), (true, 1, true));
    assert_eq!(ask(check(11, 2)), (true, 0, true));
    assert_eq!(ask(check(12, 2)), (false, 0, true));
    // Existing buckets remain.
    for number in 0..3 {
        assert_eq!(ask(check(number, 1)), (false, 0, false));
    }
    let counts = partition.take_counts();
    assert_eq!((counts.shared, counts.forgotten), (3, 0));
}

#[test]
fn hits_of_a_shared_bucket_are_refunded_to_it_only() {
    let mut partition = exhausted(WhenFull::Share);
    let mut taken = check(10, 2);
    let outcome = partition.apply(&mut taken, BEGIN).unwrap();
    assert_eq!((taken.shared_bucket, outcome.remaining), (true, 1));
    let hits = Hits::Undo {
        hits: 1,
        taken_at: outcome.bucket_time,
    };
    // A refund that does not name the shared bucket finds none.
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
fn when_nothing_can_be_evicted_new_keys_pass_or_are_refused_as_set() {
    for (when_full, allowed) in [(WhenFull::Allow, true), (WhenFull::Deny, false)] {
        let mut partition = exhausted(when_full);
        for number in 10..20 {
            let mut asked = check(number, 1);
            let outcome = partition.apply(&mut asked, BEGIN).unwrap();
            assert_eq!(outcome.allowed, allowed);
            // Nothing was taken, so nothing can be refunded.
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
fn without_memory_for_a_shared_bucket_a_check_fails_and_takes_nothing() {
    let mut partition = exhausted(WhenFull::Share);
    // Four slots: three are used, and one is reserved for the first rule that needs it.
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
fn a_sweep_frees_idle_buckets_and_visits_a_bounded_number() {
    let mut partition = partition(1 << 20);
    for number in 0..100 {
        ask(&mut partition, &check(number, 1), BEGIN);
    }
    partition.sweep(BEGIN.plus_us(59_999_999), 1_000);
    assert_eq!(partition.take_counts().freed, 0);
    // Lifetimes are rounded up, by at most one part in 512.
    let after = BEGIN.plus_us(60_120_000);
    partition.sweep(after, 30);
    let freed = partition.take_counts().freed;
    assert!((10..=30).contains(&freed), "{freed}");
    partition.sweep(after, 1_000);
    assert_eq!(partition.take_counts().freed, 100 - freed);
    assert_eq!(partition.len(), 0);
}

#[test]
fn a_bucket_from_before_the_clock_went_back_is_freed_in_time() {
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
fn memory_is_returned_after_a_flood() {
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

/// A partition in which one log has grown until the memory is full, and the number of its hits,
/// all of them exhausting.
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
fn a_log_grows_within_the_limit_even_while_it_is_copied() {
    for (bytes_max, hits) in [(1_000, 8), (1_800, 16), (3_500, 64)] {
        let (partition, came) = full_of_one_log(bytes_max);
        assert_eq!((came, partition.marks() as u64), (hits, hits));
    }
}

#[test]
fn buckets_that_are_not_exhausted_are_evicted_for_a_growing_log() {
    let mut partition = Partition::new(20_000, WhenFull::Deny);
    let mut evicted_count = 0;
    for number in 10..600 {
        ask(&mut partition, &check(number, 10), BEGIN);
    }
    for us in 0..100 {
        let outcome = ask(&mut partition, &logged(1, 1), BEGIN.plus_us(us));
        evicted_count += partition.take_counts().forgotten;
        assert!(outcome.allowed, "{us}");
        assert!(partition.bytes() <= 20_000);
    }
    assert!(evicted_count > 300, "{evicted_count}");
    assert!(!ask(&mut partition, &logged(1, 1), BEGIN.plus_us(100)).allowed);
}

#[test]
fn expired_marks_are_dropped_when_memory_is_full() {
    let (mut partition, came) = full_of_one_log(1_000);
    let end = BEGIN.plus_us(60_000_000);
    assert!(!ask(&mut partition, &logged(1, 1), end.minus_us(1)).allowed);
    assert_eq!(partition.take_counts().denied, 1);
    assert!(ask(&mut partition, &logged(1, 1), end).allowed);
    assert!(!ask(&mut partition, &logged(1, 1), end).allowed || came > 1);
}

#[test]
fn a_refusal_of_a_known_key_needs_no_memory_and_leaves_no_mark() {
    let (mut partition, came) = full_of_one_log(1_000);
    let counting = Check {
        limit: per_minute(100).with_count_refused(CountRefused::All),
        ..logged(1, 100)
    };
    let refused = ask(&mut partition, &counting, BEGIN.plus_us(came));
    assert_eq!((refused.allowed, refused.remaining), (false, 100 - came));
    assert_eq!(partition.take_counts().denied, 0);
    // The reset is the expiry of the last mark: there is no debt.
    assert_eq!(refused.retry_us, Some(60_000_000 - 1));
    assert_eq!(partition.marks() as u64, came);
}

#[test]
fn slots_are_stored_and_removed_with_their_bucket() {
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

// --- random checks ---

#[derive(Clone, Copy, Debug)]
struct Ask1 {
    number: u64,
    algorithm: usize,
    requests: u64,
    hits: u64,
    passes_us: u64,
}

fn asks() -> impl Strategy<Value = Vec<Ask1>> {
    let one = (
        prop_oneof![3 => 0..40_u64, 5 => 0..100_000_u64],
        prop_oneof![4 => 0..2_usize, 1 => 0..ALGORITHMS.len()],
        prop_oneof![Just(1_u64), Just(2), Just(5)],
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

/// The state of a bucket if it is never evicted.
struct Kept {
    state: State,
    exhausted_until: Option<Timestamp>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever keys arrive, an exhausted bucket is never evicted before its reset, another bucket
    /// is kept or starts empty, and memory stays within its limit.
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
            // The algorithm is a part of the bucket's key.
            let number = one.number * 16 + one.algorithm as u64;
            // The limit is as well: reloads are not tested here.
            let requests = one.requests.max(1 + (number % 3));
            let algorithm: &dyn Algorithm = ALGORITHMS[one.algorithm];
            let check = Check {
                algorithm: ALGORITHMS[one.algorithm],
                // A check that never passes is stored only if there is memory.
                operation: Hits::Take(one.hits.min(requests)).into(),
                ..check(number, requests)
            };
            let fresh = || Kept { state: State::default(), exhausted_until: None };
            let outcome = ask(&mut partition, &check, now);
            partition.sweep(now, 4);
            prop_assert!(partition.bytes() <= bytes_max + bytes_max / 8);
            let counts = partition.take_counts();
            if counts.denied > 0 {
                // A known key that needs no more memory never fails.
                let kept = model.get(&number).and_then(|kept| kept.exhausted_until);
                prop_assert!(kept.is_none_or(|until| until <= now) || algorithm.facts().has_marks);
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
fn known_keys_need_no_allocation() {
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
fn new_keys_in_a_full_partition_need_no_allocation() {
    let mut partition = partition(1 << 20);
    for number in 0..60_000 {
        ask(&mut partition, &check(number, 10), BEGIN);
    }
    assert!(evicted(&mut partition) > 20_000);
    let allocated = allocation_counter::measure(|| {
        for number in 60_000..80_000 {
            ask(&mut partition, &check(number, 10), BEGIN);
        }
    });
    assert!(allocated.count_total < 100, "{allocated:?}");
}
