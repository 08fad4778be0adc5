//! The decision: what happens to one request, in the order it happens.
//!
//! decode → plan → apply → conclude → encode. The request keeps one generation of rules from beginning to end; the only
//! await is the store's, under the caller's deadline; a request that matches no limit does not await at all.
//!
//! What it deliberately does not do: speak gRPC or HTTP (`mod`, `admin`), keep buckets, know which store there is.

use std::sync::Arc;

use tokio::sync::watch;

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
    Asked, Code, Decision, Entry, Key, MATCHING_STEPS_MAX, Modes, OnStoreFailure, Outcome, Plan,
    Request, Rule, Sheet, Status, Subject, Tally,
};
use crate::metrics::{Counts, Metrics, REQUEST_LABEL_PARTS};
use crate::store::{Answer, Applied, Asking, Deadline, Store, StoreError, Terms, Trial};
use crate::telemetry::{Answered, Span, TraceParent, Traces};

/// Decides requests. One for the whole process, shared by the gRPC server and `/json`.
pub struct RateLimit {
    generations: Arc<Generations>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    hash: KeyedHash,
    traces: Option<Arc<Traces>>,
    answering: Answering,
}

/// How requests are answered, as the settings say.
struct Answering {
    obeyed: Obeyed,
    modes: Modes,
    near_limit_ratio: f32,
    on_overload: Verdict,
    on_store_failure: OnStoreFailure,
    on_excess: Verdict,
    descriptors_max: usize,
    entries_max: usize,
    headers: Option<Headers>,
    dynamic_metadata: bool,
    all_or_nothing: bool,
    reference_keys: bool,
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
    /// Where decisions are traced, if they are.
    pub traces: Option<Arc<Traces>>,
}

/// What came of a plan's checks.
#[derive(Debug, Default)]
pub(super) struct Came {
    /// In the order asked; none for a check that was not decided.
    pub(super) outcomes: Vec<Option<Outcome>>,
    /// The first reason why one was not.
    pub(super) error: Option<StoreError>,
    /// What was taken on trial.
    pub(super) trial: Option<Trial>,
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
    /// Matching the request against patterns takes more steps than it may, and the setting says
    /// that is an error.
    #[error(
        "matching this request against the patterns of its keys takes more than {MATCHING_STEPS_MAX} steps; send shorter values"
    )]
    TooManyMatchingSteps,
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
            traces,
        } = parts;
        Self {
            generations,
            answering: Answering::new(settings, &*store),
            store,
            clock,
            metrics,
            hash,
            traces,
        }
    }

    /// Answers one request. `timeout_us` is how long its caller waits, if it said so, and `parent` what it said of its trace.
    ///
    /// # Errors
    ///
    /// When the request cannot be understood, there are no rules, or the store did not decide.
    pub async fn should_rate_limit(
        &self,
        message: &RateLimitRequest,
        timeout_us: Option<u64>,
        parent: Option<TraceParent>,
    ) -> Result<RateLimitResponse, Unanswered> {
        let began_us = self.clock.uptime_us();
        self.metrics.requests.calls.inc();
        let request = wire::decode(message, self.answering.obeyed);
        let mut span = self.begin_span(parent, &request);
        let answer = self.answer(message, &request, timeout_us, &mut span).await;
        if let Err(unanswered) = &answer {
            self.count_unanswered(unanswered);
            self.end_span(span, Answered::Error(unanswered.grpc_code()));
        }
        let took_us = self.clock.uptime_us().saturating_sub(began_us);
        #[allow(clippy::cast_precision_loss)] // a latency of 2^53 µs is not one
        self.metrics
            .requests
            .response_time
            .observe(took_us as f64 / 1e6);
        answer
    }

    /// Counts a request that has no answer.
    pub(super) fn count_unanswered(&self, unanswered: &Unanswered) {
        match unanswered {
            Unanswered::Store(_) => self.metrics.requests.store_errors.inc(),
            _ => self.metrics.requests.service_errors.inc(),
        }
    }

    /// The span of a request, where it is to have one.
    pub(super) fn begin_span(
        &self,
        parent: Option<TraceParent>,
        request: &Request<'_>,
    ) -> Option<Box<Span>> {
        let traces = self.traces.as_ref()?;
        traces.begin(parent, request.into(), || self.clock.now())
    }

    /// Whether decisions are traced, some at least.
    pub(super) fn traces(&self) -> bool {
        self.traces.is_some()
    }

    /// Says in a request's span what became of it.
    pub(super) fn end_span(&self, span: Option<Box<Span>>, answered: Answered<'_>) {
        if let (Some(span), Some(traces)) = (span, &self.traces) {
            traces.end(span, answered, self.clock.now());
        }
    }

    async fn answer(
        &self,
        message: &RateLimitRequest,
        request: &Request<'_>,
        timeout_us: Option<u64>,
        span: &mut Option<Box<Span>>,
    ) -> Result<RateLimitResponse, Unanswered> {
        if let Some(beyond) = self.beyond(request)? {
            self.end_span(span.take(), Answered::Decided(&beyond, None));
            return Ok(wire::encode(&beyond));
        }
        let generation = self.present()?;
        let plan = self.plan(&generation, request, Sheet::default());
        if let Some(beyond) = self.beyond_matching(&plan)? {
            self.end_span(span.take(), Answered::Decided(&beyond, None));
            return Ok(wire::encode(&beyond));
        }
        let mut came = if plan.checks().is_empty() {
            Came::default()
        } else {
            let (deadline, terms) = (self.deadline(timeout_us), terms(&plan));
            self.store
                .apply(plan.checks().to_vec(), deadline, terms)
                .await
                .into()
        };
        let mut counts = Counts::default();
        let statuses = Vec::new();
        let decided = self.decide(
            &generation,
            request,
            &plan,
            &mut came,
            statuses,
            &mut counts,
        );
        counts.flush(&self.metrics);
        let decision = decided?;
        self.end_span(span.take(), Answered::Decided(&decision, Some(&plan)));
        let mut answer = wire::encode(&decision);
        self.add_rest(&mut answer, Some(message), &plan, &decision);
        Ok(answer)
    }

    /// A way for one task to ask the store for many requests at once.
    pub(super) fn asking(&self) -> Option<Box<dyn Asking>> {
        self.store.asking()
    }

    /// The clock's uptime.
    pub(super) fn uptime_us(&self) -> u64 {
        self.clock.uptime_us()
    }

    /// Whether these are the rules in use.
    pub(super) fn is_present(&self, generation: &Arc<Generation>) -> bool {
        self.generations.is_present(generation)
    }

    /// Sees each change of the rules in use from now on.
    pub(super) fn rules_changes(&self) -> watch::Receiver<()> {
        self.generations.subscribe()
    }

    /// What the service obeys of what requests say.
    pub(super) fn obeyed(&self) -> Obeyed {
        self.answering.obeyed
    }

    /// The rules in use.
    pub(super) fn present(&self) -> Result<Arc<Generation>, Unanswered> {
        self.generations.present().ok_or(Unanswered::NoRules)
    }

    /// The answer to a request that passes a bound; none when it passes none.
    pub(super) fn beyond(
        &self,
        request: &Request<'_>,
    ) -> Result<Option<Decision<'static>>, Unanswered> {
        if request.domain.is_empty() {
            return Err(Unanswered::EmptyDomain);
        }
        if request.is_empty() {
            return Err(Unanswered::NoDescriptors);
        }
        match self.excess(request) {
            None => Ok(None),
            Some(excess) => excess_decision(self.answering.on_excess)
                .map(Some)
                .ok_or(excess),
        }
    }

    /// The answer to a request whose matching takes too many steps; none when it does not.
    pub(super) fn beyond_matching(
        &self,
        plan: &Plan<'_>,
    ) -> Result<Option<Decision<'static>>, Unanswered> {
        if !plan.matching_is_beyond() {
            return Ok(None);
        }
        self.metrics.requests.excess_matching_steps.inc();
        let answer = excess_decision(self.answering.on_excess);
        answer.map(Some).ok_or(Unanswered::TooManyMatchingSteps)
    }

    /// What a request asks of the store, written on a sheet that may have been used before.
    pub(super) fn plan<'r>(
        &self,
        generation: &'r Generation,
        request: &Request<'_>,
        sheet: Sheet,
    ) -> Plan<'r> {
        let mut plan = Plan::written_on(sheet, &generation.rules, request, &self.hash);
        plan.all_or_nothing_unless_said(self.answering.all_or_nothing);
        plan.on_store_failure_unless_said(self.answering.on_store_failure);
        if self.answering.reference_keys {
            plan.name_as_the_reference(request);
        }
        self.count_plan(request, &plan);
        plan
    }

    /// Until when an answer is of use to a caller that waits so long.
    pub(super) fn deadline(&self, timeout_us: Option<u64>) -> Deadline {
        timeout_us.map_or(Deadline::NEVER, |timeout_us| {
            Deadline::within_us(&*self.clock, timeout_us)
        })
    }

    /// Whether [`RateLimit::decide`] counts something by what stands in the request.
    pub(super) fn labels_need_request(plan: &Plan<'_>) -> bool {
        plan.all_asked().any(|asked| match asked.subject {
            Subject::Rule(rule) => rule.has_request_labels(),
            Subject::Override => true,
        })
    }

    /// The decision, given what came of the plan's checks, and what becomes of what was taken on trial. `request` matters
    /// only where [`RateLimit::labels_need_request`] says so; `statuses` gives its memory.
    pub(super) fn decide<'r>(
        &self,
        generation: &Generation,
        request: &Request<'_>,
        plan: &Plan<'r>,
        came: &mut Came,
        statuses: Vec<Status<'r>>,
        counts: &mut Counts,
    ) -> Result<Decision<'r>, Unanswered> {
        let (error, trial) = (came.error.take(), came.trial.take());
        let outcomes = &came.outcomes;
        let decision = match self.conclude(plan, outcomes, error, statuses) {
            Ok(decision) => decision,
            Err(error) => {
                // What was decided is counted; what was taken on trial goes back with the trial.
                let decided = plan.conclude(outcomes, Code::Ok, self.answering.modes);
                self.count_outcomes(generation, request, plan, outcomes, &decided, counts);
                return Err(error.into());
            }
        };
        if let Some(trial) = trial {
            match decision.code {
                Code::Ok => trial.passed(),
                Code::OverLimit => trial.refused(),
            }
        }
        self.count_outcomes(generation, request, plan, outcomes, &decision, counts);
        counts.decided(decision.code);
        if decision.shadowed {
            self.metrics.requests.global_shadow_mode.inc();
        }
        Ok(decision)
    }

    /// Whether [`RateLimit::add_rest`] needs the request.
    pub(super) fn speaks_of_requests(&self) -> bool {
        self.answering.dynamic_metadata
    }

    /// Puts to an answer what only some have: headers, a body, dynamic metadata.
    pub(super) fn add_rest(
        &self,
        answer: &mut RateLimitResponse,
        message: Option<&RateLimitRequest>,
        plan: &Plan<'_>,
        decision: &Decision<'_>,
    ) {
        if let Some(headers) = &self.answering.headers {
            answer.response_headers_to_add = headers.of(decision);
        }
        over_limit::put(answer, plan, decision);
        if self.answering.dynamic_metadata
            && let Some(message) = message
        {
            answer.dynamic_metadata = Some(dynamic_metadata(message, plan, decision));
        }
    }

    /// Which bound a request passes, if any.
    fn excess(&self, request: &Request<'_>) -> Option<Unanswered> {
        let Answering {
            descriptors_max,
            entries_max,
            ..
        } = self.answering;
        if request.len() > descriptors_max {
            self.metrics.requests.excess_descriptors.inc();
            return Some(Unanswered::TooManyDescriptors {
                max: descriptors_max,
            });
        }
        let mut descriptors = request.descriptors();
        if descriptors.any(|descriptor| descriptor.entries.len() > entries_max) {
            self.metrics.requests.excess_entries.inc();
            return Some(Unanswered::TooManyEntries { max: entries_max });
        }
        None
    }

    /// The decision, where a setting stands for what the store did not decide: the one on overload, or, when it is the store
    /// that replicas share, the one on its failure, for which a domain may have a word of its own. A check that was decided
    /// against the request refuses it whatever became of the others.
    fn conclude<'r>(
        &self,
        plan: &Plan<'r>,
        outcomes: &[Option<Outcome>],
        error: Option<StoreError>,
        statuses: Vec<Status<'r>>,
    ) -> Result<Decision<'r>, StoreError> {
        let modes = self.answering.modes;
        let Some(error) = error else {
            return Ok(plan.conclude_into(statuses, outcomes, Code::Ok, modes));
        };
        let verdict = match &error {
            StoreError::DeadlineExceeded => Verdict::Error,
            StoreError::Unavailable(_) => match plan.on_store_failure() {
                // The replica's own store did not decide either.
                OnStoreFailure::Error | OnStoreFailure::Local => Verdict::Error,
                OnStoreFailure::Allow => Verdict::Allow,
                OnStoreFailure::Deny => Verdict::Deny,
            },
            _ => self.answering.on_overload,
        };
        let failed = matches!(error, StoreError::Unavailable(_));
        let undecided = match verdict {
            Verdict::Error => {
                let decision = plan.conclude(outcomes, Code::Ok, modes);
                return match decision.code {
                    Code::OverLimit => Ok(decision),
                    Code::Ok => {
                        if failed {
                            self.metrics.store.failure_errors.inc();
                        }
                        Err(error)
                    }
                };
            }
            Verdict::Allow => Code::Ok,
            Verdict::Deny => Code::OverLimit,
        };
        match (failed, undecided) {
            (false, _) => self.metrics.requests.overload_answers.inc(),
            (true, Code::Ok) => self.metrics.store.failure_allowed.inc(),
            (true, Code::OverLimit) => self.metrics.store.failure_denied.inc(),
        }
        Ok(plan.conclude(outcomes, undecided, modes))
    }

    fn label_key(&self, rule: Option<&Rule>, request: &Request<'_>, entries: &[Entry<'_>]) -> Key {
        let parts = REQUEST_LABEL_PARTS;
        label_key(rule, request.domain, entries, parts, &self.hash)
    }

    fn count_plan(&self, request: &Request<'_>, plan: &Plan<'_>) {
        if !plan.domain_known() {
            self.metrics.domain_not_found(request.domain);
        }
        if plan.overrides_not_obeyed() > 0 {
            self.metrics
                .requests
                .overrides_not_obeyed
                .inc_by(plan.overrides_not_obeyed());
        }
    }

    fn count_outcomes(
        &self,
        generation: &Generation,
        request: &Request<'_>,
        plan: &Plan<'_>,
        outcomes: &[Option<Outcome>],
        decision: &Decision<'_>,
        counts: &mut Counts,
    ) {
        // Of several limits on one descriptor the one that answered is counted: their labels are the same.
        for (descriptor, status) in decision.statuses.iter().enumerate() {
            let position = status.asked.unwrap_or(usize::MAX);
            let (Some(asked), Some(Some(outcome))) = (plan.asked(position), outcomes.get(position))
            else {
                continue;
            };
            let Asked { check, subject } = asked;
            let near_ratio = self.answering.near_limit_ratio;
            let tally = Tally::of(check, outcome, subject.shadow_mode(), near_ratio);
            match subject {
                Subject::Rule(rule) if rule.has_request_labels() => {
                    // Without the one that says who holds a slot: each is another.
                    let entries = entries_of(request, descriptor);
                    let entries = entries.get(..rule.path.len()).unwrap_or(entries);
                    let labels = || (rule.domain.to_string(), rule.request_labels(entries));
                    let key = self.label_key(Some(rule), request, entries);
                    let of_rule = generation.counters.of(rule).map(|counters| &**counters);
                    let counters = self.metrics.request_counters(key, of_rule, labels);
                    counts.add(&counters, &tally);
                }
                Subject::Rule(rule) => {
                    if let Some(counters) = generation.counters.of(rule) {
                        counts.add(counters, &tally);
                    }
                }
                Subject::Override => {
                    let entries = entries_of(request, descriptor);
                    let labels = || override_labels(request, entries);
                    let key = self.label_key(None, request, entries);
                    let counters = self.metrics.request_counters(key, None, labels);
                    counts.add(&counters, &tally);
                }
            }
        }
    }
}

/// Whether what is taken for this plan stays taken whatever becomes of the rest.
pub(super) fn terms(plan: &Plan<'_>) -> Terms {
    if plan.all_or_nothing() {
        Terms::OnTrial
    } else {
        Terms::Final
    }
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
pub(super) fn excess_decision(verdict: Verdict) -> Option<Decision<'static>> {
    let code = match verdict {
        Verdict::Error => return None,
        Verdict::Allow => Code::Ok,
        Verdict::Deny => Code::OverLimit,
    };
    Some(Decision {
        code,
        shadowed: false,
        statuses: Vec::new(),
    })
}

/// What to answer a request that passes a bound: in shadow mode nothing is refused.
pub(super) fn on_excess(settings: &Settings) -> Verdict {
    match settings.on_excess {
        Verdict::Deny if settings.shadow_mode => Verdict::Allow,
        verdict => verdict,
    }
}

// === impl Unanswered ===

impl Unanswered {
    /// The name of the gRPC status that says so.
    pub(super) fn grpc_code(&self) -> &'static str {
        match self {
            Self::EmptyDomain | Self::NoDescriptors => "INVALID_ARGUMENT",
            Self::TooManyDescriptors { .. }
            | Self::TooManyEntries { .. }
            | Self::TooManyMatchingSteps => "RESOURCE_EXHAUSTED",
            Self::Store(StoreError::DeadlineExceeded) => "DEADLINE_EXCEEDED",
            Self::NoRules | Self::Store(_) => "UNAVAILABLE",
        }
    }
}

// === impl Came ===

impl Came {
    /// Nothing yet, of so many checks.
    pub(super) fn await_answers(&mut self, checks: usize) {
        self.outcomes.clear();
        self.outcomes.resize(checks, None);
        self.error = None;
        self.trial = None;
    }

    /// Takes the answer to one check.
    pub(super) fn take(&mut self, position: usize, answer: Answer) {
        match answer {
            Ok(outcome) => {
                if let Some(slot) = self.outcomes.get_mut(position) {
                    *slot = Some(outcome);
                }
            }
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
    }
}

impl From<Result<Applied, StoreError>> for Came {
    fn from(applied: Result<Applied, StoreError>) -> Self {
        let mut came = Self::default();
        match applied {
            Ok(Applied { answers, trial }) => {
                came.await_answers(answers.len());
                for (position, answer) in answers.into_iter().enumerate() {
                    came.take(position, answer);
                }
                came.trial = trial;
            }
            Err(error) => came.error = Some(error),
        }
        came
    }
}

// === impl Answering ===

impl Answering {
    fn new(settings: &Settings, store: &dyn Store) -> Self {
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
            on_store_failure: settings.store.on_store_failure.into(),
            on_excess: on_excess(settings),
            descriptors_max: settings.descriptors_max,
            entries_max: settings.entries_max,
            headers: Headers::new(settings),
            dynamic_metadata: settings.response_dynamic_metadata,
            all_or_nothing: settings.taking.all_or_nothing,
            reference_keys: store.wants_reference_keys(),
        }
    }
}
