//! Bugs in what goes back when a request takes all or nothing.
//!
//! How: where a bug must know whether the request passed, it stands where the store's own
//! [`TentativeTake`] would, and has that one do the work ([`Instead`]).
//!
//! What it deliberately does not do: touch requests that are not on trial.

use std::sync::{Arc, Mutex};

use tollgate::clock::Clock as _;
use tollgate::store::{CommitMode, Deadline, RefundSink, StoreError, StoreReply, TentativeTake};
use tollgate_limiter::{Check, CountRefused, Hits};

use super::{Apply, Around, Bug, Call, Plant, Sending, bend};
use crate::judge::Law;

pub(super) static BUGS: &[Bug] = &[
    Bug {
        name: "forgets_to_give_back_when_the_caller_leaves",
        plant: Plant::Store(Apply(forgets_to_give_back_when_the_caller_leaves)),
        found_by: &[Law::AllOrNothing, Law::Left],
    },
    Bug {
        name: "gives_back_into_whatever_window_there_is",
        plant: Plant::Store(Apply(gives_back_into_whatever_window_there_is)),
        found_by: &[Law::Recount, Law::Left],
    },
    Bug {
        name: "gives_back_twice",
        plant: Plant::Store(Apply(gives_back_twice)),
        found_by: &[Law::AllOrNothing, Law::Recount, Law::Left],
    },
    Bug {
        name: "a_shadow_limit_triggers_it",
        plant: Plant::Store(Apply(a_shadow_limit_triggers_it)),
        found_by: &[Law::AllOrNothing, Law::Left, Law::Promise],
    },
    Bug {
        name: "gives_back_what_passed",
        plant: Plant::Store(Apply(gives_back_what_passed)),
        found_by: &[Law::AllOrNothing, Law::Left, Law::Promise],
    },
    Bug {
        name: "gives_back_what_is_to_be_counted",
        plant: Plant::Store(Apply(gives_back_what_is_to_be_counted)),
        found_by: &[Law::AllOrNothing, Law::Left],
    },
    Bug {
        name: "gives_back_what_was_shed",
        plant: Plant::Store(Apply(gives_back_what_was_shed)),
        found_by: &[Law::AllOrNothing, Law::Recount],
    },
    Bug {
        name: "gives_back_what_was_refused",
        plant: Plant::Store(Apply(gives_back_what_was_refused)),
        found_by: &[Law::AllOrNothing, Law::Recount, Law::Left],
    },
];

/// Stands in a trial's place: what it is asked to give back, the real one gives back in its own
/// way.
struct Instead(Mutex<Option<TentativeTake>>);

impl Instead {
    /// A trial of these checks, of which the real one gives back all or nothing.
    fn of(applied: &mut StoreReply, checks: &[Check]) {
        if let Some(real) = applied.tentative.take() {
            let instead = Arc::new(Self(Mutex::new(Some(real))));
            applied.tentative = Some(TentativeTake::new(
                instead,
                checks.iter().zip(&applied.answers),
            ));
        }
    }
}

impl RefundSink for Instead {
    fn refund(&self, _: Vec<Check>) {
        self.0.lock().unwrap().take();
    }
}

impl Drop for Instead {
    fn drop(&mut self) {
        if let Some(real) = self.0.get_mut().unwrap().take() {
            real.commit();
        }
    }
}

/// What was taken is known when the answer is, and not before: it lies in wait with the caller
/// only.
fn forgets_to_give_back_when_the_caller_leaves(around: Arc<Around>, call: Call) -> Sending {
    /// Sends what goes back as anything is sent.
    struct Sends(Arc<Around>);

    impl RefundSink for Sends {
        fn refund(&self, checks: Vec<Check>) {
            send_at_once(&self.0, checks);
        }
    }

    Box::pin(async move {
        if call.terms == CommitMode::Immediate {
            return around.send(call).await;
        }
        let checks = call.checks.clone();
        let mut applied = around
            .send(Call {
                terms: CommitMode::Immediate,
                ..call
            })
            .await?;
        let decided = checks.iter().zip(&applied.answers);
        applied.tentative = Some(TentativeTake::new(
            Arc::new(Sends(Arc::clone(&around))),
            decided,
        ));
        Ok(applied)
    })
}

/// Sends checks whose answers nobody waits for.
fn send_at_once(around: &Arc<Around>, checks: Vec<Check>) {
    let mut sending = around.send(Call {
        checks,
        deadline: Deadline::NEVER,
        terms: CommitMode::Immediate,
    });
    let mut nobody = std::task::Context::from_waker(std::task::Waker::noop());
    if sending.as_mut().poll(&mut nobody).is_pending() {
        around.keep(sending);
    }
}

/// What goes back has forgotten when it was taken.
fn gives_back_into_whatever_window_there_is(around: Arc<Around>, mut call: Call) -> Sending {
    for check in &mut call.checks {
        bend(check, |base, limit, state, mut ask, now| {
            if let Hits::Undo { taken_at, .. } = &mut ask.hits {
                *taken_at = now;
            }
            base.decide(limit, state, ask, now)
        });
    }
    around.send(call)
}

fn gives_back_twice(around: Arc<Around>, mut call: Call) -> Sending {
    for check in &mut call.checks {
        bend(check, |base, limit, state, ask, now| {
            if let Hits::Undo { .. } = ask.hits {
                base.decide(limit, state, ask, now);
            }
            base.decide(limit, state, ask, now)
        });
    }
    around.send(call)
}

/// The store looks at its own outcomes, and knows nothing of rules.
fn a_shadow_limit_triggers_it(around: Arc<Around>, call: Call) -> Sending {
    Box::pin(async move {
        let mut applied = around.send(call).await?;
        let mut answers = applied.answers.iter().flatten();
        if answers.any(|outcome| !outcome.allowed)
            && let Some(trial) = applied.tentative.take()
        {
            trial.roll_back();
        }
        Ok(applied)
    })
}

fn gives_back_what_passed(around: Arc<Around>, call: Call) -> Sending {
    Box::pin(async move {
        let applied = around.send(call).await?;
        Ok(StoreReply {
            tentative: None,
            ..applied
        })
    })
}

/// A refusal is told as if nobody had heard of the request.
fn gives_back_what_is_to_be_counted(around: Arc<Around>, call: Call) -> Sending {
    Box::pin(async move {
        let mut checks = call.checks.clone();
        for check in &mut checks {
            check.limit = check.limit.with_count_refused(CountRefused::None);
        }
        let mut applied = around.send(call).await?;
        Instead::of(&mut applied, &checks);
        Ok(applied)
    })
}

/// Also refunds checks that were shed or late.
fn gives_back_what_was_shed(around: Arc<Around>, call: Call) -> Sending {
    Box::pin(async move {
        let (mut checks, on_trial) = (call.checks.clone(), call.terms == CommitMode::Tentative);
        let applied = around.send(call).await;
        checks.retain_mut(|check| {
            let hits = check.operation.hits.requested();
            check.operation.hits = Hits::Undo {
                hits,
                taken_at: around.clock.now(),
            };
            hits > 0
        });
        let undecided = match &applied {
            Ok(applied) => applied.answers.iter().any(Result::is_err),
            Err(error) => !matches!(error, StoreError::Stopped),
        };
        if on_trial && undecided && !checks.is_empty() {
            send_at_once(&around, checks);
        }
        applied
    })
}

/// To the worker everything it counted was taken.
fn gives_back_what_was_refused(around: Arc<Around>, mut call: Call) -> Sending {
    for check in &mut call.checks {
        bend(check, |base, limit, state, ask, now| {
            let mut outcome = base.decide(limit, state, ask, now);
            outcome.allowed = true;
            outcome
        });
    }
    Box::pin(async move {
        let mut applied = around.send(call).await?;
        for outcome in applied.answers.iter_mut().flatten() {
            // What may pass may do so at once, and nothing else.
            outcome.allowed = outcome.retry_us == Some(0);
        }
        Ok(applied)
    })
}
