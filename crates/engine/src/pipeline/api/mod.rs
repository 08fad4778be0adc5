//! tollgate's own API: checks, reservations and leases of callers, for HTTP, gRPC and Kuadrant's
//! RPCs.
//!
//! A call becomes a request of the one decision path: a message, and beside it an
//! [`ApiCall`](super::api_call::ApiCall).
//! `begin` plans it with the rules in use, and the checks of the plan then become the operation of
//! the call. `end` decides and counts it as any other request. So bounds, settings, metrics and
//! decision records mean the same for every caller.
//!
//! | file | content |
//! | --- | --- |
//! | `call`, `answer` | one call, and its answer |
//! | `operations` | what each check of a plan becomes |
//! | `settling` | commits, releases and extensions of reservations |
//! | `leases`, `lease_id` | leases of callers |
//! | `bounds` | bounds of calls, and ids |
//!
//! What it deliberately does not do: read JSON or protobuf.

mod answer;
mod bounds;
mod call;
mod lease_id;
mod leases;
mod operations;
mod settling;

use std::sync::Arc;

use tollgate_limiter::algorithm::Settled;
use tollgate_limiter::{Code, Request, ReservationOutcome};

pub(in crate::pipeline) use self::bounds::SHORT_REQUEST_CHECKS_MAX;
pub use self::bounds::{
    API_CALLS_MAX, API_HITS_MAX, BatchProgress, RESERVATION_ID_BYTES_MAX, give_way,
    new_reservation_id,
};
pub(in crate::pipeline) use self::call::after_refunds;
pub(in crate::pipeline) use self::operations::refuse_peeks;

use crate::ended::RequestError;
use crate::pipeline::api_call::ApiStep;
pub use crate::pipeline::encode_check::NoLimit;
use tollgate_store::Deadline;
use tollgate_telemetry::tracing::TraceParent;

/// A call of the API, which asks one step or another operation.
#[derive(Clone, Debug)]
pub struct ApiRequest<'a, O = ApiStep> {
    /// Domain and descriptors. The hits of each descriptor are
    /// [`Hits::Take`](tollgate_limiter::Hits).
    pub request: Request<'a>,
    /// What to do with the hits.
    pub operation: O,
    /// The id of its reservation or lease; empty where it names none.
    pub id: &'a str,
    /// When the answer is no longer of use.
    pub deadline: Deadline,
    /// The caller's trace.
    pub parent: Option<TraceParent>,
}

/// What a call of the API asks of its limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ApiOperation {
    /// One step.
    Step(ApiStep),
    /// Takes hits from all limits or from none, for the caller to admit by itself.
    Lease(LeaseCall),
    /// Gives back the unused hits of a lease.
    Return(ReturnCall),
}

/// A call for a lease. Its id is that of the caller's last lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LeaseCall {
    /// The most hits that are wanted; at least 1.
    pub hits: u64,
    /// What the caller decided since it last said so.
    pub decided: CallerDecisions,
}

/// A lease that comes back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReturnCall {
    /// How many of its hits were not used.
    pub unused: u64,
    /// What the caller decided since it last said so.
    pub decided: CallerDecisions,
}

/// Hits that a caller decided by itself.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CallerDecisions {
    /// None where the caller does not say.
    pub admitted: Option<u64>,
    pub refused: Option<u64>,
}

/// What became of a lease.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LeaseAnswer {
    /// The caller may admit this many hits until it expires.
    Granted {
        /// Its id.
        lease: String,
        hits: u64,
        /// How long it is valid, from before the call was sent.
        valid_us: u64,
    },
    /// No hit is left. Nothing was taken.
    Refused,
    /// The limits are not leased. Nothing was taken.
    NotLeased {
        /// Why.
        reason: NotLeased,
        /// How long the caller need not ask again.
        valid_us: u64,
    },
    /// This many hits came back.
    Returned(u64),
}

/// Why limits are not leased.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NotLeased {
    /// The promise of a limit depends on when each hit comes, or on each hit that is refused.
    Algorithm,
    /// The rule of a limit says `lease: false`.
    LeaseFalse,
    /// A limit counts as a quota, which refuses only when all quotas do.
    QuotaMode,
    /// The rule of a limit has reservations.
    Reservation,
    /// A limit refuses nothing.
    Shadow,
    /// No limit applies.
    NoLimit(NoLimit),
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiAnswer {
    /// Whether it passes.
    pub verdict: Code,
    /// What became of the reservation, over all limits.
    pub reservation: ReservationOutcome,
    /// The hits that were taken or reserved, before the cost of a limit.
    pub hits: u64,
    /// The amounts of a reservation that is settled, before the cost of a limit. Those of the first
    /// time when it was settled before.
    pub settled: Settled,
    /// When the reservation ends by itself, in milliseconds from now. Where limits differ, the
    /// first.
    pub expires_ms: Option<u32>,
    /// The hits left of the limit that has the fewest; none where no limit applies.
    pub remaining: Option<u64>,
    /// The time until that limit is unused again.
    pub reset_us: Option<u64>,
    /// The time until the same hits would pass; none where they passed or never will.
    pub retry_us: Option<u64>,
    /// Why no limit applies; none where one does, or a setting answered.
    pub no_limit: Option<NoLimit>,
    /// What became of a lease; none for other calls.
    pub lease: Option<LeaseAnswer>,
    /// Every limit that applies, in the order of the descriptors. Empty for a caller that sends
    /// none.
    pub limits: Vec<ApiLimit>,
    /// The rate limit headers that the settings enable.
    pub headers: Vec<(String, String)>,
    /// The answer as an encoded `RateLimitResponse`. Only of a peek and a report.
    pub response: Option<Vec<u8>>,
}

/// One limit of an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ApiLimit {
    /// The position of its descriptor in the call.
    pub descriptor: usize,
    /// The rule's name; empty where it has none.
    pub name: String,
    /// The rule's path, as in metrics.
    pub rule: Arc<str>,
    /// The number of the limit.
    pub requests_per_unit: u64,
    /// The window in words.
    pub window: String,
    /// Whether this limit refused. One in shadow mode never does.
    pub verdict: Code,
    /// The hits left.
    pub remaining: u64,
    /// The time until it is unused again.
    pub reset_us: u64,
    /// The time until the same hits would pass, where it refused; none when they never will.
    pub retry_us: Option<u64>,
}

// === impl ApiError ===

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::Invalid(why) => Self::Invalid(why),
            error => Self::Request(error),
        }
    }
}

// === impl NotLeased ===

impl NotLeased {
    /// The word for callers.
    pub fn word(self) -> &'static str {
        match self {
            Self::Algorithm => "algorithm",
            Self::LeaseFalse => "lease_false",
            Self::QuotaMode => "quota_mode",
            Self::Reservation => "reservation",
            Self::Shadow => "shadow",
            Self::NoLimit(no_limit) => no_limit.name(),
        }
    }
}

/// Why a call has no answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ApiError {
    /// The request has no decision.
    #[error(transparent)]
    Request(RequestError),
    /// The call asks for what a limit cannot do.
    #[error("{0}")]
    Invalid(String),
    /// The id is not known.
    #[error("{0}")]
    Unknown(String),
}
