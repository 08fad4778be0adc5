//! Decides requests at times that the caller chooses, by the pipeline and the memory partition of
//! the service.
//!
//! Why: tests of rules and replays of recordings need the answers that the service would give, of
//! a month in a millisecond, and always the same. So there is one thread, a manual clock and no
//! queue; decoding, planning, deciding and encoding are those of the service.
//!
//! [`Simulation::decide`] decides a request at once. [`Simulation::begin`],
//! [`Simulation::apply`] and [`Simulation::finish`] decide it check by check, where the checks of
//! several requests took place in between.
//!
//! What it deliberately does not do: read the system's clock, wait, share a store.

mod answer;

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tollgate_limiter::{Algorithm, Check, Hits, Timestamp};

pub use self::answer::{Answer, CheckAnswer, DescriptorAnswer};
use crate::decisions::Decisions;
pub use crate::pipeline::Config;
use crate::pipeline::{
    ApiCall, ApiStep, Generation, Generations, Parts, PendingRequest, Pipeline, QuotaRule,
    RequestError, ResetError, Scratch, decode_recorded, find_quota,
};
use crate::quota::play::Play;
use crate::top_keys::TopKeys;
use tollgate_admin_api::ResetBucket;
use tollgate_rules::reload::Rules;
use tollgate_store::memory::DirectStore;
use tollgate_store::{CheckResult, Purpose, Refund, RefundSink, TentativeTake};
use tollgate_system::clock::{Clock, ManualClock};
use tollgate_system::keyed_hash::KeyedHash;
use tollgate_system::per_thread::lock;
use tollgate_telemetry::metrics::Metrics;
use tollgate_wire::proto::tollgate::recording::v1::ApiCall as RecordedCall;

/// The secret of the hash of buckets: nobody outside chooses the keys of a simulation.
const SECRET: [u8; 16] = *b"simulated bucket";

/// Decides requests on a manual clock.
pub struct Simulation {
    clock: Arc<ManualClock>,
    generations: Arc<Generations>,
    store: DirectStore,
    pipeline: Pipeline,
    scratch: Scratch,
    refunds: Arc<HeldRefunds>,
    replacement: Option<&'static dyn Algorithm>,
}

/// A request that has begun: its checks wait for [`Simulation::apply`].
pub struct PlannedRequest {
    pending: PendingRequest,
    /// The checks as they were decided: a store may change a check.
    decided: Vec<(usize, Timestamp, Check, CheckResult)>,
}

/// Why there is no simulation.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The system provides no randomness.
    #[error("the system provides no randomness: {0}")]
    Randomness(getrandom::Error),
    /// A defect in tollgate.
    #[error("{0}; this is a defect in tollgate")]
    Defect(String),
}

/// Keeps the refunds of a request until its caller says when they are carried out.
#[derive(Default)]
struct HeldRefunds(Mutex<Vec<Check>>);

// === impl Simulation ===

impl Simulation {
    /// A simulation without rules and without buckets, whose clock shows `start`. Buckets take at
    /// most `memory_max` bytes; a check without space is an error.
    ///
    /// # Errors
    ///
    /// When the system provides no randomness, or tollgate has a defect.
    pub fn new(
        config: Config,
        memory_max: usize,
        start: Timestamp,
    ) -> Result<Self, SimulationError> {
        let manual = Arc::new(ManualClock::at(start));
        let clock: Arc<dyn Clock> = Arc::clone(&manual) as Arc<dyn Clock>;
        let metrics = Metrics::new().map_err(|error| SimulationError::Defect(error.to_string()))?;
        let metrics = Arc::new(metrics);
        let generations = Arc::new(Generations::new(Arc::clone(&metrics)));
        let store = DirectStore::new(memory_max, Arc::clone(&clock));
        let top_keys = TopKeys::of_one_thread(&clock, &metrics);
        let parts = Parts {
            generations: Arc::clone(&generations),
            store: Arc::new(store.clone()),
            metrics,
            hash: KeyedHash::with_secret(SECRET),
            traces: None,
            decisions: Decisions::alone(&clock, 0).map_err(SimulationError::Randomness)?,
            top_keys,
            clock,
        };
        let pipeline = Pipeline::new(parts, config);
        Ok(Self {
            clock: manual,
            scratch: Scratch::alone(&pipeline),
            generations,
            store,
            pipeline,
            refunds: Arc::default(),
            replacement: None,
        })
    }

    /// Makes these rules current. Buckets stay, as when the service reloads.
    pub fn set_rules(&mut self, rules: Rules) {
        self.generations.take(Some(Ok(rules)));
    }

    /// Decides by this algorithm where rules have the algorithm of its name, to see whether tests
    /// of rules find a fault in it.
    pub fn replace_algorithm(&mut self, by: &'static dyn Algorithm) {
        self.replacement = Some(by);
    }

    /// The rules in use.
    pub fn rules(&self) -> Option<Arc<Generation>> {
        self.generations.current()
    }

    /// The time of the clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Milliseconds for which the clock has moved forward.
    pub fn uptime_ms(&self) -> u64 {
        self.clock.uptime_us() / 1_000
    }

    /// Plays proxies of the quota service by these rules, from the time of the clock on.
    pub fn play(&self, ttl_seconds: u32) -> Play {
        Play::new(ttl_seconds, self.uptime_ms(), self.pipeline.quota_parts())
    }

    /// The rule of a bucket's id, whose pairs are sorted by key; none if it fits none.
    pub fn quota_rule(&self, domain: &[u8], pairs: &[(Bytes, Bytes)]) -> Option<QuotaRule> {
        let hash = self.pipeline.quota_parts().hash;
        find_quota(&*self.rules()?, domain, pairs, &hash)
    }

    /// Sets the clock, in either direction.
    pub fn set_time(&mut self, now: Timestamp) {
        let before = self.clock.now();
        self.clock.advance_us(now.since_us(before));
        self.clock.set(now);
    }

    /// How many buckets there are.
    pub fn buckets(&self) -> usize {
        self.store.buckets()
    }

    /// Decides an encoded `RateLimitRequest` at the time of the clock. Hits of a refused request
    /// that go back do so at once.
    ///
    /// # Errors
    ///
    /// When the message is no request.
    pub fn decide(&mut self, message: &[u8]) -> Result<Answer, RequestError> {
        let request = self.begin_call(message, None)?;
        Ok(self.decide_begun(request))
    }

    fn decide_begun(&mut self, mut request: PlannedRequest) -> Answer {
        let now = self.now();
        for position in 0..request.checks().len() {
            self.apply(&mut request, position, now, None);
        }
        let mut answer = self.finish(request);
        self.give_back(std::mem::take(&mut answer.refunds), now);
        answer
    }

    /// Decides a call of the API about the reservation with this id: an encoded `RateLimitRequest`
    /// has its domain, descriptors and hits.
    ///
    /// # Errors
    ///
    /// When the message is no request, or a limit cannot reserve.
    pub fn decide_step(
        &mut self,
        message: &[u8],
        id: &str,
        step: ApiStep,
    ) -> Result<Answer, RequestError> {
        let call = ApiCall::new(step, id, Vec::new());
        let request = self.begin_call(message, Some(call))?;
        Ok(self.decide_begun(request))
    }

    fn begin_call(
        &mut self,
        message: &[u8],
        api: Option<ApiCall>,
    ) -> Result<PlannedRequest, RequestError> {
        let pending = self.pipeline.begin_alone(message, api, &mut self.scratch)?;
        Ok(PlannedRequest {
            pending,
            decided: Vec::new(),
        })
    }

    /// Begins a request: decodes it and plans its checks. They are those of the recorded call of
    /// the API, if it is one.
    ///
    /// # Errors
    ///
    /// When the message is no request, a limit cannot do what the call asks, or a later version
    /// recorded the call.
    pub fn begin(
        &mut self,
        message: &[u8],
        call: Option<&RecordedCall>,
    ) -> Result<PlannedRequest, RequestError> {
        let call = call.map(decode_recorded).transpose();
        self.begin_call(message, call.map_err(RequestError::Invalid)?)
    }

    /// Applies the check at `position` of a request, at this time and with other hits, if there are
    /// any here. A position that does not exist has no effect. Each is to be applied once.
    pub fn apply(
        &mut self,
        request: &mut PlannedRequest,
        position: usize,
        now: Timestamp,
        hits: Option<Hits>,
    ) {
        let Some(check) = request.checks().get(position) else {
            return;
        };
        if request.pending.is_told() {
            return;
        }
        let mut check = check.clone();
        if let Some(other) = self.replacement
            && other.name() == check.algorithm.name()
        {
            check.algorithm = other;
        }
        check.operation.hits = hits.unwrap_or(check.operation.hits);
        self.set_time(now);
        let answer = self.store.decide(&mut check, now);
        request.pending.put_answer(position, &answer);
        request.decided.push((position, now, check, answer));
    }

    /// Decides a request from the answers to its checks. The hits that go back are in the answer:
    /// [`Simulation::give_back`] carries them out.
    pub fn finish(&mut self, request: PlannedRequest) -> Answer {
        let PlannedRequest {
            mut pending,
            decided,
        } = request;
        let tentative = (pending.purpose == Purpose::DecideTentatively).then(|| {
            let sink = Arc::clone(&self.refunds) as Arc<dyn RefundSink>;
            let decided = decided.iter().map(|(_, _, check, answer)| (check, answer));
            TentativeTake::new(sink, decided, 0)
        });
        let rules = pending.rules();
        let (pipeline, scratch) = (&self.pipeline, &mut self.scratch);
        let answer = pipeline.end_alone(
            &mut pending,
            tentative,
            scratch,
            |response| match response {
                Ok(response) => Answer::of(response.decision, response.message()),
                Err(error) => Answer::without(error),
            },
        );
        let mut answer = answer.unwrap_or_else(|| Answer::without(RequestError::NoRules));
        answer.refunds = self.refunds.take();
        if let Some(rules) = rules {
            pending.with_plan(&rules.rules, |plan, outcomes| {
                answer.add_checks(plan, outcomes);
            });
            for (position, at, ..) in decided {
                if let Some(check) = answer.checks.get_mut(position) {
                    check.at = Some(at);
                }
            }
        }
        answer
    }

    /// Gives back hits at this time.
    pub fn give_back(&mut self, mut refunds: Vec<Check>, now: Timestamp) {
        if !refunds.is_empty() {
            self.set_time(now);
            self.store.give_back(&mut refunds, now);
        }
    }

    /// Forgets the buckets of a descriptor, as `tollgate reset` does.
    ///
    /// # Errors
    ///
    /// When no limit applies to the descriptor.
    pub fn reset(
        &mut self,
        domain: &str,
        entries: &[(String, String)],
    ) -> Result<Vec<ResetBucket>, ResetError> {
        let reset = pin!(self.pipeline.reset(domain, entries));
        match reset.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reset) => reset,
            // The store answers at once.
            Poll::Pending => Ok(Vec::new()),
        }
    }
}

// === impl PlannedRequest ===

impl PlannedRequest {
    /// The checks to apply. Empty where the answer needs none.
    pub fn checks(&self) -> &[Check] {
        self.pending.checks()
    }

    /// Whether hits are taken from all its limits or from none (`all_or_nothing`).
    pub fn is_all_or_nothing(&self) -> bool {
        self.pending.purpose == Purpose::DecideTentatively
    }

    /// The position of each check's descriptor, and the index of its rule (none for a limit of the
    /// request itself), in the order of the checks.
    pub fn origins(&mut self) -> Vec<(usize, Option<usize>)> {
        let Some(rules) = self.pending.rules() else {
            return Vec::new();
        };
        self.pending.with_plan(&rules.rules, |plan, _| {
            let checks = plan.descriptor_checks();
            let origin = |position| {
                let rule = plan.planned_check(position)?.origin.rule();
                Some(rule.map(|rule| rule.index))
            };
            checks
                .filter_map(|(descriptor, position)| Some((descriptor, origin(position)?)))
                .collect()
        })
    }
}

// === impl HeldRefunds ===

impl HeldRefunds {
    fn take(&self) -> Vec<Check> {
        std::mem::take(&mut *lock(&self.0))
    }
}

impl RefundSink for HeldRefunds {
    fn refund(&self, refunds: Vec<Refund>) {
        lock(&self.0).extend(refunds.into_iter().map(|refund| refund.check));
    }
}

#[cfg(test)]
mod tests;
