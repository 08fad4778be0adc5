//! Quotas: one limit apportioned over many proxies, each of which decides alone (RLQS).
//!
//! A proxy reports what it let pass and what it denied; it is assigned a token bucket for a time.
//! The sum of all assignments that may be in force never exceeds the limit.

mod apportion;
pub mod bucket;
mod lease;
pub mod play;
pub mod proxy;
pub mod registry;
pub mod share;
pub mod waiting_report;

#[cfg(any(test, fuzzing))]
mod tests;

#[cfg(any(test, fuzzing))]
pub use self::tests::report_fuzz;
