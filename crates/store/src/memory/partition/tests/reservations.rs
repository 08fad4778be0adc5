//! Reservations in a partition: kept while they are open, within the memory bound.

use super::*;
use crate::memory::marks_table::RecordCounts;
use tollgate_limiter::{Expiry, OnExpiry, Otherwise, Settled, Step};

const MINUTE_MS: u32 = 60_000;

fn step(number: u64, requests: u64, id: u64, step: Step) -> Check {
    Check {
        operation: Operation {
            hits: Hits::Reservation(step),
            holder: Some(Holder::from_hash(id)),
        },
        ..check(number, requests)
    }
}

pub(super) fn reserve(
    number: u64,
    requests: u64,
    id: u64,
    hits: u64,
    on_expiry: OnExpiry,
) -> Check {
    let expiry = Expiry {
        after_ms: MINUTE_MS.try_into().unwrap(),
        on_expiry,
    };
    let reserve = Step::Reserve {
        hits,
        expiry,
        remember_refused: false,
    };
    step(number, requests, id, reserve)
}

pub(super) fn commit(
    number: u64,
    requests: u64,
    id: u64,
    hits: u64,
    otherwise: Otherwise,
) -> Check {
    step(number, requests, id, Step::Commit { hits, otherwise })
}

pub(super) fn left(partition: &mut Partition, number: u64, requests: u64, now: Timestamp) -> u64 {
    let look = Check {
        operation: Hits::PEEK.into(),
        ..check(number, requests)
    };
    ask(partition, &look, now).remaining
}

/// Reserves one hit under each id, of one key for every hundred ids, until one fails. Returns how
/// many are open.
fn fill(partition: &mut Partition, ids: u64) -> u64 {
    let mut open = 0;
    for id in 0..ids {
        let mut asked = reserve(id / 100, u32::MAX.into(), id, 1, OnExpiry::Charge);
        match partition.apply(&mut asked, BEGIN) {
            Ok(outcome) => {
                assert_eq!(outcome.reservation, ReservationOutcome::Reserved);
                assert!(!asked.shared_bucket);
                open += 1;
            }
            Err(error) => assert!(matches!(error, StoreError::Full { .. }), "{error}"),
        }
    }
    open
}

#[test]
fn open_reservations_are_kept_at_the_memory_bound() {
    for when_full in [
        WhenFull::Share,
        WhenFull::Allow,
        WhenFull::Deny,
        WhenFull::Error,
    ] {
        let mut partition = Partition::new(200_000, when_full);
        let ids = 4_000;
        let open = fill(&mut partition, ids);
        assert!((100..ids).contains(&open), "{open}");
        assert_eq!(partition.records(), [open as usize; 2]);
        assert_eq!(partition.take_record_counts().without_space, ids - open);
        assert!(partition.bytes() <= 200_000);
        // A flood of other keys, and sweeps before the expiry.
        for number in 10_000..20_000 {
            drop(partition.apply(&mut check(number, 10), BEGIN));
        }
        partition.sweep(BEGIN.plus_us(59_000_000), 100_000);
        let mut settled = 0;
        for id in 0..ids {
            let asked = commit(id / 100, u32::MAX.into(), id, 3, Otherwise::Unknown);
            let outcome = ask(&mut partition, &asked, BEGIN.plus_us(1));
            settled += u64::from(outcome.reservation == ReservationOutcome::Settled);
        }
        assert_eq!(settled, open, "{when_full:?}");
        assert_eq!(partition.records(), [open as usize, 0]);
        assert_eq!(partition.take_record_counts(), RecordCounts::default());
    }
}

#[test]
fn settled_records_give_way_to_other_buckets_and_are_counted() {
    let mut partition = Partition::new(200_000, WhenFull::Share);
    let open = fill(&mut partition, 4_000);
    for id in 0..open {
        ask(
            &mut partition,
            &commit(id / 100, u32::MAX.into(), id, 1, Otherwise::Unknown),
            BEGIN,
        );
    }
    for number in 10_000..14_000 {
        ask(&mut partition, &check(number, 10), BEGIN);
    }
    let counts = partition.take_record_counts();
    assert!(counts.dropped > 0);
    assert_eq!(
        partition.records()[0] as u64 + counts.dropped,
        open,
        "each record is kept or counted"
    );
}

#[test]
fn a_million_reservations_within_a_small_bound_are_errors_and_lose_none() {
    const BYTES: usize = 2 << 20;
    let mut partition = Partition::new(BYTES, WhenFull::Share);
    let mut open = 0;
    let allocated = allocation_counter::measure(|| open = fill(&mut partition, 1_000_000));
    let counted = partition.bytes() as u64;
    assert!(counted <= BYTES as u64);
    let real = allocated.bytes_current.cast_unsigned();
    assert!(
        real <= BYTES as u64,
        "{open} open, {real} bytes of the heap, {counted} counted"
    );
    assert!(real >= counted / 2, "{real} {counted}");
    assert!(open > 5_000, "{open}");
    assert_eq!(
        partition.take_record_counts().without_space,
        1_000_000 - open
    );
    let mut settled = 0;
    for id in 0..1_000_000 {
        let asked = step(id / 100, u32::MAX.into(), id, Step::Release);
        let outcome = ask(&mut partition, &asked, BEGIN);
        settled += u64::from(outcome.reservation == ReservationOutcome::Settled);
    }
    assert_eq!(settled, open);
}

#[test]
fn expired_reservations_are_counted_by_what_becomes_of_their_hits() {
    let mut partition = partition(1 << 20);
    let hourly = |check: Check| Check {
        limit: Limit::per(100, Unit::Hour, NonZeroU32::MIN),
        ..check
    };
    for (id, on_expiry) in [
        (1, OnExpiry::Charge),
        (2, OnExpiry::Release),
        (3, OnExpiry::Release),
    ] {
        let asked = hourly(reserve(1, 100, id, 10 * id, on_expiry));
        ask(&mut partition, &asked, BEGIN);
    }
    assert_eq!(partition.records(), [3, 3]);
    let end = BEGIN.plus_us(u64::from(MINUTE_MS) * 1_000);
    let look = hourly(Check {
        operation: Hits::PEEK.into(),
        ..check(1, 100)
    });
    assert_eq!(
        ask(&mut partition, &look, end.minus_us(1)).remaining,
        100 - 60
    );
    assert_eq!(partition.take_record_counts(), RecordCounts::default());
    assert_eq!(ask(&mut partition, &look, end).remaining, 90);
    let counts = partition.take_record_counts();
    assert_eq!((counts.charged, counts.released), (1, 2));
    assert_eq!(partition.records(), [0, 0]);
    // One that no request ends is counted when its bucket is swept.
    ask(
        &mut partition,
        &reserve(2, 100, 1, 5, OnExpiry::Release),
        end,
    );
    partition.sweep(end.plus_us(1_000_000_000), 100_000);
    let counts = partition.take_record_counts();
    assert_eq!((counts.charged, counts.released), (0, 1));
    assert_eq!(partition.records(), [0, 0]);
}

#[test]
fn a_bucket_is_kept_until_its_last_record_is_due() {
    let mut partition = partition(1 << 20);
    let mut asked = reserve(1, 100, 1, 5, OnExpiry::Charge);
    asked.limit = Limit::per(100, Unit::Second, NonZeroU32::MIN);
    ask(&mut partition, &asked, BEGIN);
    partition.tables.is_pressed = true;
    partition.sweep(BEGIN.plus_us(59_999_999), 100_000);
    assert_eq!(partition.len(), 1);
    let mut extend = step(1, 100, 1, Step::Extend(MINUTE_MS.try_into().unwrap()));
    extend.limit = asked.limit;
    let later = BEGIN.plus_us(50_000_000);
    let outcome = ask(&mut partition, &extend, later);
    assert_eq!(outcome.reservation, ReservationOutcome::Extended);
    partition.tables.is_pressed = true;
    partition.sweep(later.plus_us(59_000_000), 100_000);
    assert_eq!(partition.len(), 1);
    partition.sweep(later.plus_us(61_000_000), 100_000);
    assert_eq!((partition.len(), partition.records()), (0, [0, 0]));
    assert!(partition.tables.marks.bytes() < 20_000);
}

#[test]
fn settles_of_unknown_ids_need_no_bucket_and_charges_do() {
    let ms = MINUTE_MS.try_into().unwrap();
    let steps = [
        (
            Step::Commit {
                hits: 5,
                otherwise: Otherwise::Unknown,
            },
            0,
        ),
        (Step::Release, 0),
        (Step::Extend(ms), 0),
        (
            Step::Withdraw {
                taken_at: BEGIN,
                remember_refused: true,
            },
            0,
        ),
        (
            Step::Commit {
                hits: 5,
                otherwise: Otherwise::Charge,
            },
            5,
        ),
        (
            Step::Commit {
                hits: 5,
                otherwise: Otherwise::ChargeOnce,
            },
            5,
        ),
        (
            Step::Commit {
                hits: 0,
                otherwise: Otherwise::Charge,
            },
            0,
        ),
    ];
    for (asked, charged) in steps {
        let mut partition = partition(1 << 20);
        ask(&mut partition, &step(1, 100, 7, asked), BEGIN);
        assert_eq!(partition.len(), usize::from(charged > 0), "{asked:?}");
        assert_eq!(
            left(&mut partition, 1, 100, BEGIN),
            100 - charged,
            "{asked:?}"
        );
    }
    let mut partition = partition(1 << 20);
    let charge = Check {
        operation: Hits::Charge(300).into(),
        ..check(1, 100)
    };
    ask(&mut partition, &charge, BEGIN);
    assert_eq!((partition.len(), partition.records()), (1, [0, 0]));
}

#[test]
fn a_reset_forgets_reservations_and_voids_what_was_withdrawn_before_it() {
    let mut partition = partition(1 << 20);
    let asked = reserve(1, 100, 7, 40, OnExpiry::Release);
    let taken_at = ask(&mut partition, &asked, BEGIN).bucket_time;
    partition.reset(&check(1, 100), BEGIN, 0).unwrap();
    assert_eq!((partition.len(), partition.records()), (0, [0, 0]));
    assert_eq!(partition.take_record_counts(), RecordCounts::default());
    assert!(partition.tables.marks.bytes() < 20_000);
    let outcome = ask(
        &mut partition,
        &commit(1, 100, 7, 1, Otherwise::Unknown),
        BEGIN,
    );
    assert_eq!(outcome.reservation, ReservationOutcome::Unknown);
    // The same id, reserved again in the same microsecond.
    ask(&mut partition, &asked, BEGIN);
    let withdraw = Step::Withdraw {
        taken_at,
        remember_refused: false,
    };
    let mut late = [step(1, 100, 7, withdraw)];
    partition.resets.void_refunds(&mut late);
    ask(&mut partition, &late[0], BEGIN);
    assert_eq!(left(&mut partition, 1, 100, BEGIN), 60);
}

#[test]
fn reservations_survive_a_clock_that_is_set_back() {
    let mut partition = partition(1 << 20);
    let asked = reserve(1, 100, 7, 40, OnExpiry::Release);
    ask(&mut partition, &asked, BEGIN.plus_us(3_600_000_000));
    // An idle bucket is brought back by the sweep.
    partition.sweep(BEGIN, 100_000);
    assert_eq!(partition.records(), [1, 1]);
    partition.sweep(BEGIN.plus_us(59_000_000), 100_000);
    let asked = commit(1, 100, 7, 25, Otherwise::Unknown);
    let outcome = ask(&mut partition, &asked, BEGIN.plus_us(59_000_000));
    let settled = Settled {
        reserved: 40,
        committed: 25,
    };
    assert_eq!(outcome.settled(), Some(settled));
}
