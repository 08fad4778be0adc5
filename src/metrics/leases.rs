//! Metrics of leases: hits taken from the shared store in advance.

use super::declaration::{Counter, Gauge, metrics};

metrics! {
    /// Metrics of leases.
    pub struct LeaseMetrics {
        /// Hits taken from the shared store in advance and not yet used.
        Gauge "tollgate_lease_hits_held" => pub hits_held;

        /// Hits that leases took from the shared store.
        Counter "tollgate_lease_hits_taken_total" => pub hits_taken;

        /// Calls to the shared store, for leases and for checks without one.
        Counter "tollgate_lease_calls_total" => pub calls;

        /// Checks refunded to the shared store: the unused part of a lease, or a check whose
        /// request did not pass.
        Counter "tollgate_lease_returns_total" => pub returns;

        /// Refunds that the shared store did not answer: their hits count as spent.
        Counter "tollgate_lease_returns_lost_total" => pub returns_lost;

        /// Refused hits that were sent to the shared store behind the answer, because their limit
        /// counts them.
        Counter "tollgate_lease_refused_hits_total" => pub refused_hits;

        /// Refused hits that their limit counts and that did not reach the shared store.
        Counter "tollgate_lease_refused_hits_lost_total" => pub refused_hits_lost;

        /// Checks sent to the shared store because there was no space for another lease.
        Counter "tollgate_lease_no_room_total" => pub table_full;
    }
}
