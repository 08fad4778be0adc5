//! Every metric once: its name, its help, its labels.
//!
//! Names that begin with `ratelimit_` are those of Envoy's reference service behind its own statsd mapping, so that
//! existing dashboards and alerts go on working; ours begin with `tollgate_`.
//!
//! | file | what is measured |
//! | --- | --- |
//! | `requests` | calls, answers, latency, bounds that requests pass |
//! | `limits` | hits, limit by limit; `limit` is one of them, `label` and `bounded_map` bound what strangers can name |
//! | `rule_sets`, `request_sets` | label sets of rules and of requests; `grace` says when they are freed, `series` what they are in `/metrics` |
//! | `counts` | what one task adds up of both before it says so |
//! | `buckets`, `leases`, `store` | where buckets are |
//! | `connections`, `tls` | how callers come |
//! | `rules`, `xds` | what the operator wrote |
//! | `telemetry` | what goes out by itself; `news` is what statsd is told |
//!
//! Counters are handed out: the hot path looks no label up.
//!
//! What it deliberately does not do: be global, tell time, serve HTTP (`admin`).

mod bounded_map;
mod buckets;
mod build_info;
mod connections;
mod counts;
mod declaration;
mod grace;
mod label;
mod leases;
mod limit;
mod limits;
mod news;
#[cfg(test)]
mod page;
mod partitions;
mod polled_gauge;
mod request_sets;
mod requests;
mod rule_sets;
mod rules;
mod series;
mod store;
mod telemetry;
mod tls;
mod xds;

use std::sync::Arc;

use prometheus::{Encoder, TextEncoder};

pub use self::buckets::BucketMetrics;
use self::build_info::BuildInfo;
pub use self::connections::{ConnectionMetrics, PortCounters};
pub use self::counts::Counts;
use self::declaration::MetricRegistry;
pub use self::declaration::{
    Counter, Declaration, Gauge, Label, LabelValues, LocalHistogram, MetricKind,
};
use self::grace::Reader;
pub use self::label::{OVERFLOW, REQUEST_LABEL_PARTS};
pub use self::leases::LeaseMetrics;
pub use self::limit::LimitCounters;
use self::limits::LimitMetrics;
pub use self::limits::UNKNOWN_DOMAINS_MAX;
pub use self::news::{Kind, News};
pub use self::partitions::PartitionLevels;
use self::partitions::Partitions;
pub use self::polled_gauge::PolledGauge;
pub use self::request_sets::REQUEST_LABEL_SETS_MAX;
pub use self::requests::RequestMetrics;
pub use self::rule_sets::{RETIRED_LABEL_SETS_MAX, RULE_LABEL_SETS_MAX, RuleCounters};
pub use self::rules::RulesMetrics;
pub use self::store::StoreMetrics;
pub use self::telemetry::{StatsdMetrics, TraceMetrics};
use self::tls::TlsMetrics;
pub use self::tls::{CertificateCounters, HandshakeCounters, HandshakeFailure};
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
    /// Rule sets.
    pub rules: RulesMetrics,
    /// Rules from an xDS server.
    pub xds: XdsMetrics,
    /// Traces of decisions.
    pub traces: TraceMetrics,
    /// What statsd is told.
    pub statsd: StatsdMetrics,
    partitions: Partitions,
    tls: TlsMetrics,
    limits: LimitMetrics,
}

// === impl Metrics ===

impl Metrics {
    /// Metrics that nobody else shares.
    ///
    /// # Errors
    ///
    /// When a name or a label is not a valid one, or stands twice: a mistake in this room.
    pub fn new() -> Result<Self, prometheus::Error> {
        let mut registry = MetricRegistry::default();
        let r = &mut registry;
        BuildInfo::new(r)?.publish();
        Ok(Self {
            requests: RequestMetrics::new(r)?,
            buckets: BucketMetrics::new(r)?,
            leases: LeaseMetrics::new(r)?,
            store: StoreMetrics::new(r)?,
            connections: ConnectionMetrics::new(r)?,
            rules: RulesMetrics::new(r)?,
            xds: XdsMetrics::new(r)?,
            traces: TraceMetrics::new(r)?,
            statsd: StatsdMetrics::new(r)?,
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

    /// Says that statsd will be told: label sets that are no longer in use wait for it too.
    pub fn expect_statsd(&self) {
        self.limits.expect(Reader::Flush);
    }

    /// Where the partition of this number keeps its levels.
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

    /// Counts a gRPC connection that was closed because of what its client sent. There are as many words for that as HTTP/2
    /// has.
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

    /// Counters for every rule of a rule set, which is the newest from now on. Rules with the same
    /// labels share them, as do those of an earlier set.
    pub fn rule_counters(&self, rules: &RuleSet) -> RuleCounters {
        self.limits.rule_counters(rules)
    }

    /// Counters whose labels depend on the request. They belong to the rule that has the counters
    /// `of_rule`, or, where a limit came along, to none. `labels`, a domain and a path, is asked
    /// for only when the key is new here.
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
