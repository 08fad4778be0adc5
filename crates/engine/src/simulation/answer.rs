//! The answer to a simulated request.

use std::ops::Range;

use tollgate_limiter::{
    Check, Code, Decision, Key, Operation, Outcome, Plan, ReservationOutcome, Status, Timestamp,
};

use crate::pipeline::{NoLimit, RequestError, described_position, retry_after};

/// What a client would have got, and how it came about.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The overall code, or why there is no answer.
    pub code: Result<Code, RequestError>,
    /// An encoded `RateLimitResponse`; empty without an answer.
    pub message: Vec<u8>,
    /// One for each descriptor, in the order sent. Empty where a setting answered.
    pub descriptors: Vec<DescriptorAnswer>,
    /// The position of the descriptor that response headers describe; none without a limit.
    pub described: Option<usize>,
    /// Seconds until all limits that refused allow the request, as `Retry-After` has them; none
    /// when that is never, or nothing refused.
    pub retry_after_seconds: Option<u64>,
    /// Why no limit applies; none where one does, or there is no plan.
    pub no_limit: Option<NoLimit>,
    /// The checks, in the plan's order.
    pub checks: Vec<CheckAnswer>,
    /// The indices of the rules that each descriptor matched, counted or not, in the order sent.
    pub matched: Vec<Range<usize>>,
    /// Hits that go back to their buckets, because the request was refused.
    pub refunds: Vec<Check>,
    /// What became of its reservation, over all limits.
    pub reservation: ReservationOutcome,
}

/// The answer for one descriptor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DescriptorAnswer {
    /// Whether it passes.
    pub code: Code,
    /// Hits left; `u32::MAX` when unlimited.
    pub remaining: u64,
    /// Retry time when over limit, reset time otherwise; none when no limit applies.
    pub until_reset_us: Option<u64>,
    /// The position of the check that it reports.
    pub check: Option<usize>,
    /// Whether it refuses the request when it is over limit: a quota beside one with hits left does
    /// not.
    pub refuses: bool,
}

/// The answer to one check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CheckAnswer {
    /// The position of its descriptor.
    pub descriptor: usize,
    /// The index of its rule; none for a limit of the request itself.
    pub rule: Option<usize>,
    /// Its bucket.
    pub key: Key,
    /// What it asked.
    pub operation: Operation,
    /// What the bucket said; none when it did not decide.
    pub outcome: Option<Outcome>,
    /// When the check was applied; none when it was not.
    pub at: Option<Timestamp>,
}

// === impl Answer ===

impl Answer {
    pub(super) fn of(decision: &Decision<'_>, message: Vec<u8>) -> Self {
        let quotas_refuse = decision.quotas_refuse();
        let statuses = decision.statuses.iter();
        let descriptors = statuses.map(|status| DescriptorAnswer::of(status, quotas_refuse));
        Self {
            message,
            descriptors: descriptors.collect(),
            described: described_position(decision),
            retry_after_seconds: retry_after(decision),
            ..Self::new(Ok(decision.code))
        }
    }

    /// The answer of a request that has none.
    pub fn without(error: RequestError) -> Self {
        Self::new(Err(error))
    }

    fn new(code: Result<Code, RequestError>) -> Self {
        Self {
            code,
            message: Vec::new(),
            descriptors: Vec::new(),
            described: None,
            retry_after_seconds: None,
            no_limit: None,
            checks: Vec::new(),
            matched: Vec::new(),
            refunds: Vec::new(),
            reservation: ReservationOutcome::None,
        }
    }

    pub(super) fn add_checks(&mut self, plan: &Plan<'_>, outcomes: &[Option<Outcome>]) {
        let matched = plan.matched().map(|matched| {
            let first = matched.rules.first().map_or(0, |rule| rule.index);
            first..first.saturating_add(matched.rules.len())
        });
        self.matched.extend(matched);
        self.no_limit = NoLimit::of(plan);
        let checks = plan
            .descriptor_checks()
            .filter_map(|(descriptor, position)| {
                let planned = plan.planned_check(position)?;
                Some(CheckAnswer {
                    descriptor,
                    rule: planned.origin.rule().map(|rule| rule.index),
                    key: planned.check.key,
                    operation: planned.check.operation,
                    outcome: outcomes.get(position).copied().flatten(),
                    at: None,
                })
            });
        self.checks.extend(checks);
        let steps = outcomes.iter().flatten().map(|outcome| outcome.reservation);
        let steps: Vec<_> = steps.collect();
        self.reservation = reservation(self.code.as_ref().ok().copied(), &steps);
    }
}

/// What became of a reservation over all limits. A limit that does not know its id does not matter
/// while another one does.
fn reservation(code: Option<Code>, steps: &[ReservationOutcome]) -> ReservationOutcome {
    use ReservationOutcome::{
        Charged, Extended, Ignored, None, Refused, Reserved, Settled, SettledBefore, TooMany,
        Unknown,
    };
    let any = |meant| steps.contains(&meant);
    match code {
        // A limit that refused is in shadow mode: the API answers `reserved`, too.
        Some(Code::Ok) if any(Reserved) || any(TooMany) || any(Refused) => return Reserved,
        _ if any(Reserved) && !any(TooMany) => return Refused,
        _ => {}
    }
    let in_order = [
        TooMany,
        Settled,
        Charged,
        Ignored,
        SettledBefore,
        Extended,
        Reserved,
        Refused,
        Unknown,
    ];
    in_order.into_iter().find(|one| any(*one)).unwrap_or(None)
}

// === impl DescriptorAnswer ===

impl DescriptorAnswer {
    fn of(status: &Status<'_>, quotas_refuse: bool) -> Self {
        Self {
            code: status.code,
            remaining: status.remaining,
            until_reset_us: status.until_reset_us,
            check: status.check_index,
            refuses: !status.quota || quotas_refuse,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_over_several_limits_is_named_as_the_api_names_it() {
        use ReservationOutcome::{Refused, Reserved, Settled, TooMany, Unknown};
        for (code, steps, expected) in [
            (Code::Ok, [Reserved, Reserved], Reserved),
            (Code::OverLimit, [Reserved, Refused], Refused),
            (Code::OverLimit, [Reserved, TooMany], TooMany),
            // A limit in shadow mode refused.
            (Code::Ok, [Reserved, Refused], Reserved),
            (Code::Ok, [TooMany, Refused], Reserved),
            (Code::Ok, [Settled, Unknown], Settled),
        ] {
            let named = reservation(Some(code), &steps);
            assert_eq!(named, expected, "{code:?} {steps:?}");
        }
    }
}
