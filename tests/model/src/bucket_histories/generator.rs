//! The proptest strategies of histories, and their weights.
//!
//! Why the weights: small limits are soon used up, steps of a few microseconds and thousandths of a
//! window reach both sides of an edge, and every list has the extremes of its type.
//!
//! What it deliberately does not do: know any algorithm. A change here changes the meaning of the
//! seeds in `regressions.txt`: record them again.

use std::num::{NonZeroU16, NonZeroU32};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::Config;
use tollgate_limiter::algorithm::SEGMENTS_MAX;
use tollgate_limiter::{CountRefused, Timestamp, Unit};

use super::{CALENDARS, History, Pause, Size, Step, Wish};

/// The number of histories that a search tries: `PROPTEST_CASES`, or this many if it is not set.
pub fn cases_or(default: u32) -> u32 {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => Config::default().cases,
        None => default,
    }
}

/// Anything that can happen to a bucket.
pub fn histories() -> impl Strategy<Value = History> {
    let multiplier = prop_oneof![
        6 => Just(1),
        3 => 2..=60_u32,
        1 => any::<u32>(),
        1 => Just(u32::MAX),
    ];
    let start_us = prop_oneof![
        2 => 0..=3_000_000_u64,
        6 => 1_700_000_000_000_000..=1_900_000_000_000_000_u64,
        1 => (Timestamp::MAX_US - 100_000_000)..=Timestamp::MAX_US,
    ];
    let calendar = prop_oneof![2 => Just(None), 1 => (0..CALENDARS.len()).prop_map(Some)];
    (
        select(&Unit::ALL[..]),
        multiplier,
        calendar,
        sizes(),
        start_us,
        vec(steps(), 1..=40),
    )
        .prop_map(
            |(unit, multiplier, calendar, size, start_us, steps)| History {
                unit,
                multiplier: NonZeroU32::new(multiplier).unwrap_or(NonZeroU32::MIN),
                calendar,
                size,
                start_us,
                steps,
            },
        )
}

fn sizes() -> impl Strategy<Value = Size> {
    let requests = prop_oneof![
        6 => 0..=5_u32,
        5 => 6..=100_u32,
        2 => 101..=5_000_u32,
        2 => select(&[999_983, 1_000_000, 3_000_000_000, u32::MAX - 1, u32::MAX][..]),
        1 => any::<u32>(),
    ];
    let burst = prop_oneof![3 => 1..=20_u32, 1 => 21..=u32::MAX];
    let segments = prop_oneof![
        6 => 1..=4_u16,
        3 => 5..=12_u16,
        1 => select(&[60, 997, SEGMENTS_MAX][..]),
    ];
    let slot_seconds = prop_oneof![4 => 1..=5_u32, 3 => 6..=3_600_u32, 1 => 1..=u32::MAX];
    let counted = [
        CountRefused::None,
        CountRefused::Blocking,
        CountRefused::All,
    ];
    let count_refused = prop_oneof![3 => Just(None), 4 => select(counted.to_vec()).prop_map(Some)];
    (
        requests,
        option::of(burst),
        segments,
        slot_seconds,
        count_refused,
    )
        .prop_map(
            |(requests, burst, segments, slot_seconds, count_refused)| Size {
                requests: widened(requests, slot_seconds),
                burst: burst.map(|burst| widened(burst, slot_seconds)),
                segments: NonZeroU16::new(segments).unwrap_or(NonZeroU16::MIN),
                slot_seconds: NonZeroU32::new(slot_seconds).unwrap_or(NonZeroU32::MIN),
                // Another number decides, so that the seeds keep their meaning.
                count_refused: match count_refused {
                    Some(CountRefused::All) if slot_seconds % 2 == 0 => Some(CountRefused::InFull),
                    count_refused => count_refused,
                },
            },
        )
}

/// A large number in 32, 39, 46 or 53 bits: the other number decides, so that the seeds keep their
/// meaning.
fn widened(number: u32, other: u32) -> u64 {
    let number = u64::from(number);
    if number <= 5_000 {
        return number;
    }
    let bits = other % 4 * 7;
    let below = if number % 2 == 0 {
        u64::from(other.wrapping_mul(0x9e37_79b1)) % (1 << bits)
    } else {
        (1 << bits) - 1
    };
    number << bits | below
}

fn steps() -> impl Strategy<Value = Step> {
    let pause = prop_oneof![
        8 => Just(Pause::Still),
        2 => (1..=3_u64).prop_map(Pause::Us),
        2 => (4..=2_000_000_u64).prop_map(Pause::Us),
        5 => (1..=1_500_u64, 0..=2_u64).prop_map(|(share, us)| Pause::Thousandths(share, us)),
        1 => (0..=100_000_u64, 0..=2_u64).prop_map(|(share, us)| Pause::Thousandths(share, us)),
        3 => (0..=2_u64, 0..=1_u64).prop_map(|(but, less)| Pause::Edge(but, less)),
        2 => (0..=1_u64).prop_map(Pause::Retry),
        1 => (0..=1_u64).prop_map(Pause::Reset),
        1 => (1..=3_u64).prop_map(Pause::BackUs),
        1 => (0..=1_200_u64, 0..=2_u64).prop_map(|(share, us)| Pause::BackThousandths(share, us)),
        1 => (select(&[1_000_u64, 2_000, 10_000][..]), 0..=1_u64)
            .prop_map(|(share, us)| Pause::BackThousandths(share, us)),
    ];
    let wish = prop_oneof![
        5 => Just(Wish::Take(1)),
        2 => Just(Wish::Take(0)),
        4 => (2..=10_u64).prop_map(Wish::Take),
        1 => any::<u32>().prop_map(|hits| Wish::Take(widened(hits, hits))),
        // Numbers that become small ones in code that keeps only 32 bits.
        1 => (0..=2_u64).prop_map(|more| Wish::Take((1 << 32) + more)),
        3 => (-1..=1_i64).prop_map(Wish::TakeAll),
        4 => (-1..=1_i64).prop_map(Wish::TakeRest),
        1 => (0..=12_u64).prop_map(Wish::TakeHuge),
        2 => (0..=5_u64).prop_map(Wish::Refund),
        1 => (-1..=1_i64).prop_map(Wish::RefundAll),
        1 => (0..=12_u64).prop_map(Wish::RefundHuge),
        3 => (0..=2_usize).prop_map(Wish::GiveBack),
    ];
    let holder = prop_oneof![3 => Just(None), 5 => (1..=3_u64).prop_map(Some)];
    let reload = prop_oneof![30 => Just(None), 1 => sizes().prop_map(Some)];
    (reload, pause, wish, holder).prop_map(|(reload, pause, wish, holder)| Step {
        reload,
        pause,
        wish,
        holder,
    })
}
