//! The answer to a call, from the outcomes of its limits.

use std::sync::Arc;

use tollgate_limiter::{Code, Cost, Hits, LimitOrigin, PlannedCheck, ReservationOutcome, Step};

use tollgate_limiter::algorithm::Settled;

use super::bounds::give_way;
use super::operations::cost_of;
use super::{ApiAnswer, ApiError, ApiLimit, ApiRequest};
use crate::pipeline::api_call::{ApiStep, Decided};
use crate::pipeline::encode_check::{DecidedCheck, DecidedChecks, NoLimit};

/// Limits that are written before other tasks run.
const LIMITS_PER_TURN: usize = 256;

/// A call and what became of its checks.
pub(super) struct CallOutcomes<'a> {
    pub(super) call: &'a ApiRequest<'a>,
    pub(super) checks: DecidedChecks<'a>,
    /// The names of the rules, by their index; none for an answer without its limits.
    pub(super) rule_names: Option<&'a [Arc<str>]>,
}

// === impl ApiAnswer ===

impl ApiAnswer {
    /// The answer where no limit was asked: nothing is reserved, and there is nothing to settle.
    pub(super) fn without_limits(
        call: &ApiRequest<'_>,
        decided: Decided,
        no_limit: Option<NoLimit>,
    ) -> Self {
        let passed = decided.code == Code::Ok;
        let hits = hits_max(call);
        Self {
            verdict: decided.code,
            reservation: match call.operation {
                ApiStep::Check | ApiStep::Peek | ApiStep::Report | ApiStep::Told { .. } => {
                    ReservationOutcome::None
                }
                ApiStep::Reserve { .. } if passed => ReservationOutcome::Reserved,
                ApiStep::Reserve { .. } => ReservationOutcome::Refused,
                ApiStep::Extend { .. } => ReservationOutcome::Extended,
                ApiStep::Commit { .. } | ApiStep::Release => ReservationOutcome::Settled,
            },
            hits: match call.operation {
                ApiStep::Check | ApiStep::Report if passed => hits,
                _ => 0,
            },
            settled: Settled {
                reserved: 0,
                committed: committed(call),
            },
            expires_ms: call.operation.expires_ms(),
            remaining: None,
            reset_us: None,
            retry_us: decided.retry_us,
            no_limit,
            lease: None,
            limits: Vec::new(),
            headers: decided.headers,
            response: decided.response,
        }
    }
}

// === impl CallOutcomes ===

impl CallOutcomes<'_> {
    /// The answer. One of many limits lets other tasks run while it is written.
    pub(super) async fn answer(&self, decided: Decided) -> Result<ApiAnswer, ApiError> {
        let decided_checks: Vec<_> = self.checks.iter().collect();
        let mut limits = Vec::new();
        if let Some(names) = self.rule_names {
            limits.reserve_exact(decided_checks.len());
            for checks in decided_checks.chunks(LIMITS_PER_TURN) {
                limits.extend(checks.iter().map(|one| self.limit(one, names)));
                if decided_checks.len() > LIMITS_PER_TURN {
                    give_way().await;
                }
            }
        }
        self.finish(decided, &decided_checks, limits)
    }

    fn finish(
        &self,
        decided: Decided,
        decided_checks: &[DecidedCheck<'_>],
        limits: Vec<ApiLimit>,
    ) -> Result<ApiAnswer, ApiError> {
        if decided_checks.is_empty() {
            let no_limit = NoLimit::of(self.checks.plan);
            return Ok(ApiAnswer::without_limits(self.call, decided, no_limit));
        }
        let reservation = if decided.was_settled {
            // Whatever it found open in the other limits.
            ReservationOutcome::SettledBefore
        } else {
            self.reservation(decided_checks, decided.code)
        };
        if reservation == ReservationOutcome::Unknown {
            return Err(ApiError::Unknown(
                "no reservation of this id is known in the limits of these descriptors; \
                 it has expired, was never made, or was made with other descriptors"
                    .to_owned(),
            ));
        }
        let tightest = self.checks.tightest(decided_checks);
        Ok(ApiAnswer {
            verdict: decided.code,
            reservation,
            hits: self.hits(decided_checks, reservation, decided.code),
            settled: self.settled(decided_checks, reservation),
            expires_ms: self.expires_ms(decided_checks, reservation),
            remaining: tightest.map(|limit| limit.remaining),
            reset_us: tightest.map(|limit| limit.reset_us),
            retry_us: decided.retry_us.filter(|_| self.call.operation.takes()),
            no_limit: None,
            lease: None,
            limits,
            headers: decided.headers,
            response: decided.response,
        })
    }

    /// What became of the reservation over all limits. Limits that do not know the id do not matter
    /// while another one does, since a limit in shadow mode need not have it.
    fn reservation(&self, checks: &[DecidedCheck<'_>], code: Code) -> ReservationOutcome {
        let any = |meant: ReservationOutcome| {
            let mut checks = checks.iter();
            checks.any(|one| one.outcome.reservation == meant)
        };
        match self.call.operation {
            ApiStep::Check | ApiStep::Peek | ApiStep::Report | ApiStep::Told { .. } => {
                ReservationOutcome::None
            }
            ApiStep::Reserve { .. } => match code {
                Code::Ok => ReservationOutcome::Reserved,
                Code::OverLimit if any(ReservationOutcome::TooMany) => ReservationOutcome::TooMany,
                Code::OverLimit => ReservationOutcome::Refused,
            },
            ApiStep::Extend { .. } if any(ReservationOutcome::Extended) => {
                ReservationOutcome::Extended
            }
            ApiStep::Extend { .. } => self.unknown(checks, ReservationOutcome::Extended),
            ApiStep::Commit { .. } | ApiStep::Release => [
                ReservationOutcome::Settled,
                ReservationOutcome::Charged,
                ReservationOutcome::Ignored,
                ReservationOutcome::SettledBefore,
            ]
            .into_iter()
            .find(|one| any(*one))
            .unwrap_or_else(|| self.unknown(checks, ReservationOutcome::Settled)),
        }
    }

    /// The outcome where no limit knows the id: that of nothing to settle if none is enforced.
    fn unknown(
        &self,
        checks: &[DecidedCheck<'_>],
        nothing: ReservationOutcome,
    ) -> ReservationOutcome {
        let mut checks = checks.iter();
        if !self.checks.shadow && checks.any(|one| !one.planned.origin.shadow_mode()) {
            ReservationOutcome::Unknown
        } else {
            nothing
        }
    }

    /// The amounts of the settled reservation in hits before cost. The limit with the highest cost
    /// says them, since rounding hides least there. A budget says them after cost, since its limits
    /// can have several.
    fn settled(&self, checks: &[DecidedCheck<'_>], outcome: ReservationOutcome) -> Settled {
        let settled = checks.iter().filter_map(|one| {
            let settled = one.outcome.settled()?;
            let cost = own_cost(one.planned.origin);
            (one.outcome.reservation == outcome).then(|| {
                let millionths = cost.map_or(0, Cost::as_millionths);
                let hits = |priced| cost.map_or(priced, |cost| cost.hits_for(priced));
                (millionths, hits(settled.reserved), hits(settled.committed))
            })
        });
        let Some((cost, reserved, settled)) = settled.max() else {
            return Settled {
                reserved: 0,
                committed: committed(self.call),
            };
        };
        Settled {
            reserved,
            committed: match outcome {
                ReservationOutcome::Settled if cost > 0 => committed(self.call),
                _ => settled,
            },
        }
    }

    fn hits(
        &self,
        checks: &[DecidedCheck<'_>],
        reservation: ReservationOutcome,
        code: Code,
    ) -> u64 {
        match (self.call.operation, reservation) {
            (_, ReservationOutcome::Reserved) => {
                let reserved = checks.iter().filter_map(|one| self.reserved_hits(one));
                reserved.max().unwrap_or_default()
            }
            (_, ReservationOutcome::Charged) => hits_max(self.call),
            (ApiStep::Check | ApiStep::Report, _) if code == Code::Ok => hits_max(self.call),
            _ => 0,
        }
    }

    /// What a check reserved, before cost.
    fn reserved_hits(&self, one: &DecidedCheck<'_>) -> Option<u64> {
        if one.outcome.reservation != ReservationOutcome::Reserved {
            return None;
        }
        Some(match self.call.operation {
            ApiStep::Reserve {
                uses_rule_amount: true,
                ..
            } => {
                let amount = one.planned.check.operation.hits.count();
                own_cost(one.planned.origin).map_or(amount, |cost| cost.hits_for(amount))
            }
            _ => hits_max(self.call),
        })
    }

    fn expires_ms(
        &self,
        checks: &[DecidedCheck<'_>],
        reservation: ReservationOutcome,
    ) -> Option<u32> {
        let first = || {
            let expiries = checks
                .iter()
                .filter_map(|one| match one.planned.check.operation.hits {
                    Hits::Reservation(Step::Reserve { expiry, .. }) => Some(expiry.after_ms.get()),
                    _ => None,
                });
            expiries.min()
        };
        match reservation {
            ReservationOutcome::Reserved => first(),
            ReservationOutcome::Extended => self.call.operation.expires_ms(),
            _ => None,
        }
    }

    fn limit(&self, one: &DecidedCheck<'_>, rule_names: &[Arc<str>]) -> ApiLimit {
        let PlannedCheck { check, origin } = one.planned;
        let outcome = one.outcome;
        let refused = self.checks.refuses(one);
        let rule = origin.rule();
        ApiLimit {
            descriptor: one.descriptor,
            name: rule.map_or_else(String::new, |rule| rule.name.clone()),
            rule: rule
                .and_then(|rule| rule_names.get(rule.index).cloned())
                .unwrap_or_default(),
            requests_per_unit: check.limit.requests(),
            window: check.limit.describe_window(),
            verdict: if refused { Code::OverLimit } else { Code::Ok },
            remaining: outcome.remaining,
            reset_us: outcome.reset_us,
            retry_us: outcome
                .retry_us
                .filter(|_| refused && self.call.operation.takes()),
        }
    }
}

/// The cost of a limit; none where it shares a budget, whose limits can have several.
pub(super) fn own_cost(origin: LimitOrigin<'_>) -> Option<Cost> {
    let in_budget = origin.rule().is_some_and(|rule| rule.budget.is_some());
    (!in_budget).then(|| cost_of(origin))
}

/// The true amount that a call says; 0 for a release.
fn committed(call: &ApiRequest<'_>) -> u64 {
    match call.operation {
        ApiStep::Commit { .. } => hits_max(call),
        _ => 0,
    }
}

/// The largest number of hits of a descriptor, before cost.
fn hits_max(call: &ApiRequest<'_>) -> u64 {
    let hits = call.request.descriptors();
    hits.map(|one| one.hits.count()).max().unwrap_or_default()
}
