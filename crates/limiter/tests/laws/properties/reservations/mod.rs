//! What must hold in every history of a bucket with reservations.
//!
//! | property | meaning |
//! | --- | --- |
//! | `Agreement` | every outcome is that of the naive model |
//! | `Promise` | what is committed and reserved is at most the limit, plus the excess of commits |
//!
//! How: the operations are applied to a [`Bucket`], so that one with a planted fault can replace
//! the real one.
//!
//! What they deliberately do not do: compare with Redis (`tests/twin/reservations` does).

mod histories;
mod promise;

use std::cell::RefCell;
use std::collections::HashMap;

use proptest::test_runner::{TestCaseError, TestError, TestRunner};
use tollgate_limiter::{ALGORITHMS, Algorithm, Limit, Operation, Outcome, State, Timestamp};

use super::{Verdict, ensure, repeatable, searching_for};
use histories::{History, Walk, histories};
use tollgate_test_model::model_of;

/// A bucket with reservations: the real one, or one with a planted fault.
pub(crate) trait Bucket {
    fn ask(
        &mut self,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        ask: Operation,
        now: Timestamp,
    ) -> Outcome;
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Property {
    Agreement,
    Promise,
}

/// Histories of every `cargo test`; each is applied in every algorithm.
const HISTORIES: u32 = 10_000;

impl Bucket for State {
    fn ask(
        &mut self,
        algorithm: &dyn Algorithm,
        limit: &Limit,
        ask: Operation,
        now: Timestamp,
    ) -> Outcome {
        self.apply(algorithm, limit, ask, now)
    }
}

// === impl Property ===

impl Property {
    fn hold(
        self,
        algorithm: &dyn Algorithm,
        bucket: &mut dyn Bucket,
        history: &History,
    ) -> Verdict {
        match self {
            Self::Agreement => agree(algorithm, bucket, history, |_| {}),
            Self::Promise => promise::hold(algorithm, bucket, history),
        }
    }

    /// Searches for a history in which the property does not hold for buckets of this kind in one
    /// of the algorithms.
    pub(crate) fn challenge(
        self,
        algorithms: &[&'static dyn Algorithm],
        bucket: &dyn Fn() -> Box<dyn Bucket>,
        mut runner: TestRunner,
    ) -> Result<(), TestError<History>> {
        runner.run(&histories(), |history| {
            for algorithm in algorithms {
                let held = self.hold(*algorithm, &mut *bucket(), &history);
                held.map_err(|error| TestCaseError::fail(format!("{algorithm:?}: {error}")))?;
            }
            Ok(())
        })
    }
}

/// The algorithms whose buckets can have reservations.
pub(crate) fn algorithms() -> Vec<&'static dyn Algorithm> {
    let all = ALGORITHMS.iter().copied();
    all.filter(|algorithm| algorithm.facts().can_reserve)
        .collect()
}

/// Every outcome, in full, equals the naive model's.
fn agree(
    algorithm: &dyn Algorithm,
    bucket: &mut dyn Bucket,
    history: &History,
    mut saw: impl FnMut(&Outcome),
) -> Verdict {
    let mut model = model_of(algorithm.name());
    let mut walk = Walk::new(history, algorithm);
    let mut number = 0;
    while let Some(question) = walk.question(number, true) {
        let outcome = bucket.ask(algorithm, &question.limit, question.ask, question.now);
        let asked_at = question.now.as_us().into();
        let expected = model.ask(&question.terms, question.ask, asked_at);
        ensure(outcome == expected, || {
            format!("step {number}, {question:?}: {outcome:?}, expected {expected:?}")
        })?;
        saw(&outcome);
        walk.answered(&question, &outcome);
        number += 1;
    }
    Ok(())
}

fn check(property: Property) {
    let unused = || Box::new(State::default()) as Box<dyn Bucket>;
    if let Err(error) = property.challenge(&algorithms(), &unused, searching_for(HISTORIES)) {
        panic!("{error}");
    }
}

#[test]
fn reservations_agree_with_their_model_in_every_algorithm() {
    check(Property::Agreement);
}

#[test]
fn what_is_committed_and_reserved_is_at_most_the_limit_plus_the_excess() {
    check(Property::Promise);
}

/// The histories have every outcome of a step often, in every algorithm.
#[test]
fn random_histories_have_every_outcome_of_a_reservation() {
    use tollgate_limiter::ReservationOutcome as Became;
    for algorithm in algorithms() {
        let seen: RefCell<HashMap<String, u32>> = RefCell::default();
        let all = repeatable().run(&histories(), |history| {
            agree(algorithm, &mut State::default(), &history, |outcome| {
                let name = format!("{:?}", outcome.reservation);
                *seen.borrow_mut().entry(name).or_default() += 1;
            })
        });
        assert!(all.is_ok(), "{all:?}");
        for became in [
            Became::None,
            Became::Reserved,
            Became::Refused,
            Became::Settled,
            Became::SettledBefore,
            Became::Charged,
            Became::Ignored,
            Became::Extended,
            Became::Unknown,
            Became::Withdrawn,
        ] {
            let count = seen.borrow().get(&format!("{became:?}")).copied();
            assert!(count > Some(50), "{algorithm:?}, {became:?}: {count:?}");
        }
    }
}
