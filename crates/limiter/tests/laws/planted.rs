//! Planted faults: a smoke test that each property can fail.
//!
//! Why: a property test that passes shows only that no failing history was found. Whether it finds
//! the faults of every line, `make test-mutants` shows.
//!
//! How: a fault replaces the algorithm, the step that all algorithms share, or the bucket. The
//! properties run on the first of the histories in which they find nothing without a fault.

use proptest::test_runner::TestError;
use tollgate_limiter::{
    ALGORITHMS, Algorithm, Hits, Limit, Operation, Outcome, ReservationOutcome, State, Step,
    Timestamp,
};
use tollgate_test_model::faults::FAULTS;

use crate::properties::reservations::{self, Bucket, algorithms};
use crate::properties::{BROKEN, Candidate, Property, StepFn, repeatable, repeatable_for};

/// Histories in which a fault of reservations must show.
const RESERVATION_HISTORIES: u32 = 8_000;

fn ensure_found<T: std::fmt::Debug>(result: Result<(), TestError<T>>, by: &str) {
    match result {
        Ok(()) => panic!("{by} did not find the fault"),
        Err(TestError::Fail(reason, _)) if reason.message().contains(BROKEN) => {}
        Err(other) => panic!("{by} stumbled: {other}"),
    }
}

#[test]
fn each_property_finds_faults_of_algorithms() {
    use Property::{Agreement, Laws, Promise, Undo};
    let found_by: [&[Property]; 4] = [
        &[Agreement, Promise],
        &[Agreement, Laws],
        &[Agreement, Laws, Promise],
        &[Agreement, Undo, Promise],
    ];
    for ((fault, faulty), by) in FAULTS.into_iter().zip(found_by) {
        for property in by {
            let found = property.challenge(&Candidate::honest(faulty), repeatable());
            ensure_found(found, &format!("{fault}: {property:?}"));
        }
    }
}

/// Law 1 is missing: a bucket refills twice when the clock steps back.
#[test]
fn an_older_time_taken_as_it_is_is_found_in_every_algorithm() {
    let step: StepFn = |state, algorithm, limit, ask, now| {
        let outcome = algorithm.decide(limit, state, ask, now);
        state.updated_at = now;
        outcome
    };
    for &algorithm in ALGORITHMS {
        for property in [Property::Agreement, Property::Promise] {
            let found = property.challenge(&Candidate { algorithm, step }, repeatable());
            ensure_found(found, &format!("{algorithm:?}: {property:?}"));
        }
    }
}

/// A bucket with a fault in its reservations.
enum FaultyReservations {
    ExpireAMillisecondLate(State),
    SettlesGiveBackOneMore(State),
}

impl Bucket for FaultyReservations {
    fn ask(
        &mut self,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        mut ask: Operation,
        now: Timestamp,
    ) -> Outcome {
        match self {
            Self::ExpireAMillisecondLate(state) => {
                if let Hits::Reservation(Step::Reserve { expiry, .. }) = &mut ask.hits {
                    expiry.after_ms = expiry.after_ms.saturating_add(1);
                }
                state.apply(algorithm, limit, ask, now)
            }
            Self::SettlesGiveBackOneMore(state) => {
                let outcome = state.apply(algorithm, limit, ask, now);
                if outcome.reservation == ReservationOutcome::Settled {
                    state.apply(algorithm, limit, Hits::Refund(1), now);
                }
                outcome
            }
        }
    }
}

/// Makes a bucket with a fault.
type Make<'f> = &'f dyn Fn() -> Box<dyn Bucket>;

#[test]
fn the_properties_of_reservations_find_faults() {
    use reservations::Property::{Agreement, Promise};
    let late = || Box::new(FaultyReservations::ExpireAMillisecondLate(State::default())) as _;
    let more = || Box::new(FaultyReservations::SettlesGiveBackOneMore(State::default())) as _;
    let faults: [(&str, Make<'_>, _); 3] = [
        ("expire late", &late, Agreement),
        ("give back one more", &more, Agreement),
        ("give back one more", &more, Promise),
    ];
    for (fault, bucket, property) in faults {
        let histories = repeatable_for(RESERVATION_HISTORIES);
        let found = property.challenge(&algorithms(), bucket, histories);
        ensure_found(found, &format!("{fault}: {property:?}"));
    }
}
