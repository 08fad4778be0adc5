//! What a simulated call does with a reservation.

use std::num::NonZeroU32;

use tollgate_limiter::{OnExpiry, Otherwise};

use crate::pipeline::ApiStep;

/// A call of the API that is about a reservation. Its hits are those of the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReservationStep {
    /// Takes the hits until they are settled or expire.
    Reserve {
        /// The expiry; the rule's when absent, else 60 s.
        expires_ms: Option<NonZeroU32>,
        /// What happens to the hits then; as the rule says when absent, else they stay charged.
        on_expiry: Option<OnExpiry>,
    },
    /// Moves the expiry of an open reservation.
    Extend {
        /// The new expiry, from now.
        expires_ms: NonZeroU32,
    },
    /// Settles a reservation by the hits of the request.
    Commit,
    /// Settles a reservation and gives back all of it.
    Release,
}

// === impl ReservationStep ===

impl ReservationStep {
    pub(super) fn of(self, id: &[u8]) -> ApiStep<'_> {
        match self {
            Self::Reserve {
                expires_ms,
                on_expiry,
            } => ApiStep::Reserve {
                id,
                expires_ms,
                on_expiry,
                uses_rule_amount: false,
            },
            Self::Extend { expires_ms } => ApiStep::Extend { id, expires_ms },
            Self::Commit => ApiStep::Commit {
                id,
                otherwise: Otherwise::Unknown,
            },
            Self::Release => ApiStep::Release { id },
        }
    }

    /// Its name in the API and in files of tests.
    pub fn action(self) -> &'static str {
        match self {
            Self::Reserve { .. } => "reserve",
            Self::Extend { .. } => "extend",
            Self::Commit => "commit",
            Self::Release => "release",
        }
    }
}
