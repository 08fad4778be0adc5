//! The number of checks in a scenario of `benches/instructions`.

/// A scenario's instruction count is the sum over this many checks.
pub const CHECKS: u32 = 256;
