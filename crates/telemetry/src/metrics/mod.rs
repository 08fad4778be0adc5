//! Metrics, each declared once: name, help, kind, labels, statsd name.
//!
//! Names that begin with `ratelimit_` are those of Envoy's reference service behind its own statsd
//! mapping, so that existing dashboards and alerts keep working; the others begin with
//! `tollgate_`. `docs/metrics.md` lists them all.
//!
//! | file | contents |
//! | --- | --- |
//! | `declaration` | declarations of metrics, and the macro that registers them |
//! | `requests` | calls, answers, latency, exceeded bounds; buckets, the shared store and its leases |
//! | `connections` | connections, TLS handshakes, certificates |
//! | `service` | rules, xDS, the admin listener, recordings, snapshots, traces, statsd, logs |
//! | `limits` | hits by limit; `limit` has the counters of one |
//! | `reservations` | steps of reservations by limit, and how far they were off |
//! | `label`, `label_sets` | label sets of rules and of requests, their bounds, and when they are freed |
//! | `request_counts` | sums of one task, added to the counters once a batch |
//! | `partitions` | what each partition of a store holds |
//! | `quotas` | streams, reports, assignments and figures of the quota service |
//! | `candidates` | requests that candidates decided, and their label sets |
//! | `process` | CPU time, memory and file descriptors of the process |
//! | `gauges` | kinds of metrics that the library does not have |
//! | `metric_delta` | the changes that statsd gets |
//!
//! To add a metric, declare it in the file of its group and increment the field: registration,
//! `/metrics` and statsd follow, and `make readme` writes the page.
//!
//! Code holds the counters: the hot path looks no label up. Nothing here is global.

mod candidates;
mod connections;
mod declaration;
mod gauges;
mod label;
mod label_sets;
mod limit;
mod limits;
mod metric_delta;
#[cfg(test)]
mod page;
mod partitions;
mod process;
mod quotas;
mod request_counts;
mod requests;
mod reservations;
mod service;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use prometheus::{Encoder, TextEncoder};

use self::candidates::CandidateLabelSets;
pub use self::candidates::{
    CandidateCounters, CandidateMetrics, CandidateResult, CandidateSums, ResultCounts,
};
pub use self::connections::{
    CertificateCounters, ConnectionMetrics, HandshakeCounters, HandshakeFailure, PortCounters,
    TlsMetrics,
};
pub use self::declaration::{
    Counter, Declaration, Gauge, Label, LabelValues, LocalHistogram, MetricKind,
};
use self::declaration::{MetricRegistry, Switch};
pub use self::gauges::{PolledGauge, RuleGauge};
pub use self::label::{OVERFLOW, REQUEST_LABEL_PARTS};
use self::label_sets::Reader;
pub use self::label_sets::{
    REQUEST_LABEL_SETS_MAX, RETIRED_LABEL_SETS_MAX, RULE_LABEL_SETS_MAX, RuleCounters,
};
pub use self::limit::{HitTotals, LimitCounters};
use self::limits::LimitMetrics;
pub use self::limits::UNKNOWN_DOMAINS_MAX;
pub use self::metric_delta::{DeltaKind, MetricDelta};
use self::partitions::Partitions;
pub use self::partitions::{PartitionLevels, count_decided};
use self::process::ProcessMetrics;
pub use self::quotas::{QuotaMetrics, RuleRates};
pub use self::request_counts::RequestCounts;
pub use self::requests::{
    AnswerMetrics, BucketMetrics, LeaseMetrics, RequestMetrics, StoreMetrics,
};
pub use self::reservations::{ReservationCount, ReservationResult, ReservationTotals};
use self::service::BuildInfo;
pub use self::service::{
    AUDIT_LOG, AdminMetrics, AdminRefusal, DecisionLogMetrics, EstimateMetrics, RecordingMetrics,
    RulesMetrics, SnapshotMetrics, StatsdMetrics, TopKeysMetrics, TraceMetrics, XdsMetrics,
};
use tollgate_limiter::{Key, RuleSet};

/// All metrics of one service.
#[derive(Debug)]
pub struct Metrics {
    registry: MetricRegistry,
    /// Requests and their answers.
    pub requests: RequestMetrics,
    /// Buckets, and checks of them.
    pub buckets: BucketMetrics,
    /// Hits taken from the shared store in advance.
    pub leases: LeaseMetrics,
    /// The store that replicas share.
    pub store: StoreMetrics,
    /// Connections of every port.
    pub connections: ConnectionMetrics,
    /// TLS of every port.
    pub tls: TlsMetrics,
    /// Answers that are not sent yet.
    pub answers: AnswerMetrics,
    /// Rule sets.
    pub rules: RulesMetrics,
    /// Rules from an xDS server.
    pub xds: XdsMetrics,
    /// The admin listener.
    pub admin: AdminMetrics,
    /// Recordings of requests.
    pub recordings: RecordingMetrics,
    /// Snapshots of the buckets in memory.
    pub snapshots: SnapshotMetrics,
    /// Traces of decisions.
    pub traces: TraceMetrics,
    /// Top keys.
    pub top_keys: TopKeysMetrics,
    /// Amounts that are learnt from commits.
    pub estimates: EstimateMetrics,
    /// Flushes to statsd.
    pub statsd: StatsdMetrics,
    /// Quotas.
    pub quotas: QuotaMetrics,
    /// The decision log.
    pub decision_log: DecisionLogMetrics,
    /// Candidates.
    pub candidates: CandidateMetrics,
    candidate_sets: CandidateLabelSets,
    partitions: Partitions,
    limits: LimitMetrics,
    show_store: Switch,
    show_leases: Switch,
    show_candidates: Switch,
    show_snapshots: Switch,
}

// === impl Metrics ===

impl Metrics {
    /// Metrics of their own, not shared with other services of the process.
    ///
    /// # Errors
    ///
    /// When a name or a label is invalid or declared twice: a defect of this module.
    pub fn new() -> Result<Self, prometheus::Error> {
        let mut registry = MetricRegistry::default();
        let r = &mut registry;
        BuildInfo::new(r)?.publish();
        ProcessMetrics::new(r)?.publish();
        let (leases, show_leases) = r.optional(LeaseMetrics::new)?;
        let (store, show_store) = r.optional(StoreMetrics::new)?;
        let (candidates, show_candidates) = r.optional(CandidateMetrics::new)?;
        let (snapshots, show_snapshots) = r.optional(SnapshotMetrics::new)?;
        Ok(Self {
            requests: RequestMetrics::new(r)?,
            buckets: BucketMetrics::new(r)?,
            leases,
            store,
            show_leases,
            show_store,
            connections: ConnectionMetrics::new(r)?,
            answers: AnswerMetrics::new(r)?,
            rules: RulesMetrics::new(r)?,
            xds: XdsMetrics::new(r)?,
            admin: AdminMetrics::new(r)?,
            recordings: RecordingMetrics::new(r)?,
            traces: TraceMetrics::new(r)?,
            top_keys: TopKeysMetrics::new(r)?,
            estimates: EstimateMetrics::new(r)?,
            statsd: StatsdMetrics::new(r)?,
            quotas: QuotaMetrics::new(r)?,
            decision_log: DecisionLogMetrics::new(r)?,
            candidates,
            candidate_sets: CandidateLabelSets::default(),
            show_candidates,
            snapshots,
            show_snapshots,
            partitions: Partitions::new(r)?,
            tls: TlsMetrics::new(r)?,
            limits: LimitMetrics::new(r)?,
            registry,
        })
    }

    /// The declarations of all metrics, by name.
    pub fn declarations(&self) -> impl Iterator<Item = &'static Declaration> {
        self.registry.declarations()
    }

    /// The text that Prometheus reads. Label sets of limits that are no longer in use are freed
    /// after two readings.
    ///
    /// # Errors
    ///
    /// When a metric cannot be written as text.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        self.partitions.publish();
        let reading = self.limits.read();
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        reading.complete(Reader::Scrape);
        String::from_utf8(text).map_err(|error| prometheus::Error::Msg(error.to_string()))
    }

    /// Expects flushes to statsd: label sets that are no longer in use are kept for them too.
    pub fn expect_statsd(&self) {
        self.limits.expect(Reader::Flush);
    }

    /// Shows the metrics of the store that replicas share. They are absent without one.
    pub fn expect_shared_store(&self) {
        self.show_store.store(true, Ordering::Relaxed);
    }

    /// Shows the metrics of leases. They are absent in exact mode.
    pub fn expect_leases(&self) {
        self.show_leases.store(true, Ordering::Relaxed);
    }

    /// Counters for the domains and the rules of a candidate, which becomes the newest. Each rule
    /// is its domain and its name. From now on the metrics of candidates are shown.
    pub fn candidate_counters(
        &self,
        domains: &[String],
        rules: &[(String, String)],
    ) -> (Vec<Arc<CandidateCounters>>, Vec<Arc<CandidateCounters>>) {
        self.show_candidates.store(true, Ordering::Relaxed);
        self.candidate_sets
            .counters_of(&self.candidates, domains, rules)
    }

    /// Shows the metrics of snapshots from now on.
    pub fn show_snapshots(&self) {
        self.show_snapshots.store(true, Ordering::Relaxed);
    }

    /// Replaces dots in the labels of keys and values from now on.
    pub fn replace_dots(&self) {
        self.limits.replace_dots();
    }

    /// The hits of each rule since the start, in the order of the rules. Readers of metrics see the
    /// same hits, and lose none.
    pub fn hit_totals(&self, rules: &RuleCounters, into: &mut Vec<HitTotals>) {
        self.limits.rule_totals(rules, into);
    }

    /// New levels for the partition of this number.
    pub fn partition_levels(&self, number: usize) -> Arc<PartitionLevels> {
        self.partitions.levels(number)
    }

    /// Counters for every rule of a rule set, which becomes the newest. Rules with the same
    /// labels share them, as do those of an earlier set.
    pub fn rule_counters(&self, rules: &RuleSet) -> RuleCounters {
        self.limits.rule_counters(rules)
    }

    /// Counters whose labels depend on the request. They belong to the rule that has the counters
    /// `of_rule`, or to none if the limit came with the request. `labels` makes a domain and a
    /// path; it is called only for a new key.
    pub fn request_counters(
        &self,
        key: Key,
        of_rule: Option<&LimitCounters>,
        labels: impl FnOnce() -> (String, Vec<String>),
    ) -> Arc<LimitCounters> {
        self.limits.request_counters(key, of_rule, labels)
    }

    /// Counts a request for a domain without rules.
    pub fn domain_not_found(&self, domain: &[u8]) {
        self.limits.domain_not_found(domain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_domains_are_counted_by_name_up_to_a_bound() {
        let metrics = Metrics::new().unwrap();
        for n in 0..10_000 {
            metrics.domain_not_found(format!("domain-{n}").as_bytes());
        }
        let text = metrics.render().unwrap();
        let series = text
            .lines()
            .filter(|line| line.starts_with("ratelimit_service_rate_limit_domain_not_found{"))
            .count();
        assert_eq!(series, UNKNOWN_DOMAINS_MAX + 1);
        assert!(text.contains("domain_not_found{domain=\"overflow\"} 9900"));
        assert!(text.contains("tollgate_label_overflow_total{bound=\"unknown_domains\"} 9900"));
    }
}
