//! Metrics of leases of callers: how many, their hits, and what callers say of them.

use super::declaration::{Counter, Gauge, metrics};

metrics! {
    /// Metrics of leases that callers hold.
    pub struct CallerLeaseMetrics {
        /// Calls of Lease, by result.
        Counter "tollgate_caller_leases_total" by result {
            granted = "granted", refused = "refused", not_leased = "not_leased",
        }

        /// Hits that callers were granted and gave back, and that they said they admitted and
        /// refused.
        Counter "tollgate_caller_lease_hits_total" by hits {
            granted_hits = "granted", returned_hits = "returned",
            admitted_hits = "admitted", refused_hits = "refused",
        }

        /// Calls of Return, by what became of the lease.
        Counter "tollgate_caller_lease_returns_total" by result {
            returned = "returned", repeated = "repeated", expired = "expired",
            unknown = "unknown",
        }

        /// Hits that callers admitted or returned beyond those that they were granted, as far as
        /// this process knows.
        Counter "tollgate_caller_lease_excess_hits_total" => pub excess_hits;

        /// Callers that hold leases, or did a moment ago, as far as this process knows; at most
        /// 65,536.
        Gauge "tollgate_caller_lease_holders" => pub holders;

        /// Leases whose caller was not noted because 65,536 are.
        Counter "tollgate_caller_lease_holders_full_total" => pub holders_full;
    }
}
