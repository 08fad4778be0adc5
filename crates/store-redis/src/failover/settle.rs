//! Settles: a reservation settles in the store that made it.
//!
//! While the second store has records of reservations, a settle asks it first, and the first store
//! when the second does not know the id. An amount is charged once, in one store: the second is
//! first asked in a way that charges nothing for an unknown id.
//!
//! A settle that the first store cannot decide is an error when it only ends a reservation, since
//! the second store has none, and when the first store may have carried it out.

use std::sync::atomic::Ordering;

use super::{FailoverStore, own_part};
use tollgate_limiter::{Check, Hits, Operation, Otherwise, ReservationOutcome, Step};
use tollgate_store::ask;
use tollgate_store::{CheckResult, Deadline, Purpose, StoreError, StoreFault, StoreReply};

/// Whether a check settles or extends a reservation.
fn is_settle(check: &Check) -> bool {
    match check.operation.hits {
        Hits::Reservation(step) => !matches!(step, Step::Reserve { .. }),
        Hits::Take(_) | Hits::Refund(_) | Hits::Undo { .. } | Hits::Charge(_) => false,
    }
}

/// Whether the second store may decide what the first did not, for this reason.
pub(super) fn may_move(check: &Check, fault: StoreFault) -> bool {
    match check.operation.hits {
        Hits::Take(_)
        | Hits::Refund(_)
        | Hits::Undo { .. }
        | Hits::Reservation(Step::Reserve { .. }) => true,
        Hits::Charge(_)
        | Hits::Reservation(Step::Commit {
            otherwise: Otherwise::Charge | Otherwise::ChargeOnce,
            ..
        }) => !fault.outcome_unknown(),
        Hits::Reservation(_) => false,
    }
}

/// The settle that changes nothing when no reservation of its id is open.
fn without_charge(check: &Check) -> Check {
    let hits = match check.operation.hits {
        Hits::Reservation(Step::Commit { hits, .. }) => Hits::Reservation(Step::Commit {
            hits,
            otherwise: Otherwise::Unknown,
        }),
        hits => hits,
    };
    with_hits(check, hits)
}

/// The commit that uses up a remembered refusal of its id and charges nothing without one; none for
/// a settle that uses up none.
fn of_refusal(check: &Check) -> Option<Check> {
    match check.operation.hits {
        Hits::Reservation(Step::Commit {
            otherwise: otherwise @ Otherwise::Charge,
            ..
        }) => {
            let hits = Hits::Reservation(Step::Commit { hits: 0, otherwise });
            Some(with_hits(check, hits))
        }
        _ => None,
    }
}

fn with_hits(check: &Check, hits: Hits) -> Check {
    Check {
        operation: Operation {
            hits,
            ..check.operation
        },
        ..check.clone()
    }
}

// === impl FailoverStore ===

impl FailoverStore {
    /// Whether the second store may have made a reservation that these checks settle.
    pub(super) fn settles_in_second(&self, checks: &[Check]) -> bool {
        checks.iter().any(is_settle)
            && self
                .second_levels
                .iter()
                .any(|levels| levels.records.load(Ordering::Relaxed) > 0)
    }

    /// Asks the second store for the settles among these checks, and the first one for those that
    /// the second does not know, with the other checks.
    pub(super) async fn settle(
        self,
        checks: Vec<Check>,
        deadline: Deadline,
        purpose: Purpose,
    ) -> Result<StoreReply, StoreError> {
        let mut reply = StoreReply::undecided(checks.len(), &StoreError::Stopped);
        let (mut rest, mut positions) = (Vec::new(), Vec::new());
        for (position, check) in checks.into_iter().enumerate() {
            if is_settle(&check)
                && let Some(answer) = self.settle_in_second(&check, deadline).await
            {
                reply.put(position, answer);
                reply.local.push(position);
            } else {
                rest.push(check);
                positions.push(position);
            }
        }
        if !rest.is_empty() {
            let client = Box::new(self.client(false));
            let first = ask(client, rest, deadline, purpose).await?;
            let local = first.local.iter();
            let local = local.filter_map(|index| positions.get(*index));
            reply.local.extend(local);
            reply.tentative = first.tentative;
            for (position, answer) in positions.into_iter().zip(first.answers) {
                reply.put(position, answer);
            }
        }
        Ok(reply)
    }

    /// The result of a settle of a reservation that the second store made; none where it did not.
    async fn settle_in_second(&self, check: &Check, deadline: Deadline) -> Option<CheckResult> {
        let without_charge = self.ask_second(&without_charge(check), deadline).await;
        let mut answer = without_charge;
        let mut knows_it = answer
            .as_ref()
            .map_or(true, |outcome| match outcome.reservation {
                ReservationOutcome::Unknown => false,
                // A stream that ends again is charged again.
                ReservationOutcome::SettledBefore => of_refusal(check).is_none(),
                _ => true,
            });
        if !knows_it && let Some(of_refusal) = of_refusal(check) {
            answer = self.ask_second(&of_refusal, deadline).await;
            let charged = ReservationOutcome::Charged;
            knows_it = answer
                .as_ref()
                .map_or(true, |outcome| outcome.reservation != charged);
        }
        if !knows_it {
            return None;
        }
        if answer.is_ok() {
            self.metrics.decided_locally.inc();
        }
        Some(answer)
    }

    async fn ask_second(&self, check: &Check, deadline: Deadline) -> CheckResult {
        let checks = vec![own_part(check, &self.metrics)];
        let asked = self.second.ask(checks, deadline, Purpose::Decide);
        let mut answers = asked.await?.answers;
        answers.pop().unwrap_or(Err(StoreError::Stopped))
    }
}
