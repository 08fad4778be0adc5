//! What a rule says of reservations and prices.

use std::num::NonZeroU64;

use super::Expiry;

/// What a rule says of reservations.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReserveRule {
    /// The key of the entry that is the id of a reservation; none where only the API reserves.
    pub key: Option<String>,
    /// How much to reserve; none where each request says it.
    pub amount: Option<ReserveAmount>,
    /// When a reservation ends by itself. A request of the API may say otherwise.
    pub expiry: Expiry,
}

/// How much to reserve.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReserveAmount {
    /// This many hits.
    Hits(u64),
    /// What is learnt from commits.
    Learnt(Estimate),
}

/// An estimate that is learnt from commits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Estimate {
    /// The share of commits that should not exceed it, in percent: from 50 to 99.
    pub percent: u8,
    /// The least that is reserved. Also what is reserved before anything was learnt.
    pub floor: u64,
    /// The most that is reserved.
    pub ceiling: u64,
    /// Whose commits it is learnt from.
    pub scope: EstimateScope,
}

/// Whose commits an estimate is learnt from.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum EstimateScope {
    /// Those of all buckets of the rule.
    #[default]
    Rule,
    /// Those of the bucket; of the rule until the bucket has enough.
    Key,
}

/// The price of a hit, in millionths: at least one millionth, at most a million.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Cost(NonZeroU64);

/// The price of a hit without `cost`: one.
pub const COST_ONE: Cost = Cost(NonZeroU64::MIN.saturating_add(MILLION - 1));

/// Why a cost is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CostError {
    /// It is no decimal number.
    NotANumber,
    /// It has more than six decimals.
    TooPrecise,
    /// It is 0 or less, or more than a million.
    OutOfBounds,
}

const MILLION: u64 = 1_000_000;

// === impl Cost ===

impl Cost {
    /// A price of this many millionths a hit; none outside the bounds.
    pub fn from_millionths(millionths: u64) -> Option<Self> {
        NonZeroU64::new(millionths)
            .filter(|millionths| millionths.get() <= MILLION * MILLION)
            .map(Self)
    }

    /// In millionths.
    #[inline]
    pub const fn as_millionths(self) -> u64 {
        self.0.get()
    }

    /// What these hits cost, rounded up. Saturates.
    #[inline]
    pub fn of(self, hits: u64) -> u64 {
        if self == COST_ONE {
            return hits;
        }
        let millionths = u128::from(hits).saturating_mul(u128::from(self.0.get()));
        u64::try_from(millionths.div_ceil(u128::from(MILLION))).unwrap_or(u64::MAX)
    }
}

impl Default for Cost {
    fn default() -> Self {
        COST_ONE
    }
}
