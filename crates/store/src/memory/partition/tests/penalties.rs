//! Penalties in a partition: kept beside the bucket, bounded, and gone after a reset.

use super::*;
use std::num::{NonZeroU8, NonZeroU16};

use tollgate_limiter::Penalty;

/// The second refusal blocks for a minute, and later ones for twice as long.
fn penalized(number: u64) -> Check {
    let penalty = Penalty {
        after: NonZeroU16::new(2).unwrap(),
        factor: NonZeroU8::new(2).unwrap(),
        within_s: 3_600,
        block_s: 60,
        max_s: 600,
    };
    let check = check(number, 1);
    Check {
        limit: check.limit.with_penalty(penalty),
        ..check
    }
}

fn seconds(seconds: u64) -> Timestamp {
    BEGIN.plus_us(seconds * 1_000_000)
}

/// Takes until the key is blocked. Returns how long it is.
fn block(partition: &mut Partition, check: &Check, now: Timestamp) -> u64 {
    for _ in 0..4 {
        let outcome = ask(partition, check, now);
        if outcome.blocked {
            return outcome.retry_us.unwrap() / 1_000_000;
        }
    }
    panic!("it is not blocked");
}

#[test]
fn a_penalty_outlives_the_bucket_and_is_forgotten_in_time() {
    let mut partition = partition(1 << 20);
    let check = penalized(1);
    assert_eq!(block(&mut partition, &check, BEGIN), 60);
    assert_eq!(partition.len(), 2);
    // The bucket has reset and is swept; what the penalty remembers is not.
    partition.sweep(seconds(130), 10_000);
    assert_eq!(partition.len(), 1);
    assert_eq!(block(&mut partition, &check, seconds(130)), 120);
    partition.sweep(seconds(130 + 720 + 3_620), 10_000);
    assert_eq!(partition.len(), 0);
    assert_eq!(block(&mut partition, &check, seconds(5_000)), 60);
}

#[test]
fn a_clock_that_jumped_ahead_blocks_nobody_longer() {
    let mut partition = partition(1 << 20);
    let check = penalized(1);
    let day = 86_400;
    assert_eq!(block(&mut partition, &check, seconds(day)), 60);
    partition.sweep(BEGIN, 10_000);
    let blocked = ask(&mut partition, &check, seconds(1));
    assert!(blocked.blocked && blocked.retry_us.unwrap() <= 60_000_000);
    assert!(ask(&mut partition, &check, seconds(61)).allowed);
}

#[test]
fn a_reset_ends_a_penalty_and_says_so() {
    let mut partition = partition(1 << 20);
    let check = penalized(1);
    block(&mut partition, &check, BEGIN);
    // The bucket itself is unused again.
    let outcome = partition.reset(&check, seconds(59), 0).unwrap();
    assert!(outcome.used_before > 0);
    assert_eq!(partition.len(), 0);
    assert!(ask(&mut partition, &check, seconds(59)).allowed);
}

#[test]
fn no_flood_ends_a_block_and_keys_that_share_a_bucket_have_no_penalty() {
    let mut partition = partition(64 << 10);
    let check = penalized(1);
    block(&mut partition, &check, BEGIN);
    // Each key of the flood is exhausted, too.
    let mut shared = 0;
    for number in 2..20_000 {
        let mut check = penalized(number);
        for _ in 0..3 {
            let outcome = partition.apply(&mut check, seconds(1)).unwrap();
            assert!(!check.shared_bucket || !outcome.blocked);
        }
        shared += usize::from(check.shared_bucket);
    }
    assert!(shared > 1_000);
    assert!(ask(&mut partition, &check, seconds(59)).blocked);
}

#[test]
fn look_ups_charges_and_refunds_reach_the_bucket_of_a_blocked_key() {
    let mut partition = partition(1 << 20);
    let check = penalized(1);
    block(&mut partition, &check, BEGIN);
    let asked = |hits: Hits| Check {
        operation: hits.into(),
        ..check.clone()
    };
    assert!(ask(&mut partition, &asked(Hits::PEEK), BEGIN).blocked);
    let charged = ask(&mut partition, &asked(Hits::Charge(3)), BEGIN);
    assert!(charged.allowed && !charged.blocked);
    // The bucket resets before the block ends: within the second minute nothing counts.
    assert!(ask(&mut partition, &check, seconds(59)).blocked);
    assert!(ask(&mut partition, &check, seconds(60)).allowed);
}
