//! What is measured of a store that replicas share.
//!
//! Why apart: a dozen series that stand or fall together, and that a service with buckets of its own never moves.
//!
//! What it deliberately does not do: know which trouble there can be; the store names them.

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Registry};

use super::register::{counter, counters, gauge};

/// Upper bounds of the calls' latencies, in seconds: from a socket on the same machine to a deadline of a second.
const LATENCY_BUCKETS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002, 0.003, 0.005, 0.007_5, 0.01, 0.015, 0.02, 0.05, 0.1,
    0.25, 1.0,
];

/// Upper bounds of how many checks go in one call.
const CHECKS_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// The metrics of a shared store.
#[derive(Clone, Debug)]
pub struct StoreMetrics {
    /// From a call sent to its answer, in seconds; those without one are not in it.
    pub call_seconds: Histogram,
    /// How many checks went in one call.
    pub call_checks: Histogram,
    /// Calls that are under way.
    pub calls_in_flight: IntGauge,
    /// Checks that wait or are under way.
    pub waiting_checks: IntGauge,
    /// 1 while it is asked, 0 while the breaker is open.
    pub up: IntGauge,
    /// Times the breaker opened.
    pub breaker_opened: IntCounter,
    /// Probes of an open breaker.
    pub probes: IntCounter,
    /// Connections made.
    pub connections_made: IntCounter,
    /// Checks whose call had no answer: they may have been counted.
    pub unknown_outcomes: IntCounter,
    /// Checks for which there was no room.
    pub queue_full: IntCounter,
    /// Checks over their limits that the store did not have to be asked about.
    pub answered_by_cache: IntCounter,
    /// Keys over their limits for which the cache had no room.
    pub cache_full: IntCounter,
    /// Checks whose hits should have gone back and could not.
    pub give_backs_lost: IntCounter,
    /// Scripts sent anew because the server had lost them.
    pub scripts_sent_again: IntCounter,
    /// Times a cluster's server sent a step of a call to another server.
    pub redirects: IntCounter,
    /// Times a cluster's topology was read.
    pub topology_reads: IntCounter,
    /// Servers of clusters that are spoken to.
    pub cluster_servers: IntGauge,
    /// Replicas that share the store, as last counted.
    pub replicas: IntGauge,
    /// Checks that a store of this replica decided instead.
    pub decided_locally: IntCounter,
    /// Requests that `--on-store-failure` let pass.
    pub failure_allowed: IntCounter,
    /// Requests that it refused.
    pub failure_denied: IntCounter,
    /// Requests that it answered with an error.
    pub failure_errors: IntCounter,
    undecided: IntCounterVec,
}

// === impl StoreMetrics ===

impl StoreMetrics {
    #[allow(clippy::too_many_lines)] // a table
    pub(super) fn new(r: &Registry) -> Result<Self, prometheus::Error> {
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            let histogram = Histogram::with_opts(options)?;
            r.register(Box::new(histogram.clone()))?;
            Ok::<_, prometheus::Error>(histogram)
        };
        let answers = counters(
            r,
            "tollgate_store_failure_answers_total",
            "Requests with a check that the shared store did not decide, by what --on-store-failure made of them",
            &["answer"],
        )?;
        Ok(Self {
            call_seconds: histogram(
                "tollgate_store_call_seconds",
                "From a call sent to the shared store to its answer",
                LATENCY_BUCKETS,
            )?,
            call_checks: histogram(
                "tollgate_store_call_checks",
                "Checks in one call to the shared store",
                CHECKS_BUCKETS,
            )?,
            calls_in_flight: gauge(
                r,
                "tollgate_store_calls_in_flight",
                "Calls to the shared store under way",
            )?,
            waiting_checks: gauge(
                r,
                "tollgate_store_waiting_checks",
                "Checks that wait for the shared store or are under way",
            )?,
            up: gauge(
                r,
                "tollgate_store_up",
                "1 while the shared store is asked (all of it, where there are two), 0 while a breaker is open or there is none",
            )?,
            breaker_opened: counter(
                r,
                "tollgate_store_breaker_opened_total",
                "Times the shared store was no longer asked because it was dead, slow or in no state to decide",
            )?,
            probes: counter(
                r,
                "tollgate_store_probes_total",
                "Attempts to reach the shared store again",
            )?,
            connections_made: counter(
                r,
                "tollgate_store_connections_total",
                "Connections made to the shared store",
            )?,
            unknown_outcomes: counter(
                r,
                "tollgate_store_unknown_outcomes_total",
                "Checks whose call to the shared store had no answer in time: they may have been counted there",
            )?,
            queue_full: counter(
                r,
                "tollgate_store_queue_full_total",
                "Checks for which there was no room among those that wait for the shared store",
            )?,
            answered_by_cache: counter(
                r,
                "tollgate_store_over_limit_cache_answers_total",
                "Checks over their limits that were answered without asking the shared store",
            )?,
            cache_full: counter(
                r,
                "tollgate_store_over_limit_cache_full_total",
                "Keys over their limits for which the cache had no room",
            )?,
            give_backs_lost: counter(
                r,
                "tollgate_store_give_backs_lost_total",
                "Checks whose hits should have gone back to the shared store and could not, or may not have",
            )?,
            scripts_sent_again: counter(
                r,
                "tollgate_store_scripts_sent_again_total",
                "Times the shared store had lost the script and was sent it again",
            )?,
            redirects: counter(
                r,
                "tollgate_store_redirects_total",
                "Steps of calls that a cluster's server sent elsewhere, because a slot had moved or was moving",
            )?,
            topology_reads: counter(
                r,
                "tollgate_store_topology_reads_total",
                "Times a cluster was asked who serves which slots",
            )?,
            cluster_servers: gauge(
                r,
                "tollgate_store_cluster_servers",
                "Servers of the cluster that are spoken to",
            )?,
            replicas: gauge(
                r,
                "tollgate_store_replicas",
                "Replicas that share the store, as last counted; 0 before the first count",
            )?,
            decided_locally: counter(
                r,
                "tollgate_store_decided_locally_total",
                "Checks that this replica decided by itself because the shared store did not",
            )?,
            failure_allowed: answers.with_label_values(&["allow"]),
            failure_denied: answers.with_label_values(&["deny"]),
            failure_errors: answers.with_label_values(&["error"]),
            undecided: counters(
                r,
                "tollgate_store_undecided_total",
                "Checks that the shared store did not decide, by why",
                &["reason"],
            )?,
        })
    }

    /// The counter of checks that were not decided for this reason, one of a short list.
    pub fn undecided(&self, reason: &'static str) -> IntCounter {
        self.undecided.with_label_values(&[reason])
    }
}
