//! Metrics of requests: how many, their answers, their latency and the bounds that they exceed; of
//! the buckets that their checks count in, and of the shared store and its leases. And the sums of
//! one task that are not yet added to the counters ([`RequestCounts`]).

use std::sync::Arc;

use prometheus::Histogram;
use tollgate_limiter::{Code, REGISTER_MAX, Tally};

use super::counts::Sums;
use super::declaration::{Counter, CounterVec, Gauge, LabelValues, metrics};
use super::gauges::PolledGauge;
use super::limit::{HIT_KINDS, HitOutcome, LimitCounters, hits_of};

/// How many hits of one descriptor a counter takes in: as many as a bucket counts to and a double
/// holds. More would wrap the counter after a few requests.
const HITS_COUNTED_MAX: u64 = REGISTER_MAX;

/// Upper bounds of the latency histogram, in seconds: an in-memory decision takes tens of
/// microseconds, and Envoy gives up after 20 ms.
const LATENCY_BUCKETS: &[f64] = &[
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.02,
    0.05, 0.1, 0.5, 1.0,
];

/// Upper bounds of the calls' latencies, in seconds: from a socket on the same machine to a
/// deadline of a second.
const CALL_BUCKETS: &[f64] = &[
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
    /// Metrics of requests.
    pub struct RequestMetrics {
        /// Calls of gRPC, /json and /v1, by their method in gRPC.
        Counter "ratelimit_service_total_requests" as "ratelimit_server.{}.total_requests"
            by grpc_method {
                calls = "ShouldRateLimit",
                checks = "Check",
                peeks = "Peek",
                reports = "Report",
                reserves = "Reserve",
                extends = "Extend",
                commits = "Commit",
                releases = "Release",
                leases = "Lease",
                returns = "Return",
            }

        /// Requests decided, by overall code.
        Counter "tollgate_decisions_total" by code {
            decisions_ok = "ok",
            decisions_over_limit = "over_limit",
        }

        /// Requests answered with a gRPC error, by cause: the request (service_error) or the store,
        /// in memory or shared (redis_error, the name of envoyproxy/ratelimit).
        Counter "ratelimit_service_should_rate_limit_error"
            as "ratelimit.service.call.should_rate_limit.{}"
            by err_type { service_errors = "service_error", store_errors = "redis_error" }

        /// Seconds from decoded request to encoded answer.
        Histogram "ratelimit_service_response_time_seconds" in LATENCY_BUCKETS
            by grpc_method {
                response_time = "ShouldRateLimit",
                api_response_time = "RateLimits",
            }

        /// Requests answered by --on-overload because the store did not decide.
        Counter "tollgate_overload_answers_total" => pub overload_answers;

        /// Limits sent with a request that were ignored because they had no valid unit.
        Counter "tollgate_overrides_not_obeyed_total" => pub overrides_not_obeyed;

        /// Requests over limit that SHADOW_MODE let pass.
        Counter "ratelimit_service_global_shadow_mode" as "ratelimit.service.global_shadow_mode"
            => pub global_shadow_mode;

        /// Requests that exceeded a bound and were answered by --on-excess.
        Counter "tollgate_excess_total" by bound {
            excess_descriptors = "descriptors",
            excess_entries = "entries",
            excess_matching_steps = "matching_steps",
            excess_message_size = "message_size",
        }
    }
}

metrics! {
    /// Metrics of answers that clients have not read.
    pub struct AnswerMetrics {
        /// Calls refused because their answers were larger than --answer-size-max (call), or
        /// because too much of --answer-memory-max was held by this connection (connection) or by
        /// others (process).
        Counter "tollgate_answers_refused_total" by bound {
            refused_call = "call",
            refused_connection = "connection",
            refused_process = "process",
        }

        /// Calls that waited for their clients to read earlier answers.
        Counter "tollgate_answers_waited_total" => pub waited;

        /// Bytes of --answer-memory-max that answers hold until they are sent.
        PolledGauge "tollgate_unsent_answers_bytes" => pub unread_bytes;

        /// Bytes that requests hold while they wait for memory for their answers, and bodies while
        /// they arrive; at most --answer-memory-max.
        PolledGauge "tollgate_waiting_requests_bytes" => pub waiting_bytes;
    }
}

metrics! {
    /// Metrics of buckets.
    pub struct BucketMetrics {
        /// Checks that were not decided, by the bound that was met.
        Counter "tollgate_shed_total" by reason {
            shed_mailbox_full = "mailbox_full",
            shed_deadline = "deadline_passed",
            shed_caller_gone = "caller_gone",
            shed_memory_full = "memory_full",
        }

        /// Checks refunded because their all-or-nothing request did not pass.
        Counter "tollgate_given_back_total" => pub given_back;

        /// Bytes that all partitions may use together.
        Gauge "tollgate_memory_max_bytes" => pub memory_max_bytes;

        /// Idle buckets freed; a new bucket has the same state.
        Counter "tollgate_buckets_freed_total" => pub freed;

        /// Buckets forgotten for space before they were idle; none was exhausted.
        Counter "tollgate_buckets_forgotten_total" => pub forgotten;

        /// Checks of keys without space for a bucket, by the answer of --on-memory-full.
        Counter "tollgate_no_room_total" by answer {
            unplaced_shared = "share",
            unplaced_allowed = "allow",
            unplaced_denied = "deny",
        }

        /// Reservations in this process that expired before they were settled, by what became of
        /// their hits.
        Counter "tollgate_reservations_expired_total" by outcome {
            expired_charged = "charge",
            expired_released = "release",
        }

        /// New reservations that this process refused, by the bound that was met.
        Counter "tollgate_reservations_not_kept_total" by reason {
            reservations_without_space = "memory_full",
            reservations_too_many = "too_many",
        }

        /// Records of settled and refused reservations that this process dropped for space before
        /// their expiry.
        Counter "tollgate_reservation_records_dropped_total" => pub records_dropped;
    }
}

metrics! {
    /// Metrics of leases.
    pub struct LeaseMetrics {
        /// Hits taken from the shared store in advance and not yet used.
        Gauge "tollgate_lease_hits_held" => pub hits_held;

        /// Hits that leases took from the shared store.
        Counter "tollgate_lease_hits_taken_total" => pub hits_taken;

        /// Calls to the shared store, for leases and for checks without one.
        Counter "tollgate_lease_calls_total" => pub calls;
        /// Takes of leases that were sent while hits were left, because the shared store is far.
        Counter "tollgate_lease_takes_ahead_total" => pub takes_ahead;

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

metrics! {
    /// Metrics of a shared store.
    pub struct StoreMetrics {
        /// Seconds from a call sent to the shared store to its answer.
        Histogram "tollgate_store_call_seconds" in CALL_BUCKETS => pub call_seconds;

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

tollgate_limiter::named! {
    /// The method of a call, also where it came as JSON.
    pub enum CallMethod {
        /// Envoy's.
        ShouldRateLimit = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        /// A check of tollgate's API, or of Kuadrant's.
        Check = "tollgate.v1.RateLimits/Check",
        /// A look that takes nothing.
        Peek = "tollgate.v1.RateLimits/Peek",
        /// Kuadrant's charge after the work.
        Report = "kuadrant.service.ratelimit.v1.RateLimitService/Report",
        /// A reservation.
        Reserve = "tollgate.v1.RateLimits/Reserve",
        /// A reservation's new expiry.
        Extend = "tollgate.v1.RateLimits/Extend",
        /// A reservation's true amount.
        Commit = "tollgate.v1.RateLimits/Commit",
        /// A reservation's end.
        Release = "tollgate.v1.RateLimits/Release",
        /// Hits that the caller admits by itself.
        Lease = "tollgate.v1.RateLimits/Lease",
        /// The unused hits of a lease.
        Return = "tollgate.v1.RateLimits/Return",
    }
}

/// Requests of one task and their hits that are not yet added to the counters.
#[derive(Debug, Default)]
pub struct RequestCounts {
    /// Calls of Envoy's method.
    calls: u64,
    /// Calls of the other methods, and whether there are any.
    api_calls: [u64; CallMethod::ALL.len()],
    has_api_calls: bool,
    ok: u64,
    over_limit: u64,
    answered: Sums<LimitCounters, HIT_KINDS>,
    aside: Sums<LimitCounters, HIT_KINDS>,
}

// === impl RequestMetrics ===

impl RequestMetrics {
    /// The counters of calls, in the order of [`CallMethod`].
    fn by_method(&self) -> [&Counter; CallMethod::ALL.len()] {
        [
            &self.calls,
            &self.checks,
            &self.peeks,
            &self.reports,
            &self.reserves,
            &self.extends,
            &self.commits,
            &self.releases,
            &self.leases,
            &self.returns,
        ]
    }

    /// Counts a call that is carried out by several requests.
    pub fn received(&self, method: CallMethod) {
        if let Some(calls) = self.by_method().get(method as usize) {
            calls.inc();
        }
    }
}

// === impl RequestCounts ===

impl RequestCounts {
    /// Counts a call that was received.
    #[inline]
    pub fn received(&mut self, method: CallMethod) {
        if method == CallMethod::ShouldRateLimit {
            self.calls = self.calls.saturating_add(1);
        } else if let Some(calls) = self.api_calls.get_mut(method as usize) {
            *calls = calls.saturating_add(1);
            self.has_api_calls = true;
        }
    }

    /// Counts a decision.
    #[inline]
    pub fn decided(&mut self, code: Code) {
        let count = match code {
            Code::Ok => &mut self.ok,
            Code::OverLimit => &mut self.over_limit,
        };
        *count = count.saturating_add(1);
    }

    /// Counts the hits of one check for its limit. `answered` says whether the limit answered the
    /// descriptor, and the series of the reference have its labels.
    #[inline]
    pub fn add(
        &mut self,
        counters: &Arc<LimitCounters>,
        outcome: HitOutcome,
        tally: &Tally,
        answered: bool,
    ) {
        let hits = hits_of(outcome, &tally.at_most(HITS_COUNTED_MAX));
        if answered {
            self.answered.add(counters, hits, |it| &it.answered);
        } else {
            self.aside.add(counters, hits, |it| &it.aside);
        }
    }

    /// Adds all sums to the counters.
    pub fn flush(&mut self, metrics: &RequestMetrics) {
        for (counter, count) in [
            (&metrics.calls, &mut self.calls),
            (&metrics.decisions_ok, &mut self.ok),
            (&metrics.decisions_over_limit, &mut self.over_limit),
        ] {
            if *count > 0 {
                counter.inc_by(std::mem::take(count));
            }
        }
        if std::mem::take(&mut self.has_api_calls) {
            for (counter, calls) in metrics.by_method().iter().zip(&mut self.api_calls) {
                counter.inc_by(std::mem::take(calls));
            }
        }
        self.answered.flush(|counters| &counters.answered);
        self.aside.flush(|counters| &counters.aside);
    }
}
