//! The decision: what happens to one request, in the order it happens.
//!
//! decode → plan → apply → conclude → encode. The request keeps one generation of rules from beginning to end; the only
//! await is the store's, under the caller's deadline; a request that matches no limit does not await at all.
//!
//! What it deliberately does not do: speak gRPC or HTTP (`mod`, `admin`), keep buckets, know which store there is.

use std::sync::Arc;

use super::generation::{Generation, Generations};
use super::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::wire;
use crate::clock::Clock;
use crate::config::settings::OnOverload;
use crate::keyed_hash::KeyedHash;
use crate::limiter::{Check, Code, Decision, Entry, Line, Outcome, Plan, Request, Subject, Tally};
use crate::metrics::{LimitCounters, Metrics};
use crate::store::{Deadline, Store, StoreError};

/// Decides requests. One for the whole process, shared by every door.
pub struct RateLimit {
    generations: Arc<Generations>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    hash: KeyedHash,
    on_overload: OnOverload,
    near_limit_ratio: f32,
}

/// What a [`RateLimit`] is made of.
pub struct Parts {
    /// Where the rules are found.
    pub generations: Arc<Generations>,
    /// Where the buckets are.
    pub store: Arc<dyn Store>,
    /// For deadlines and latencies.
    pub clock: Arc<dyn Clock>,
    /// Where to count.
    pub metrics: Arc<Metrics>,
    /// What buckets are found by.
    pub hash: KeyedHash,
    /// What to answer when the store does not decide.
    pub on_overload: OnOverload,
    /// From which share of a limit on hits count as near it.
    pub near_limit_ratio: f32,
}

/// Why there is no answer. The sentences are the reference's where it has one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unanswered {
    /// The request names no domain.
    #[error("rate limit domain must not be empty")]
    EmptyDomain,
    /// The request has no descriptor.
    #[error("rate limit descriptor list must not be empty")]
    NoDescriptors,
    /// No rules were ever loaded.
    #[error("no rate limit configuration loaded")]
    NoRules,
    /// The store did not decide, and the setting says that is an error.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl RateLimit ===

impl RateLimit {
    /// A service of these parts.
    pub fn new(parts: Parts) -> Self {
        let Parts {
            generations,
            store,
            clock,
            metrics,
            hash,
            on_overload,
            near_limit_ratio,
        } = parts;
        Self {
            generations,
            store,
            clock,
            metrics,
            hash,
            on_overload,
            near_limit_ratio,
        }
    }

    /// Answers one request. `timeout_us` is how long its caller waits, if it said so.
    ///
    /// # Errors
    ///
    /// When the request cannot be understood, there are no rules, or the store did not decide.
    pub async fn should_rate_limit(
        &self,
        message: &RateLimitRequest,
        timeout_us: Option<u64>,
    ) -> Result<RateLimitResponse, Unanswered> {
        let began_us = self.clock.uptime_us();
        self.metrics.requests.inc();
        let answer = self.answer(message, timeout_us).await;
        match &answer {
            Ok(_) => {}
            Err(Unanswered::Store(_)) => self.metrics.store_errors.inc(),
            Err(_) => self.metrics.service_errors.inc(),
        }
        let took_us = self.clock.uptime_us().saturating_sub(began_us);
        #[allow(clippy::cast_precision_loss)] // a latency of 2^53 µs is not one
        self.metrics.response_time.observe(took_us as f64 / 1e6);
        answer
    }

    async fn answer(
        &self,
        message: &RateLimitRequest,
        timeout_us: Option<u64>,
    ) -> Result<RateLimitResponse, Unanswered> {
        let request = wire::decode(message);
        if request.domain.is_empty() {
            return Err(Unanswered::EmptyDomain);
        }
        if request.is_empty() {
            return Err(Unanswered::NoDescriptors);
        }
        let generation = self.generations.present().ok_or(Unanswered::NoRules)?;
        let plan = Plan::new(&generation.rules, &request, &self.hash);
        self.count_plan(&request, &plan);
        let checks = plan.checks();
        let decision = if checks.is_empty() {
            plan.conclude(&[])
        } else {
            let deadline = timeout_us.map_or(Deadline::NEVER, |timeout_us| {
                Deadline::within_us(&*self.clock, timeout_us)
            });
            match self.store.apply(checks, deadline).await {
                Ok(outcomes) => {
                    self.count_outcomes(&generation, &request, &plan, &outcomes);
                    plan.conclude(&outcomes)
                }
                Err(error) => self.without_store(&plan, error)?,
            }
        };
        match decision.code {
            Code::Ok => self.metrics.decisions_ok.inc(),
            Code::OverLimit => self.metrics.decisions_over_limit.inc(),
        }
        Ok(wire::encode(&decision))
    }

    /// What the overload setting makes of it. Nobody waits any more for an answer past its deadline.
    fn without_store<'r>(
        &self,
        plan: &Plan<'r>,
        error: StoreError,
    ) -> Result<Decision<'r>, StoreError> {
        let code = match (self.on_overload, &error) {
            (OnOverload::Error, _) | (_, StoreError::DeadlineExceeded) => return Err(error),
            (OnOverload::Allow, _) => Code::Ok,
            (OnOverload::Deny, _) => Code::OverLimit,
        };
        self.metrics.overload_answers.inc();
        Ok(plan.conclude_unasked(code))
    }

    fn count_plan(&self, request: &Request<'_>, plan: &Plan<'_>) {
        if !plan.domain_known {
            self.metrics.domain_not_found(request.domain);
        }
        if plan.overrides_not_obeyed > 0 {
            self.metrics
                .overrides_not_obeyed
                .inc_by(plan.overrides_not_obeyed);
        }
    }

    fn count_outcomes(
        &self,
        generation: &Generation,
        request: &Request<'_>,
        plan: &Plan<'_>,
        outcomes: &[Outcome],
    ) {
        let mut outcomes = outcomes.iter();
        for line in &plan.lines {
            let Line::Check { check, subject } = line else {
                continue;
            };
            let Some(outcome) = outcomes.next() else {
                return;
            };
            let tally = Tally::of(check, outcome, subject.shadow_mode(), self.near_limit_ratio);
            match subject {
                Subject::Rule(rule) => {
                    if let Some(counters) = generation.counters.of(rule) {
                        counters.add(&tally);
                    }
                }
                Subject::Override { descriptor } => self
                    .override_counters(request, *descriptor, check)
                    .add(&tally),
            }
        }
    }

    fn override_counters(
        &self,
        request: &Request<'_>,
        descriptor: usize,
        check: &Check,
    ) -> Arc<LimitCounters> {
        self.metrics.override_counters(check.key, || {
            let entries = request
                .descriptors()
                .nth(descriptor)
                .map(|descriptor| descriptor.entries)
                .unwrap_or_default();
            let domain = String::from_utf8_lossy(request.domain).into_owned();
            (domain, entries.iter().map(label).collect())
        })
    }
}

/// An entry as the labels of a rule spell it.
fn label(entry: &Entry<'_>) -> String {
    let key = String::from_utf8_lossy(entry.key);
    if entry.value.is_empty() {
        key.into_owned()
    } else {
        format!("{key}_{}", String::from_utf8_lossy(entry.value))
    }
}
