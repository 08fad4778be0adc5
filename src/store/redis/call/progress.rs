//! How far a call to a server has come, check by check.
//!
//! Why: a call goes on after the deadline of its first batch. What a batch is answered then depends
//! on whether its checks were sent, answered, or not yet sent.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::store::StoreFault;
use crate::store::redis::script;
use tollgate_limiter::Outcome;

/// What a server's answer says of the server.
#[derive(Debug, Default)]
pub(crate) struct NodeStatus {
    /// None when it is well.
    pub(crate) fault: Option<(StoreFault, String)>,
    /// Whether others had to be asked too: how long that took is not this one's doing.
    pub(crate) elsewhere: bool,
}

/// How far a call has come, check by check.
pub(crate) struct Progress {
    checks: Mutex<Vec<Stage>>,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Nobody was asked, or nothing ran where it was asked.
    Waiting,
    UnderWay,
    Done(Result<Outcome, StoreFault>),
}

// === impl Progress ===

impl Progress {
    /// Of so many checks, none of which was asked.
    pub(crate) fn new(checks: usize) -> Self {
        Self {
            checks: Mutex::new(vec![Stage::Waiting; checks]),
        }
    }

    /// Nobody but a call and its own steps looks at it, one after the other.
    fn stages(&self) -> MutexGuard<'_, Vec<Stage>> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, checks: &[usize], stage: Stage) {
        let mut stages = self.stages();
        for at in checks {
            if let Some(place) = stages.get_mut(*at) {
                *place = stage;
            }
        }
    }

    /// These are being asked.
    pub(crate) fn under_way(&self, checks: &[usize]) {
        self.put(checks, Stage::UnderWay);
    }

    /// Nothing ran where these were asked.
    pub(crate) fn wait(&self, checks: &[usize]) {
        self.put(checks, Stage::Waiting);
    }

    /// These were not decided.
    pub(crate) fn fail(&self, checks: &[usize], fault: StoreFault) {
        self.put(checks, Stage::Done(Err(fault)));
    }

    /// These were, as a script's reply says.
    pub(crate) fn outcomes(&self, checks: &[usize], reply: &[u8]) {
        let mut outcomes = Vec::with_capacity(checks.len());
        script::outcomes(reply, checks.len(), &mut outcomes);
        let mut stages = self.stages();
        for (at, outcome) in checks.iter().zip(outcomes) {
            if let Some(place) = stages.get_mut(*at) {
                *place = Stage::Done(outcome.map_err(|_| StoreFault::InvalidBucket));
            }
        }
    }

    /// What is known by now of the checks from one place to another.
    pub(crate) fn answers(&self, from: usize, to: usize) -> Vec<Result<Outcome, StoreFault>> {
        let stages = self.stages();
        let known = stages.get(from..to).unwrap_or_default();
        let answers = known.iter().map(|stage| match stage {
            Stage::Done(answer) => *answer,
            Stage::UnderWay => Err(StoreFault::TimedOut),
            Stage::Waiting => Err(StoreFault::QueueTimeout),
        });
        answers.collect()
    }

    pub(crate) fn is_under_way(&self) -> bool {
        let stages = self.stages();
        stages.iter().any(|stage| matches!(stage, Stage::UnderWay))
    }
}
