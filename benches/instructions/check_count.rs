//! Number of checks of a scenario's figure, shared by the bench and its test.

pub(crate) const CHECKS: u32 = 256;
