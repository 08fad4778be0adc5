//! tollgate's own API: checks, reservations and their settling, for HTTP, gRPC and Kuadrant's RPCs.
//!
//! A call becomes a request of the one decision path. `begin` plans it with the rules in use. The
//! checks of the plan then become the operation of the call, and `finish` decides, counts and
//! records it. So bounds, settings, metrics and decision records mean the same for every caller.
//!
//! What it deliberately does not do: read JSON or protobuf.

mod answer;
mod bounds;
mod call;
mod operations;
mod peeks;
mod recorded;
mod settling;
mod turns;

use std::num::NonZeroU32;
use std::sync::Arc;

use tollgate_limiter::{
    Code, DescriptorPlan, Expiry, OnExpiry, Otherwise, Plan, Request, ReservationOutcome,
};

use tollgate_limiter::algorithm::Settled;

pub(crate) use self::bounds::{
    API_CALLS_MAX, API_HITS_MAX, BatchProgress, RESERVATION_ID_BYTES_MAX, new_reservation_id,
};
pub(crate) use self::peeks::refuse_peeks;
pub(crate) use self::recorded::decode as decode_recorded;
pub(crate) use self::turns::give_way;

use crate::pipeline::RequestError;
use crate::store::Deadline;
use crate::tracing::TraceParent;

/// A call of the API.
#[derive(Clone, Debug)]
pub(crate) struct ApiRequest<'a> {
    /// Domain and descriptors. The hits of each descriptor are
    /// [`Hits::Take`](tollgate_limiter::Hits).
    pub(crate) request: Request<'a>,
    /// What to do with the hits.
    pub(crate) step: ApiStep<'a>,
    /// When the answer is no longer of use.
    pub(crate) deadline: Deadline,
    /// The caller's trace.
    pub(crate) parent: Option<TraceParent>,
}

/// What a call does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ApiStep<'a> {
    /// Takes the hits, or refuses.
    Check,
    /// Says what a check would answer, and takes nothing.
    Peek,
    /// Charges the hits beyond the limit, too. Never refused.
    Report,
    /// Takes the hits from all limits or from none, until they are settled or expire.
    Reserve {
        /// The id.
        id: &'a [u8],
        /// The expiry; the rule's when absent, else 60 s.
        expires_ms: Option<NonZeroU32>,
        /// What happens to the hits then; as the rule says when absent, else they stay charged.
        on_expiry: Option<OnExpiry>,
        /// Whether each rule says how much to reserve, and not the hits of the request.
        uses_rule_amount: bool,
    },
    /// Moves the expiry of an open reservation.
    Extend {
        /// The id.
        id: &'a [u8],
        /// The new expiry, from now.
        expires_ms: NonZeroU32,
    },
    /// Settles a reservation by the hits of the request.
    Commit {
        /// The id. An empty one is that of no reservation.
        id: &'a [u8],
        /// What to do when no reservation of the id is open.
        otherwise: Otherwise,
    },
    /// Settles a reservation and gives back all of it.
    Release {
        /// The id.
        id: &'a [u8],
    },
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiAnswer {
    /// Whether it passes.
    pub(crate) verdict: Code,
    /// What became of the reservation, over all limits.
    pub(crate) reservation: ReservationOutcome,
    /// The hits that were taken or reserved, before the cost of a limit.
    pub(crate) hits: u64,
    /// The amounts of a reservation that is settled, before the cost of a limit. Those of the first
    /// time when it was settled before.
    pub(crate) settled: Settled,
    /// When the reservation ends by itself, in milliseconds from now. Where limits differ, the
    /// first.
    pub(crate) expires_ms: Option<u32>,
    /// The hits left of the limit that has the fewest; none where no limit applies.
    pub(crate) remaining: Option<u64>,
    /// The time until that limit is unused again.
    pub(crate) reset_us: Option<u64>,
    /// The time until the same hits would pass; none where they passed or never will.
    pub(crate) retry_us: Option<u64>,
    /// Every limit that applies, in the order of the descriptors. Empty for a caller that sends
    /// none.
    pub(crate) limits: Vec<ApiLimit>,
    /// The rate limit headers that the settings enable.
    pub(crate) headers: Vec<(String, String)>,
    /// The answer as an encoded `RateLimitResponse`. Only of a peek and a report.
    pub(crate) response: Option<Vec<u8>>,
}

/// One limit of an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ApiLimit {
    /// The position of its descriptor in the call.
    pub(crate) descriptor: usize,
    /// The rule's name; empty where it has none.
    pub(crate) name: String,
    /// The rule's path, as in metrics.
    pub(crate) rule: Arc<str>,
    /// The number of the limit.
    pub(crate) requests_per_unit: u32,
    /// The window in words.
    pub(crate) window: String,
    /// Whether this limit refused. One in shadow mode never does.
    pub(crate) verdict: Code,
    /// The hits left.
    pub(crate) remaining: u64,
    /// The time until it is unused again.
    pub(crate) reset_us: u64,
    /// The time until the same hits would pass, where it refused; none when they never will.
    pub(crate) retry_us: Option<u64>,
}

/// Why a call has no answer.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum ApiError {
    /// The request has no decision.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The call asks for what a limit cannot do.
    #[error("{0}")]
    Invalid(String),
    /// The id is not known.
    #[error("{0}")]
    Unknown(String),
}

/// The positions of a plan's checks, each after that of its descriptor.
fn checks_of<'p>(plan: &'p Plan<'_>) -> impl Iterator<Item = (usize, usize)> + 'p {
    let descriptors = plan.descriptors().iter().enumerate();
    descriptors.flat_map(|(descriptor, planned)| {
        let range = match planned {
            DescriptorPlan::Checks(range) => range.clone(),
            DescriptorPlan::NoLimit | DescriptorPlan::Unlimited => 0..0,
        };
        range.map(move |position| (descriptor, position))
    })
}

// === impl ApiStep ===

impl<'a> ApiStep<'a> {
    /// Whether it asks for hits, and can be refused.
    fn takes(self) -> bool {
        matches!(self, Self::Check | Self::Peek | Self::Reserve { .. })
    }

    /// The id of its reservation. An empty one is none.
    fn id(self) -> Option<&'a [u8]> {
        match self {
            Self::Check | Self::Peek | Self::Report => None,
            Self::Reserve { id, .. }
            | Self::Extend { id, .. }
            | Self::Commit { id, .. }
            | Self::Release { id } => Some(id).filter(|id| !id.is_empty()),
        }
    }

    /// The expiry that it says, in milliseconds.
    fn expires_ms(self) -> Option<u32> {
        match self {
            Self::Reserve { expires_ms, .. } => {
                Some(expires_ms.unwrap_or(Expiry::default().after_ms).get())
            }
            Self::Extend { expires_ms, .. } => Some(expires_ms.get()),
            _ => None,
        }
    }
}
