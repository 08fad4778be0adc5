//! What a rule allows: a limit and the algorithm that counts it, or everything.

use super::algorithm::Algorithm;
use super::limit::Limit;

/// What a rule allows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Allowance {
    /// No limit: never counted, always within.
    Unlimited,
    /// A limit and its algorithm.
    Limited {
        /// The limit.
        limit: Limit,
        /// The algorithm that counts.
        algorithm: &'static dyn Algorithm,
    },
}
