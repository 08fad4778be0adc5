//! Metrics of a store that replicas share.

use prometheus::Histogram;

use super::declaration::{Counter, CounterVec, Gauge, LabelValues, metrics};

/// Upper bounds of the calls' latencies, in seconds: from a socket on the same machine to a
/// deadline of a second.
const LATENCY_BUCKETS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002, 0.003, 0.005, 0.007_5, 0.01, 0.015, 0.02, 0.05, 0.1,
    0.25, 1.0,
];

/// Upper bounds of how many checks go in one call.
const CHECKS_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// The names of store faults.
const FAULTS: LabelValues = LabelValues::OneOf(&[
    "not_connected",
    "name_lookup",
    "tls",
    "late",
    "lost",
    "waited",
    "queue_full",
    "resting",
    "read_only",
    "loading",
    "cannot_persist",
    "out_of_memory",
    "busy",
    "cluster_down",
    "refused",
    "script_refused",
    "sharded",
    "not_understood",
    "garbled",
]);

metrics! {
    /// Metrics of a shared store.
    pub struct StoreMetrics {
        /// Seconds from a call sent to the shared store to its answer.
        Histogram "tollgate_store_call_seconds" in LATENCY_BUCKETS => pub call_seconds;

        /// Checks in one call to the shared store.
        Histogram "tollgate_store_call_checks" in CHECKS_BUCKETS => pub call_checks;

        /// Calls to the shared store in flight.
        Gauge "tollgate_store_calls_in_flight" => pub calls_in_flight;

        /// Checks that wait for the shared store or are in flight.
        Gauge "tollgate_store_waiting_checks" => pub waiting_checks;

        /// Whether the whole shared store is used: 1, or 0 while a circuit breaker is open.
        Gauge "tollgate_store_up" => pub up;

        /// Times a circuit breaker opened because the shared store was dead, slow or unable to
        /// decide.
        Counter "tollgate_store_breaker_opened_total" => pub breaker_opened;

        /// Probes of the shared store while a circuit breaker was open.
        Counter "tollgate_store_probes_total" => pub probes;

        /// Connections made to the shared store.
        Counter "tollgate_store_connections_total" => pub connections_made;

        /// Checks whose call to the shared store had no answer in time; the store may have counted
        /// them.
        Counter "tollgate_store_unknown_outcomes_total" => pub unknown_outcomes;

        /// Checks refused because the queue of the shared store was full.
        Counter "tollgate_store_queue_full_total" => pub queue_full;

        /// Checks over their limits that the denial cache answered without the shared store.
        Counter "tollgate_store_over_limit_cache_answers_total" => pub answered_by_cache;

        /// Keys over their limits that were not cached because the denial cache was full.
        Counter "tollgate_store_over_limit_cache_full_total" => pub cache_full;

        /// Checks whose refund to the shared store failed, or may have failed.
        Counter "tollgate_store_give_backs_lost_total" => pub give_backs_lost;

        /// Times a script was sent again because the shared store had lost it.
        Counter "tollgate_store_scripts_sent_again_total" => pub scripts_sent_again;

        /// Steps of calls that a cluster node redirected because a slot had moved or was moving.
        Counter "tollgate_store_redirects_total" => pub redirects;

        /// Exchanges of leases of rates with the shared store: one for each quota and turn.
        Counter "tollgate_store_rate_leases_total" => pub rate_leases;

        /// Exchanges of leases of rates that failed, by reason.
        CounterVec "tollgate_store_rate_lease_faults_total" [reason: FAULTS] => rate_lease_faults;

        /// Times the slots of a cluster were read.
        Counter "tollgate_store_topology_reads_total" => pub topology_reads;

        /// Nodes of the cluster that are in use.
        Gauge "tollgate_store_cluster_servers" => pub cluster_servers;

        /// Replicas that share the store, as last counted; 0 before the first count.
        Gauge "tollgate_store_replicas" => pub replicas;

        /// Checks that this replica decided because the shared store did not.
        Counter "tollgate_store_decided_locally_total" => pub decided_locally;

        /// Requests with a check that the shared store did not decide, by what
        /// --on-store-failure answered.
        Counter "tollgate_store_failure_answers_total" by answer {
            failure_allowed = "allow",
            failure_denied = "deny",
            failure_errors = "error",
        }

        /// Checks that the shared store did not decide, by reason.
        CounterVec "tollgate_store_undecided_total" [reason: FAULTS] => undecided;
    }
}

// === impl StoreMetrics ===

impl StoreMetrics {
    /// The counter of exchanges of rate leases that failed for this reason, the name of a store
    /// fault.
    pub fn rate_lease_fault(&self, reason: &'static str) -> Counter {
        self.rate_lease_faults.with_label_values(&[reason])
    }

    /// The counter of checks that were not decided for this reason, the name of a store fault.
    pub fn undecided(&self, reason: &'static str) -> Counter {
        self.undecided.with_label_values(&[reason])
    }
}
