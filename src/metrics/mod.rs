//! Metrics, each declared once: name, help, kind, labels, statsd name.
//!
//! Names that begin with `ratelimit_` are those of Envoy's reference service behind its own statsd
//! mapping, so that existing dashboards and alerts keep working; the others begin with
//! `tollgate_`. `docs/metrics.md` lists them all.
//!
//! | file | contents |
//! | --- | --- |
//! | `declaration` | declarations of metrics, and the macro that registers them |
//! | `requests` | calls, answers, latency, exceeded bounds |
//! | `limits` | hits by limit; `limit` has the counters of one |
//! | `reservations` | steps of reservations by limit, and how far they were off |
//! | `label`, `bounded_map` | bounds on what clients can name |
//! | `rule_sets`, `request_sets` | label sets of rules and of requests |
//! | `retention`, `series` | when label sets are freed, and what `/metrics` shows of them |
//! | `request_counts` | sums of one task, added to the counters once a batch |
//! | `buckets`, `partitions`, `leases`, `store` | buckets and the stores that hold them |
//! | `quotas` | streams, reports, assignments and figures of the quota service |
//! | `candidates` | requests that candidates decided, and their label sets |
//! | `connections`, `answers`, `tls` | connections, answers that are not sent yet, handshakes |
//! | `rules`, `xds` | rule sets and the xDS client |
//! | `admin`, `recordings`, `snapshots` | the admin listener, recordings of requests, snapshots of buckets |
//! | `process` | CPU time, memory and file descriptors of the process |
//! | `label_gauge`, `polled_gauge`, `rule_gauge` | kinds of metrics that the library does not have |
//! | `top_keys` | memory of top keys, and its bounds |
//! | `estimates` | memory of learnt amounts, and what was forgotten |
//! | `telemetry` | traces, statsd and the decision log; `metric_delta` has the changes that statsd gets |
//!
//! To add a metric, declare it in the file of its group and increment the field: registration,
//! `/metrics` and statsd follow, and `make readme` writes the page.
//!
//! Code holds the counters: the hot path looks no label up. Nothing here is global.

mod admin;
mod answers;
mod bounded_map;
mod buckets;
mod build_info;
mod candidates;
mod connections;
mod declaration;
mod estimates;
mod label;
mod label_gauge;
mod leases;
mod limit;
mod limits;
mod metric_delta;
#[cfg(test)]
mod page;
mod partitions;
mod polled_gauge;
mod process;
mod quotas;
mod recordings;
mod request_counts;
mod request_sets;
mod requests;
mod reservations;
mod retention;
mod rule_gauge;
mod rule_sets;
mod rules;
mod series;
mod snapshots;
mod store;
mod telemetry;
mod tls;
mod top_keys;
mod xds;

use std::sync::Arc;

use prometheus::{Encoder, TextEncoder};

pub use self::admin::{AUDIT_LOG, AdminMetrics, AdminRefusal};
pub use self::answers::AnswerMetrics;
pub use self::buckets::BucketMetrics;
use self::build_info::BuildInfo;
use self::candidates::CandidateLabelSets;
pub use self::candidates::{
    CandidateCounters, CandidateMetrics, CandidateResult, CandidateSums, ResultCounts,
};
pub use self::connections::{ConnectionMetrics, PortCounters};
pub use self::declaration::{
    Counter, Declaration, Gauge, Label, LabelValues, LocalHistogram, MetricKind,
};
use self::declaration::{MetricRegistry, Switch};
pub use self::estimates::EstimateMetrics;
pub use self::label::{OVERFLOW, REQUEST_LABEL_PARTS};
pub use self::label_gauge::LabelGauge;
pub use self::leases::LeaseMetrics;
pub use self::limit::{HitTotals, LimitCounters};
use self::limits::LimitMetrics;
pub use self::limits::UNKNOWN_DOMAINS_MAX;
pub use self::metric_delta::{DeltaKind, MetricDelta};
use self::partitions::Partitions;
pub use self::partitions::{PartitionLevels, count_decided};
pub use self::polled_gauge::PolledGauge;
use self::process::ProcessMetrics;
pub use self::quotas::QuotaMetrics;
pub(crate) use self::quotas::RuleRates;
pub use self::recordings::RecordingMetrics;
pub use self::request_counts::RequestCounts;
pub use self::request_sets::REQUEST_LABEL_SETS_MAX;
pub use self::requests::RequestMetrics;
pub use self::reservations::{ReservationCount, ReservationResult, ReservationTotals};
use self::retention::Reader;
pub use self::rule_sets::{RETIRED_LABEL_SETS_MAX, RULE_LABEL_SETS_MAX, RuleCounters};
pub use self::rules::RulesMetrics;
pub use self::snapshots::SnapshotMetrics;
pub use self::store::StoreMetrics;
pub use self::telemetry::{DecisionLogMetrics, StatsdMetrics, TraceMetrics};
use self::tls::TlsMetrics;
pub use self::tls::{CertificateCounters, HandshakeCounters, HandshakeFailure};
pub use self::top_keys::TopKeysMetrics;
pub use self::xds::XdsMetrics;
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
    tls: TlsMetrics,
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
        self.show_store.turn_on();
    }

    /// Shows the metrics of leases. They are absent in exact mode.
    pub fn expect_leases(&self) {
        self.show_leases.turn_on();
    }

    /// Counters for the domains and the rules of a candidate, which becomes the newest. Each rule
    /// is its domain and its name. From now on the metrics of candidates are shown.
    pub fn candidate_counters(
        &self,
        domains: &[String],
        rules: &[(String, String)],
    ) -> (Vec<Arc<CandidateCounters>>, Vec<Arc<CandidateCounters>>) {
        self.show_candidates.turn_on();
        self.candidate_sets
            .counters_of(&self.candidates, domains, rules)
    }

    /// Shows the metrics of snapshots from now on.
    pub fn show_snapshots(&self) {
        self.show_snapshots.turn_on();
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

    /// The counters of a listening port.
    pub fn port(&self, port: &str) -> PortCounters {
        self.connections.port(port)
    }

    /// Counts a streaming call that was refused because of a bound (`connection` or `process`).
    pub fn count_refused_streaming_call(&self, bound: &'static str) {
        self.connections.count_refused_streaming_call(bound);
    }

    /// Counts a gRPC connection closed because of what the client sent, by HTTP/2 error code.
    pub fn count_broken_connection(&self, reason: &'static str) {
        self.connections.count_broken(reason);
    }

    /// The TLS handshakes of a listening port.
    pub fn handshakes(&self, port: &str) -> HandshakeCounters {
        self.tls.handshakes(port)
    }

    /// The certificate that a listening port shows.
    pub fn certificate(&self, port: &str) -> CertificateCounters {
        self.tls.certificate(port)
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
