//! One check: the question about one bucket, and the limit that asks it.
//!
//! Why by value: a check carries all that a store needs, so a reload cannot take a rule away from a
//! request that waits.

use std::sync::Arc;

use super::algorithm::{self, Algorithm};
use super::descriptor::Operation;
use super::key::Key;
use super::limit::{CountRefused, Limit};
use super::rule::Rule;

/// One question to the store.
#[derive(Clone, Debug)]
pub struct Check {
    /// Whose bucket.
    pub key: Key,
    /// Against how much.
    pub limit: Limit,
    /// Counted how.
    pub algorithm: &'static dyn Algorithm,
    /// Taking or giving back how much, on whose behalf.
    pub operation: Operation,
    /// A number of the rule or the override that asks. Keys of the same share a bucket where a store has no room for
    /// theirs.
    pub fingerprint: u64,
    /// Whether it is about that bucket: the store says so in a check that it decided there.
    pub shared_bucket: bool,
    /// Whether a fallback may decide it when its store cannot.
    pub may_fall_back: bool,
    /// The bucket's name in the scheme of another service ([`Plan::name_buckets`]); none where the
    /// key names it.
    pub bucket_name: Option<Arc<[u8]>>,
}

/// One question of a plan.
#[derive(Clone, Copy, Debug)]
pub struct PlannedCheck<'p, 'r> {
    /// What the store is asked.
    pub check: &'p Check,
    /// On whose behalf.
    pub origin: LimitOrigin<'r>,
}

/// Whose limit a check is.
#[derive(Clone, Copy, Debug)]
pub enum LimitOrigin<'r> {
    /// A configured rule's.
    Rule(&'r Rule),
    /// The request's own.
    Override,
}

// === impl Check ===

impl Check {
    /// Whether its hits pass in a bucket never used; else they never do.
    pub fn can_ever_pass(&self) -> bool {
        self.operation.hits.requested() <= self.limit.burst()
    }

    /// Whether what it took stays taken when another limit of the request refuses, all or nothing or not.
    pub fn keeps_refused_hits(&self) -> bool {
        algorithm::count_refused(self.algorithm, &self.limit) == CountRefused::All
    }
}

// === impl LimitOrigin ===

impl<'r> LimitOrigin<'r> {
    /// Whether it is counted and never enforced.
    pub fn shadow_mode(self) -> bool {
        match self {
            Self::Rule(rule) => rule.shadow_mode,
            Self::Override => false,
        }
    }

    /// Whether it is one of several ways to pass.
    pub fn quota_mode(self) -> bool {
        match self {
            Self::Rule(rule) => rule.quota_mode,
            Self::Override => false,
        }
    }
}

/// All overrides of the same limit are of one source.
pub(super) fn override_fingerprint(limit: &Limit) -> u64 {
    let numbers = [limit.requests(), limit.window().as_us()];
    // Each bit of a number reaches all of the sum's: a multiplication by an odd constant, and its upper half on the lower.
    numbers.into_iter().fold(1, |sum: u64, number| {
        let mixed = (sum ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    })
}
