//! The decision: what happens to one request, in the order it happens.
//!
//! decode → plan → apply → conclude → encode. The request keeps one generation of rules from beginning to end; the only
//! await is the store's, under the caller's deadline; a request that matches no limit does not await at all.
//!
//! What it deliberately does not do: speak gRPC or HTTP (`mod`, `admin`), keep buckets, know which store there is.

use std::sync::Arc;

use super::generation::{Generation, Generations};
use super::headers::Headers;
use super::metadata::dynamic_metadata;
use super::over_limit;
use super::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::wire::{self, Obeyed};
use crate::clock::Clock;
use crate::config::settings::{Settings, Verdict};
use crate::keyed_hash::KeyedHash;
use crate::limiter::key::label_key;
use crate::limiter::{
    Code, Decision, Entry, Key, Modes, Outcome, Plan, Request, Rule, Subject, Tally,
};
use crate::metrics::{Metrics, REQUEST_LABEL_PARTS};
use crate::store::{Answer, Applied, Deadline, Store, StoreError, Terms};

/// Decides requests. One for the whole process, shared by every door.
pub struct RateLimit {
    generations: Arc<Generations>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    hash: KeyedHash,
    answering: Answering,
}

/// How requests are answered, as the settings say.
struct Answering {
    obeyed: Obeyed,
    modes: Modes,
    near_limit_ratio: f32,
    on_overload: Verdict,
    on_excess: Verdict,
    descriptors_max: usize,
    entries_max: usize,
    headers: Option<Headers>,
    dynamic_metadata: bool,
    all_or_nothing: bool,
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
    /// The request has more descriptors than it may, and the setting says that is an error.
    #[error("a request may have {max} descriptors; raise --descriptors-max")]
    TooManyDescriptors {
        /// How many it may have.
        max: usize,
    },
    /// A descriptor has more entries than it may, and the setting says that is an error.
    #[error("a descriptor may have {max} entries; raise --entries-max")]
    TooManyEntries {
        /// How many it may have.
        max: usize,
    },
    /// No rules were ever loaded.
    #[error("no rate limit configuration loaded")]
    NoRules,
    /// The store did not decide, and the setting says that is an error.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl RateLimit ===

impl RateLimit {
    /// A service of these parts that answers as the settings say.
    pub fn new(parts: Parts, settings: &Settings) -> Self {
        let Parts {
            generations,
            store,
            clock,
            metrics,
            hash,
        } = parts;
        Self {
            generations,
            store,
            clock,
            metrics,
            hash,
            answering: Answering::new(settings),
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
        if message.domain.is_empty() {
            return Err(Unanswered::EmptyDomain);
        }
        if message.descriptors.is_empty() {
            return Err(Unanswered::NoDescriptors);
        }
        if let Some(excess) = self.excess(message) {
            return excess_answer(self.answering.on_excess).ok_or(excess);
        }
        let answering = &self.answering;
        let request = wire::decode(message, answering.obeyed);
        let generation = self.generations.present().ok_or(Unanswered::NoRules)?;
        let mut plan = Plan::new(&generation.rules, &request, &self.hash);
        // The domain's own word comes first.
        let said = generation.rules.all_or_nothing(request.domain);
        plan.all_or_nothing = said.unwrap_or(answering.all_or_nothing);
        self.count_plan(&request, &plan);
        let checks = plan.checks();
        let decision = if checks.is_empty() {
            plan.conclude(&[], Code::Ok, answering.modes)
        } else {
            let deadline = timeout_us.map_or(Deadline::NEVER, |timeout_us| {
                Deadline::within_us(&*self.clock, timeout_us)
            });
            let terms = if plan.all_or_nothing {
                Terms::OnTrial
            } else {
                Terms::Final
            };
            let (answers, trial) = match self.store.apply(checks, deadline, terms).await {
                Ok(Applied { answers, trial }) => (Ok(answers), trial),
                Err(error) => (Err(error), None),
            };
            let (outcomes, error) = answers.map_or_else(|error| (Vec::new(), Some(error)), apart);
            let decision = match self.conclude(&plan, &outcomes, error) {
                Ok(decision) => decision,
                Err(error) => {
                    // What was decided is counted; what was taken on trial goes back with the trial.
                    let decided = plan.conclude(&outcomes, Code::Ok, answering.modes);
                    self.count_outcomes(&generation, &request, &plan, &outcomes, &decided);
                    return Err(error.into());
                }
            };
            if let Some(trial) = trial {
                match decision.code {
                    Code::Ok => trial.passed(),
                    Code::OverLimit => trial.refused(),
                }
            }
            self.count_outcomes(&generation, &request, &plan, &outcomes, &decision);
            decision
        };
        self.count_decision(&decision);
        let mut answer = wire::encode(&decision);
        if let Some(headers) = &answering.headers {
            answer.response_headers_to_add = headers.of(&decision);
        }
        over_limit::put(&mut answer, &plan, &decision);
        if answering.dynamic_metadata {
            answer.dynamic_metadata = Some(dynamic_metadata(message, &plan, &decision));
        }
        Ok(answer)
    }

    /// Which bound a request passes, if any.
    fn excess(&self, message: &RateLimitRequest) -> Option<Unanswered> {
        let Answering {
            descriptors_max,
            entries_max,
            ..
        } = self.answering;
        if message.descriptors.len() > descriptors_max {
            self.metrics.excess_descriptors.inc();
            return Some(Unanswered::TooManyDescriptors {
                max: descriptors_max,
            });
        }
        let mut descriptors = message.descriptors.iter();
        if descriptors.any(|descriptor| descriptor.entries.len() > entries_max) {
            self.metrics.excess_entries.inc();
            return Some(Unanswered::TooManyEntries { max: entries_max });
        }
        None
    }

    /// The decision, where the overload setting stands for what the store did not decide. A check that was decided
    /// against the request refuses it whatever became of the others.
    fn conclude<'r>(
        &self,
        plan: &Plan<'r>,
        outcomes: &[Option<Outcome>],
        error: Option<StoreError>,
    ) -> Result<Decision<'r>, StoreError> {
        let modes = self.answering.modes;
        let Some(error) = error else {
            return Ok(plan.conclude(outcomes, Code::Ok, modes));
        };
        let undecided = match (self.answering.on_overload, &error) {
            (Verdict::Error, _) | (_, StoreError::DeadlineExceeded) => {
                let decision = plan.conclude(outcomes, Code::Ok, modes);
                return match decision.code {
                    Code::OverLimit => Ok(decision),
                    Code::Ok => Err(error),
                };
            }
            (Verdict::Allow, _) => Code::Ok,
            (Verdict::Deny, _) => Code::OverLimit,
        };
        self.metrics.overload_answers.inc();
        Ok(plan.conclude(outcomes, undecided, modes))
    }

    fn label_key(&self, rule: Option<&Rule>, request: &Request<'_>, entries: &[Entry<'_>]) -> Key {
        let parts = REQUEST_LABEL_PARTS;
        label_key(rule, request.domain, entries, parts, &self.hash)
    }

    fn count_decision(&self, decision: &Decision<'_>) {
        match decision.code {
            Code::Ok => self.metrics.decisions_ok.inc(),
            Code::OverLimit => self.metrics.decisions_over_limit.inc(),
        }
        if decision.shadowed {
            self.metrics.global_shadow_mode.inc();
        }
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
        outcomes: &[Option<Outcome>],
        decision: &Decision<'_>,
    ) {
        // Of several limits on one descriptor the one that answered is counted: their labels are the same.
        for (descriptor, status) in decision.statuses.iter().enumerate() {
            let position = status.asked.unwrap_or(usize::MAX);
            let (Some(asked), Some(Some(outcome))) =
                (plan.asked.get(position), outcomes.get(position))
            else {
                continue;
            };
            let (check, subject) = (&asked.check, asked.subject);
            let near_ratio = self.answering.near_limit_ratio;
            let tally = Tally::of(check, outcome, subject.shadow_mode(), near_ratio);
            match subject {
                Subject::Rule(rule) if rule.has_request_labels() => {
                    // Without the one that says who holds a slot: each is another.
                    let entries = entries_of(request, descriptor);
                    let entries = entries.get(..rule.path.len()).unwrap_or(entries);
                    let labels = || (rule.domain.to_string(), rule.request_labels(entries));
                    let key = self.label_key(Some(rule), request, entries);
                    self.metrics.request_counters(key, labels).add(&tally);
                }
                Subject::Rule(rule) => {
                    if let Some(counters) = generation.counters.of(rule) {
                        counters.add(&tally);
                    }
                }
                Subject::Override => {
                    let entries = entries_of(request, descriptor);
                    let labels = || override_labels(request, entries);
                    let key = self.label_key(None, request, entries);
                    self.metrics.request_counters(key, labels).add(&tally);
                }
            }
        }
    }
}

/// Outcomes in their places, and the first reason why one is missing.
fn apart(answers: Vec<Answer>) -> (Vec<Option<Outcome>>, Option<StoreError>) {
    let mut first = None;
    let outcomes = answers.into_iter().map(|answer| {
        answer
            .map_err(|error| {
                first.get_or_insert(error);
            })
            .ok()
    });
    (outcomes.collect(), first)
}

/// The entries of one descriptor.
fn entries_of<'r, 'a>(request: &'r Request<'a>, descriptor: usize) -> &'r [Entry<'a>] {
    let descriptor = request.descriptors().nth(descriptor);
    descriptor
        .map(|descriptor| descriptor.entries)
        .unwrap_or_default()
}

/// What a limit that came with a request is counted by.
fn override_labels(request: &Request<'_>, entries: &[Entry<'_>]) -> (String, Vec<String>) {
    let domain = String::from_utf8_lossy(request.domain).into_owned();
    (domain, entries.iter().map(Entry::label).collect())
}

/// The answer to a request that passes a bound; none when that is an error.
pub(super) fn excess_answer(verdict: Verdict) -> Option<RateLimitResponse> {
    let code = match verdict {
        Verdict::Error => return None,
        Verdict::Allow => Code::Ok,
        Verdict::Deny => Code::OverLimit,
    };
    Some(wire::encode(&Decision {
        code,
        shadowed: false,
        statuses: Vec::new(),
    }))
}

/// What to answer a request that passes a bound: in shadow mode nothing is refused.
pub(super) fn on_excess(settings: &Settings) -> Verdict {
    match settings.on_excess {
        Verdict::Deny if settings.shadow_mode => Verdict::Allow,
        verdict => verdict,
    }
}

// === impl Answering ===

impl Answering {
    fn new(settings: &Settings) -> Self {
        Self {
            obeyed: Obeyed {
                negative_hits: settings.negative_hits,
                overrides: settings.overrides,
            },
            modes: Modes {
                shadow: settings.shadow_mode,
                quota: settings.quota_mode,
            },
            near_limit_ratio: settings.near_limit_ratio,
            on_overload: settings.on_overload,
            on_excess: on_excess(settings),
            descriptors_max: settings.descriptors_max,
            entries_max: settings.entries_max,
            headers: Headers::new(settings),
            dynamic_metadata: settings.response_dynamic_metadata,
            all_or_nothing: settings.all_or_nothing,
        }
    }
}
