//! One check: the question about one bucket, and the limit that asks it.
//!
//! Why by value: a check carries all that a store needs, so a reload cannot take a rule away from a
//! request that waits.

use std::sync::Arc;

use super::algorithm::{self, Algorithm, AlgorithmOption, Outcome};
use super::descriptor::{Hits, Operation};
use super::key::Key;
use super::limit::Limit;
use super::reservation::Step;
use super::rule::Rule;

/// One question to the store.
#[derive(Clone, Debug)]
pub struct Check {
    /// The bucket.
    pub key: Key,
    /// The limit to apply.
    pub limit: Limit,
    /// The algorithm that counts.
    pub algorithm: &'static dyn Algorithm,
    /// The hits to take or give back, and the holder.
    pub operation: Operation,
    /// A number of the rule or the override that asks. Keys with the same number share a bucket
    /// when a store has no memory left for theirs.
    pub fingerprint: u64,
    /// Whether it concerns that shared bucket. The store sets it in a check that it decided there.
    pub shared_bucket: bool,
    /// Whether a fallback may decide it when its store cannot.
    pub may_fall_back: bool,
    /// Whether the shared store decides it, and no lease: its rule reserves, is charged
    /// afterwards, or has a penalty.
    pub is_exact: bool,
    /// The bucket's name in the scheme of another service (`Plan::name_buckets`); none where the
    /// key names it.
    pub bucket_name: Option<Arc<[u8]>>,
}

/// One check of a plan, with its origin.
#[derive(Clone, Copy, Debug)]
pub struct PlannedCheck<'p, 'r> {
    /// The question to the store.
    pub check: &'p Check,
    /// The limit's origin.
    pub origin: LimitOrigin<'r>,
}

/// Where a limit comes from.
#[derive(Clone, Copy, Debug)]
pub enum LimitOrigin<'r> {
    /// A configured rule.
    Rule(&'r Rule),
    /// The request itself.
    Override,
}

// === impl Check ===

impl Check {
    /// Whether its hits would pass in an unused bucket. If not, they never pass.
    #[inline]
    pub fn can_ever_pass(&self) -> bool {
        self.operation.hits.requested() <= self.limit.burst()
    }

    /// Whether it starts a reservation.
    #[inline]
    pub fn reserves(&self) -> bool {
        matches!(self.operation.hits, Hits::Reservation(Step::Reserve { .. }))
    }

    /// Whether its hits stay taken when another limit of the request refuses, `all_or_nothing`
    /// included.
    #[inline]
    pub fn keeps_refused_hits(&self) -> bool {
        !matches!(self.operation.hits, Hits::Reservation(_))
            && algorithm::count_refused(self.algorithm, &self.limit).keeps_all()
    }

    /// Whether refused hits can be lost: its algorithm counts hits, and not slots.
    #[inline]
    pub fn can_lose_charges(&self) -> bool {
        let options = self.algorithm.facts().options;
        options.contains(&AlgorithmOption::CountRefused)
    }

    /// How many of its hits were lost when it was refused: the limit did not count them.
    pub fn lost_when_refused(&self, outcome: &Outcome) -> u64 {
        match self.operation.hits {
            Hits::Take(hits) => hits.saturating_sub(algorithm::counted_of_refused(
                self.algorithm,
                &self.limit,
                outcome.used_before,
                hits,
            )),
            _ => 0,
        }
    }
}

// === impl LimitOrigin ===

impl<'r> LimitOrigin<'r> {
    /// The rule of the limit; none for a limit of the request itself.
    #[inline]
    pub fn rule(self) -> Option<&'r Rule> {
        match self {
            Self::Rule(rule) => Some(rule),
            Self::Override => None,
        }
    }

    /// Whether the limit is counted and never enforced.
    #[inline]
    pub fn shadow_mode(self) -> bool {
        self.rule().is_some_and(|rule| rule.shadow_mode)
    }

    /// Whether the limit is a quota: quotas refuse only when all of them do.
    #[inline]
    pub fn quota_mode(self) -> bool {
        self.rule().is_some_and(|rule| rule.quota_mode)
    }
}

/// The fingerprint that all overrides with the same limit share.
pub(super) fn override_fingerprint(limit: &Limit) -> u64 {
    let numbers = [limit.requests(), limit.window().as_us()];
    // Mixes each bit of a number into the whole sum: multiplies by an odd constant, then folds the
    // upper half into the lower.
    numbers.into_iter().fold(1, |sum: u64, number| {
        let mixed = (sum ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    })
}
