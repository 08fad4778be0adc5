//! The decision pipeline: decode, plan, apply, decide, encode.
//!
//! Every way in submits a request and a responder to the [`Batcher`] of a thread: the fast path
//! directly, all others as tasks ([`Pipeline::call`]). [`Pipeline::begin`] decodes, validates and
//! plans it; the store applies the plan's checks; [`Pipeline::end`] decides, shows every observer
//! how it ended, and responds. Bytes go in and come out.
//!
//! A request keeps one generation of rules from its beginning to its end. The only wait is the
//! store's, under the caller's deadline; a request that matches no limit does not wait at all.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `batcher`, `in_flight`, `threads`, `own_thread` | the batcher of a thread, what waits for its store, and how tasks and tests reach it |
//! | `alone` | one request without a thread |
//! | `begin` | the first half: validates a request and plans it |
//! | `decode`, `message` | read the message in place; what its fields mean, such as hits |
//! | `overrides` | what an operator set for a descriptor |
//! | `pending` | a request between the halves |
//! | `end`, `encode`, `encode_check`, `headers`, `dynamic_metadata` | the second half: decision and response |
//! | `excess` | bounds of requests |
//! | `observers`, `count`, `key_counts`, `debug_lines` | what is counted and kept of a request |
//! | `generation`, `generations`, `shadows` | the rules in use, and those in shadow mode |
//! | `candidate`, `candidate_rules` | rules that are tried beside them |
//! | `api`, `api_call`, `reservations`, `lease_holders` | tollgate's own API |
//! | `quota`, `reset` | buckets of the quota service; buckets that are forgotten |

mod alone;
mod api;
mod api_call;
mod batcher;
mod begin;
mod candidate;
mod candidate_rules;
mod count;
mod debug_lines;
pub mod decode;
mod dynamic_metadata;
mod encode;
mod encode_check;
mod end;
mod excess;
mod generation;
mod generations;
mod headers;
mod in_flight;
mod key_counts;
mod lease_holders;
mod message;
mod observers;
mod overrides;
mod own_thread;
mod pending;
mod quota;
mod reservations;
mod reset;
mod shadows;
#[cfg(any(test, fuzzing))]
mod tests;
mod threads;

use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tollgate_limiter::{BucketNaming, Modes, OnUndecided};

use crate::capture::CaptureWriter;
use crate::decisions::Decisions;
use crate::estimates::Estimates;
use crate::top_keys::TopKeys;
use tollgate_store::Store;
use tollgate_system::clock::Clock;
use tollgate_system::keyed_hash::KeyedHash;
use tollgate_telemetry::metrics::Metrics;
use tollgate_telemetry::tracing::Traces;

pub use self::api::{
    API_CALLS_MAX, API_HITS_MAX, ApiAnswer, ApiError, ApiLimit, ApiOperation, ApiRequest,
    BatchProgress, CallerDecisions, LeaseAnswer, LeaseCall, NoLimit, NotLeased,
    RESERVATION_ID_BYTES_MAX, ReturnCall, give_way, new_reservation_id,
};
pub use self::api_call::{ApiCall, ApiStep, decode_recorded};
pub use self::batcher::Batcher;
pub use self::candidate::{CandidateBatcher, CandidatePartitions};
pub use self::candidate_rules::CandidateRules;
pub use self::debug_lines::DECISION_LOG;
pub use self::decode::check_as_request;
pub use self::encode::{EncodedResponse, FRAME_HEAD_BYTES, Responder};
pub use self::excess::RequestBound;
use self::excess::{ExcessLog, LogInterval};
pub use self::generation::Generation;
pub use self::generations::{Generations, RefusedSince};
pub use self::headers::Headers;
pub(crate) use self::headers::{described_position, retry_after};
use self::lease_holders::Holders;
pub use self::overrides::{OVERRIDE_BYTES_MAX, OVERRIDE_SECONDS_MAX, Override, OverrideError};
pub use self::own_thread::local_thread;
pub(crate) use self::pending::{PendingRequest, Scratch};
pub use self::quota::{QuotaParts, QuotaRule, find_quota};
pub use self::reset::ResetError;
pub use self::shadows::{SHADOW_SECONDS_MAX, SHADOWED_RULES_MAX, Shadow, ShadowError};
#[cfg(fuzzing)]
pub use self::tests::agreement;
pub use self::threads::{CallResponse, Submission};
pub use crate::ended::RequestError;

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
    /// Captures resets.
    reset_capture: Mutex<CaptureWriter>,
    config: Config,
    bucket_naming: Option<BucketNaming>,
    excess_log: ExcessLog,
    lease_holders: Holders,
    lease_log: LogInterval,
    threads: threads::Threads,
    /// Where candidates count; none where there can be none.
    candidates: Option<CandidatePartitions>,
}

/// The parts of a [`Pipeline`].
#[derive(Clone)]
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

/// How requests are read and answered.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which fields of a request take effect.
    pub request: RequestPolicy,
    /// What refuses a request.
    pub modes: Modes,
    /// The share of a limit from which hits count as near the limit.
    pub near_limit_ratio: f32,
    /// The answer without a decision of this process.
    pub on_overload: OnUndecided,
    /// The answer without a decision of the store that replicas share.
    pub on_store_failure: OnUndecided,
    /// The answer to a request that exceeds a bound.
    pub on_excess: OnUndecided,
    /// How many descriptors a request may have.
    pub descriptors_max: usize,
    /// How many entries a descriptor may have.
    pub entries_max: usize,
    /// The largest answer to a call or a batch of the API.
    pub answer_bytes_max: usize,
    /// How long a lease of a caller is valid at most, in microseconds.
    pub lease_age_max_us: u64,
    /// How many hits a lease of a caller has at most.
    pub caller_lease_hits_max: u64,
    /// Bytes of learnt amounts.
    pub estimates_memory_max: usize,
    /// Headers of responses, if they have any.
    pub headers: Option<Headers>,
    /// Responses have dynamic metadata.
    pub dynamic_metadata: bool,
    /// Takes of a request go back unless all its limits pass.
    pub all_or_nothing: bool,
}

/// Which fields of a request take effect.
#[derive(Clone, Copy, Debug)]
pub struct RequestPolicy {
    /// Hits may be given back. If not, a descriptor with negative hits only looks.
    pub negative_hits: bool,
    /// Limits may come with the request. If not, they count as unusable.
    pub overrides: bool,
}

// === impl Pipeline ===

impl Pipeline {
    /// A pipeline of these parts.
    pub fn new(parts: Parts, config: Config) -> Self {
        let metrics = parts.metrics;
        Self {
            generations: parts.generations,
            estimates: Estimates::new(config.estimates_memory_max, metrics.estimates.clone()),
            lease_holders: Holders::new(config.lease_age_max_us, metrics.caller_leases.clone()),
            config,
            bucket_naming: parts.store.bucket_naming(),
            excess_log: ExcessLog::default(),
            lease_log: LogInterval::default(),
            store: parts.store,
            clock: parts.clock,
            metrics,
            hash: parts.hash,
            traces: parts.traces,
            reset_capture: Mutex::new(parts.decisions.capture().writer()),
            decisions: parts.decisions,
            top_keys: parts.top_keys,
            threads: threads::Threads::default(),
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

    /// The largest answer to a call or a batch of the API, in bytes.
    pub fn answer_bytes_max(&self) -> usize {
        self.config.answer_bytes_max
    }

    /// The clock's uptime.
    pub fn uptime_us(&self) -> u64 {
        self.clock.uptime_us()
    }

    /// The rules in use, if any were ever loaded.
    pub fn current_rules(&self) -> Option<Arc<Generation>> {
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
    pub fn is_tracing(&self) -> bool {
        self.traces.is_some()
    }

    /// Where keys are counted.
    pub fn top_keys(&self) -> &TopKeys {
        &self.top_keys
    }
}

// === impl Config ===

/// The defaults of `serve`.
impl Default for Config {
    fn default() -> Self {
        Self {
            request: RequestPolicy {
                negative_hits: true,
                overrides: true,
            },
            modes: Modes::default(),
            near_limit_ratio: 0.8,
            on_overload: OnUndecided::Error,
            on_store_failure: OnUndecided::Error,
            on_excess: OnUndecided::Deny,
            descriptors_max: 512,
            entries_max: 64,
            answer_bytes_max: 4 << 20,
            lease_age_max_us: 2_000_000,
            caller_lease_hits_max: 1_000,
            estimates_memory_max: 4 << 20,
            headers: None,
            dynamic_metadata: false,
            all_or_nothing: false,
        }
    }
}
