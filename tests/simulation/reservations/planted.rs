//! Planted bugs between the service and the store: the default seeds must find each one.

use tollgate::store::memory::MemoryStore;
use tollgate::store::{ApplyFuture, CommitMode, Deadline, ResetFuture, Store};
use tollgate_limiter::{Check, Hits, Otherwise, Step};

use super::run;

/// A mistake of a store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bug {
    /// A refused start keeps what it reserved in other buckets.
    StartsAreFinal,
    /// An end is sent twice.
    EndsAreRetried,
    /// An end charges in full, whatever was reserved.
    EndsAlwaysCharge,
    /// A refused start is not remembered.
    RefusalsAreForgotten,
    /// An expiry is an hour late.
    ExpiresLate,
    /// A release settles the reservation by one hit.
    ReleasesKeepAHit,
    /// A repeated commit of an id that was settled is charged.
    RepeatsAreCharged,
}

/// A store with a bug.
pub(super) struct Planted {
    store: MemoryStore,
    bug: Bug,
}

impl Planted {
    pub(super) const fn new(store: MemoryStore, bug: Bug) -> Self {
        Self { store, bug }
    }

    fn spoil(&self, check: &mut Check) {
        let Hits::Reservation(step) = &mut check.operation.hits else {
            return;
        };
        match (self.bug, step) {
            (Bug::EndsAlwaysCharge, Step::Commit { hits, .. }) => {
                check.operation.hits = Hits::Charge(*hits);
            }
            (
                Bug::RefusalsAreForgotten,
                Step::Reserve {
                    remember_refused, ..
                },
            ) => *remember_refused = false,
            (Bug::ExpiresLate, Step::Reserve { expiry, .. }) => {
                expiry.after_ms = expiry.after_ms.saturating_add(3_600_000);
            }
            (Bug::ReleasesKeepAHit, step @ Step::Release) => {
                *step = Step::Commit {
                    hits: 1,
                    otherwise: Otherwise::Unknown,
                };
            }
            (Bug::RepeatsAreCharged, Step::Commit { otherwise, .. }) => {
                *otherwise = Otherwise::Charge;
            }
            _ => {}
        }
    }
}

impl Store for Planted {
    fn apply(
        &self,
        mut checks: Vec<Check>,
        deadline: Deadline,
        mode: CommitMode,
    ) -> ApplyFuture<'_> {
        for check in &mut checks {
            self.spoil(check);
        }
        let mode = match self.bug {
            Bug::StartsAreFinal => CommitMode::Immediate,
            _ => mode,
        };
        let is_end =
            |check: &Check| matches!(check.operation.hits, Hits::Reservation(Step::Commit { .. }));
        if matches!(self.bug, Bug::EndsAreRetried) && checks.iter().any(is_end) {
            return Box::pin(async move {
                self.store.apply(checks.clone(), deadline, mode).await?;
                self.store.apply(checks, deadline, mode).await
            });
        }
        self.store.apply(checks, deadline, mode)
    }

    fn reset(&self, checks: Vec<Check>) -> ResetFuture<'_> {
        self.store.reset(checks)
    }
}

/// Every bug is found within this many seeds.
const SEEDS: u64 = 300;

#[test]
fn planted_bugs_of_reservations_are_found() {
    for bug in [
        Bug::StartsAreFinal,
        Bug::EndsAreRetried,
        Bug::EndsAlwaysCharge,
        Bug::RefusalsAreForgotten,
        Bug::ExpiresLate,
        Bug::ReleasesKeepAHit,
        Bug::RepeatsAreCharged,
    ] {
        let mut seeds = 1..=SEEDS;
        let found = seeds.any(|seed| !run(seed, Some(bug), false).broken.is_empty());
        assert!(found, "not found: {bug:?}");
    }
}
