//! Undo: a take that is undone equals no take, and is never better.
//!
//! Why: a store takes first and undoes when another limit refuses, and time passes in between. Each
//! hit given back too much exceeds the promise.
//!
//! How: undone at once, the bucket must be as after a peek. Undone later, it is compared with a
//! [`Twin`] without the take, which got everything else that passed. Hits that were refused because
//! of the take are not repeated, so the twin never knows more of the future than the bucket did.
//!
//! What it deliberately does not do: reload, refund or set the clock back between a take and its
//! undo (a store undoes within milliseconds; `agreement` covers them). A refund of what was never
//! taken finds more to free with the take than without, and undo cannot know.

use std::collections::HashMap;

use proptest::test_runner::TestCaseError;
use tollgate_limiter::{Hits, Operation, Outcome, State, Timestamp};
use tollgate_test_model::bucket_histories::{History, Question, Walk};

use super::{Candidate, Verdict, ensure, reachable};

/// A bucket without one take.
struct Twin {
    state: State,
    /// The undo of that take.
    undo: Operation,
    /// Whether undo must leave nothing of the take: a bucket that refills cannot know what would
    /// have overflowed, and one that counts refused hits has those that the take caused.
    exact: bool,
    /// The number of operations since.
    age: usize,
}

/// After this many another take is followed.
const TWIN_AGE_MAX: usize = 8;

pub(super) fn hold(candidate: &Candidate, history: &History) -> Verdict {
    let mut walk = Walk::new(history, candidate.algorithm);
    let mut state = State::default();
    let mut twin: Option<Twin> = None;
    for (number, step) in history.steps.iter().enumerate() {
        let question = walk.question(step);
        let before = state.clone();
        let said = candidate.step(&mut state, &question);
        walk.answered(&question, &said);

        // The twin has not seen the time of the take, and would accept an older one.
        let went_back = before.updated_at > question.now;
        let taken = matches!(question.ask.hits, Hits::Take(_));
        let ends = step.reload.is_some() || went_back || !taken;
        twin = twin.filter(|twin| !ends && twin.age < TWIN_AGE_MAX);

        let step = Step {
            candidate,
            question,
            before,
            after: &state,
            said,
        };
        let mut judged = step.at_once().and_then(|()| step.too_late());
        if judged.is_ok() {
            match &mut twin {
                Some(twin) => judged = step.later(twin),
                None => twin = step.twin(),
            }
        }
        judged.map_err(|broken| {
            TestCaseError::fail(format!(
                "{broken}; at step {number}, {question:?} said {said:?}"
            ))
        })?;
    }
    Ok(())
}

/// An operation and its outcome.
struct Step<'a> {
    candidate: &'a Candidate,
    question: Question,
    before: State,
    after: &'a State,
    said: Outcome,
}

// === impl Step ===

impl Step<'_> {
    /// The undo of this step, if it took anything.
    fn undo(&self) -> Option<Operation> {
        let Operation { hits, holder } = self.question.ask;
        (self.said.allowed && hits.requested() > 0).then_some(Operation {
            hits: Hits::Undo {
                hits: hits.requested(),
                taken_at: self.said.bucket_time,
            },
            holder,
        })
    }

    /// A twin without this step.
    fn twin(&self) -> Option<Twin> {
        let undo = self.undo()?;
        let mut state = self.before.clone();
        self.ask(&mut state, Hits::PEEK.into());
        Some(Twin {
            state,
            undo,
            exact: !self.candidate.has_burst(),
            age: 0,
        })
    }

    fn ask(&self, state: &mut State, ask: Operation) -> Outcome {
        let Question { limit, now, .. } = self.question;
        self.candidate.ask(state, &limit, ask, now)
    }

    /// Undone before anything else happens, the bucket is as after a peek.
    fn at_once(&self) -> Verdict {
        let (Some(undo), Some(twin)) = (self.undo(), self.twin()) else {
            return Ok(());
        };
        let mut undone = self.after.clone();
        let said = self.ask(&mut undone, undo);
        ensure(said.allowed, || "cannot be given back".to_owned())?;
        ensure(self.same(&undone, &twin.state), || {
            format!("undone at once: {undone:?}, never taken: {:?}", twin.state)
        })
    }

    /// What no longer counts, and what was taken in a future that did not come, is not given back.
    fn too_late(&self) -> Verdict {
        let Some(undo) = self.undo() else {
            return Ok(());
        };
        let Question { limit, now, .. } = &self.question;
        let seen = self.after.updated_at;
        let over = reachable(*now, self.said.reset_us).map(|at| at.max(seen));
        let window_us = limit.window().as_us();
        let lost = seen.as_us().checked_sub(window_us + 1);
        for at in [over, lost.map(Timestamp::from_us)].into_iter().flatten() {
            let mut state = self.after.clone();
            let all = Operation {
                hits: Hits::Take(limit.burst()),
                holder: undo.holder,
            };
            self.candidate.ask(&mut state, limit, all, at);
            let mut looked_at = state.clone();
            self.candidate.ask(&mut looked_at, limit, Hits::PEEK, at);
            self.candidate.ask(&mut state, limit, undo, at);
            ensure(self.same_at(&state, &looked_at, at), || {
                format!("given back too late, at {at:?}: {state:?} instead of {looked_at:?}")
            })?;
        }
        Ok(())
    }

    /// Undone after some operations, it is never better than without the take.
    fn later(&self, twin: &mut Twin) -> Verdict {
        let ask = self.question.ask;
        twin.age += 1;
        if self.said.allowed {
            let twin_said = self.ask(&mut twin.state, ask);
            ensure(twin_said.allowed, || {
                "passes, and would not without the take".to_owned()
            })?;
        } else {
            self.ask(&mut twin.state, Hits::PEEK.into());
            twin.exact &= self.refused_leave_nothing();
        }
        // A renewed slot can no longer be found by the time of its take.
        twin.exact &= ask.hits != Hits::PEEK || ask.holder != twin.undo.holder;
        let mut undone = self.after.clone();
        self.ask(&mut undone, twin.undo);
        if twin.exact {
            return ensure(self.same(&undone, &twin.state), || {
                format!("undone: {undone:?}, never taken: {:?}", twin.state)
            });
        }
        let left = |state: &State| self.ask(&mut state.clone(), Hits::PEEK.into()).remaining;
        ensure(left(&undone) <= left(&twin.state), || {
            format!(
                "undone: {undone:?}, better than never taken: {:?}",
                twin.state
            )
        })
    }

    /// Whether two buckets have the same state now.
    fn same(&self, one: &State, other: &State) -> bool {
        self.same_at(one, other, self.question.now)
    }

    /// The same at another time. Marks that law 2 moved to the first timestamp count together,
    /// however many they are.
    fn same_at(&self, one: &State, other: &State, at: Timestamp) -> bool {
        let settled = |state| {
            let limit = &self.question.limit;
            let (seen, registers, marks) = self.candidate.settled(state, limit, at);
            let mut sums: HashMap<_, u64> = HashMap::new();
            for mark in marks {
                *sums.entry((mark.at, mark.holder)).or_default() += mark.hits;
            }
            (seen, registers, sums)
        };
        settled(one) == settled(other)
    }

    fn refused_leave_nothing(&self) -> bool {
        let mut only_looked = self.before.clone();
        self.ask(&mut only_looked, Hits::PEEK.into());
        only_looked == *self.after
    }
}
