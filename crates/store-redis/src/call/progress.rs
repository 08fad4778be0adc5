//! How far a call to a server has come, check by check.
//!
//! Why: a call continues after the deadline of its first batch. A batch's answer then depends
//! on whether its checks were sent, answered, or not yet sent.

use std::sync::Mutex;

use crate::error_class::ServerError;
use crate::script::{self, CheckTerms};
use tollgate_limiter::Outcome;
use tollgate_store::StoreFault;
use tollgate_system::per_thread::lock;

/// What a reply says about the server.
#[derive(Debug, Default)]
pub(crate) struct NodeStatus {
    /// None when the server is well.
    pub(crate) error: Option<ServerError>,
    /// Whether other nodes were asked too. Their time does not count against this one.
    pub(crate) elsewhere: bool,
    /// The checks of which a single server wants the keys of reservations. Nothing ran for them.
    pub(crate) left: Vec<usize>,
}

/// How far a call has come, check by check.
pub(crate) struct Progress {
    terms: Vec<CheckTerms>,
    /// Uncontended: a call and its rounds run one after another in one task.
    checks: Mutex<Vec<Stage>>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Not sent, or nothing ran where it was sent.
    Waiting,
    UnderWay,
    Done(Result<Outcome, StoreFault>),
}

// === impl Progress ===

impl Progress {
    /// These checks, none of them sent.
    pub(crate) fn new(terms: Vec<CheckTerms>) -> Self {
        Self {
            checks: Mutex::new(vec![Stage::Waiting; terms.len()]),
            terms,
        }
    }

    fn put(&self, checks: &[usize], stage: Stage) {
        let mut stages = lock(&self.checks);
        for at in checks {
            if let Some(place) = stages.get_mut(*at) {
                *place = stage;
            }
        }
    }

    /// Marks these checks as sent.
    pub(crate) fn under_way(&self, checks: &[usize]) {
        self.put(checks, Stage::UnderWay);
    }

    /// Marks these checks as not sent: nothing ran.
    pub(crate) fn wait(&self, checks: &[usize]) {
        self.put(checks, Stage::Waiting);
    }

    /// Marks these checks as not decided.
    pub(crate) fn fail(&self, checks: &[usize], fault: StoreFault) {
        self.put(checks, Stage::Done(Err(fault)));
    }

    /// Records the outcomes in a script's reply. Returns the checks that it left to another call:
    /// nothing ran for them.
    pub(crate) fn outcomes(&self, checks: &[usize], reply: &[u8]) -> Vec<usize> {
        let mut outcomes = Vec::with_capacity(checks.len());
        let terms = |at: &usize| self.terms.get(*at).copied().unwrap_or_default();
        script::outcomes(reply, checks.iter().map(terms), &mut outcomes);
        let mut left = Vec::new();
        let mut stages = lock(&self.checks);
        for (at, outcome) in checks.iter().zip(outcomes) {
            let Some(place) = stages.get_mut(*at) else {
                continue;
            };
            *place = if let Some(outcome) = outcome {
                Stage::Done(outcome)
            } else {
                left.push(*at);
                Stage::Waiting
            };
        }
        left
    }

    /// What is known by now of the checks in this range.
    pub(crate) fn answers(&self, from: usize, to: usize) -> Vec<Result<Outcome, StoreFault>> {
        let stages = lock(&self.checks);
        let known = stages.get(from..to).unwrap_or_default();
        let answers = known.iter().map(|stage| match stage {
            Stage::Done(answer) => *answer,
            Stage::UnderWay => Err(StoreFault::TimedOut),
            Stage::Waiting => Err(StoreFault::QueueTimeout),
        });
        answers.collect()
    }

    pub(crate) fn is_under_way(&self) -> bool {
        let stages = lock(&self.checks);
        stages.iter().any(|stage| matches!(stage, Stage::UnderWay))
    }
}
