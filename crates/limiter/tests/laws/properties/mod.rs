//! What must hold in every history, and the search for a history in which it does not.
//!
//! | property | meaning |
//! | --- | --- |
//! | `agreement` | every outcome is the naive model's |
//! | `laws` | retry, reset, peek, refusals and reloads are right, without a model; memory is bounded |
//! | `undo` | an undone take equals no take, and is never better |
//! | `promise` | admitted hits never exceed what the algorithm promises |
//! | `reservations` | agreement and promise of buckets with reservations |
//!
//! Why four: a model can share a mistake with the algorithm. A law has no model, and a promise
//! knows nothing of how the algorithm works. How: each is a function of a [`Candidate`] and a
//! history, so that a planted fault can replace the algorithm.
//!
//! What they deliberately do not do: know the algorithm, except where a promise differs.

mod agreement;
mod laws;
mod promise;
pub(crate) mod reservations;
mod undo;

use proptest::test_runner::{
    Config, FileFailurePersistence, RngSeed, TestCaseError, TestError, TestRunner,
};
use tollgate_limiter::{
    ALGORITHMS, Algorithm, AlgorithmOption, Hits, Limit, Mark, Operation, Outcome, State, Timestamp,
};
use tollgate_test_model::bucket_histories::{History, Question, histories};
use tollgate_test_model::random_cases;

/// What is tested: the real algorithm, or one with a planted fault.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) algorithm: &'static dyn Algorithm,
    pub(crate) step: StepFn,
}

/// [`State::apply`], or a version of it with a fault.
pub(crate) type StepFn = fn(&mut State, &dyn Algorithm, &Limit, Operation, Timestamp) -> Outcome;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Property {
    Agreement,
    Laws,
    Undo,
    Promise,
}

/// Time, registers and marks.
type Settled = (Timestamp, [u64; 2], Vec<Mark>);

pub(crate) type Verdict = Result<(), TestCaseError>;

// === impl Candidate ===

impl Candidate {
    /// The real algorithm of the crate.
    pub(crate) fn honest(algorithm: &'static dyn Algorithm) -> Self {
        Self {
            algorithm,
            step: |state, algorithm, limit, ask, now| state.apply(algorithm, limit, ask, now),
        }
    }

    fn step(&self, state: &mut State, question: &Question) -> Outcome {
        self.ask(state, &question.limit, question.ask, question.now)
    }

    fn ask(
        &self,
        state: &mut State,
        limit: &Limit,
        ask: impl Into<Operation>,
        now: Timestamp,
    ) -> Outcome {
        (self.step)(state, self.algorithm, limit, ask.into(), now)
    }

    /// The bucket as if written at `now`: its time, registers and marks. It makes two buckets
    /// comparable that were last written at different times.
    fn settled(&self, state: &State, limit: &Limit, now: Timestamp) -> Settled {
        let mut state = state.clone();
        if state.updated_at.since_us(now) > limit.window().as_us() {
            state.rewind(now);
        }
        let now = now.max(state.updated_at);
        self.algorithm
            .decide(limit, &mut state, Hits::PEEK.into(), now);
        (now, state.registers, state.marks.iter().copied().collect())
    }

    /// Whether it refills, up to a burst.
    fn has_burst(&self) -> bool {
        self.algorithm
            .facts()
            .options
            .contains(&AlgorithmOption::Burst)
    }
}

// === impl Property ===

impl Property {
    /// Whether it holds for this candidate in this history.
    pub(crate) fn hold(self, candidate: &Candidate, history: &History) -> Verdict {
        match self {
            Self::Agreement => agreement::hold(candidate, history),
            Self::Laws => laws::hold(candidate, history),
            Self::Undo => undo::hold(candidate, history),
            Self::Promise => promise::hold(candidate, history),
        }
    }

    /// Searches for a history in which the property does not hold.
    pub(crate) fn challenge(
        self,
        candidate: &Candidate,
        mut runner: TestRunner,
    ) -> Result<(), TestError<History>> {
        runner.run(&histories(), |history| self.hold(candidate, &history))
    }
}

/// The start of every failure of a property: a panic before it is none.
pub(crate) const BROKEN: &str = "broken: ";

/// Passes when `holds`, and otherwise reports how the history contradicts the property.
fn ensure(holds: bool, words: impl FnOnce() -> String) -> Verdict {
    if holds {
        Ok(())
    } else {
        Err(TestCaseError::fail(format!("{BROKEN}{}", words())))
    }
}

/// That long after `now`, or the last timestamp if that is earlier.
fn reachable(now: Timestamp, us: u64) -> Option<Timestamp> {
    let at = now.as_us().checked_add(us)?;
    (at < Timestamp::MAX_US).then(|| Timestamp::from_us(at))
}

/// Histories that failed before, and then random ones.
fn searching() -> TestRunner {
    searching_for(4_000)
}

/// The same with another default number of histories.
fn searching_for(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(
            "tests/laws/regressions.txt",
        ))),
        ..random_cases(cases)
    })
}

/// The same histories at every run, for faults that every run must find.
pub(crate) fn repeatable() -> TestRunner {
    repeatable_for(1_500)
}

/// The same with another number of histories.
pub(crate) fn repeatable_for(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        rng_seed: RngSeed::Fixed(0),
        ..Config::default()
    })
}

/// Fails if a random history breaks the property for one of the algorithms.
///
/// All of them share each history, because to generate it takes longer than to check it.
fn check(property: Property) {
    let held = searching().run(&histories(), |history| {
        for algorithm in ALGORITHMS {
            let held = property.hold(&Candidate::honest(*algorithm), &history);
            held.map_err(|error| TestCaseError::fail(format!("{algorithm:?}: {error}")))?;
        }
        Ok(())
    });
    if let Err(error) = held {
        panic!("{error}");
    }
}

#[test]
fn every_algorithm_agrees_with_its_model() {
    check(Property::Agreement);
}

#[test]
fn every_algorithm_keeps_the_laws() {
    check(Property::Laws);
}

#[test]
fn every_algorithm_keeps_its_promise() {
    check(Property::Promise);
}

#[test]
fn every_algorithm_undoes_exactly_its_take() {
    check(Property::Undo);
}
