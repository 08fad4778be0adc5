//! One request without a thread and without a batch client: its caller applies the checks, in the
//! order and at the times of its choice. Simulations use it.

use std::rc::Rc;

use prost::Message as _;
use tollgate_limiter::{Outcome, Plan, Request, RuleSet};

use crate::ended::RequestError;
use crate::pipeline::Pipeline;
use crate::pipeline::api::refuse_peeks;
use crate::pipeline::api_call::ApiCall;
use crate::pipeline::begin::{Call, Undecodable};
use crate::pipeline::decode::decode;
use crate::pipeline::encode::EncodedResponse;
use crate::pipeline::observers::Observers;
use crate::pipeline::pending::{PendingRequest, Scratch, SharedRules, Stage};
use tollgate_store::{CheckResult, TentativeTake};
use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitRequest;

// === impl Scratch ===

impl Scratch {
    /// For requests that no thread decides. Their keys are not counted.
    pub(crate) fn alone(pipeline: &Pipeline) -> Self {
        Self::new(Observers::new(pipeline, None))
    }
}

// === impl PendingRequest ===

impl PendingRequest {
    /// Whether its outcomes are made already.
    pub(crate) fn is_told(&self) -> bool {
        self.api.as_ref().is_some_and(|api| api.is_told())
    }

    /// The rules of its plan; none without a plan.
    pub(crate) fn rules(&self) -> Option<Rc<SharedRules>> {
        match &self.stage {
            Stage::Planned(rules) => Some(Rc::clone(rules)),
            Stage::Bound(..) | Stage::Failed(_) => None,
        }
    }

    /// Records the answer to the check at this position.
    pub(crate) fn put_answer(&mut self, position: usize, answer: &CheckResult) {
        match answer {
            Ok(outcome) => {
                if let Some(slot) = self.results.outcomes.get_mut(position) {
                    *slot = Some(*outcome);
                }
            }
            Err(error) => self.results.fail(error.clone()),
        }
    }

    /// Reads its plan by these rules, and the answers to its checks.
    pub(crate) fn with_plan<T>(
        &mut self,
        rules: &RuleSet,
        read: impl FnOnce(&Plan<'_>, &[Option<Outcome>]) -> T,
    ) -> T {
        let plan = self.take_plan(rules);
        let read = read(&plan, &self.results.outcomes);
        self.put_plan(plan);
        read
    }
}

// === impl Pipeline ===

impl Pipeline {
    /// Begins a request with the rules in use. Protobuf allows a field several times and merges
    /// them, which the decoder leaves to prost.
    ///
    /// # Errors
    ///
    /// When the message is no request, or a limit cannot do what the call of the API asks.
    pub(crate) fn begin_alone(
        &self,
        message: &[u8],
        api: Option<ApiCall>,
        scratch: &mut Scratch,
    ) -> Result<PendingRequest, RequestError> {
        let merged;
        let mut message = message;
        if decode(message, self.config.request, &mut Request::default()).is_none() {
            merged = RateLimitRequest::decode(message)
                .map_err(|error| RequestError::Malformed(error.to_string()))?
                .encode_to_vec();
            message = &merged;
        }
        let is_api = api.is_some();
        let call = Call {
            message,
            api: api.map(Rc::new),
            parent: None,
            now_us: self.uptime_us(),
        };
        let mut pending = PendingRequest::default();
        let rules = self.shared_rules(&mut None);
        self.begin(call, rules, scratch, &mut pending)
            .map_err(|Undecodable| RequestError::Malformed("it cannot be decoded".into()))?;
        match &pending.stage {
            Stage::Failed(error @ RequestError::Invalid(_)) if is_api => Err(error.clone()),
            _ => Ok(pending),
        }
    }

    /// Ends a request whose checks were applied, with what they took tentatively. Its caller is
    /// there, so there is always an answer.
    pub(crate) fn end_alone<T>(
        &self,
        pending: &mut PendingRequest,
        tentative: Option<TentativeTake>,
        scratch: &mut Scratch,
        respond: impl FnOnce(Result<EncodedResponse<'_>, RequestError>) -> T,
    ) -> Option<T> {
        pending.results.tentative = tentative;
        refuse_peeks(pending);
        let answer = self.end(pending, scratch, self.uptime_us(), false, respond);
        scratch.observers.flush(&self.metrics);
        answer
    }
}
