//! Reservations: hits that are taken under an id, and settled when the true amount is known.
//!
//! Why: the cost of some requests is known only at their end. A check of 0 hits before and a charge
//! after lets any number of them pass at once. A reservation takes an estimate before. The commit
//! gives back what was not used, or charges what was missing, beyond the limit.
//!
//! The promise: at any moment, what was committed and what is reserved are together at most the
//! limit, plus the sum of what commits exceeded their reservations.
//!
//! How: a bucket with reservations has a ledger: a record for each open reservation, and, until
//! their expiry would have been, for each that was settled or refused. `State::apply` decides a
//! [`Step`] by it. Each step becomes one operation of the bucket's algorithm: a take, a refund or a
//! charge. So an algorithm knows no reservation.
//!
//! | commit | windows | buckets that refill |
//! | --- | --- | --- |
//! | less than reserved | the rest goes back to the window it was taken from, while that counts | the rest goes back in full, never below an unused bucket |
//! | more than reserved | the excess counts in the window of the commit | the excess is owed, beyond the one burst to which other debt is limited |
//!
//! Records expire lazily: the next operation of the bucket ends those that are due. The result is
//! that of ending each at its time, since a give-back and a refill can change places.
//!
//! What it deliberately does not do: make ids, know rules, bound memory (a store does).

mod rule;

use std::num::NonZeroU32;

use super::timestamp::Timestamp;

pub use rule::{COST_ONE, Cost, CostError, Estimate, EstimateScope, ReserveAmount, ReserveRule};

/// One step in the life of a reservation. Its id is the operation's holder; without one nothing is
/// found, and nothing can be found later.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Step {
    /// Takes hits until they are settled or expire. Under an open id it reserves again.
    Reserve {
        /// How many.
        hits: u64,
        /// When and how it ends unless it is settled before.
        expiry: Expiry,
        /// Whether the bucket remembers the id when the hits are refused.
        remember_refused: bool,
    },
    /// Settles the oldest open reservation of the id by its true amount.
    Commit {
        /// The true amount.
        hits: u64,
        /// What to do when no reservation of the id is open.
        otherwise: Otherwise,
    },
    /// Gives back all hits of the oldest open reservation of the id.
    Release,
    /// Moves the expiry of the open reservations of the id to this long from now, in milliseconds.
    Extend(NonZeroU32),
    /// Undoes a reservation that is void, because another limit refused the request.
    Withdraw {
        /// The bucket's time of the reservation.
        taken_at: Timestamp,
        /// Whether the bucket remembers the id as refused.
        remember_refused: bool,
    },
}

/// When a reservation ends by itself, and what happens to its hits.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Expiry {
    /// Milliseconds after the reservation.
    pub after_ms: NonZeroU32,
    /// What happens to its hits.
    pub on_expiry: OnExpiry,
}

crate::named! {
    /// What happens to the hits of a reservation that expires.
    #[derive(Default)]
    pub enum OnExpiry {
        /// They stay charged.
        #[default]
        Charge = "charge",
        /// They go back.
        Release = "release",
    }
}

/// What a commit does when no reservation of its id is open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Otherwise {
    /// The first result again where the id was settled; else nothing, and the id is unknown.
    Unknown,
    /// Uses up one remembered refusal of the id; without one it charges in full.
    Charge,
    /// The first result again where the id was settled; else it charges in full.
    ChargeOnce,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ReservationOutcome {
    /// The operation was none of a reservation.
    #[default]
    None,
    /// The hits are reserved.
    Reserved,
    /// The hits do not fit. Nothing was taken.
    Refused,
    /// The bucket has as many open reservations as it can. Nothing was taken.
    TooMany,
    /// It is settled. `Outcome::settled` says by how much.
    Settled,
    /// It was settled before, and nothing changed. `Outcome::settled` says by how much.
    SettledBefore,
    /// No reservation of the id was open. The amount was charged in full.
    Charged,
    /// The id was remembered as refused. Nothing was charged.
    Ignored,
    /// The expiry has moved.
    Extended,
    /// The id is not known in this bucket. Nothing changed.
    Unknown,
    /// The reservation is void.
    Withdrawn,
}

/// The longest expiry, in milliseconds: one day.
pub const EXPIRY_MS_MAX: u32 = 86_400_000;

/// The expiry where nothing says one, in milliseconds.
const EXPIRY_MS_DEFAULT: NonZeroU32 = NonZeroU32::MIN.saturating_add(59_999);

// === impl Step ===

impl Step {
    /// The hits that it wants from the limit, or says were used.
    #[inline]
    pub const fn hits(self) -> u64 {
        match self {
            Self::Reserve { hits, .. } | Self::Commit { hits, .. } => hits,
            Self::Release | Self::Extend(_) | Self::Withdraw { .. } => 0,
        }
    }

    /// Whether it can give hits back.
    #[inline]
    pub const fn can_give_back(self) -> bool {
        matches!(
            self,
            Self::Commit { .. } | Self::Release | Self::Withdraw { .. }
        )
    }

    /// Whether it can leave something in a bucket that is unused.
    #[inline]
    pub const fn can_fill(self) -> bool {
        match self {
            Self::Reserve { .. } => true,
            Self::Commit { hits, otherwise } => {
                hits > 0 && !matches!(otherwise, Otherwise::Unknown)
            }
            Self::Release | Self::Extend(_) | Self::Withdraw { .. } => false,
        }
    }
}

impl Step {
    /// Its name where operations are shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reserve { .. } => "reserve",
            Self::Commit { .. } => "commit",
            Self::Release => "release",
            Self::Extend(_) => "extend",
            Self::Withdraw { .. } => "withdraw",
        }
    }
}

// === impl OnExpiry ===

impl OnExpiry {
    /// The variant with that name.
    #[inline]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

// === impl Expiry ===

impl Default for Expiry {
    /// Where neither the rule nor the request says one: after 60 s, and the hits stay charged.
    fn default() -> Self {
        Self {
            after_ms: EXPIRY_MS_DEFAULT,
            on_expiry: OnExpiry::Charge,
        }
    }
}

impl Expiry {
    /// When a reservation of `now` expires.
    #[inline]
    pub const fn from(self, now: Timestamp) -> Timestamp {
        Self::after(now, self.after_ms)
    }

    /// `now` and this many milliseconds.
    #[inline]
    pub const fn after(now: Timestamp, ms: NonZeroU32) -> Timestamp {
        now.plus_us(ms.get() as u64 * 1_000)
    }
}
