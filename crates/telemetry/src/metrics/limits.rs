//! The counters of all limits: which there are, under which labels, and when they are read and
//! freed.
//!
//! Why counters are handed out: the hot path must not look a label up. A rule's counters are
//! resolved when its rules are loaded (`label_sets`). What a client can name (an unknown domain,
//! the labels of a limit that came with a request: `request_sets`) is counted by label up to a
//! bound, and under `overflow` beyond it.
//!
//! What it deliberately does not do: count (`limit`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use prometheus::proto::MetricFamily;
use tollgate_limiter::{Key, RuleSet};
use tollgate_system::per_thread::lock;

use super::declaration::{Counter, CounterVec, LabelValues, MetricRegistry, metrics};
use super::label::{LABEL_BYTES_MAX, OVERFLOW, label, names, overflow_names};
use super::label_sets::{Reader, RuleCounters, RuleLabelSets};
use super::limit::{LimitCounters, SeriesSums, SeriesTable};
use super::request_sets::RequestSets;

/// How many unknown domains are counted by name.
pub const UNKNOWN_DOMAINS_MAX: usize = 100;

const UNKNOWN_DOMAINS: LabelValues = LabelValues::Bounded("100 unknown domains, and `overflow`");

metrics! {
    /// Metrics of label sets and their bounds.
    struct LabelSetMetrics {
        /// Times something was counted under the label "overflow" because a bound on labels was
        /// met.
        Counter "tollgate_label_overflow_total" by bound {
            rule_sets_overflowed = "rule_label_sets",
            request_sets_overflowed = "request_label_sets",
            unknown_domains_overflowed = "unknown_domains",
        }

        /// Label sets of unused rules that were freed: after two readings (unused), or earlier
        /// because of a bound.
        Counter "tollgate_label_sets_freed_total" by reason {
            freed_unused = "unused",
            freed_for_capacity = "bound",
        }

        /// Requests for a domain without rules.
        CounterVec "ratelimit_service_rate_limit_domain_not_found" [domain: UNKNOWN_DOMAINS]
            as "ratelimit.service.rate_limit.{}.domain_not_found" => domain_not_found;
    }
}

/// The counters of all limits.
#[derive(Debug)]
pub struct Limits {
    series: SeriesTable,
    metrics: LabelSetMetrics,
    /// Locked before what locks `request_sets`.
    rule_sets: Mutex<RuleLabelSets>,
    request_sets: RequestSets,
    unknown_domains: RwLock<HashMap<Vec<u8>, Counter>>,
    /// Whether labels of keys and values have no dots.
    without_dots: AtomicBool,
}

// === impl Limits ===

impl Limits {
    pub(super) fn new(registry: &mut MetricRegistry) -> Result<Self, prometheus::Error> {
        let metrics = LabelSetMetrics::new(registry)?;
        let series = SeriesTable::new(registry)?;
        // Readers see it before the first unknown domain.
        metrics.domain_not_found.with_label_values(&[OVERFLOW]);
        Ok(Self {
            rule_sets: Mutex::new(RuleLabelSets::new(&series)),
            request_sets: RequestSets::new(
                LimitCounters::new(&overflow_names(), &series, 0),
                metrics.request_sets_overflowed.clone(),
                metrics.freed_for_capacity.clone(),
            ),
            unknown_domains: RwLock::default(),
            series,
            metrics,
            without_dots: AtomicBool::new(false),
        })
    }

    /// Replaces dots in the labels of keys and values from now on.
    pub fn replace_dots(&self) {
        self.without_dots.store(true, Ordering::Relaxed);
    }

    /// Counters for every rule of a rule set, which becomes the newest. A rule has those that the
    /// rule with its labels had in an earlier set.
    pub fn rule_counters(&self, rules: &RuleSet) -> RuleCounters {
        let mut sets = lock(&self.rule_sets);
        let overflowed = &self.metrics.rule_sets_overflowed;
        let without_dots = self.without_dots.load(Ordering::Relaxed);
        let counters = sets.counters_of(rules, &self.series, overflowed, without_dots);
        let freed = sets.bound();
        drop(sets);
        if freed > 0 {
            self.metrics.freed_for_capacity.inc_by(freed as u64);
            self.series.free_unused();
        }
        counters
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
        let owner = of_rule.map_or(0, LimitCounters::owner);
        self.request_sets.get_or_add(key, owner, || {
            let (domain, path) = labels();
            let without_dots = self.without_dots.load(Ordering::Relaxed);
            LimitCounters::new(&names(&domain, &path, without_dots), &self.series, owner)
        })
    }

    /// Counts a request for a domain without rules.
    pub fn domain_not_found(&self, domain: &[u8]) {
        let domain = domain.get(..LABEL_BYTES_MAX).unwrap_or(domain);
        let counter = |name: &str| self.metrics.domain_not_found.with_label_values(&[name]);
        let known = self.unknown_domains.read();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = known.get(domain) {
            return counter.inc();
        }
        let has_space = known.len() < UNKNOWN_DOMAINS_MAX;
        drop(known);
        if has_space {
            let known = self.unknown_domains.write();
            let mut known = known.unwrap_or_else(PoisonError::into_inner);
            if known.len() < UNKNOWN_DOMAINS_MAX {
                let counter = || counter(&label(&String::from_utf8_lossy(domain)));
                return known.entry(domain.to_owned()).or_insert_with(counter).inc();
            }
        }
        self.metrics.unknown_domains_overflowed.inc();
        counter(OVERFLOW).inc();
    }

    /// The families of all limits.
    pub(super) fn families(&self) -> Vec<MetricFamily> {
        let mut sums = SeriesSums::default();
        // No label set is freed while they are locked.
        let rule_sets = lock(&self.rule_sets);
        rule_sets.all().for_each(|counters| sums.add(counters));
        self.request_sets.each(|counters| sums.add(counters));
        let by_limit = self.series.by_limit(rule_sets.by_limit());
        drop(rule_sets);
        let mut families = self.series.families(&sums);
        families.push(by_limit);
        families
    }

    /// Shows the hits that statsd does not have, each with its name there, while `see` accepts
    /// them. True if it accepted all.
    pub(super) fn deltas(&self, see: &mut impl FnMut(&str, u64) -> bool) -> bool {
        let patterns = self.series.statsd_patterns();
        let mut all = lock(&self.rule_sets)
            .all()
            .all(|one| one.deltas(patterns, see));
        self.request_sets
            .each(|one| all = all && one.deltas(patterns, see));
        all
    }

    /// Expects this reader: label sets are kept for it too.
    pub(super) fn expect(&self, reader: Reader) {
        lock(&self.rule_sets).readings.expect(reader);
    }

    /// Notes a complete reading, and frees the label sets that were kept for it.
    pub(super) fn complete(&self, reader: Reader) {
        let mut sets = lock(&self.rule_sets);
        // What depends on requests belongs to rules, and goes with them.
        let rules = sets.in_use();
        let of_rules = sets.read(reader);
        let readings = sets.readings;
        let is_in_use = |counters: &LimitCounters| match counters.owner() {
            0 => sets.has_domain_of(counters),
            rule => rules.contains(&rule),
        };
        let of_requests = self.request_sets.read(readings, is_in_use);
        drop(sets);
        let freed = of_rules.saturating_add(of_requests);
        self.metrics.freed_unused.inc_by(freed as u64);
        self.series.free_unused();
    }
}
