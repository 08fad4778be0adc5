//! The figures of a limit, wherever one is shown.

use serde::{Deserialize, Serialize};

/// The figures of a limit.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct LimitFigures {
    /// Requests per unit.
    pub requests_per_unit: u64,
    /// The unit, in lower case; null for slots.
    pub unit: Option<String>,
    /// How many units a window has.
    pub unit_multiplier: u32,
    /// The algorithm.
    pub algorithm: String,
    /// The burst.
    pub burst: u64,
    /// The limit in words, such as `10 per minute`.
    pub text: String,
}
