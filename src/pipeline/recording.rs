//! Passing a request that has ended to the readers of decisions. Most requests have none.

use tollgate_limiter::{Decision, Plan, Request};

use crate::decisions::{EndedRequest, Ending, MatchedRequest};
use crate::pipeline::decode::decode;
use crate::pipeline::pending::{PendingRequest, Scratch};
use crate::pipeline::{Generation, Pipeline, RequestError};

/// A request that was matched against these rules.
pub(super) fn matched<'a, G>(
    rules: &'a Generation,
    plan: &'a Plan<'a>,
    decision: &'a Decision<'a>,
    pending: &'a PendingRequest<G>,
) -> MatchedRequest<'a> {
    let results = &pending.results;
    MatchedRequest {
        rules: &rules.rules,
        names: &rules.names,
        plan,
        decision,
        outcomes: &results.outcomes,
        from_denial_cache: results.from_denial_cache,
        local: &results.local,
        undecided: results.undecided,
    }
}

impl Pipeline {
    /// Passes a request to the readers that want it, if any.
    pub(super) fn record<G>(
        &self,
        pending: &PendingRequest<G>,
        scratch: &mut Scratch,
        took_us: u64,
        generation: Option<i64>,
        ending: Ending<'_>,
    ) {
        if !pending.wanted.any() {
            return;
        }
        let verdict = ending.verdict();
        let chosen = match &mut scratch.recorder {
            Some(recorder) => recorder.choose(pending.wanted, verdict),
            None => self
                .decisions
                .single_recorder()
                .choose(pending.wanted, verdict),
        };
        let Some(wanted) = chosen else {
            return;
        };
        let mut request = std::mem::take(&mut scratch.request).recycle();
        // It was decoded before.
        let _ = decode(&pending.message, self.request_policy, &mut request);
        let ended = EndedRequest {
            request: &request,
            generation,
            took_us,
            ending,
            live_verdict: None,
        };
        if let Some(recorder) = &mut scratch.recorder {
            recorder.keep(wanted, &ended);
        } else {
            let mut recorder = self.decisions.single_recorder();
            recorder.keep(wanted, &ended);
            recorder.flush();
        }
        scratch.request = request.recycle();
    }

    /// The same for a message that is no request.
    #[cold]
    pub(super) fn record_malformed(&self, error: &RequestError) {
        let mut recorder = self.decisions.single_recorder();
        let request = Request::default();
        let wanted = recorder.begin(&request, self.clock.uptime_us());
        let ended = EndedRequest {
            request: &request,
            generation: None,
            took_us: 0,
            ending: Ending::Failed(error),
            live_verdict: None,
        };
        if let Some(wanted) = recorder.choose(wanted, ended.ending.verdict()) {
            recorder.keep(wanted, &ended);
        }
        recorder.flush();
    }
}
