//! Bugs in refunds of all-or-nothing requests.
//!
//! How: a bug that depends on whether the request passed replaces the store's own [`TentativeTake`]
//! and delegates to it ([`ReplacedTake`]).
//!
//! What it deliberately does not do: change requests that are not tentative.

use std::sync::{Arc, Mutex};

use tollgate::clock::Clock as _;
use tollgate::store::{CommitMode, Deadline, RefundSink, StoreError, StoreReply, TentativeTake};
use tollgate_limiter::{Check, CountRefused, Hits};

use super::{Apply, Bug, BugContext, Call, Plant, Sending, modify};
use crate::judge::Law;

pub(super) static BUGS: &[Bug] = &[
    Bug {
        name: "no_refund_when_the_caller_leaves",
        plant: Plant::Store(Apply(no_refund_when_the_caller_leaves)),
        found_by: &[Law::AllOrNothing, Law::Remaining],
    },
    Bug {
        name: "refunds_into_the_present_window",
        plant: Plant::Store(Apply(refunds_into_the_present_window)),
        found_by: &[Law::Recount, Law::Remaining],
    },
    Bug {
        name: "refunds_twice",
        plant: Plant::Store(Apply(refunds_twice)),
        found_by: &[Law::AllOrNothing, Law::Recount, Law::Remaining],
    },
    Bug {
        name: "refunds_because_of_a_shadow_limit",
        plant: Plant::Store(Apply(refunds_because_of_a_shadow_limit)),
        found_by: &[Law::AllOrNothing, Law::Remaining, Law::Promise],
    },
    Bug {
        name: "refunds_what_passed",
        plant: Plant::Store(Apply(refunds_what_passed)),
        found_by: &[Law::AllOrNothing, Law::Remaining, Law::Promise],
    },
    Bug {
        name: "refunds_hits_that_the_limit_counts",
        plant: Plant::Store(Apply(refunds_hits_that_the_limit_counts)),
        found_by: &[Law::AllOrNothing, Law::Remaining],
    },
    Bug {
        name: "refunds_shed_checks",
        plant: Plant::Store(Apply(refunds_shed_checks)),
        found_by: &[Law::AllOrNothing, Law::Recount],
    },
    Bug {
        name: "refunds_refused_hits",
        plant: Plant::Store(Apply(refunds_refused_hits)),
        found_by: &[Law::AllOrNothing, Law::Recount, Law::Remaining],
    },
];

/// Replaces a tentative take; refunds go through the real one.
struct ReplacedTake(Mutex<Option<TentativeTake>>);

impl ReplacedTake {
    /// Replaces the tentative take of these checks; the real one refunds all or nothing.
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

impl RefundSink for ReplacedTake {
    fn refund(&self, _: Vec<Check>) {
        self.0.lock().unwrap().take();
    }
}

impl Drop for ReplacedTake {
    fn drop(&mut self) {
        if let Some(real) = self.0.get_mut().unwrap().take() {
            real.commit();
        }
    }
}

/// The tentative take exists only once the reply does: until then only the caller holds it.
fn no_refund_when_the_caller_leaves(around: Arc<BugContext>, call: Call) -> Sending {
    /// SendingSink refunds like any other check.
    struct SendingSink(Arc<BugContext>);

    impl RefundSink for SendingSink {
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
            Arc::new(SendingSink(Arc::clone(&around))),
            decided,
        ));
        Ok(applied)
    })
}

/// SendingSink checks whose replies no caller awaits.
fn send_at_once(around: &Arc<BugContext>, checks: Vec<Check>) {
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

/// A refund has lost the time of its take.
fn refunds_into_the_present_window(around: Arc<BugContext>, mut call: Call) -> Sending {
    for check in &mut call.checks {
        modify(check, |base, limit, state, mut ask, now| {
            if let Hits::Undo { taken_at, .. } = &mut ask.hits {
                *taken_at = now;
            }
            base.decide(limit, state, ask, now)
        });
    }
    around.send(call)
}

fn refunds_twice(around: Arc<BugContext>, mut call: Call) -> Sending {
    for check in &mut call.checks {
        modify(check, |base, limit, state, ask, now| {
            if let Hits::Undo { .. } = ask.hits {
                base.decide(limit, state, ask, now);
            }
            base.decide(limit, state, ask, now)
        });
    }
    around.send(call)
}

/// The store looks at its own outcomes and does not know the rules.
fn refunds_because_of_a_shadow_limit(around: Arc<BugContext>, call: Call) -> Sending {
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

fn refunds_what_passed(around: Arc<BugContext>, call: Call) -> Sending {
    Box::pin(async move {
        let applied = around.send(call).await?;
        Ok(StoreReply {
            tentative: None,
            ..applied
        })
    })
}

/// A refusal is reported as if the caller had left.
fn refunds_hits_that_the_limit_counts(around: Arc<BugContext>, call: Call) -> Sending {
    Box::pin(async move {
        let mut checks = call.checks.clone();
        for check in &mut checks {
            check.limit = check.limit.with_count_refused(CountRefused::None);
        }
        let mut applied = around.send(call).await?;
        ReplacedTake::of(&mut applied, &checks);
        Ok(applied)
    })
}

/// Also refunds checks that were shed or late.
fn refunds_shed_checks(around: Arc<BugContext>, call: Call) -> Sending {
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

/// The worker treats all counted hits as taken.
fn refunds_refused_hits(around: Arc<BugContext>, mut call: Call) -> Sending {
    for check in &mut call.checks {
        modify(check, |base, limit, state, ask, now| {
            let mut outcome = base.decide(limit, state, ask, now);
            outcome.allowed = true;
            outcome
        });
    }
    Box::pin(async move {
        let mut applied = around.send(call).await?;
        for outcome in applied.answers.iter_mut().flatten() {
            // What may pass may do so immediately; no other limit does.
            outcome.allowed = outcome.retry_us == Some(0);
        }
        Ok(applied)
    })
}
