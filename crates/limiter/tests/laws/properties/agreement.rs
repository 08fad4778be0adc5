//! Agreement: every outcome, in full, equals the naive model's.
//!
//! What it deliberately does not do: compare states. Only outcomes matter.

use super::{Candidate, Verdict, ensure};
use tollgate_limiter::State;
use tollgate_test_model::bucket_histories::{History, Walk};
use tollgate_test_model::model_of;

pub(super) fn hold(candidate: &Candidate, history: &History) -> Verdict {
    let mut model = model_of(candidate.algorithm.name());
    let mut state = State::default();
    let mut walk = Walk::new(history, candidate.algorithm);
    for (number, step) in history.steps.iter().enumerate() {
        let question = walk.question(step);
        let said = candidate.step(&mut state, &question);
        let asked_at = question.now.as_us().into();
        let expected = model.ask(&question.terms, question.ask, asked_at);
        ensure(said == expected, || {
            format!("step {number}, {question:?}: said {said:?}, expected {expected:?}")
        })?;
        walk.answered(&question, &said);
    }
    Ok(())
}
