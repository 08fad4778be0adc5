//! Metrics of the service around requests: its version, its rules, the admin listener, recordings,
//! snapshots, traces, statsd, the decision log, top keys, learnt amounts, leases of callers and
//! webhooks.

use super::declaration::{Counter, CounterVec, Gauge, LabelValues, metrics};
use super::gauges::{PolledGauge, RuleGauge};

const REFUSED_DOMAINS: LabelValues = LabelValues::Bounded("100 domains");
const HASH: LabelValues = LabelValues::Bounded("one at a time");

/// The module of audit lines, for the log filter.
pub const AUDIT_LOG: &str = "tollgate::audit";

const CHANGES: LabelValues = LabelValues::OneOf(&["override", "record", "reset", "shadow"]);

const CHANGE_RESULTS: LabelValues =
    LabelValues::OneOf(&["done", "ended", "invalid", "not_found", "failed"]);

const VERSION: LabelValues = LabelValues::Bounded("the version that runs");

metrics! {
    /// The version that runs.
    pub(super) struct BuildInfo {
        /// Version of the binary, as a label; the value is always 1.
        RuleGauge "tollgate_build_info" [version: VERSION] => info;
    }
}

// === impl BuildInfo ===

impl BuildInfo {
    pub(super) fn publish(&self) {
        let version = env!("CARGO_PKG_VERSION");
        self.info.set(&[version.to_owned()]);
    }
}

metrics! {
    /// Metrics of rule sets.
    pub struct RulesMetrics {
        /// Rule sets accepted.
        Counter "ratelimit_service_config_load_success" as "ratelimit.service.config_load_success"
            => pub taken;

        /// Rule sets refused.
        Counter "ratelimit_service_config_load_error" as "ratelimit.service.config_load_error"
            => pub refused;

        /// Number of the rule set in use, counted from 1; 0 before the first.
        Gauge "tollgate_rules_generation" => pub generation;

        /// Hash of the rules in use, as a label, the same on replicas with the same files; the
        /// value is always 1.
        RuleGauge "tollgate_rules_info" [hash: HASH] as "" => pub hash_label;

        /// Rules that an operator keeps in shadow mode by POST /shadow.
        Gauge "tollgate_shadowed_rules" => pub shadowed;

        /// Overrides that an operator has set, with or without effect.
        Gauge "tollgate_overrides" => pub overrides;

        /// Overrides refused because there were as many as --overrides-max.
        Counter "tollgate_overrides_refused_total" => pub overrides_refused;

        /// Whether the newest rules were refused and so are not in use: 1 or 0.
        Gauge "tollgate_rules_refused" => pub newest_refused;

        /// Unix time since which the newest rules of a domain are refused; absent for others.
        RuleGauge "tollgate_domain_refused_since_seconds" [domain: REFUSED_DOMAINS] as "" => pub refused_since;
    }
}

metrics! {
    /// Metrics of the xDS client.
    pub struct XdsMetrics {
        /// Whether a stream to the xDS server is open: 1 or 0.
        Gauge "tollgate_xds_up" => pub up;

        /// Streams opened to the xDS server.
        Counter "tollgate_xds_streams_total" => pub streams;

        /// Streams of the xDS server that ended, and failed attempts to connect.
        Counter "tollgate_xds_lost_total" => pub lost;

        /// Rule sets sent by the xDS server, by whether they were accepted (ack) or refused (nack).
        Counter "tollgate_xds_responses_total" by result { acks = "ack", nacks = "nack" }
    }
}

metrics! {
    /// Metrics of the admin listener.
    pub struct AdminMetrics {
        /// Requests by PUT and DELETE /overrides, POST /record, POST /reset and POST /shadow; and
        /// overrides and shadow modes that ended.
        CounterVec "tollgate_admin_changes_total" [change: CHANGES, result: CHANGE_RESULTS] => changes;

        /// Requests to the admin listener that were refused, by the rule of access.
        Counter "tollgate_admin_refused_total" by reason {
            refused_host = "host",
            refused_origin = "origin",
            refused_site = "site",
            refused_token = "token",
            refused_content_type = "content_type",
        }

        /// Open streams of GET /events.
        Gauge "tollgate_event_streams" => pub event_streams;

        /// Streams of GET /events refused because of --event-streams-max.
        Counter "tollgate_event_streams_refused_total" => pub event_streams_refused;
    }
}

/// The rule of access that a request to the admin listener broke.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AdminRefusal {
    /// The Host header.
    Host,
    /// The Origin header.
    Origin,
    /// The Sec-Fetch-Site header.
    Site,
    /// The token.
    Token,
    /// The content type of a POST.
    ContentType,
}

// === impl AdminMetrics ===

impl AdminMetrics {
    /// Counts a request for a change, by its result.
    pub fn changed(&self, change: &'static str, result: &'static str) {
        self.changes.with_label_values(&[change, result]).inc();
    }

    /// Counts a refused request.
    pub fn refused(&self, reason: AdminRefusal) {
        let counter = match reason {
            AdminRefusal::Host => &self.refused_host,
            AdminRefusal::Origin => &self.refused_origin,
            AdminRefusal::Site => &self.refused_site,
            AdminRefusal::Token => &self.refused_token,
            AdminRefusal::ContentType => &self.refused_content_type,
        };
        counter.inc();
    }
}

metrics! {
    /// Metrics of recordings.
    pub struct RecordingMetrics {
        /// Recordings that run: POST /record.
        Gauge "tollgate_recordings" => pub running;

        /// Requests sent to recordings.
        Counter "tollgate_recorded_requests_total" => pub requests;

        /// Requests that a recording lacks, by cause: rate (its bound), slow_reader,
        /// without_entry (nothing to sample by), too_long, caller_left.
        Counter "tollgate_recording_skipped_total" by cause {
            rate = "rate",
            slow_reader = "slow_reader",
            without_entry = "without_entry",
            too_long = "too_long",
            caller_left = "caller_left",
        }
    }
}

// === impl RecordingMetrics ===

impl RecordingMetrics {
    /// Counts what was skipped, by cause in the order of the format.
    pub fn skipped(&self, counts: [u64; 5]) {
        let counters = [
            &self.rate,
            &self.slow_reader,
            &self.without_entry,
            &self.too_long,
            &self.caller_left,
        ];
        for (counter, count) in counters.into_iter().zip(counts) {
            counter.inc_by(count);
        }
    }
}

metrics! {
    /// Metrics of snapshots.
    pub struct SnapshotMetrics {
        /// Snapshots written.
        Counter "tollgate_snapshot_writes_total" => pub writes;

        /// Snapshots that were not written, by cause: disk_full, io, too_slow, or stopped (a worker
        /// had ended).
        Counter "tollgate_snapshot_write_failures_total" by cause {
            disk_full = "disk_full",
            io = "io",
            too_slow = "too_slow",
            stopped = "stopped",
        }

        /// When the last snapshot was begun, in seconds since 1970; after a start, the one that was
        /// loaded.
        Gauge "tollgate_snapshot_timestamp_seconds" => pub timestamp;

        /// Milliseconds that the last write took.
        Gauge "tollgate_snapshot_write_milliseconds" => pub write_milliseconds;

        /// Bytes of the last snapshot.
        Gauge "tollgate_snapshot_bytes" => pub bytes;

        /// Buckets in the last snapshot.
        Gauge "tollgate_snapshot_buckets" => pub buckets;

        /// Snapshots that were refused at start, by cause: unreadable, foreign, version, damaged,
        /// or hash_key.
        Counter "tollgate_snapshot_load_failures_total" by cause {
            unreadable = "unreadable",
            foreign = "foreign",
            version = "version",
            damaged = "damaged",
            hash_key = "hash_key",
        }

        /// Milliseconds that loading took at start.
        Gauge "tollgate_snapshot_load_milliseconds" => pub load_milliseconds;

        /// Buckets of the snapshot at start, by what became of them: loaded, expired, or no_space.
        Counter "tollgate_snapshot_loaded_buckets_total" by result {
            loaded = "loaded",
            expired = "expired",
            no_space = "no_space",
        }
    }
}

// === impl SnapshotMetrics ===

impl SnapshotMetrics {
    /// Counts a snapshot that was refused, by its cause.
    pub fn refused(&self, cause: &str) {
        let counter = match cause {
            "unreadable" => &self.unreadable,
            "foreign" => &self.foreign,
            "version" => &self.version,
            "hash_key" => &self.hash_key,
            _ => &self.damaged,
        };
        counter.inc();
    }

    /// Counts the buckets of a snapshot: loaded, expired, without space.
    pub fn buckets_read(&self, [loaded, expired, no_space]: [u64; 3]) {
        self.loaded.inc_by(loaded);
        self.expired.inc_by(expired);
        self.no_space.inc_by(no_space);
    }
}

metrics! {
    /// Metrics of traces.
    pub struct TraceMetrics {
        /// Spans of decisions, by result: sent, dropped (the queue was full) or lost (the collector
        /// did not accept them).
        Counter "tollgate_trace_spans_total" by result {
            sent = "sent",
            dropped = "dropped",
            lost = "lost",
        }

        /// Sampled decisions that were not traced because of --traces-per-second-max.
        Counter "tollgate_traces_skipped_total" => pub skipped;
    }
}

metrics! {
    /// Metrics of statsd.
    pub struct StatsdMetrics {
        /// Flushes to statsd, by result; what a failed flush held is sent by the next.
        Counter "tollgate_statsd_flushes_total" by result { flushes = "sent", failures = "failed" }

        /// Lines for statsd lost with a connection.
        Counter "tollgate_statsd_lines_lost_total" => pub lines_lost;
    }
}

metrics! {
    /// Metrics of the decision log.
    pub struct DecisionLogMetrics {
        /// Decisions written to the decision log.
        Counter "tollgate_decision_log_written_total" => pub written;

        /// Decisions chosen for the decision log and not written, by reason: rate (more than
        /// --decision-log-per-second-max), queue_full (the destination is slow) or write_failed.
        Counter "tollgate_decision_log_skipped_total" by reason {
            rate = "rate",
            queue_full = "queue_full",
            write_failed = "write_failed",
        }
    }
}

metrics! {
    /// Metrics of top keys.
    pub struct TopKeysMetrics {
        /// Bytes that top keys use, within --top-keys-memory-max.
        PolledGauge "tollgate_top_keys_memory_bytes" => pub memory_bytes;

        /// Checks of rules without memory for top keys of their own; their keys share a summary.
        Counter "tollgate_top_keys_shared_total" => pub shared;

        /// Descriptors of top keys that were not kept because of the memory limit.
        Counter "tollgate_top_keys_texts_not_kept_total" => pub texts_not_kept;
    }
}

metrics! {
    /// Metrics of amounts that are learnt from commits.
    pub struct EstimateMetrics {
        /// Bytes that learnt amounts may use by now, within --estimates-memory-max.
        Gauge "tollgate_estimates_memory_bytes" => pub memory_bytes;

        /// Learnt amounts that were forgotten because others took their memory, by whose they were.
        Counter "tollgate_estimates_forgotten_total" by of {
            keys_replaced = "key",
            rules_replaced = "rule",
        }
    }
}

metrics! {
    /// Metrics of events of limits with `notify`.
    pub struct NotifyMetrics {
        /// Events of limits with notify: a share of the limit was used for the first time in its
        /// window.
        Counter "tollgate_notify_events_total" => pub events;

        /// Events of limits that were not made or not delivered to --notify-url, and those that
        /// were, by result.
        Counter "tollgate_notify_results_total" by result {
            sent = "sent", failed = "failed", queue_full = "queue_full",
            repeated = "repeated", table_full = "table_full",
        }

        /// Deliveries of events to --notify-url that were tried again.
        Counter "tollgate_notify_retries_total" => pub retries;
    }
}

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
