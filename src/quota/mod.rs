//! Quotas: one limit apportioned over many proxies, each of which decides alone (RLQS).
//!
//! A proxy reports what it let pass and what it denied; it is assigned a token bucket for a time.
//! The sum of all assignments that may be in force never exceeds the limit.

mod apportion;
pub(crate) mod bucket;
mod lease;
pub(crate) mod play;
pub(crate) mod proxy;
pub(crate) mod registry;
pub(crate) mod share;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod stalls;
