//! One request between `begin` and `finish`, and the memory that both reuse.
//!
//! Why two types: a worker thread has one [`Scratch`], and as many [`PendingRequest`]s as requests
//! that wait for the store at the same time. Both keep their memory from request to request, so
//! the steady state allocates nothing.

use tollgate_limiter::{Check, Code, Outcome, Plan, PlanBuffer, Request, RuleSet, Status};

use crate::admin_api::Reason;
use crate::capture::{BatchStamp, CaptureWriter, CapturedRequest, CheckStamp, put_stamps};
use crate::decisions::{Recorder, Wanted};
use crate::metrics::{LocalHistogram, Metrics, RequestCounts};
use crate::pipeline::RequestError;
use crate::pipeline::live_verdict::{CandidateRequest, LiveVerdict};
use crate::store::{CheckResult, CommitMode, PartialReply, StoreError, StoreReply, TentativeTake};
use crate::top_keys::Recorder as KeyRecorder;
use crate::tracing::Span;

/// What one task needs for any number of requests, one after the other: memory that is used again,
/// and counts that its requests add to.
pub(crate) struct Scratch {
    pub(super) request: Request<'static>,
    pub(super) statuses: Vec<Status<'static>>,
    /// The encoded fields of a response that only some have.
    pub(super) extras: Vec<u8>,
    pub(super) counts: RequestCounts,
    pub(super) response_time: LocalHistogram,
    /// Keeps decisions; none outside the worker threads, which share one.
    pub(super) recorder: Option<Recorder>,
    pub(super) keys: KeyCounts,
    /// Captures requests; none outside the worker threads, which share one.
    pub(super) capture: Option<CaptureWriter>,
}

/// Where a task counts keys.
#[derive(Debug)]
pub(crate) enum KeyCounts {
    /// Nowhere.
    Off,
    /// In a recorder of its own.
    Own(Box<KeyRecorder>),
    /// In the recorder of all requests that no batcher decides.
    Shared,
}

/// One request, from `begin` to `finish`. `G` holds its generation of rules.
pub(crate) struct PendingRequest<G> {
    pub(super) stage: Stage,
    pub(super) rules: Option<G>,
    pub(super) plan: PlanBuffer,
    pub(super) results: CheckResults,
    pub(super) commit_mode: CommitMode,
    /// Whether a key has no text yet, and `message` is kept for that.
    pub(super) wants_texts: bool,
    /// The message, where the answer, its metrics or a reader of decisions need the request again.
    /// Else empty.
    pub(super) message: Vec<u8>,
    /// Which readers may want the decision.
    pub(super) wanted: Wanted,
    /// Set while a recording is to have it.
    pub(super) captured: Option<CapturedRequest>,
    /// What a call of the API asks, as a recording has it; empty for a request of another way in.
    pub(super) captured_call: Vec<u8>,
    /// Whether it is a call of the API, in which a look is followed by no charge.
    pub(super) is_api: bool,
    pub(super) span: Option<Box<Span>>,
    pub(super) began_us: u64,
    /// The live answer, once it was given, where a candidate is to decide too.
    pub(super) live: Option<LiveVerdict>,
    /// What a candidate's decision needs of the request.
    pub(super) candidate: CandidateRequest,
}

/// What `begin` made of a request.
#[derive(Debug, Default)]
pub(super) enum Stage {
    /// There is a plan; its checks, if any, are to be applied.
    #[default]
    Planned,
    /// A setting answers a request that exceeds a bound; the error is that of a call that no
    /// setting answers.
    Decided(Code, RequestError),
    /// There is no answer.
    Failed(RequestError),
}

/// The store's answers to a plan's checks.
#[derive(Debug, Default)]
pub(crate) struct CheckResults {
    /// In the plan's order; none for a check that was not decided.
    pub(super) outcomes: Vec<Option<Outcome>>,
    /// The first reason why one was not.
    pub(super) error: Option<StoreError>,
    /// Hits that go back to the store unless the request passes.
    pub(super) tentative: Option<TentativeTake>,
    /// Whether the denial cache answered.
    pub(super) from_denial_cache: bool,
    /// The positions of checks that the fallback decided.
    pub(super) local: Vec<usize>,
    /// The reason of checks that were not decided and that a setting answered.
    pub(super) undecided: Option<Reason>,
    /// When checks were decided, while a recording runs. Else empty.
    pub(super) stamps: Vec<CheckStamp>,
}

// === impl Scratch ===

impl Scratch {
    /// Empty memory, and nothing counted. `keys` is where keys are counted.
    pub(crate) fn new(metrics: &Metrics, keys: KeyCounts, recorder: Option<Recorder>) -> Self {
        Self {
            request: Request::default(),
            statuses: Vec::new(),
            extras: Vec::new(),
            counts: RequestCounts::default(),
            response_time: metrics.requests.response_time.local(),
            recorder,
            keys,
            capture: None,
        }
    }

    /// Captures requests with a writer of its own.
    pub(crate) fn with_capture(self, writer: CaptureWriter) -> Self {
        Self {
            capture: Some(writer),
            ..self
        }
    }

    /// The recorder of keys, if this task has one of its own.
    pub(crate) fn key_recorder(&mut self) -> Option<&mut KeyRecorder> {
        match &mut self.keys {
            KeyCounts::Own(recorder) => Some(recorder),
            KeyCounts::Off | KeyCounts::Shared => None,
        }
    }

    /// Adds what was counted to the metrics. Call it before answers leave, so that no client sees
    /// an answer that is not counted.
    pub(crate) fn flush_counts(&mut self, metrics: &Metrics) {
        self.counts.flush(metrics);
        self.response_time.flush();
        if let Some(recorder) = &mut self.recorder {
            recorder.flush();
        }
    }
}

// === impl PendingRequest ===

impl<G> PendingRequest<G> {
    /// The checks for the store, in order. Empty if the answer needs no store.
    pub(crate) fn checks(&self) -> &[Check] {
        match self.stage {
            Stage::Planned => self.plan.checks(),
            Stage::Decided(..) | Stage::Failed(_) => &[],
        }
    }

    /// Whether hits are committed at once, or only if every limit of the request passes.
    pub(crate) fn commit_mode(&self) -> CommitMode {
        self.commit_mode
    }

    /// Where the answers to [`PendingRequest::checks`] go.
    pub(crate) fn results(&mut self) -> &mut CheckResults {
        &mut self.results
    }

    /// The plan of a request that has ended, under the rules that it began with. The request keeps
    /// no plan then.
    pub(crate) fn take_plan<'r>(&mut self, rules: &'r RuleSet) -> Plan<'r> {
        Plan::from_buffer(std::mem::take(&mut self.plan), rules)
    }

    /// Puts back a plan that [`PendingRequest::take_plan`] gave.
    pub(crate) fn put_plan(&mut self, plan: Plan<'_>) {
        self.plan = plan.into_buffer();
    }

    /// The outcomes of the checks, in the plan's order.
    pub(crate) fn outcomes(&self) -> &[Option<Outcome>] {
        &self.results.outcomes
    }

    /// Whether hits were taken that go back unless the request passes.
    pub(crate) fn has_tentative_take(&self) -> bool {
        self.results.tentative.is_some()
    }

    /// Whether a candidate is to decide it too, now that it has its answer.
    #[inline]
    pub(crate) fn wants_candidate(&self) -> bool {
        self.live.is_some()
    }

    /// How long its message is.
    pub(crate) fn message_bytes(&self) -> usize {
        self.message.len()
    }

    /// Drops everything but memory worth keeping: at most `message_bytes_max` bytes of message.
    pub(crate) fn clear(&mut self, message_bytes_max: usize) {
        self.rules = None;
        self.live = None;
        self.span = None;
        self.results.tentative = None;
        self.message.clear();
        if self.message.capacity() > message_bytes_max {
            self.message = Vec::new();
        }
    }
}

impl<G> Default for PendingRequest<G> {
    fn default() -> Self {
        Self {
            stage: Stage::default(),
            rules: None,
            plan: PlanBuffer::default(),
            results: CheckResults::default(),
            commit_mode: CommitMode::Immediate,
            wants_texts: false,
            message: Vec::new(),
            wanted: Wanted::default(),
            captured: None,
            captured_call: Vec::new(),
            is_api: false,
            span: None,
            began_us: 0,
            live: None,
            candidate: CandidateRequest::default(),
        }
    }
}

// === impl CheckResults ===

impl CheckResults {
    /// No answers yet, to this many checks.
    pub(super) fn reset(&mut self, checks: usize) {
        self.outcomes.clear();
        self.outcomes.resize(checks, None);
        self.error = None;
        self.tentative = None;
        self.from_denial_cache = false;
        self.local.clear();
        self.undecided = None;
        self.stamps.clear();
    }

    /// Records the answer to the check at `position`.
    pub(crate) fn record(&mut self, position: usize, answer: CheckResult) {
        match answer {
            Ok(outcome) => {
                if let Some(slot) = self.outcomes.get_mut(position) {
                    *slot = Some(outcome);
                }
            }
            Err(error) => self.fail(error),
        }
    }

    /// Records that checks were not decided. The first reason is kept.
    pub(crate) fn fail(&mut self, error: StoreError) {
        self.error.get_or_insert(error);
    }

    /// Records who decided, where it was not the store itself.
    pub(crate) fn record_origin(&mut self, from_denial_cache: bool, local: &[usize]) {
        self.from_denial_cache |= from_denial_cache;
        if !local.is_empty() {
            self.local.extend_from_slice(local);
        }
    }

    /// Records a part of the answers.
    pub(crate) fn record_reply(&mut self, reply: PartialReply<'_>) {
        for (position, answer) in reply.positions.iter().zip(reply.answers) {
            self.record(*position, answer.clone());
        }
        self.join_tentative_take(reply.tentative);
        self.record_origin(reply.from_denial_cache, reply.local);
        self.record_stamp(reply.positions, reply.stamp);
    }

    /// Records when the checks at these positions were decided.
    #[inline]
    pub(crate) fn record_stamp(&mut self, positions: &[usize], stamp: Option<BatchStamp>) {
        if let Some(stamp) = stamp {
            let count = self.outcomes.len();
            put_stamps(&mut self.stamps, count, positions, &stamp);
        }
    }

    /// Adds hits that go back unless the request passes.
    pub(crate) fn join_tentative_take(&mut self, tentative: Option<TentativeTake>) {
        TentativeTake::merge(&mut self.tentative, tentative);
    }

    /// Records the answers to the checks at these positions.
    pub(super) fn record_at(
        &mut self,
        positions: &[usize],
        applied: Result<StoreReply, StoreError>,
    ) {
        let reply = match applied {
            Ok(reply) => reply,
            Err(error) => return self.fail(error),
        };
        for (position, answer) in positions.iter().zip(reply.answers) {
            self.record(*position, answer);
        }
        self.join_tentative_take(reply.tentative);
        let local = reply.local.iter();
        let local: Vec<_> = local
            .filter_map(|place| positions.get(*place).copied())
            .collect();
        self.record_origin(reply.from_denial_cache, &local);
        if !reply.stamps.is_empty() {
            self.stamps
                .resize(self.outcomes.len(), CheckStamp::default());
        }
        for (position, stamp) in positions.iter().zip(reply.stamps) {
            if let Some(slot) = self.stamps.get_mut(*position) {
                *slot = stamp;
            }
        }
    }
}
