//! What a call of the API asks, and what came of it: on the way to the thread that decides it, and
//! back to the task that answers.

mod recorded;

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use tollgate_limiter::{Code, Expiry, Hits, OnExpiry, Otherwise, Outcome, PlanBuffer};

pub use self::recorded::decode as decode_recorded;
use crate::pipeline::Generation;
use tollgate_store::StoreError;
use tollgate_telemetry::metrics::CallMethod;

/// What a call does. The id of its reservation is beside it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ApiStep {
    /// Takes the hits, or refuses.
    Check,
    /// Says what a check would answer, and takes nothing.
    Peek,
    /// Charges the hits beyond the limit, too. Never refused.
    Report,
    /// Takes the hits from all limits or from none, until they are settled or expire.
    Reserve {
        /// The expiry; the rule's when absent, else 60 s.
        expires_ms: Option<NonZeroU32>,
        /// What happens to the hits then; as the rule says when absent, else they stay charged.
        on_expiry: Option<OnExpiry>,
        /// Whether each rule says how much to reserve, and not the hits of the request.
        uses_rule_amount: bool,
    },
    /// Moves the expiry of an open reservation.
    Extend {
        /// The new expiry, from now.
        expires_ms: NonZeroU32,
    },
    /// Settles a reservation by the hits of the request.
    Commit {
        /// What to do when no reservation of the id is open.
        otherwise: Otherwise,
    },
    /// Settles a reservation and gives back all of it.
    Release,
    /// Hits that a caller decided by itself: the limits are not asked, and the outcomes are made.
    Told {
        /// Whether it refused them.
        refused: bool,
    },
}

/// What a call asks beside its message, on its way to the thread that decides it.
#[derive(Debug)]
pub struct ApiCall {
    pub(super) step: ApiStep,
    /// The id of its reservation; empty where it has none.
    pub(super) id: Vec<u8>,
    /// The hits of each descriptor of a peek, whose message only looks. Empty for other calls.
    pub(super) peeked: Vec<Hits>,
    /// How many bytes its answer may have; none for an answer without its limits.
    pub(super) answer_bytes_max: Option<usize>,
    /// Whether the thread that decides it encodes its answer, and not a task.
    pub(super) is_encoded: bool,
    /// Whether no observer sees it: it is a step of a call that is not over.
    pub(super) is_quiet: bool,
    /// What is known of the limits of hits that are told. Empty for other calls.
    pub(super) known: Vec<Option<Outcome>>,
}

/// The checks of a settle, one round after the other: the order in which its limits are settled.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Limits to settle alone, until one knows the id.
    pub(super) first: VecDeque<usize>,
    /// The limit that is settled alone now.
    pub(super) alone: Option<usize>,
    /// The other limits.
    pub(super) rest: Vec<usize>,
    /// The positions of the checks of this round.
    pub(super) now: Vec<usize>,
    /// Whether the reservation was settled before.
    pub(super) was_settled: bool,
}

/// What the decision says of a call.
#[derive(Debug)]
pub(super) struct Decided {
    /// Whether it passes.
    pub(super) code: Code,
    /// The time until it would.
    pub(super) retry_us: Option<u64>,
    /// The headers that the settings enable.
    pub(super) headers: Vec<(String, String)>,
    /// The encoded response to a peek or a report.
    pub(super) response: Option<Vec<u8>>,
    /// Whether another settle of the reservation came before it.
    pub(super) was_settled: bool,
}

/// A call that was decided.
#[derive(Debug)]
pub(crate) struct ApiOutcomes {
    pub(super) decided: Decided,
    /// The rules that it was matched against, its plan by them and the answers to its checks. None
    /// where a setting answered a request that exceeds a bound.
    pub(super) rules: Option<Arc<Generation>>,
    pub(super) plan: PlanBuffer,
    pub(super) outcomes: Vec<Option<Outcome>>,
    /// Why a check was not decided.
    pub(super) undecided: Option<StoreError>,
}

// === impl ApiCall ===

impl ApiCall {
    /// What this step asks, of the reservation with this id.
    pub(crate) fn new(step: ApiStep, id: impl Into<Vec<u8>>, peeked: Vec<Hits>) -> Self {
        Self {
            step,
            id: id.into(),
            peeked,
            answer_bytes_max: None,
            is_encoded: false,
            is_quiet: false,
            known: Vec::new(),
        }
    }

    /// Hits that a caller decided by itself, and what is known of their limits.
    pub(super) fn told(refused: bool, known: Vec<Option<Outcome>>) -> Self {
        Self {
            known,
            ..Self::new(ApiStep::Told { refused }, [], Vec::new())
        }
    }

    /// Whether the store is not asked.
    pub(super) fn is_told(&self) -> bool {
        matches!(self.step, ApiStep::Told { .. })
    }

    /// Whether it is a part of another call, which is counted and traced in its place.
    pub(super) fn is_part(&self) -> bool {
        self.is_quiet || self.is_told()
    }

    /// A check whose answer is encoded, and may have so many bytes.
    pub(super) fn encoded_check(answer_bytes_max: usize) -> Self {
        Self {
            answer_bytes_max: Some(answer_bytes_max),
            is_encoded: true,
            ..Self::new(ApiStep::Check, [], Vec::new())
        }
    }

    /// Whether it settles a reservation that is settled once.
    pub(super) fn settles_once(&self) -> bool {
        match self.step {
            ApiStep::Commit { otherwise } => !self.id.is_empty() && otherwise != Otherwise::Charge,
            ApiStep::Release => true,
            _ => false,
        }
    }

    /// Whether its answer is made of the encoded response, and not of the decision alone.
    pub(super) fn reads_response(&self) -> bool {
        matches!(self.step, ApiStep::Peek | ApiStep::Report)
    }

    /// Whether it takes hits as a plain request does.
    pub(super) fn is_check(&self) -> bool {
        self.step == ApiStep::Check
    }
}

// === impl ApiStep ===

impl ApiStep {
    /// Whether it asks for hits, and can be refused.
    pub(super) fn takes(self) -> bool {
        matches!(self, Self::Check | Self::Peek | Self::Reserve { .. })
    }

    /// The method that asks it.
    pub(super) fn method(self) -> CallMethod {
        match self {
            Self::Check => CallMethod::Check,
            Self::Peek => CallMethod::Peek,
            Self::Report => CallMethod::Report,
            Self::Reserve { .. } => CallMethod::Reserve,
            Self::Extend { .. } => CallMethod::Extend,
            Self::Commit { .. } => CallMethod::Commit,
            Self::Release => CallMethod::Release,
            Self::Told { .. } => CallMethod::Lease,
        }
    }

    /// The expiry that it says, in milliseconds.
    pub(super) fn expires_ms(self) -> Option<u32> {
        match self {
            Self::Reserve { expires_ms, .. } => {
                Some(expires_ms.unwrap_or(Expiry::default().after_ms).get())
            }
            Self::Extend { expires_ms, .. } => Some(expires_ms.get()),
            _ => None,
        }
    }
}
