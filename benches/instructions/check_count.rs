//! How many checks a scenario's figure is the sum of: said once, for what counts and for what judges.

pub(crate) const CHECKS: u32 = 256;
