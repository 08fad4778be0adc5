//! The bounds of a ledger: settled and refused records go first, open ones never. One operation
//! ends a bounded number of reservations.

use std::num::NonZeroU32;

use tollgate_limiter::algorithm::{self, Settled};
use tollgate_limiter::{
    ENDED_AT_ONCE_MAX, Expiry, Hits, Holder, ID_RECORDS_MAX, LEDGER_RECORDS_MAX, Ledger, OnExpiry,
    Operation, Otherwise, Outcome, ReservationOutcome, State, Step, Unit,
};

use tollgate_test_model::fixtures::{at, per};

/// A bucket, asked at one instant.
struct Bucket(State);

impl Bucket {
    fn ask(&mut self, id: usize, step: Step) -> Outcome {
        let limit = per(u32::MAX.into(), Unit::Day);
        let operation = Operation {
            hits: Hits::Reservation(step),
            holder: Some(Holder::from_hash(id as u64)),
        };
        let algorithm = &tollgate_limiter::algorithm::FixedWindow;
        self.0.apply(algorithm, &limit, operation, at(60))
    }

    fn reserve(&mut self, id: usize, seconds: u32) -> Outcome {
        let expiry = Expiry {
            after_ms: NonZeroU32::new(seconds * 1_000).unwrap(),
            on_expiry: OnExpiry::Charge,
        };
        self.ask(
            id,
            Step::Reserve {
                hits: 2,
                expiry,
                remember_refused: false,
            },
        )
    }

    fn commit(&mut self, id: usize) -> Outcome {
        let step = Step::Commit {
            hits: 1,
            otherwise: Otherwise::Unknown,
        };
        self.ask(id, step)
    }
}

#[test]
fn a_full_ledger_refuses_new_reservations_and_drops_no_open_one() {
    let mut bucket = Bucket(State::default());
    for id in 1..=LEDGER_RECORDS_MAX {
        let outcome = bucket.reserve(id, 60);
        assert_eq!(outcome.reservation, ReservationOutcome::Reserved, "{id}");
    }
    let all = 2 * LEDGER_RECORDS_MAX as u64;
    let ledger = bucket.0.marks.ledger().unwrap();
    assert_eq!(
        [ledger.len(), ledger.open()],
        [LEDGER_RECORDS_MAX; 2],
        "as many records as it can have"
    );
    // All are open: a new one is refused, and takes nothing.
    let outcome = bucket.reserve(0, 60);
    assert_eq!(outcome.reservation, ReservationOutcome::TooMany);
    assert!(!outcome.allowed);
    assert_eq!(outcome.remaining, u64::from(u32::MAX) - all);
    assert_eq!(bucket.0.marks.take_dropped_records(), 0);

    // One that is settled goes for a new one.
    let settled = bucket.commit(7).settled();
    let first = Settled {
        reserved: 2,
        committed: 1,
    };
    assert_eq!(settled, Some(first));
    assert_eq!(bucket.commit(7).settled(), Some(first));
    let outcome = bucket.reserve(LEDGER_RECORDS_MAX + 1, 60);
    assert_eq!(outcome.reservation, ReservationOutcome::Reserved);
    assert_eq!(outcome.remaining, u64::from(u32::MAX) - all + 1 - 2);
    assert_eq!(bucket.0.marks.take_dropped_records(), 1);
    assert_eq!(
        bucket.commit(7).reservation,
        ReservationOutcome::Unknown,
        "its record was dropped"
    );
    for id in [1, 6, 8, LEDGER_RECORDS_MAX, LEDGER_RECORDS_MAX + 1] {
        let outcome = bucket.commit(id);
        assert_eq!(outcome.reservation, ReservationOutcome::Settled, "{id}");
    }
}

#[test]
fn an_id_has_a_bounded_number_of_records() {
    let mut bucket = Bucket(State::default());
    for _ in 0..ID_RECORDS_MAX {
        let outcome = bucket.reserve(7, 60);
        assert_eq!(outcome.reservation, ReservationOutcome::Reserved);
    }
    // All are open: a new one of this id is refused, and one of another id is not.
    let outcome = bucket.reserve(7, 60);
    assert_eq!(outcome.reservation, ReservationOutcome::TooMany);
    assert!(!outcome.allowed);
    let outcome = bucket.reserve(8, 60);
    assert_eq!(outcome.reservation, ReservationOutcome::Reserved);
    // A settled one of the id goes for a new one, and no record of another id.
    assert_eq!(bucket.commit(8).reservation, ReservationOutcome::Settled);
    assert_eq!(bucket.commit(7).reservation, ReservationOutcome::Settled);
    let outcome = bucket.reserve(7, 60);
    assert_eq!(outcome.reservation, ReservationOutcome::Reserved);
    assert_eq!(bucket.0.marks.take_dropped_records(), 1);
    assert_eq!(
        bucket.commit(8).reservation,
        ReservationOutcome::SettledBefore
    );
    let ledger = bucket.0.marks.ledger().unwrap();
    assert_eq!(
        [ledger.len(), ledger.open()],
        [ID_RECORDS_MAX + 1, ID_RECORDS_MAX]
    );
}

/// A bucket with one and a half times as many reservations that are due as one operation ends. The
/// last one ends when its id is settled, the others with two operations.
#[test]
fn an_operation_ends_a_bounded_number_of_reservations() {
    let all = ENDED_AT_ONCE_MAX * 3 / 2;
    let mut state = State::default();
    let (limit, algorithm) = (per(u32::MAX.into(), Unit::Day), algorithm::FixedWindow);
    let reserve = Step::Reserve {
        hits: 2,
        expiry: Expiry {
            after_ms: NonZeroU32::new(1_000).unwrap(),
            on_expiry: OnExpiry::Release,
        },
        remember_refused: false,
    };
    let of = |id: usize, step| Operation {
        hits: Hits::Reservation(step),
        holder: Some(Holder::from_hash(id as u64)),
    };
    for id in 1..=all {
        state.apply(&algorithm, &limit, of(id, reserve), at(60));
    }
    let left = |used: usize| u64::from(u32::MAX) - 2 * used as u64;
    let outcome = state.apply(&algorithm, &limit, Hits::PEEK, at(60));
    assert_eq!(outcome.remaining, left(all));
    let outcome = state.apply(&algorithm, &limit, of(all, Step::Release), at(62));
    assert_eq!(
        outcome.reservation,
        ReservationOutcome::Unknown,
        "it has expired"
    );
    assert_eq!(outcome.remaining, left(all - ENDED_AT_ONCE_MAX - 1));
    let outcome = state.apply(&algorithm, &limit, Hits::PEEK, at(62));
    assert_eq!(outcome.remaining, left(0));
    assert!(state.marks.ledger().is_none_or(Ledger::is_empty));
}
