//! Bugs in how a check is decided: when, how often, for whom, against what, in which bucket.
//!
//! What it deliberately does not do: answer wrongly what was decided rightly (`answering`).

use std::sync::Arc;

use tollgate::clock::Clock as _;
use tollgate::store::{CommitMode, Deadline};
use tollgate_limiter::{Hits, Outcome};

use super::{Apply, Around, Bent, Bug, Call, Plant, Sending, a_moment, at_once, bend};
use crate::judge::Law;

pub(super) static BUGS: &[Bug] = &[
    Bug {
        name: "looks_first_and_takes_later",
        plant: Plant::Store(Apply(looks_first_and_takes_later)),
        found_by: &[Law::Once, Law::TrueAnswers, Law::Promise],
    },
    Bug {
        name: "asks_again_when_slow",
        plant: Plant::Store(Apply(asks_again_when_slow)),
        found_by: &[Law::Once, Law::Recount],
    },
    Bug {
        name: "takes_the_time_at_asking",
        plant: Plant::Store(Apply(takes_the_time_at_asking)),
        found_by: &[Law::Recount],
    },
    Bug {
        name: "forgets_the_deadline",
        plant: Plant::Store(Apply(forgets_the_deadline)),
        found_by: &[Law::InTime],
    },
    Bug {
        name: "decides_for_who_has_left",
        plant: Plant::Store(Apply(decides_for_who_has_left)),
        found_by: &[Law::NotForTheGone],
    },
    Bug {
        name: "a_reload_changes_a_check_under_way",
        plant: Plant::Store(Apply(a_reload_changes_a_check_under_way)),
        found_by: &[Law::Recount],
    },
    Bug {
        name: "a_reload_begins_anew",
        plant: Plant::Store(Apply(a_reload_begins_anew)),
        found_by: &[Law::Recount, Law::Promise],
    },
    Bug {
        name: "one_bucket_in_two_partitions",
        plant: Plant::Store(Apply(one_bucket_in_two_partitions)),
        found_by: &[Law::Recount, Law::Promise],
    },
    Bug {
        name: "a_sweep_frees_what_is_in_use",
        plant: Plant::Store(Apply(a_sweep_frees_what_is_in_use)),
        found_by: &[Law::Recount, Law::Promise],
    },
    Bug {
        name: "takes_what_is_given_back",
        plant: Plant::Store(Apply(takes_what_is_given_back)),
        found_by: &[Law::Recount],
    },
];

/// Checks the limit and takes the hits in two steps, between which another request may run.
fn looks_first_and_takes_later(around: Arc<Around>, call: Call) -> Sending {
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

/// A retry inside the store: whichever answer comes first is taken, and both are applied.
fn asks_again_when_slow(around: Arc<Around>, call: Call) -> Sending {
    Box::pin(async move {
        let mut first = around.send(call.clone());
        if let Some(answers) = at_once(&mut first).await {
            return answers;
        }
        let mut second = around.send(call);
        at_once(&mut second).await;
        around.keep(second);
        first.await
    })
}

/// The clock is read when the request comes in, and not when its turn has come.
fn takes_the_time_at_asking(around: Arc<Around>, mut call: Call) -> Sending {
    let asked_at = around.clock.now();
    for check in &mut call.checks {
        bend(check, move |base, limit, state, ask, now| match ask.hits {
            // Going back is asked for later, and by nobody's clock.
            Hits::Undo { .. } => base.decide(limit, state, ask, now),
            _ => base.decide(limit, state, ask, asked_at.max(state.updated_at)),
        });
    }
    around.send(call)
}

fn forgets_the_deadline(around: Arc<Around>, mut call: Call) -> Sending {
    call.deadline = Deadline::NEVER;
    around.send(call)
}

/// What was sent is held on to, whether or not anybody waits for it.
fn decides_for_who_has_left(around: Arc<Around>, call: Call) -> Sending {
    /// Keeps its call when it is dropped.
    struct Held(Option<Sending>, Arc<Around>);

    impl Drop for Held {
        fn drop(&mut self) {
            if let Some(sending) = self.0.take() {
                self.1.keep(sending);
            }
        }
    }

    Box::pin(async move {
        let sending = around.send(call);
        let mut held = Held(Some(sending), around);
        let answers = held.0.as_mut().unwrap().await;
        held.0 = None;
        answers
    })
}

/// The limit is found out after the check was sent on its way, from the newest rules.
fn a_reload_changes_a_check_under_way(around: Arc<Around>, mut call: Call) -> Sending {
    for check in &call.checks {
        let mut newest = around.newest_limits.lock().unwrap();
        newest.insert(check.key, check.limit);
    }
    Box::pin(async move {
        a_moment().await;
        for check in &mut call.checks {
            check.limit = around.newest_limits.lock().unwrap()[&check.key];
        }
        around.send(call).await
    })
}

/// The number of requests is part of what a bucket is.
fn a_reload_begins_anew(around: Arc<Around>, mut call: Call) -> Sending {
    for check in &mut call.checks {
        check.key.0 ^= u128::from(check.limit.requests()) << 32;
    }
    around.send(call)
}

/// The partition is chosen by the request's first check, for all of them.
fn one_bucket_in_two_partitions(around: Arc<Around>, mut call: Call) -> Sending {
    let lower = u128::from(u64::MAX);
    let first = call.checks[0].key.0 & !lower;
    for check in &mut call.checks {
        check.key.0 = first | (check.key.0 & lower);
    }
    around.send(call)
}

/// A bucket says that it is as good as new at once.
fn a_sweep_frees_what_is_in_use(around: Arc<Around>, mut call: Call) -> Sending {
    for check in &mut call.checks {
        check.algorithm = Box::leak(Box::new(Bent {
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

fn takes_what_is_given_back(around: Arc<Around>, mut call: Call) -> Sending {
    for check in &mut call.checks {
        check.operation.hits = Hits::Take(check.operation.hits.count());
    }
    around.send(call)
}
