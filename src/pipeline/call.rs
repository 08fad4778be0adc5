//! The single-call path: one request, alone. `/json` and unusual gRPC calls take it.

use prost::Message as _;
use tollgate_limiter::Code;

use crate::pipeline::begin::{Call, Undecodable};
use crate::pipeline::pending::{PendingRequest, Scratch};
use crate::pipeline::{Pipeline, RequestError};
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::store::Deadline;
use crate::tracing::TraceParent;

/// The response to one request.
#[derive(Clone, Debug)]
pub struct CallResponse {
    /// The overall code.
    pub code: Code,
    /// An encoded `RateLimitResponse`.
    pub message: Vec<u8>,
}

impl Pipeline {
    /// Decides one request, an encoded `RateLimitRequest`.
    ///
    /// `timeout_us` is the caller's timeout, if it sent one; `parent` is its trace.
    ///
    /// # Errors
    ///
    /// When the request cannot be decoded, there are no rules, or the store did not decide.
    pub async fn call(
        &self,
        message: &[u8],
        timeout_us: Option<u64>,
        parent: Option<TraceParent>,
    ) -> Result<CallResponse, RequestError> {
        let mut scratch = Scratch::new(&self.metrics, self.other_key_counts(), None);
        let mut pending = PendingRequest::default();
        let call = Call {
            message,
            parent,
            now_us: self.clock.uptime_us(),
        };
        if self
            .begin(call, self.generations.current(), &mut scratch, &mut pending)
            .is_err()
        {
            let plain = merge_fields(message).inspect_err(|error| self.record_malformed(error))?;
            let call = Call {
                message: &plain,
                ..call
            };
            self.begin(call, self.generations.current(), &mut scratch, &mut pending)
                .map_err(|Undecodable| RequestError::Malformed(UNREADABLE.to_owned()))?;
        }
        let deadline = timeout_us.map_or(Deadline::NEVER, |timeout_us| {
            Deadline::within_us(&*self.clock, timeout_us)
        });
        let capture = self.watch_capture(&pending);
        self.apply_checks(&mut pending, deadline).await;
        capture.done();
        let now_us = self.clock.uptime_us();
        let answer = self.finish(&mut pending, &mut scratch, now_us, |response| {
            response.map(|response| CallResponse {
                code: response.code(),
                message: response.message(),
            })
        });
        scratch.flush_counts(&self.metrics);
        if pending.wants_candidate() {
            self.queue_candidate(pending);
        }
        answer
    }

    /// Applies the checks of one request, if it has any.
    pub(super) async fn apply_checks<G>(
        &self,
        pending: &mut PendingRequest<G>,
        deadline: Deadline,
    ) {
        let all: Vec<usize> = (0..pending.checks().len()).collect();
        self.apply_at(&all, pending, deadline).await;
    }

    /// Applies the checks at these positions, if there are any.
    pub(super) async fn apply_at<G>(
        &self,
        positions: &[usize],
        pending: &mut PendingRequest<G>,
        deadline: Deadline,
    ) {
        let checks = positions.iter().filter_map(|at| pending.checks().get(*at));
        let checks: Vec<_> = checks.cloned().collect();
        if !checks.is_empty() {
            let applied = self.store.apply(checks, deadline, pending.commit_mode());
            let applied = applied.await;
            pending.results().record_at(positions, applied);
        }
    }
}

/// Error for a message that prost encodes and the decoder rejects, which is a bug.
const UNREADABLE: &str = "the message cannot be decoded";

/// The same message with each field once. Protobuf allows a field several times and merges
/// them, which the decoder leaves to prost.
pub(crate) fn merge_fields(message: &[u8]) -> Result<Vec<u8>, RequestError> {
    RateLimitRequest::decode(message)
        .map(|request| request.encode_to_vec())
        .map_err(|error| RequestError::Malformed(error.to_string()))
}
