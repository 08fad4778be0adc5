//! What is measured of leases: hits taken from the shared store in advance.
//!
//! What it deliberately does not do: count what the shared store was asked besides (`store`).

use prometheus::{IntCounter, IntGauge, Registry};

use super::register::{counter, gauge};

/// The metrics of leases.
#[derive(Debug)]
pub struct LeaseMetrics {
    /// Hits that leases hold.
    pub hits_held: IntGauge,
    /// Hits that leases took.
    pub hits_taken: IntCounter,
    /// Calls of the shared store on behalf of leases and of what has none.
    pub calls: IntCounter,
    /// Checks that went back to the shared store: the rest of a lease, or what led to nothing.
    pub returns: IntCounter,
    /// Those that it did not take.
    pub returns_lost: IntCounter,
    /// Checks whose bucket found no room for a lease.
    pub no_room: IntCounter,
}

// === impl LeaseMetrics ===

impl LeaseMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            hits_held: gauge(
                r,
                "tollgate_lease_hits_held",
                "Hits taken from the shared store in advance and not yet used",
            )?,
            hits_taken: counter(
                r,
                "tollgate_lease_hits_taken_total",
                "Hits that leases took from the shared store",
            )?,
            calls: counter(
                r,
                "tollgate_lease_calls_total",
                "Calls of the shared store: for leases, and for checks that have none",
            )?,
            returns: counter(
                r,
                "tollgate_lease_returns_total",
                "Checks that went back to the shared store: what is left of a lease, or led to nothing",
            )?,
            returns_lost: counter(
                r,
                "tollgate_lease_returns_lost_total",
                "Checks that should have gone back to the shared store, which did not answer: they count as spent",
            )?,
            no_room: counter(
                r,
                "tollgate_lease_no_room_total",
                "Checks that asked the shared store because there is no room for another lease",
            )?,
        })
    }
}
