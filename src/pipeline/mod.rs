//! The decision pipeline: decode, plan, apply, decide, encode.
//!
//! [`Pipeline::begin`] decodes, validates and plans a request; the store applies the plan's checks;
//! [`Pipeline::finish`] decides, counts and encodes. Both are written once and have two callers:
//! the batcher (`grpc/batcher`), which applies the checks of many requests at once, and
//! [`Pipeline::call`], which `/json` and unusual gRPC calls use. Bytes go in and come out.
//!
//! A request keeps one generation of rules from its beginning to its end. The only wait is the
//! store's, under the caller's deadline; a request that matches no limit does not wait at all.

#[cfg(any(test, fuzzing))]
pub mod agreement;
mod api;
mod begin;
mod call;
mod candidate;
mod candidate_rules;
mod capturing;
mod count;
mod decision_log;
mod decode;
mod dropped;
mod dynamic_metadata;
mod encode;
mod error;
mod excess;
pub(crate) mod fields;
mod finish;
mod generation;
mod generations;
mod headers;
mod key_counts;
mod live_verdict;
mod message;
mod over_limit;
mod pending;
mod policy;
#[cfg(any(test, fuzzing))]
mod prost_oracle;
mod quota;
mod quota_orders;
mod recording;
mod reservations;
mod reset;
mod shadows;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::answer_memory::AnswerMemory;
use crate::capture::{Capture, CaptureWriter};
use crate::clock::Clock;
use crate::decisions::{Decisions, Recorder};
use crate::estimates::Estimates;
use crate::keyed_hash::KeyedHash;
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::settings::memory_limit::answer_bytes;
use crate::store::{BatchClient, Store};
use crate::top_keys::TopKeys;
use crate::tracing::{RequestOutcome, Span, Traces};

pub(crate) use self::api::{
    API_CALLS_MAX, API_HITS_MAX, ApiAnswer, ApiError, ApiLimit, ApiRequest, ApiStep, BatchProgress,
    RESERVATION_ID_BYTES_MAX, decode_recorded, give_way, new_reservation_id, refuse_peeks,
};
pub(crate) use self::begin::{Call, Undecodable};
pub use self::call::CallResponse;
pub(crate) use self::call::merge_fields;
pub use self::candidate::{CandidatePartitions, CandidateTasks, SingleQueue};
pub use self::candidate_rules::{CandidateRules, CandidateSource};
pub use self::decision_log::DECISION_LOG;
pub(crate) use self::encode::{EncodedResponse, FRAME_HEAD_BYTES};
pub use self::error::RequestError;
use self::excess::ExcessLog;
pub(crate) use self::excess::RequestBound;
pub use self::generation::Generation;
pub use self::generations::Generations;
pub use self::headers::Headers;
pub(crate) use self::headers::{described_position, retry_after};
pub(crate) use self::pending::{KeyCounts, PendingRequest, Scratch};
pub(crate) use self::policy::RequestPolicy;
use self::policy::ResponsePolicy;
pub(crate) use self::quota::{QuotaParts, QuotaRule, find_quota};
pub use self::reset::{BucketReset, ResetError};
pub use self::shadows::{SHADOW_SECONDS_MAX, SHADOWED_RULES_MAX, Shadow, ShadowError};

/// Decides requests. There is one for the whole process.
pub struct Pipeline {
    generations: Arc<Generations>,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    hash: KeyedHash,
    traces: Option<Arc<Traces>>,
    decisions: Decisions,
    top_keys: Arc<TopKeys>,
    estimates: Estimates,
    capture: Arc<Capture>,
    /// Captures requests outside the worker threads.
    single_capture: Mutex<CaptureWriter>,
    request_policy: RequestPolicy,
    response_policy: ResponsePolicy,
    excess_log: ExcessLog,
    answer_memory: Arc<AnswerMemory>,
    /// Where candidates count; none where there can be none.
    candidates: Option<CandidatePartitions>,
}

/// The parts of a [`Pipeline`].
pub struct Parts {
    /// The rules in use.
    pub generations: Arc<Generations>,
    /// Where buckets live.
    pub store: Arc<dyn Store>,
    /// For deadlines and latencies.
    pub clock: Arc<dyn Clock>,
    /// Where requests are counted.
    pub metrics: Arc<Metrics>,
    /// The keyed hash that buckets are found by.
    pub hash: KeyedHash,
    /// Where decisions are traced, if they are.
    pub traces: Option<Arc<Traces>>,
    /// Where decisions are kept and passed on.
    pub decisions: Decisions,
    /// Where keys are counted.
    pub top_keys: Arc<TopKeys>,
}

// === impl Pipeline ===

impl Pipeline {
    /// A pipeline of these parts that answers as the settings say.
    pub fn new(parts: Parts, settings: &Settings) -> Self {
        let Parts {
            generations,
            store,
            clock,
            metrics,
            hash,
            traces,
            decisions,
            top_keys,
        } = parts;
        Self {
            generations,
            request_policy: RequestPolicy::new(settings),
            response_policy: ResponsePolicy::new(settings, &*store),
            excess_log: ExcessLog::default(),
            store,
            clock,
            answer_memory: AnswerMemory::new(
                settings
                    .answer_memory_max
                    .unwrap_or_else(|| answer_bytes(settings.answer_size_max)),
                metrics.answers.clone(),
            ),
            estimates: Estimates::new(
                settings.estimates.estimates_memory_max,
                metrics.estimates.clone(),
            ),
            metrics,
            hash,
            traces,
            capture: Arc::clone(decisions.capture()),
            single_capture: Mutex::new(decisions.capture().writer()),
            decisions,
            top_keys,
            candidates: None,
        }
    }

    /// Decides candidates in these partitions. Without them there are none.
    #[must_use]
    pub fn with_candidates(self, partitions: CandidatePartitions) -> Self {
        Self {
            candidates: Some(partitions),
            ..self
        }
    }

    /// Memory of answers that are not sent yet.
    pub(crate) fn answer_memory(&self) -> &Arc<AnswerMemory> {
        &self.answer_memory
    }

    /// The largest answer to a call or a batch of the API, in bytes.
    pub(crate) fn answer_bytes_max(&self) -> usize {
        self.response_policy.answer_bytes_max
    }

    /// Captures the requests of one more worker thread.
    pub(crate) fn capture_writer(&self) -> CaptureWriter {
        self.capture.writer()
    }

    /// Captures requests outside the worker threads.
    fn single_capture(&self) -> MutexGuard<'_, CaptureWriter> {
        self.single_capture
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the decisions of one more worker thread.
    pub(crate) fn recorder(&self) -> Recorder {
        self.decisions.recorder()
    }

    /// Passes the decisions of a candidate to subscriptions, for one more task.
    pub(crate) fn tap_recorder(&self) -> Recorder {
        self.decisions.tap_recorder()
    }

    /// A client that applies the checks of many requests at once, for one task. None when the store
    /// has no such way.
    pub(crate) fn batch_client(&self) -> Option<Box<dyn BatchClient>> {
        self.store.batch_client()
    }

    /// The clock's uptime.
    pub(crate) fn uptime_us(&self) -> u64 {
        self.clock.uptime_us()
    }

    /// The rules in use, if any were ever loaded.
    pub(crate) fn current_rules(&self) -> Option<Arc<Generation>> {
        self.generations.current()
    }

    /// Whether these are the rules in use.
    pub(crate) fn is_current(&self, generation: &Arc<Generation>) -> bool {
        self.generations.is_current(generation)
    }

    /// Sees each change of the rules in use from now on.
    pub(crate) fn rules_changes(&self) -> watch::Receiver<()> {
        self.generations.subscribe()
    }

    /// Whether decisions are traced, some at least.
    pub(crate) fn is_tracing(&self) -> bool {
        self.traces.is_some()
    }

    /// Where keys are counted.
    pub(crate) fn top_keys(&self) -> &TopKeys {
        &self.top_keys
    }

    /// Records in a request's span what became of it.
    fn end_span(&self, span: Option<Box<Span>>, answered: RequestOutcome<'_>) {
        if let (Some(span), Some(traces)) = (span, &self.traces) {
            traces.end(span, answered, self.clock.now());
        }
    }
}
