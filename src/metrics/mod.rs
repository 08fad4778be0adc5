//! Every metric once: its name, its help, its labels.
//!
//! Names that begin with `ratelimit_` are those of Envoy's reference service behind its own statsd mapping, so that
//! existing dashboards and alerts go on working; ours begin with `tollgate_`.
//!
//! Why counters are handed out: the hot path must not look a label up. A rule's counters are resolved when its rules are
//! loaded, everything else is a field. What a stranger can name (an unknown domain, the labels of a limit that came
//! with a request) is counted by label up to a bound, and under `overflow` beyond it; looking one up takes no lock.
//!
//! What it deliberately does not do: be global, tell time, serve HTTP (`admin`).

mod bounded_map;
mod counts;
mod label;
mod limit;
mod store;
mod tls;
mod xds;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use self::bounded_map::BoundedMap;
pub use self::counts::Counts;
use self::label::{LABEL_BYTES_MAX, label};
pub use self::limit::LimitCounters;
use self::limit::Told;
pub use self::store::StoreMetrics;
use self::tls::TlsVecs;
pub use self::tls::{CertificateCounters, HandshakeCounters, HandshakeFailure};
pub use self::xds::XdsMetrics;
use crate::limiter::{Key, Rule, RuleSet};

/// How many rules have counters of their own; those beyond share the labels [`OVERFLOW`].
pub const RULE_LABEL_SETS_MAX: usize = 10_000;

/// How many label sets that depend on requests have counters of their own: limits that came along, and rules with
/// `detailed_metric` or `value_to_metric`.
pub const REQUEST_LABEL_SETS_MAX: usize = 1_000;

/// How many unknown domains are counted by name.
pub const UNKNOWN_DOMAINS_MAX: usize = 100;

/// How many hits of one request a counter takes in.
const HITS_COUNTED_MAX: u64 = 1 << 32;

/// The label of whatever came after a bound was met.
pub const OVERFLOW: &str = "overflow";

/// Upper bounds of the latency histogram, in seconds: an in-memory decision takes tens of microseconds, and Envoy gives
/// up after 20 ms.
const LATENCY_BUCKETS: &[f64] = &[
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.02,
    0.05, 0.1, 0.5, 1.0,
];

/// A number that only grows.
pub type Counter = IntCounter;

/// A distribution that one task adds to, and says to the others now and then.
pub type LocalHistogram = prometheus::local::LocalHistogram;

/// How much of a request can stand in labels: levels, and bytes of each text.
pub const REQUEST_LABEL_PARTS: (usize, usize) = (2, LABEL_BYTES_MAX);

/// The labels of a limit's counters, as the reference's mapping gives them: levels deeper than the second are dropped.
type LimitLabels = [String; 3];

/// All metrics of one service.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,

    /// Requests whose answer was "pass".
    pub decisions_ok: IntCounter,
    /// Requests whose answer was "over limit".
    pub decisions_over_limit: IntCounter,
    /// Requests that were answered with a gRPC error because of what they asked.
    pub service_errors: IntCounter,
    /// Requests that were answered with a gRPC error because the store did not decide.
    pub store_errors: IntCounter,
    /// Calls of ShouldRateLimit.
    pub requests: IntCounter,
    /// From request decoded to answer ready, in seconds.
    pub response_time: Histogram,
    /// Requests that the overload setting answered.
    pub overload_answers: IntCounter,
    /// Overrides without a usable unit.
    pub overrides_not_obeyed: IntCounter,

    /// Checks not taken because a mailbox was full.
    pub shed_mailbox_full: IntCounter,
    /// Checks dropped undecided because their deadline had passed.
    pub shed_deadline: IntCounter,
    /// Checks dropped undecided because nobody waited for them.
    pub shed_caller_gone: IntCounter,
    /// Checks not decided because a partition had no room at all.
    pub shed_memory_full: IntCounter,
    /// Checks whose hits went back because their request did not pass.
    pub given_back: IntCounter,
    /// Hits that leases hold.
    pub lease_hits_held: IntGauge,
    /// Hits that leases took.
    pub lease_hits_taken: IntCounter,
    /// Calls of the shared store on behalf of leases and of what has none.
    pub lease_calls: IntCounter,
    /// Checks that went back to the shared store: the rest of a lease, or what led to nothing.
    pub lease_returns: IntCounter,
    /// Those that it did not take.
    pub lease_returns_lost: IntCounter,
    /// Checks whose bucket found no room for a lease.
    pub lease_no_room: IntCounter,
    /// HTTP requests that were answered 503 because too many were under way or theirs took too long.
    pub http_shed: IntCounter,
    /// Bytes that all partitions may take together.
    pub memory_max_bytes: IntGauge,
    /// Buckets freed because they were as good as new.
    pub buckets_freed: IntCounter,
    /// Buckets forgotten for want of room before they were as good as new; none was exhausted.
    pub buckets_forgotten: IntCounter,
    /// Checks for whose bucket there was no room, and which were counted in one that they share.
    pub no_room_shared: IntCounter,
    /// The same, allowed.
    pub no_room_allowed: IntCounter,
    /// The same, denied.
    pub no_room_denied: IntCounter,

    /// Rule sets taken.
    pub config_load_success: IntCounter,
    /// Rule sets refused.
    pub config_load_error: IntCounter,
    /// Which rule set is in use, counted from 1.
    pub rules_generation: IntGauge,
    /// The hash of the files that it came from.
    pub rules_hash: IntGauge,
    /// 1 while newer ones were refused, 0 otherwise.
    pub rules_refused: IntGauge,
    /// Requests that `SHADOW_MODE` let pass.
    pub global_shadow_mode: IntCounter,

    /// The store that replicas share.
    pub store: StoreMetrics,
    /// Rules from an xDS server.
    pub xds: XdsMetrics,

    /// Requests with more descriptors than they may have.
    pub excess_descriptors: IntCounter,
    /// Requests with a descriptor of more entries than it may have.
    pub excess_entries: IntCounter,
    /// Messages larger than they may be.
    pub excess_message_size: IntCounter,
    /// gRPC connections asked to go because of their age.
    pub connections_aged: IntCounter,
    /// Calls reset because their message did not come.
    pub calls_late: IntCounter,
    /// Calls reset because nobody made room for their answer.
    pub answers_unread: IntCounter,
    /// gRPC connections closed because nobody answered a keepalive.
    pub connections_silent: IntCounter,

    connections_broken: IntCounterVec,
    tls: TlsVecs,
    connections: IntGaugeVec,
    connections_accepted: IntCounterVec,
    connections_refused: IntCounterVec,
    accept_errors: IntCounterVec,
    limits: LimitVecs,
    domain_not_found: IntCounterVec,
    label_overflow: IntCounterVec,
    mailbox_checks: IntGaugeVec,
    buckets: IntGaugeVec,
    marks: IntGaugeVec,
    memory_bytes: IntGaugeVec,

    /// Label sets given to rules so far.
    rule_labels: Mutex<HashMap<LimitLabels, Arc<LimitCounters>>>,
    request_counters: BoundedMap<Key, Arc<LimitCounters>>,
    unknown_domains: BoundedMap<Vec<u8>, IntCounter>,
    partitions: Mutex<Vec<Arc<PartitionLevels>>>,
}

/// The counters of every rule of one rule set, by [`Rule::index`].
#[derive(Debug, Default)]
pub struct RuleCounters(Vec<Arc<LimitCounters>>);

/// What a partition holds, written by those who use it and read when metrics are.
#[derive(Debug, Default)]
pub struct PartitionLevels {
    /// Checks in the mailbox.
    pub waiting: AtomicUsize,
    /// Buckets in the table.
    pub buckets: AtomicUsize,
    /// Marks that its buckets have room for.
    pub marks: AtomicUsize,
    /// Bytes of the heap that all that takes.
    pub bytes: AtomicUsize,
}

/// The counters of one listening port.
#[derive(Clone, Debug)]
pub struct PortCounters {
    /// Connections open.
    pub open: IntGauge,
    /// Connections accepted so far.
    pub accepted: IntCounter,
    /// Connections closed at once because there were too many.
    pub refused: IntCounter,
    /// Times the system would not give a connection.
    pub accept_errors: IntCounter,
}

#[derive(Debug)]
struct LimitVecs {
    total_hits: IntCounterVec,
    over_limit: IntCounterVec,
    near_limit: IntCounterVec,
    within_limit: IntCounterVec,
    shadow_mode: IntCounterVec,
    negative_hits: IntCounterVec,
}

// === impl Metrics ===

impl Metrics {
    /// Metrics that nobody else shares.
    ///
    /// # Errors
    ///
    /// When a name or a label below is not a valid one, or stands twice: a mistake in this file.
    #[allow(clippy::too_many_lines)] // a table
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let r = &registry;
        let decisions = counters(
            r,
            "tollgate_decisions_total",
            "Requests decided, by the overall code",
            &["code"],
        )?;
        let shed = counters(
            r,
            "tollgate_shed_total",
            "Checks that were not decided, by the bound that was met",
            &["reason"],
        )?;
        let no_room = counters(
            r,
            "tollgate_no_room_total",
            "Checks of keys for whose bucket there was no room, by what --on-memory-full made of them",
            &["answer"],
        )?;
        let excess = counters(
            r,
            "tollgate_excess_total",
            "Requests that passed a bound which their caller can reach, and were answered by --on-excess",
            &["bound"],
        )?;
        let errors = counters(
            r,
            "ratelimit_service_should_rate_limit_error",
            "Requests answered with a gRPC error, by whose fault it was",
            &["err_type"],
        )?;
        let requests = counters(
            r,
            "ratelimit_service_total_requests",
            "gRPC calls received",
            &["grpc_method"],
        )?;
        let response_time = HistogramVec::new(
            HistogramOpts::new(
                "ratelimit_service_response_time_seconds",
                "From request decoded to answer ready",
            )
            .buckets(LATENCY_BUCKETS.to_vec()),
            &["grpc_method"],
        )?;
        r.register(Box::new(response_time.clone()))?;
        let label_overflow = counters(
            r,
            "tollgate_label_overflow_total",
            "Times something was counted under the label \"overflow\" because a bound on labels was met",
            &["bound"],
        )?;
        let limits = LimitVecs::new(r)?;
        let domain_not_found = counters(
            r,
            "ratelimit_service_rate_limit_domain_not_found",
            "Requests for a domain without rules",
            &["domain"],
        )?;
        let build = IntGaugeVec::new(
            Opts::new(
                "tollgate_build_info",
                "Always 1; the label says which version",
            ),
            &["version"],
        )?;
        r.register(Box::new(build.clone()))?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Ok(Self {
            decisions_ok: decisions.with_label_values(&["ok"]),
            decisions_over_limit: decisions.with_label_values(&["over_limit"]),
            service_errors: errors.with_label_values(&["service_error"]),
            store_errors: errors.with_label_values(&["redis_error"]),
            requests: requests.with_label_values(&["ShouldRateLimit"]),
            response_time: response_time.with_label_values(&["ShouldRateLimit"]),
            overload_answers: counter(
                r,
                "tollgate_overload_answers_total",
                "Requests that --on-overload answered because the store did not decide",
            )?,
            overrides_not_obeyed: counter(
                r,
                "tollgate_overrides_not_obeyed_total",
                "Limits that came with a request and had no usable unit",
            )?,
            shed_mailbox_full: shed.with_label_values(&["mailbox_full"]),
            shed_deadline: shed.with_label_values(&["deadline_passed"]),
            shed_caller_gone: shed.with_label_values(&["caller_gone"]),
            shed_memory_full: shed.with_label_values(&["memory_full"]),
            given_back: counter(
                r,
                "tollgate_given_back_total",
                "Checks whose hits went back because their request, all or nothing, did not pass",
            )?,
            lease_hits_held: gauge(
                r,
                "tollgate_lease_hits_held",
                "Hits taken from the shared store in advance and not yet used",
            )?,
            lease_hits_taken: counter(
                r,
                "tollgate_lease_hits_taken_total",
                "Hits that leases took from the shared store",
            )?,
            lease_calls: counter(
                r,
                "tollgate_lease_calls_total",
                "Calls of the shared store: for leases, and for checks that have none",
            )?,
            lease_returns: counter(
                r,
                "tollgate_lease_returns_total",
                "Checks that went back to the shared store: what is left of a lease, or led to nothing",
            )?,
            lease_returns_lost: counter(
                r,
                "tollgate_lease_returns_lost_total",
                "Checks that should have gone back to the shared store, which did not answer: they count as spent",
            )?,
            lease_no_room: counter(
                r,
                "tollgate_lease_no_room_total",
                "Checks that asked the shared store because there is no room for another lease",
            )?,
            http_shed: counter(
                r,
                "tollgate_http_shed_total",
                "HTTP requests answered 503 because too many were under way or theirs took too long",
            )?,
            buckets_freed: counter(
                r,
                "tollgate_buckets_freed_total",
                "Buckets freed because they were as good as new",
            )?,
            buckets_forgotten: counter(
                r,
                "tollgate_buckets_forgotten_total",
                "Buckets forgotten for want of room before they were as good as new; none was exhausted",
            )?,
            no_room_shared: no_room.with_label_values(&["share"]),
            no_room_allowed: no_room.with_label_values(&["allow"]),
            no_room_denied: no_room.with_label_values(&["deny"]),
            config_load_success: counter(
                r,
                "ratelimit_service_config_load_success",
                "Rule sets taken",
            )?,
            config_load_error: counter(
                r,
                "ratelimit_service_config_load_error",
                "Rule sets refused",
            )?,
            rules_generation: gauge(
                r,
                "tollgate_rules_generation",
                "Which rule set is in use, counted from 1; 0 before the first",
            )?,
            rules_hash: gauge(
                r,
                "tollgate_rules_hash",
                "The hash of the rules in use: the same on replicas that have the same files",
            )?,
            rules_refused: gauge(
                r,
                "tollgate_rules_refused",
                "1 while the newest rules are not those in use, because they were refused",
            )?,
            global_shadow_mode: counter(
                r,
                "ratelimit_service_global_shadow_mode",
                "Requests over limit that SHADOW_MODE let pass",
            )?,
            store: StoreMetrics::new(r)?,
            xds: XdsMetrics::new(r)?,
            tls: TlsVecs::new(r)?,
            excess_descriptors: excess.with_label_values(&["descriptors"]),
            excess_entries: excess.with_label_values(&["entries"]),
            excess_message_size: excess.with_label_values(&["message_size"]),
            connections_aged: counter(
                r,
                "tollgate_connections_aged_total",
                "gRPC connections asked to go because of their age",
            )?,
            calls_late: counter(
                r,
                "tollgate_calls_late_total",
                "Calls reset because their message did not come in time",
            )?,
            answers_unread: counter(
                r,
                "tollgate_answers_unread_total",
                "Calls reset because their caller made no room for the answer in time",
            )?,
            connections_silent: counter(
                r,
                "tollgate_connections_silent_total",
                "gRPC connections closed because nobody said in time that it is still there",
            )?,
            connections_broken: counters(
                r,
                "tollgate_connections_broken_total",
                "gRPC connections closed because of what their client sent, by HTTP/2's word for it",
                &["reason"],
            )?,
            connections: gauges(r, "tollgate_connections", "Connections open", &["port"])?,
            connections_accepted: counters(
                r,
                "tollgate_connections_accepted_total",
                "Connections accepted",
                &["port"],
            )?,
            connections_refused: counters(
                r,
                "tollgate_connections_refused_total",
                "Connections closed at once because there were too many",
                &["port"],
            )?,
            accept_errors: counters(
                r,
                "tollgate_accept_errors_total",
                "Times the system would not give a connection",
                &["port"],
            )?,
            mailbox_checks: gauges(
                r,
                "tollgate_mailbox_checks",
                "Checks that wait in a partition's mailbox",
                &["partition"],
            )?,
            buckets: gauges(
                r,
                "tollgate_buckets",
                "Buckets in a partition's table",
                &["partition"],
            )?,
            marks: gauges(
                r,
                "tollgate_marks",
                "Marks (logged hits, segments, slots) that a partition's buckets have room for",
                &["partition"],
            )?,
            memory_bytes: gauges(
                r,
                "tollgate_memory_bytes",
                "Bytes that a partition's buckets, marks and what they need to grow take",
                &["partition"],
            )?,
            memory_max_bytes: gauge(
                r,
                "tollgate_memory_max_bytes",
                "Bytes that all partitions may take together",
            )?,
            request_counters: BoundedMap::new(
                REQUEST_LABEL_SETS_MAX,
                Arc::new(limits.counters(&overflow_labels())),
                label_overflow.with_label_values(&["request_label_sets"]),
            ),
            unknown_domains: BoundedMap::new(
                UNKNOWN_DOMAINS_MAX,
                domain_not_found.with_label_values(&[OVERFLOW]),
                label_overflow.with_label_values(&["unknown_domains"]),
            ),
            rule_labels: Mutex::default(),
            partitions: Mutex::default(),
            limits,
            domain_not_found,
            label_overflow,
            registry,
        })
    }

    /// The text that Prometheus reads.
    ///
    /// # Errors
    ///
    /// When a metric cannot be written as text.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        let partitions = self
            .partitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (number, levels) in partitions.iter().enumerate() {
            let label = number.to_string();
            let set = |gauges: &IntGaugeVec, level: &AtomicUsize| {
                let level = i64::try_from(level.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
                gauges.with_label_values(&[&label]).set(level);
            };
            set(&self.mailbox_checks, &levels.waiting);
            set(&self.buckets, &levels.buckets);
            set(&self.marks, &levels.marks);
            set(&self.memory_bytes, &levels.bytes);
        }
        drop(partitions);
        // Held to the end: what two readers are told of is told once.
        let known = self
            .rule_labels
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for counters in known.values() {
            counters.tell();
        }
        self.request_counters.each(|counters| counters.tell());
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        String::from_utf8(text).map_err(|error| prometheus::Error::Msg(error.to_string()))
    }

    /// Where the partition of this number keeps its levels.
    pub fn partition_levels(&self, number: usize) -> Arc<PartitionLevels> {
        let mut partitions = self
            .partitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let levels = Arc::new(PartitionLevels::default());
        if partitions.len() <= number {
            partitions.resize_with(number.saturating_add(1), Arc::default);
        }
        if let Some(slot) = partitions.get_mut(number) {
            *slot = Arc::clone(&levels);
        }
        levels
    }

    /// The counters of a listening port.
    pub fn port(&self, port: &str) -> PortCounters {
        PortCounters {
            open: self.connections.with_label_values(&[port]),
            accepted: self.connections_accepted.with_label_values(&[port]),
            refused: self.connections_refused.with_label_values(&[port]),
            accept_errors: self.accept_errors.with_label_values(&[port]),
        }
    }

    /// Counts a gRPC connection that was closed because of what its client sent. There are as many words for that as HTTP/2
    /// has.
    pub fn count_broken_connection(&self, reason: &'static str) {
        self.connections_broken.with_label_values(&[reason]).inc();
    }

    /// The TLS handshakes of a listening port.
    pub fn handshakes(&self, port: &str) -> HandshakeCounters {
        self.tls.handshakes(port)
    }

    /// The certificate that a listening port shows.
    pub fn certificate(&self, port: &str) -> CertificateCounters {
        self.tls.certificate(port)
    }

    /// Counters for every rule of a rule set. Rules with the same labels share them, as do those of an earlier set.
    pub fn rule_counters(&self, rules: &RuleSet) -> RuleCounters {
        let mut known = self
            .rule_labels
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        RuleCounters(
            rules
                .rules()
                .iter()
                .map(|rule| {
                    let mut labels = limit_labels(&rule.domain, &rule.labels());
                    if known.len() >= RULE_LABEL_SETS_MAX && !known.contains_key(&labels) {
                        self.label_overflow
                            .with_label_values(&["rule_label_sets"])
                            .inc();
                        labels = overflow_labels();
                    }
                    let counters = known
                        .entry(labels)
                        .or_insert_with_key(|labels| Arc::new(self.limits.counters(labels)));
                    Arc::clone(counters)
                })
                .collect(),
        )
    }

    /// Counters whose labels depend on the request. `labels`, a domain and a path, is asked for only when the key is new
    /// here.
    pub fn request_counters(
        &self,
        key: Key,
        labels: impl FnOnce() -> (String, Vec<String>),
    ) -> Arc<LimitCounters> {
        self.request_counters.get_or_add(&key, || {
            let (domain, path) = labels();
            Arc::new(self.limits.counters(&limit_labels(&domain, &path)))
        })
    }

    /// Counts a request for a domain without rules.
    pub fn domain_not_found(&self, domain: &[u8]) {
        let domain = domain.get(..LABEL_BYTES_MAX).unwrap_or(domain);
        self.unknown_domains
            .get_or_add(domain, || {
                self.domain_not_found
                    .with_label_values(&[&label(&String::from_utf8_lossy(domain))])
            })
            .inc();
    }
}

fn counter(registry: &Registry, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
    let counter = IntCounter::new(name, help)?;
    registry.register(Box::new(counter.clone()))?;
    Ok(counter)
}

fn counters(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntCounterVec, prometheus::Error> {
    let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(counters.clone()))?;
    Ok(counters)
}

fn gauge(registry: &Registry, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
    let gauge = IntGauge::new(name, help)?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

fn gauges(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> Result<IntGaugeVec, prometheus::Error> {
    let gauges = IntGaugeVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(gauges.clone()))?;
    Ok(gauges)
}

fn overflow_labels() -> LimitLabels {
    [OVERFLOW, OVERFLOW, ""].map(String::from)
}

fn limit_labels(domain: &str, path: &[String]) -> LimitLabels {
    let level = |at: usize| path.get(at).map(|text| label(text)).unwrap_or_default();
    [label(domain), level(0), level(1)]
}

// === impl LimitVecs ===

impl LimitVecs {
    fn new(r: &Registry) -> Result<Self, prometheus::Error> {
        let of = |name: &str, help: &str| {
            let name = format!("ratelimit_service_rate_limit_{name}");
            counters(r, &name, help, &["domain", "key1", "key2"])
        };
        Ok(Self {
            total_hits: of("total_hits", "Hits asked for")?,
            over_limit: of("over_limit", "Hits beyond the limit")?,
            near_limit: of("near_limit", "Hits beyond the near mark, not the limit")?,
            within_limit: of("within_limit", "Hits of requests that passed")?,
            shadow_mode: of(
                "shadow_mode",
                "Hits beyond the limit of a rule in shadow mode",
            )?,
            negative_hits: of("total_negative_hits", "Hits given back")?,
        })
    }

    fn counters(&self, labels: &LimitLabels) -> LimitCounters {
        let of = |counters: &IntCounterVec| counters.with_label_values(labels);
        LimitCounters::new(Told {
            total_hits: of(&self.total_hits),
            over_limit: of(&self.over_limit),
            near_limit: of(&self.near_limit),
            within_limit: of(&self.within_limit),
            shadow_mode: of(&self.shadow_mode),
            negative_hits: of(&self.negative_hits),
        })
    }
}

// === impl RuleCounters ===

impl RuleCounters {
    /// The counters of a rule.
    pub fn of(&self, rule: &Rule) -> Option<&Arc<LimitCounters>> {
        self.0.get(rule.index)
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
