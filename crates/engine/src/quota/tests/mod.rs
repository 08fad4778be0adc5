//! Tests of quotas as a whole. The fuzz target `quota_reports` is built with `report_fuzz`.

pub mod report_fuzz;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod stalls;
