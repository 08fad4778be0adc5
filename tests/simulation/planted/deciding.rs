//! Bugs in how a check is decided: when, how often, for which caller, by which limit, in which
//! bucket.
//!
//! What it deliberately does not do: reply wrongly to correct decisions (`answering`).

use std::sync::Arc;

use tollgate::clock::Clock as _;
use tollgate::store::{CommitMode, Deadline};
use tollgate_limiter::{Hits, Outcome};

use super::{
    Apply, Bug, BugContext, Call, ModifiedAlgorithm, Plant, Sending, modify, poll_once, yield_once,
};
use crate::judge::Law;

pub(super) static BUGS: &[Bug] = &[
    Bug {
        name: "checks_first_and_takes_later",
        plant: Plant::Store(Apply(checks_first_and_takes_later)),
        found_by: &[Law::DecidedOnce, Law::FaithfulReplies, Law::Promise],
    },
    Bug {
        name: "retries_when_slow",
        plant: Plant::Store(Apply(retries_when_slow)),
        found_by: &[Law::DecidedOnce, Law::Recount],
    },
    Bug {
        name: "reads_the_clock_at_send",
        plant: Plant::Store(Apply(reads_the_clock_at_send)),
        found_by: &[Law::Recount],
    },
    Bug {
        name: "ignores_the_deadline",
        plant: Plant::Store(Apply(ignores_the_deadline)),
        found_by: &[Law::BeforeDeadline],
    },
    Bug {
        name: "decides_after_the_caller_left",
        plant: Plant::Store(Apply(decides_after_the_caller_left)),
        found_by: &[Law::NotAfterLeave],
    },
    Bug {
        name: "a_reload_changes_a_check_in_flight",
        plant: Plant::Store(Apply(a_reload_changes_a_check_in_flight)),
        found_by: &[Law::Recount],
    },
    Bug {
        name: "a_reload_resets_the_bucket",
        plant: Plant::Store(Apply(a_reload_resets_the_bucket)),
        found_by: &[Law::Recount, Law::Promise],
    },
    Bug {
        name: "one_bucket_in_two_partitions",
        plant: Plant::Store(Apply(one_bucket_in_two_partitions)),
        found_by: &[Law::Recount, Law::Promise],
    },
    Bug {
        name: "a_sweep_frees_a_bucket_in_use",
        plant: Plant::Store(Apply(a_sweep_frees_a_bucket_in_use)),
        found_by: &[Law::Recount, Law::Promise],
    },
    Bug {
        name: "takes_instead_of_refunding",
        plant: Plant::Store(Apply(takes_instead_of_refunding)),
        found_by: &[Law::Recount],
    },
];

/// Checks the limit and takes the hits in two steps, between which another request may run.
fn checks_first_and_takes_later(around: Arc<BugContext>, call: Call) -> Sending {
    Box::pin(async move {
        let mut looks = Call {
            terms: CommitMode::Immediate,
            ..call.clone()
        };
        for look in &mut looks.checks {
            if let Hits::Take(_) = look.operation.hits {
                look.operation.hits = Hits::PEEK;
            }
        }
        let mut applied = around.send(looks).await?;
        let mut takes = Vec::new();
        for (check, answer) in call.checks.iter().zip(&mut applied.answers) {
            if let (Hits::Take(hits), Ok(outcome)) = (check.operation.hits, answer) {
                outcome.allowed = hits <= outcome.remaining;
                if outcome.allowed {
                    outcome.remaining -= hits;
                    takes.push(check.clone());
                }
            }
        }
        if !takes.is_empty() {
            let sending = around.send(Call {
                checks: takes,
                ..call
            });
            applied.tentative = sending.await?.tentative;
        }
        Ok(applied)
    })
}

/// A retry inside the store: the first reply is used, and both calls are applied.
fn retries_when_slow(around: Arc<BugContext>, call: Call) -> Sending {
    Box::pin(async move {
        let mut first = around.send(call.clone());
        if let Some(answers) = poll_once(&mut first).await {
            return answers;
        }
        let mut second = around.send(call);
        poll_once(&mut second).await;
        around.keep(second);
        first.await
    })
}

/// The clock is read when the request arrives, not when it is decided.
fn reads_the_clock_at_send(around: Arc<BugContext>, mut call: Call) -> Sending {
    let asked_at = around.clock.now();
    for check in &mut call.checks {
        modify(check, move |base, limit, state, ask, now| match ask.hits {
            // A refund is sent later, without the caller's clock.
            Hits::Undo { .. } => base.decide(limit, state, ask, now),
            _ => base.decide(limit, state, ask, asked_at.max(state.updated_at)),
        });
    }
    around.send(call)
}

fn ignores_the_deadline(around: Arc<BugContext>, mut call: Call) -> Sending {
    call.deadline = Deadline::NEVER;
    around.send(call)
}

/// A sent call is kept even if its caller has left.
fn decides_after_the_caller_left(around: Arc<BugContext>, call: Call) -> Sending {
    /// Keeps its call when it is dropped.
    struct KeptCall(Option<Sending>, Arc<BugContext>);

    impl Drop for KeptCall {
        fn drop(&mut self) {
            if let Some(sending) = self.0.take() {
                self.1.keep(sending);
            }
        }
    }

    Box::pin(async move {
        let sending = around.send(call);
        let mut held = KeptCall(Some(sending), around);
        let answers = held.0.as_mut().unwrap().await;
        held.0 = None;
        answers
    })
}

/// The limit is looked up after the check was sent, in the newest rules.
fn a_reload_changes_a_check_in_flight(around: Arc<BugContext>, mut call: Call) -> Sending {
    for check in &call.checks {
        let mut newest = around.newest_limits.lock().unwrap();
        newest.insert(check.key, check.limit);
    }
    Box::pin(async move {
        yield_once().await;
        for check in &mut call.checks {
            check.limit = around.newest_limits.lock().unwrap()[&check.key];
        }
        around.send(call).await
    })
}

/// The number of requests is part of the bucket's key.
fn a_reload_resets_the_bucket(around: Arc<BugContext>, mut call: Call) -> Sending {
    for check in &mut call.checks {
        check.key.0 ^= u128::from(check.limit.requests()) << 32;
    }
    around.send(call)
}

/// The request's first check chooses the partition for all of them.
fn one_bucket_in_two_partitions(around: Arc<BugContext>, mut call: Call) -> Sending {
    let lower = u128::from(u64::MAX);
    let first = call.checks[0].key.0 & !lower;
    for check in &mut call.checks {
        check.key.0 = first | (check.key.0 & lower);
    }
    around.send(call)
}

/// A bucket reports an immediate expiry.
fn a_sweep_frees_a_bucket_in_use(around: Arc<BugContext>, mut call: Call) -> Sending {
    for check in &mut call.checks {
        check.algorithm = Box::leak(Box::new(ModifiedAlgorithm {
            base: check.algorithm,
            decide: Box::new(|base, limit, state, ask, now| Outcome {
                reset_us: 1,
                ..base.decide(limit, state, ask, now)
            }),
            life_us: Some(1),
        }));
    }
    around.send(call)
}

fn takes_instead_of_refunding(around: Arc<BugContext>, mut call: Call) -> Sending {
    for check in &mut call.checks {
        check.operation.hits = Hits::Take(check.operation.hits.count());
    }
    around.send(call)
}
