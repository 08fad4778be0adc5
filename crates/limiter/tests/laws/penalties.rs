//! Penalties: every outcome equals the naive model's in every walk, and planted faults show.

use std::convert::Infallible;

use tollgate_limiter::{ALGORITHMS, Algorithm, Outcome, Penalty, PenaltyState, State};
use tollgate_test_model::penalties::{PenaltyQuestion, PenaltyWalk};
use tollgate_test_model::random_cases;

/// A fault: changes the penalty, or the state that an operation left after the one before it.
type Fault = fn(&mut Penalty, PenaltyState, &mut PenaltyState);

const STEPS: usize = 40;

fn algorithms() -> impl Iterator<Item = &'static dyn Algorithm> {
    let all = ALGORITHMS.iter().copied();
    all.filter(|algorithm| algorithm.name() != "concurrency")
}

/// Walks once. Says where the outcome is not the model's, and else how many blocks began.
fn walk(number: u64, algorithm: &'static dyn Algorithm, fault: Fault) -> Result<usize, String> {
    let mut walk = PenaltyWalk::new(number, algorithm);
    let (mut bucket, mut kept) = (State::default(), State::default());
    let mut blocked = 0;
    for step in 0..STEPS {
        let (question, expected) = walk.step();
        let Some(expected) = expected else {
            (bucket, kept) = (State::default(), State::default());
            continue;
        };
        let outcome = apply(&question, algorithm, (&mut bucket, &mut kept), fault);
        // What is forgotten in time changes nothing.
        let state = PenaltyState::from_bucket(&kept);
        let penalty = question.limit.penalty().unwrap();
        if walk.is_steady && penalty.forgotten_at(&state) <= question.now {
            kept = State::default();
        }
        if outcome != expected {
            return Err(format!(
                "{step}: {question:?}: {outcome:?}, not {expected:?}"
            ));
        }
        blocked += usize::from(outcome.blocked);
    }
    Ok(blocked)
}

/// One operation. What the penalty remembers is kept as a bucket, as stores keep it.
fn apply(
    question: &PenaltyQuestion,
    algorithm: &'static dyn Algorithm,
    (bucket, kept): (&mut State, &mut State),
    fault: Fault,
) -> Outcome {
    let PenaltyQuestion {
        limit,
        operation,
        now,
        ..
    } = question;
    let before = PenaltyState::from_bucket(kept);
    let (mut state, mut penalty) = (before, *limit.penalty().unwrap());
    fault(&mut penalty, before, &mut state);
    let asked = (limit, *operation);
    let decided = penalty.apply(&mut state, asked, *now, |limit, operation| {
        Ok::<_, Infallible>((bucket.apply(algorithm, limit, operation, *now), true))
    });
    fault(&mut penalty, before, &mut state);
    *kept = state.to_bucket();
    assert!(kept.registers.iter().all(|register| *register < 1 << 53));
    decided.unwrap_or_else(|never| match never {})
}

#[test]
fn penalties_agree_with_their_model_in_every_algorithm() {
    let mut blocked = 0;
    for algorithm in algorithms() {
        for number in 0..u64::from(random_cases(10_000).cases) {
            let walked = walk(number, algorithm, |_, _, _| {});
            blocked += walked.unwrap_or_else(|wrong| panic!("{algorithm:?}, {number}: {wrong}"));
        }
    }
    // The walks reach blocks often.
    assert!(blocked > 100_000, "{blocked}");
}

#[test]
fn planted_faults_are_found() {
    let faults: [Fault; 7] = [
        |penalty, _, _| penalty.after = penalty.after.saturating_add(1),
        |penalty, _, _| penalty.within_s += 1,
        |penalty, _, _| penalty.block_s += 1,
        |penalty, _, _| penalty.max_s += 1,
        |penalty, _, _| penalty.factor = penalty.factor.saturating_add(1),
        // Every refusal moves the span.
        |_, before, after| {
            if after.refusals > before.refusals {
                after.refusals += 1;
            }
        },
        // A block is forgotten at its end.
        |_, _, after| {
            if after.refusals > 0 {
                after.blocks = 0;
            }
        },
    ];
    for (place, fault) in faults.into_iter().enumerate() {
        let mut walks = (0..1_000).map(|number| walk(number, ALGORITHMS[0], fault));
        assert!(
            walks.any(|walked| walked.is_err()),
            "fault {place} was not found"
        );
    }
}
