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
use crate::store::api::ask;
use crate::store::{
    CheckResult, Deadline, Purpose, StoreError, StoreFault, StoreReply, TentativeTake,
};
use tollgate_limiter::{Check, Hits, Operation, Otherwise, ReservationOutcome, Step};

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

/// Whether the store that gave this outcome knows the reservation.
fn is_known(check: &Check, outcome: ReservationOutcome) -> bool {
    match outcome {
        ReservationOutcome::Unknown => false,
        // A stream that ends again is charged again.
        ReservationOutcome::SettledBefore => of_refusal(check).is_none(),
        _ => true,
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
        let mut answers: Vec<Option<CheckResult>> = vec![None; checks.len()];
        for (check, answer) in checks.iter().zip(&mut answers) {
            if is_settle(check) {
                *answer = self.settle_in_second(check, deadline).await;
            }
        }
        let mut local = Vec::new();
        let (mut rest, mut places) = (Vec::new(), Vec::new());
        for (place, (check, answer)) in checks.into_iter().zip(&answers).enumerate() {
            if answer.is_some() {
                local.push(place);
            } else {
                rest.push(check);
                places.push(place);
            }
        }
        let mut reply = StoreReply {
            local,
            ..StoreReply::undecided(0, &StoreError::Stopped)
        };
        if !rest.is_empty() {
            let client = Box::new(self.client(false));
            let first = ask(client, rest, deadline, purpose).await?;
            TentativeTake::merge(&mut reply.tentative, first.tentative);
            let moved = first.local.iter().filter_map(|place| places.get(*place));
            reply.local.extend(moved);
            for (place, answer) in places.into_iter().zip(first.answers) {
                if let Some(slot) = answers.get_mut(place) {
                    *slot = Some(answer);
                }
            }
        }
        let answers = answers.into_iter();
        reply.answers = answers
            .map(|answer| answer.unwrap_or(Err(StoreError::Stopped)))
            .collect();
        Ok(reply)
    }

    /// The result of a settle of a reservation that the second store made; none where it did not.
    async fn settle_in_second(&self, check: &Check, deadline: Deadline) -> Option<CheckResult> {
        for asked in [Some(without_charge(check)), of_refusal(check)] {
            let asked = own_part(&asked?, &self.metrics);
            let uses_refusal = of_refusal(&asked).is_some();
            let answer = self.ask_second(asked, deadline).await;
            match &answer {
                Err(_) => return Some(answer),
                Ok(outcome) => {
                    let is_known = if uses_refusal {
                        outcome.reservation != ReservationOutcome::Charged
                    } else {
                        is_known(check, outcome.reservation)
                    };
                    if is_known {
                        self.metrics.decided_locally.inc();
                        return Some(answer);
                    }
                }
            }
        }
        None
    }

    async fn ask_second(&self, check: Check, deadline: Deadline) -> CheckResult {
        let asked = self.second.ask(vec![check], deadline, Purpose::Decide);
        let mut answers = asked.await?.answers;
        answers.pop().unwrap_or(Err(StoreError::Stopped))
    }
}
