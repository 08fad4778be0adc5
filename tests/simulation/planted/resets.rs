//! Bugs in resets.
//!
//! What it deliberately does not do: lose a reset in a queue (`capacity` loses checks).

use std::sync::{Arc, Mutex};

use tollgate::store::memory::MemoryStore;
use tollgate::store::{ApplyFuture, CommitMode, Deadline, ResetFuture, Store};
use tollgate_limiter::{ALGORITHMS, Check, Hits, Key, Operation};

use super::{Apply, Bug, BugContext, Call, Plant, Sending, modify};
use crate::judge::Law;

pub(super) static BUGS: &[Bug] = &[
    Bug {
        name: "a_reset_leaves_the_bucket",
        plant: Plant::Reset(|checks, _| {
            for check in checks {
                check.key = Key(check.key.0 ^ 1);
            }
        }),
        found_by: &[Law::Recount, Law::Remaining],
    },
    Bug {
        name: "a_reset_forgets_another_bucket_too",
        plant: Plant::Reset(|checks, before| {
            let own: Vec<_> = checks.iter().map(plain).collect();
            checks.append(before);
            *before = own;
        }),
        found_by: &[Law::Recount, Law::Remaining, Law::Promise],
    },
    Bug {
        name: "a_reset_gives_back_what_was_taken_before",
        plant: Plant::Store(Apply(a_reset_gives_back_what_was_taken_before)),
        found_by: &[Law::Recount, Law::Promise],
    },
];

/// How a bug changes the checks of a reset; the second are those of the reset before.
pub(crate) type ResetBug = fn(&mut Vec<Check>, &mut Vec<Check>);

/// The store, with a bug in its resets.
pub(crate) struct PlantedReset {
    pub(super) store: MemoryStore,
    pub(super) bug: ResetBug,
    pub(super) before: Mutex<Vec<Check>>,
}

impl Store for PlantedReset {
    fn apply(&self, checks: Vec<Check>, deadline: Deadline, terms: CommitMode) -> ApplyFuture<'_> {
        self.store.apply(checks, deadline, terms)
    }

    fn reset(&self, mut checks: Vec<Check>) -> ResetFuture<'_> {
        let count = checks.len();
        (self.bug)(&mut checks, &mut self.before.lock().unwrap());
        Box::pin(async move {
            let mut counted = self.store.reset(checks).await?;
            counted.truncate(count);
            Ok(counted)
        })
    }
}

/// The check without its ticket, so that the journal does not see it.
fn plain(check: &Check) -> Check {
    let same = |known: &&&dyn tollgate_limiter::Algorithm| known.name() == check.algorithm.name();
    let algorithm = ALGORITHMS.iter().find(same).copied();
    Check {
        algorithm: algorithm.unwrap(),
        ..check.clone()
    }
}

/// A void refund refunds all the same.
fn a_reset_gives_back_what_was_taken_before(around: Arc<BugContext>, mut call: Call) -> Sending {
    for check in &mut call.checks {
        let taken = check.operation.hits.requested();
        modify(check, move |base, limit, state, ask, now| {
            let hits = match ask.hits {
                Hits::Refund(0) => Hits::Refund(taken),
                hits => hits,
            };
            base.decide(limit, state, Operation { hits, ..ask }, now)
        });
    }
    Box::pin(async move { around.send(call).await })
}
