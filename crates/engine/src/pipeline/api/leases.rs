//! Leases of callers: hits that are taken now, for the caller to admit by itself.
//!
//! How: a lease is a reservation whose hits stay charged when it expires, so it takes from all
//! limits or from none, is bounded in memory, survives in snapshots and in Redis, and ends with a
//! reset. A return is its commit by the hits that were used. A look before it says what is left,
//! and whether the limits can be leased. Neither of these steps is shown to observers. What
//! callers decide is, once they say so: as requests whose outcomes are made (`told`).
//!
//! What it deliberately does not do: keep leases (the store does), or read ids (`lease_id`).

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use tollgate_limiter::{
    Check, Code, CountRefused, Hits, Key, LeasePolicy, OnExpiry, Otherwise, Outcome, Plan, Request,
    ReservationOutcome,
};

use super::bounds::validate_id;
use super::call::peeked;
use super::lease_id::{LeaseId, unix_ms};
use super::operations::cost_of;
use super::{
    ApiAnswer, ApiError, ApiOperation, ApiRequest, CallerDecisions, LeaseAnswer, LeaseCall,
    NoLimit, NotLeased, ReturnCall,
};
use crate::ended::RequestError;
use crate::pipeline::api_call::{ApiCall, ApiOutcomes, ApiStep, Decided};
use crate::pipeline::lease_holders::HolderCall;
use crate::pipeline::{Generation, Pipeline};
use tollgate_telemetry::metrics::CallMethod;

/// A lease has at most this part of what is left, shared by all holders: one in so many.
const LEFT_SHARE: u64 = 4;

/// A lease has at most so many times the hits that its caller admitted lately.
const GROWTH: u64 = 4;

/// What a call reads of its lease and limits, on its way from part to part.
struct Parts<'a> {
    call: &'a ApiRequest<'a, ApiOperation>,
    answer_bytes_max: usize,
}

// === impl Pipeline ===

impl Pipeline {
    /// Carries out one call whose answer may have so many bytes.
    ///
    /// # Errors
    ///
    /// When the call is invalid, its reservation or lease is not known, there are no rules, or the
    /// store did not decide. Nothing is taken where the answer would be larger.
    pub async fn carry_out(
        &self,
        call: ApiRequest<'_, ApiOperation>,
        answer_bytes_max: usize,
    ) -> Result<ApiAnswer, ApiError> {
        let parts = Parts {
            call: &call,
            answer_bytes_max,
        };
        match call.operation {
            ApiOperation::Step(step) => {
                let call = ApiRequest {
                    request: call.request,
                    operation: step,
                    id: call.id,
                    deadline: call.deadline,
                    parent: call.parent,
                };
                self.call_api_within(call, Some(answer_bytes_max)).await
            }
            ApiOperation::Lease(lease) => self.lease(&parts, &lease).await,
            ApiOperation::Return(lease) => self.take_back(&parts, &lease).await,
        }
    }

    async fn lease(&self, parts: &Parts<'_>, lease: &LeaseCall) -> Result<ApiAnswer, ApiError> {
        validate_id("lease", parts.call.id).map_err(ApiError::Invalid)?;
        self.metrics.requests.received(CallMethod::Lease);
        let peek = parts.step(ApiStep::Peek, "", 1);
        let (rules, peeked) = self.decide_part(&peek, parts.answer_bytes_max).await?;
        let plan = Plan::from_buffer(peeked.plan, &rules.rules);
        let holder = HolderCall {
            limits: limits_key(&plan),
            last: LeaseId::parse(parts.call.id).map(|last| last.token),
            now_us: self.clock.uptime_us(),
        };
        self.tell(parts, lease.decided, &peeked.outcomes).await;
        let admitted = lease.decided.admitted.unwrap_or_default();
        let excess = self.lease_holders.account(holder, admitted);
        self.count_excess(parts, excess, holder.now_us);
        if let Some(reason) = self.not_leased(&plan) {
            self.metrics.caller_leases.not_leased.inc();
            let names = Some(&*rules.names);
            let answer = self.answer_of(&peek, (&plan, names), &peeked.outcomes, peeked.decided);
            return Ok(ApiAnswer {
                lease: Some(self.not_leased_answer(reason)),
                ..answer.await?
            });
        }
        let left = hits_left(&plan, &peeked.outcomes);
        let share = left / LEFT_SHARE / self.lease_holders.sharers(holder).max(1);
        let used = lease.decided.admitted;
        let used = used.map_or(u64::MAX, |used| used.saturating_mul(GROWTH));
        let most = lease.hits.min(self.config.caller_lease_hits_max).min(used);
        let hits = most.min(share).max(1);
        let valid_us = valid_us(&plan, &peeked.outcomes).min(self.config.lease_age_max_us);
        let answer = self.take(parts, hits, valid_us).await?;
        if hits == 1 || answer.lease != Some(LeaseAnswer::Refused) {
            return Ok(self.leased(holder, answer));
        }
        // Others took them meanwhile.
        let answer = self.take(parts, 1, valid_us).await?;
        Ok(self.leased(holder, answer))
    }

    /// Takes hits for a lease from all limits or from none.
    async fn take(
        &self,
        parts: &Parts<'_>,
        hits: u64,
        valid_us: u64,
    ) -> Result<ApiAnswer, ApiError> {
        let after_ms = u32::try_from(valid_us.div_ceil(1_000)).unwrap_or(u32::MAX);
        let after_ms = NonZeroU32::new(after_ms).unwrap_or(NonZeroU32::MIN);
        let expires_ms = unix_ms(self.clock.now()).saturating_add(after_ms.get().into());
        let id = LeaseId::new_text(hits, expires_ms).map_err(RequestError::Malformed)?;
        let reserve = ApiStep::Reserve {
            expires_ms: Some(after_ms),
            on_expiry: Some(OnExpiry::Charge),
            uses_rule_amount: false,
        };
        let reserve = parts.step(reserve, &id, hits);
        let (rules, taken) = self.decide_part(&reserve, parts.answer_bytes_max).await?;
        let plan = Plan::from_buffer(taken.plan, &rules.rules);
        let lease = match (taken.decided.code, self.not_leased(&plan)) {
            (_, Some(reason)) => {
                // The rules have changed since the look.
                let release = parts.step(ApiStep::Release, &id, 0);
                let _ = self.decide_part(&release, usize::MAX).await;
                self.not_leased_answer(reason)
            }
            (Code::Ok, None) => {
                let valid_us = self::valid_us(&plan, &taken.outcomes).min(valid_us);
                LeaseAnswer::Granted {
                    lease: id.clone(),
                    hits,
                    valid_us,
                }
            }
            (Code::OverLimit, None) => LeaseAnswer::Refused,
        };
        let names = Some(&*rules.names);
        let answer = self.answer_of(&reserve, (&plan, names), &taken.outcomes, taken.decided);
        let answer = answer.await?;
        Ok(ApiAnswer {
            lease: Some(lease),
            ..answer
        })
    }

    /// Counts a call for a lease that was decided.
    fn leased(&self, holder: HolderCall, answer: ApiAnswer) -> ApiAnswer {
        let metrics = &self.metrics.caller_leases;
        match &answer.lease {
            Some(LeaseAnswer::Granted { lease, hits, .. }) => {
                metrics.granted.inc();
                metrics.granted_hits.inc_by(*hits);
                if let Some(id) = LeaseId::parse(lease) {
                    self.lease_holders.granted(holder, id.token, *hits);
                }
            }
            Some(LeaseAnswer::NotLeased { .. }) => metrics.not_leased.inc(),
            _ => {
                metrics.refused.inc();
                self.lease_holders.refused(holder);
            }
        }
        answer
    }

    async fn take_back(
        &self,
        parts: &Parts<'_>,
        lease: &ReturnCall,
    ) -> Result<ApiAnswer, ApiError> {
        validate_id("lease", parts.call.id).map_err(ApiError::Invalid)?;
        self.metrics.requests.received(CallMethod::Return);
        let metrics = &self.metrics.caller_leases;
        let Some(id) = LeaseId::parse(parts.call.id) else {
            metrics.unknown.inc();
            return Err(unknown());
        };
        if lease.unused > id.granted {
            return Err(ApiError::Invalid(format!(
                "unused is more than the {} hits of the lease; send how many of them were not used",
                id.granted
            )));
        }
        if id.has_expired(self.clock.now()) {
            metrics.expired.inc();
            self.tell(parts, lease.decided, &[]).await;
            self.returned(parts, id, lease, 0);
            return Ok(returned(parts, 0));
        }
        let commit = ApiStep::Commit {
            otherwise: Otherwise::Unknown,
        };
        let used = id.granted.saturating_sub(lease.unused);
        let commit = parts.step(commit, parts.call.id, used);
        let (rules, settled) = self.decide_part(&commit, parts.answer_bytes_max).await?;
        let plan = Plan::from_buffer(settled.plan, &rules.rules);
        let outcomes = settled.outcomes;
        let was_settled = settled.decided.was_settled;
        let names = Some(&*rules.names);
        let answer = self.answer_of(&commit, (&plan, names), &outcomes, settled.decided);
        let answer = answer.await.inspect_err(|_| metrics.unknown.inc());
        let answer = answer.map_err(|error| match error {
            ApiError::Unknown(_) => unknown(),
            error => error,
        })?;
        let hits = returned_hits(&plan, &outcomes, id.granted, lease.unused);
        if was_settled || answer.reservation == ReservationOutcome::SettledBefore {
            metrics.repeated.inc();
        } else {
            metrics.returned.inc();
            metrics.returned_hits.inc_by(hits);
            self.tell(parts, lease.decided, &outcomes).await;
            self.returned(parts, id, lease, hits);
        }
        Ok(ApiAnswer {
            lease: Some(LeaseAnswer::Returned(hits)),
            ..answer
        })
    }

    /// Decides one part of a call, which no observer sees. No setting answers it.
    async fn decide_part(
        &self,
        part: &ApiRequest<'_>,
        answer_bytes_max: usize,
    ) -> Result<(Arc<Generation>, ApiOutcomes), ApiError> {
        let asked = ApiCall {
            answer_bytes_max: Some(answer_bytes_max),
            is_quiet: true,
            ..ApiCall::new(part.operation, part.id, peeked(part))
        };
        let mut outcomes = self.ask(part, asked).await?;
        if let Some(error) = outcomes.undecided.take() {
            return Err(RequestError::from(error).into());
        }
        // A quiet part that exceeds a bound is an error.
        let rules = outcomes.rules.take().ok_or(RequestError::NoRules)?;
        Ok((rules, outcomes))
    }

    /// Shows observers what the caller decided by itself. `known` is what is known of its limits.
    async fn tell(&self, parts: &Parts<'_>, said: CallerDecisions, known: &[Option<Outcome>]) {
        let metrics = &self.metrics.caller_leases;
        for (refused, hits, counter) in [
            (false, said.admitted, &metrics.admitted_hits),
            (true, said.refused, &metrics.refused_hits),
        ] {
            let Some(hits) = hits.filter(|hits| *hits > 0) else {
                continue;
            };
            counter.inc_by(hits);
            let told = ApiCall::told(refused, known.to_vec());
            let part = parts.step(ApiStep::Told { refused }, "", hits);
            // What cannot be counted changes no answer.
            let _ = self.ask(&part, told).await;
        }
    }

    /// Notes that a lease came back.
    fn returned(&self, parts: &Parts<'_>, id: LeaseId, lease: &ReturnCall, returned: u64) {
        let now_us = self.clock.uptime_us();
        let admitted = lease.decided.admitted.unwrap_or_default();
        let hits = admitted.saturating_add(returned);
        let excess = self.lease_holders.returned(id.token, hits, now_us);
        self.count_excess(parts, excess, now_us);
    }

    /// Counts and names a caller that accounts for more hits than it was granted.
    fn count_excess(&self, parts: &Parts<'_>, excess: u64, now_us: u64) {
        if excess == 0 {
            return;
        }
        self.metrics.caller_leases.excess_hits.inc_by(excess);
        if self.lease_log.is_due(now_us) {
            let domain = String::from_utf8_lossy(parts.call.request.domain);
            tracing::warn!(
                target: "tollgate::pipeline::api::leases",
                domain = %domain.escape_debug(),
                lease = parts.call.id,
                excess_hits = excess,
                "a caller reports more hits than its leases had: it admits more than the limit, or counts hits twice"
            );
        }
    }

    /// Why the limits of a plan are not leased.
    fn not_leased(&self, plan: &Plan<'_>) -> Option<NotLeased> {
        if let Some(no_limit) = NoLimit::of(plan) {
            return Some(NotLeased::NoLimit(no_limit));
        }
        let modes = self.config.modes;
        if modes.shadow {
            return Some(NotLeased::Shadow);
        }
        if modes.quota {
            return Some(NotLeased::QuotaMode);
        }
        plan.planned_checks().find_map(|planned| {
            let (origin, rule) = (planned.origin, planned.origin.rule());
            if rule.is_some_and(|rule| !rule.leases) {
                Some(NotLeased::LeaseFalse)
            } else if origin.shadow_mode() {
                Some(NotLeased::Shadow)
            } else if origin.quota_mode() {
                Some(NotLeased::QuotaMode)
            } else if rule.is_some_and(|rule| rule.reserve.is_some()) {
                Some(NotLeased::Reservation)
            } else {
                (!can_lease(planned.check)).then_some(NotLeased::Algorithm)
            }
        })
    }

    fn not_leased_answer(&self, reason: NotLeased) -> LeaseAnswer {
        LeaseAnswer::NotLeased {
            reason,
            valid_us: self.config.lease_age_max_us,
        }
    }
}

/// Whether hits of this limit can be taken in advance, and hits that its callers refuse need not be
/// counted.
fn can_lease(check: &Check) -> bool {
    let counts_refused = check.limit.count_refused();
    check.algorithm.facts().lease_policy != LeasePolicy::Never
        && check.algorithm.facts().can_reserve
        && check.limit.penalty().is_none()
        && matches!(counts_refused, None | Some(CountRefused::None))
}

/// The price of one hit of every descriptor in each bucket, in millionths, with the position of the
/// check that decides there.
fn prices(plan: &Plan<'_>) -> HashMap<Key, (usize, u128)> {
    let mut prices = HashMap::new();
    for (_, position) in plan.descriptor_checks() {
        if let Some(planned) = plan.planned_check(position) {
            let deciding = plan.deciding(position);
            let (_, price) = prices
                .entry(planned.check.key)
                .or_insert((deciding, 0_u128));
            *price = price.saturating_add(cost_of(planned.origin).millionths_of(1));
        }
    }
    prices
}

/// How many hits of every descriptor are left in all limits.
fn hits_left(plan: &Plan<'_>, outcomes: &[Option<Outcome>]) -> u64 {
    let left = prices(plan).into_values().map(|(position, price)| {
        let outcome = outcomes.get(position).copied().flatten();
        let left = outcome.map_or(0, |outcome| outcome.remaining);
        let hits = u128::from(left).saturating_mul(1_000_000) / price.max(1);
        u64::try_from(hits).unwrap_or(u64::MAX)
    });
    left.min().unwrap_or_default()
}

/// How long hits that are taken now count for all limits: to the end of the first window.
fn valid_us(plan: &Plan<'_>, outcomes: &[Option<Outcome>]) -> u64 {
    let ends = plan.checks().iter().zip(outcomes);
    let ends = ends.filter_map(|(check, outcome)| {
        let outcome = (*outcome)?;
        (check.algorithm.facts().lease_policy == LeasePolicy::UntilReset)
            .then_some(outcome.reset_us)
    });
    ends.min().unwrap_or(u64::MAX)
}

/// The hits that came back with a return, now or the first time. The limit with the highest price
/// says those of the first time, since rounding hides least there.
fn returned_hits(plan: &Plan<'_>, outcomes: &[Option<Outcome>], granted: u64, unused: u64) -> u64 {
    let mut settled = false;
    let mut before: Option<(u128, u64)> = None;
    for (position, price) in prices(plan).into_values() {
        let Some(outcome) = outcomes.get(position).copied().flatten() else {
            continue;
        };
        match (outcome.reservation, outcome.settled()) {
            (ReservationOutcome::Settled, _) => settled = true,
            (_, Some(amounts)) => before = before.max(Some((price, amounts.committed))),
            _ => {}
        }
    }
    match before {
        Some((price, committed)) => {
            let used = u128::from(committed).saturating_mul(1_000_000) / price.max(1);
            granted.saturating_sub(u64::try_from(used).unwrap_or(u64::MAX))
        }
        None if settled => unused,
        None => 0,
    }
}

/// One key of all limits of a plan.
fn limits_key(plan: &Plan<'_>) -> Key {
    let keys = plan.checks().iter().map(|check| check.key.0);
    Key(keys.fold(0, |all: u128, key| all.rotate_left(1) ^ key))
}

fn unknown() -> ApiError {
    ApiError::Unknown(
        "no lease of this id is known in the limits of these descriptors; it was never made, was \
         made with other descriptors, or was reset"
            .to_owned(),
    )
}

/// The answer to a return without a question to the store.
fn returned(parts: &Parts<'_>, hits: u64) -> ApiAnswer {
    let decided = Decided {
        code: Code::Ok,
        retry_us: None,
        headers: Vec::new(),
        response: None,
        was_settled: false,
    };
    ApiAnswer {
        lease: Some(LeaseAnswer::Returned(hits)),
        ..ApiAnswer::without_limits(&parts.step(ApiStep::Peek, "", 0), decided, None)
    }
}

// === impl Parts ===

impl<'a> Parts<'a> {
    /// One step of the call, with so many hits of every descriptor.
    fn step<'s>(&self, step: ApiStep, id: &'s str, hits: u64) -> ApiRequest<'s>
    where
        'a: 's,
    {
        let mut request = Request::new(self.call.request.domain);
        for descriptor in self.call.request.descriptors() {
            for entry in descriptor.entries {
                request.push_entry(*entry);
            }
            request.finish_descriptor(Hits::Take(hits));
        }
        ApiRequest {
            request,
            operation: step,
            id,
            deadline: self.call.deadline,
            parent: None,
        }
    }
}
