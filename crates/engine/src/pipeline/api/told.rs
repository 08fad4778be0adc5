//! The outcomes of hits that a caller decided by itself: no store is asked, and observers see them
//! as they see others.

use tollgate_limiter::{Check, Outcome, Plan, ReservationOutcome, Timestamp};

/// The outcomes of hits that a caller admitted or refused, from what is known of their limits. The
/// limit that has the fewest hits left is the one that refused.
pub(super) fn told_outcomes(
    plan: &Plan<'_>,
    known: &[Option<Outcome>],
    refused: bool,
) -> Vec<Option<Outcome>> {
    let known_of = |position: usize| known.get(plan.deciding(position)).copied().flatten();
    let left = |position: &usize| known_of(*position).map_or(u64::MAX, |known| known.remaining);
    let positions = 0..plan.checks().len();
    let refusing = positions.min_by_key(left).filter(|_| refused);
    let refusing = refusing.map(|position| plan.deciding(position));
    let checks = plan.checks().iter().enumerate();
    let outcomes = checks.map(|(position, check)| {
        let is_refused = refusing == Some(plan.deciding(position));
        Some(outcome(check, known_of(position), is_refused))
    });
    outcomes.collect()
}

fn outcome(check: &Check, known: Option<Outcome>, is_refused: bool) -> Outcome {
    let most = check.limit.burst();
    let reset_us = known.map_or(0, |known| known.reset_us);
    let remaining = match known {
        _ if is_refused => 0,
        Some(known) => known.remaining,
        None => most,
    };
    let used = most.saturating_sub(remaining);
    Outcome {
        allowed: !is_refused,
        used_before: if is_refused {
            most
        } else {
            used.saturating_sub(check.operation.hits.count())
        },
        remaining,
        reset_us,
        retry_us: Some(if is_refused { reset_us } else { 0 }),
        bucket_time: known.map_or_else(Timestamp::default, |known| known.bucket_time),
        reservation: ReservationOutcome::None,
        blocked: false,
    }
}
