//! Bounds of reservations in a partition: the bytes of the heap that they take, beside those that
//! it counts, and the records of one bucket.

use super::reservations::{commit, left, reserve};
use super::*;
use tollgate_limiter::{ENDED_AT_ONCE_MAX, LEDGER_RECORDS_MAX, OnExpiry, Otherwise};

/// An id, distributed like a keyed hash.
fn id(number: u64) -> u64 {
    key(number).to_halves()[1]
}

/// How the records of a bucket end up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Open,
    Settled,
    /// Some open ones of each expiry, others settled.
    Mixed,
    /// Two of three have expired.
    Expired,
}

/// The reservation with this number in this bucket, and when it is made.
fn reservation(kind: Kind, bucket: u64, number: u64) -> (Check, Timestamp) {
    let on_expiry = match kind {
        Kind::Mixed if number % 2 == 1 => OnExpiry::Release,
        _ => OnExpiry::Charge,
    };
    let at = match kind {
        Kind::Expired if number.is_multiple_of(3) => BEGIN.plus_us(30_000_000),
        _ => BEGIN,
    };
    let id = id(number << 32 | bucket);
    (reserve(bucket, u32::MAX.into(), id, 1, on_expiry), at)
}

fn fill(partition: &mut Partition, buckets: u64, records: u64, kind: Kind) {
    let all = || (0..records).flat_map(|number| (0..buckets).map(move |bucket| (bucket, number)));
    for later in [false, true] {
        for (bucket, number) in all() {
            let (asked, at) = reservation(kind, bucket, number);
            if later == (at > BEGIN) {
                ask(partition, &asked, at);
            }
            if !later && (kind == Kind::Settled || kind == Kind::Mixed && number.is_multiple_of(3))
            {
                let id = id(number << 32 | bucket);
                let settle = commit(bucket, u32::MAX.into(), id, 1, Otherwise::Unknown);
                ask(partition, &settle, at);
            }
        }
    }
    if kind == Kind::Expired {
        let looks = records.div_ceil(ENDED_AT_ONCE_MAX as u64);
        for bucket in (0..buckets).flat_map(|bucket| (0..looks).map(move |_| bucket)) {
            // An unknown id: nothing changes but what is due.
            let look = commit(
                bucket,
                u32::MAX.into(),
                id(u64::MAX / 2),
                1,
                Otherwise::Unknown,
            );
            ask(partition, &look, BEGIN.plus_us(60_000_000));
        }
    }
}

/// Bytes of the heap and counted bytes for each record, in buckets with this many records.
fn measured(buckets: u64, records: u64, kind: Kind) -> (f64, f64) {
    let mut partition = partition(usize::MAX / 2);
    let allocated = allocation_counter::measure(|| fill(&mut partition, buckets, records, kind));
    let kept = partition.records()[0] as u64;
    let expected = match kind {
        Kind::Expired => buckets * records.div_ceil(3),
        _ => buckets * records,
    };
    assert_eq!(kept, expected, "{kind:?}");
    #[allow(clippy::cast_precision_loss)] // far below 2^53
    let [real, counted] = [
        allocated.bytes_current.cast_unsigned(),
        partition.bytes() as u64,
    ]
    .map(|bytes| bytes as f64 / kept as f64);
    (real, counted)
}

#[test]
fn counted_bytes_of_reservations_are_at_least_those_of_the_heap() {
    let sizes = [
        (5_000, 1),
        (2_000, 2),
        (1_000, 5),
        (500, 11),
        (500, 12),
        (200, 30),
        (100, 100),
        (1, 20_000),
    ];
    for kind in [Kind::Open, Kind::Settled, Kind::Mixed, Kind::Expired] {
        for (buckets, records) in sizes {
            let (real, counted) = measured(buckets, records, kind);
            let shown = format!("{kind:?}, {buckets} × {records}: {real:.0} of {counted:.0} bytes");
            println!("{shown}");
            assert!(real <= counted, "{shown}");
            assert!(records == 1 || counted <= 3.0 * real, "{shown}");
        }
    }
}

#[test]
fn a_bucket_with_as_many_open_reservations_as_it_can_have_refuses_one_more_and_counts_it() {
    let most = LEDGER_RECORDS_MAX as u64;
    let mut partition = partition(usize::MAX / 2);
    let asked = |number| reserve(1, u32::MAX.into(), id(number), 1, OnExpiry::Charge);
    for number in 0..most {
        let outcome = ask(&mut partition, &asked(number), BEGIN);
        assert_eq!(outcome.reservation, ReservationOutcome::Reserved);
    }
    for number in most..most + 3 {
        let outcome = ask(&mut partition, &asked(number), BEGIN);
        assert_eq!(outcome.reservation, ReservationOutcome::TooMany);
        assert_eq!(outcome.remaining, u64::from(u32::MAX) - most);
    }
    let counts = partition.take_record_counts();
    assert_eq!(
        (counts.too_many, counts.without_space, counts.dropped),
        (3, 0, 0)
    );
    assert_eq!(partition.records(), [LEDGER_RECORDS_MAX; 2]);
    // Another bucket is not full. A settled record goes for a new one.
    let other = reserve(2, u32::MAX.into(), id(0), 1, OnExpiry::Charge);
    let outcome = ask(&mut partition, &other, BEGIN);
    assert_eq!(outcome.reservation, ReservationOutcome::Reserved);
    for number in 0..1_000 {
        let settle = commit(1, u32::MAX.into(), id(number), 2, Otherwise::Unknown);
        let outcome = ask(&mut partition, &settle, BEGIN);
        assert_eq!(outcome.reservation, ReservationOutcome::Settled);
        let outcome = ask(&mut partition, &asked(most + number), BEGIN);
        assert_eq!(outcome.reservation, ReservationOutcome::Reserved);
    }
    assert_eq!(partition.take_record_counts().dropped, 1_000);
    for number in 1_000..most + 1_000 {
        let settle = commit(1, u32::MAX.into(), id(number), 1, Otherwise::Unknown);
        let outcome = ask(&mut partition, &settle, BEGIN);
        assert_eq!(outcome.reservation, ReservationOutcome::Settled, "{number}");
    }
    let used = u64::from(u32::MAX) - left(&mut partition, 1, u32::MAX.into(), BEGIN);
    assert_eq!(used, most + 1_000 + 1_000);
}

/// The time that no request comes: half a year.
const IDLE_US: u64 = 180 * 86_400 * 1_000_000;

/// Sweeps an idle partition, as its worker does.
fn sweep_all(partition: &mut Partition, now: Timestamp) {
    let mut before = usize::MAX;
    while partition.bytes() < before {
        before = partition.bytes();
        partition.sweep(now, 65_536);
    }
}

#[test]
fn after_a_hundred_thousand_ids_and_months_without_requests_the_bytes_are_as_before() {
    const IDS: u64 = 100_000;
    /// Spare blocks of the tables, however many ids there were.
    const SPARE_BYTES_MAX: usize = 128 << 10;
    for (buckets, kind) in [
        (IDS, Kind::Open),
        (IDS / 10, Kind::Settled),
        (1, Kind::Mixed),
    ] {
        let shown = format!("{kind:?}, {buckets} buckets");
        let mut partition = partition(usize::MAX / 2);
        fill_and_leave(&mut partition, buckets, IDS / buckets, kind);
        let began = partition.bytes();
        assert!(began <= SPARE_BYTES_MAX, "{shown}: {began}");
        let mut rose = 0;
        let allocated = allocation_counter::measure(|| {
            rose = fill_and_leave(&mut partition, buckets, IDS / buckets, kind);
        });
        assert!(rose > 100 * IDS as usize, "{shown}: {rose}");
        let left = (partition.len(), partition.records(), partition.bytes());
        assert_eq!(left, (0, [0, 0], began), "{shown}");
        assert_eq!(allocated.bytes_current, 0, "{shown}");
    }
}

/// Fills a partition and lets it be idle. Returns the bytes that it had.
fn fill_and_leave(partition: &mut Partition, buckets: u64, records: u64, kind: Kind) -> usize {
    fill(partition, buckets, records, kind);
    let rose = partition.bytes();
    sweep_all(partition, BEGIN.plus_us(IDLE_US));
    rose
}
