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
//! | `service` | rules, xDS, the admin listener, recordings, snapshots, traces, statsd, logs, leases of callers, webhooks |
//! | `limits` | hits by limit, with unknown domains; `limit`: the counters of one, and their sums |
//! | `reservations` | steps of reservations by limit, and how far they were off |
//! | `label`, `label_sets`, `request_sets` | label sets of rules and of requests, their bounds, and when they are freed |
//! | `counts` | counts of many tasks, and sums of one, added to them once a batch |
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
mod counts;
mod declaration;
mod gauges;
mod label;
mod label_sets;
mod limit;
mod limits;
mod metric_delta;
mod partitions;
mod process;
mod quotas;
mod request_sets;
mod requests;
mod reservations;
mod service;

use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Encoder, TextEncoder};

use self::candidates::CandidateLabelSets;
pub use self::candidates::{
    CandidateCounters, CandidateMetrics, CandidateResult, CandidateSums, ResultCounts,
};
pub use self::connections::{
    CertificateCounters, ConnectionMetrics, HandshakeCounters, HandshakeFailure, PortCounters,
    TlsMetrics,
};
use self::declaration::MetricRegistry;
pub use self::declaration::{
    Counter, Declaration, Gauge, Label, LabelValues, LocalHistogram, Part,
};
pub use self::gauges::{Counted, PolledGauge, RuleGauge};
pub use self::label::{OVERFLOW, REQUEST_LABEL_PARTS};
use self::label_sets::Reader;
pub use self::label_sets::{RETIRED_LABEL_SETS_MAX, RULE_LABEL_SETS_MAX, RuleCounters};
pub use self::limit::{HitOutcome, LimitCounters, LimitHits};
pub use self::limits::{Limits, UNKNOWN_DOMAINS_MAX};
pub use self::metric_delta::{DeltaKind, MetricDelta};
use self::partitions::Partitions;
pub use self::partitions::{PartitionLevels, count_decided};
use self::process::ProcessMetrics;
pub use self::quotas::{QuotaMetrics, RuleRates};
pub use self::request_sets::REQUEST_LABEL_SETS_MAX;
pub use self::requests::{
    AnswerMetrics, BucketMetrics, CallMethod, LeaseMetrics, RequestCounts, RequestMetrics,
    StoreMetrics,
};
pub use self::reservations::{ReservationCount, ReservationResult, ReservationTotals};
use self::service::BuildInfo;
pub use self::service::{
    AUDIT_LOG, AdminMetrics, AdminRefusal, CallerLeaseMetrics, DecisionLogMetrics, EstimateMetrics,
    NotifyMetrics, RecordingMetrics, RulesMetrics, SnapshotMetrics, StatsdMetrics, TopKeysMetrics,
    TraceMetrics, XdsMetrics,
};

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
    /// Events of limits with `notify`.
    pub notifications: NotifyMetrics,
    /// Hits that callers took in advance.
    pub caller_leases: CallerLeaseMetrics,
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
    /// The counters of limits, by rule and by request.
    pub limits: Arc<Limits>,
    candidate_sets: Arc<CandidateLabelSets>,
    partitions: Arc<Partitions>,
}

/// Shows what is counted and kept here, and not in metrics of the library.
struct KeptCollector {
    limits: Arc<Limits>,
    candidates: Arc<CandidateLabelSets>,
    partitions: Arc<Partitions>,
}

// === impl KeptCollector ===

impl Collector for KeptCollector {
    /// None: each family was registered where it was declared.
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families = self.limits.families();
        families.extend(self.candidates.families());
        families.extend(self.partitions.families());
        families
    }
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
        let candidates = CandidateMetrics::new(r)?;
        let limits = Arc::new(Limits::new(r)?);
        let candidate_sets = Arc::new(CandidateLabelSets::new(candidates.clone()));
        let partitions = Arc::new(Partitions::new(r)?);
        r.collect_from(KeptCollector {
            limits: Arc::clone(&limits),
            candidates: Arc::clone(&candidate_sets),
            partitions: Arc::clone(&partitions),
        })?;
        Ok(Self {
            requests: RequestMetrics::new(r)?,
            buckets: BucketMetrics::new(r)?,
            leases: LeaseMetrics::new(r)?,
            caller_leases: CallerLeaseMetrics::new(r)?,
            store: StoreMetrics::new(r)?,
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
            notifications: NotifyMetrics::new(r)?,
            candidates,
            snapshots: SnapshotMetrics::new(r)?,
            tls: TlsMetrics::new(r)?,
            limits,
            candidate_sets,
            partitions,
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
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        self.limits.complete(Reader::Scrape);
        String::from_utf8(text).map_err(|error| prometheus::Error::Msg(error.to_string()))
    }

    /// Expects flushes to statsd: label sets that are no longer in use are kept for them too.
    pub fn expect_statsd(&self) {
        self.limits.expect(Reader::Flush);
    }

    /// Shows the metrics of a part from now on.
    pub fn show(&self, part: Part) {
        self.registry.show(part);
    }

    /// Counters for the domains and the rules of a candidate, which becomes the newest. Each rule
    /// is its domain and its name. From now on the metrics of candidates are shown.
    pub fn candidate_counters(
        &self,
        domains: &[String],
        rules: &[(String, String)],
    ) -> (Vec<Arc<CandidateCounters>>, Vec<Arc<CandidateCounters>>) {
        self.show(Part::Candidates);
        self.candidate_sets.counters_of(domains, rules)
    }

    /// New levels for the partition of this number.
    pub fn partition_levels(&self, number: usize) -> Arc<PartitionLevels> {
        self.partitions.levels(number)
    }
}

#[cfg(test)]
mod tests {
    mod page;

    use super::*;

    #[test]
    fn unknown_domains_are_counted_by_name_up_to_a_bound() {
        let metrics = Metrics::new().unwrap();
        for n in 0..10_000 {
            metrics
                .limits
                .domain_not_found(format!("domain-{n}").as_bytes());
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
