//! The counters of all limits: which there are, under which labels, and when they are read and
//! freed.
//!
//! Why counters are handed out: the hot path must not look a label up. A rule's counters are
//! resolved when its rules are loaded. What a client can name (an unknown domain, the labels of a
//! limit that came with a request) is counted by label up to a bound, and under `overflow` beyond
//! it; looking one up takes no lock (`label_sets`).
//!
//! What it deliberately does not do: count (`limit`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::declaration::{Counter, CounterVec, LabelValues, MetricRegistry, metrics};
use super::label::{LABEL_BYTES_MAX, OVERFLOW, label, names, overflow_names};
use super::label_sets::{
    BoundedMap, Reader, Readers, RequestLabelSets, RuleCounters, RuleLabelSets,
};
use super::limit::{HitTotals, LimitCounters, SeriesTable};
use tollgate_limiter::{Key, RuleSet};

/// How many unknown domains are counted by name.
pub const UNKNOWN_DOMAINS_MAX: usize = 100;

const UNKNOWN_DOMAINS: LabelValues = LabelValues::Bounded("100 unknown domains, and `overflow`");

metrics! {
    /// Metrics of label sets and their bounds.
    pub(super) struct LabelSetMetrics {
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

/// The metrics of limits.
#[derive(Debug)]
pub(super) struct LimitMetrics {
    series: SeriesTable,
    metrics: LabelSetMetrics,
    /// Held by a reader from beginning to end, so that two readers see hits in the same order.
    readers: Mutex<ReadingState>,
    // Locks are taken in this order.
    rule_sets: Mutex<RuleLabelSets>,
    request_sets: RequestLabelSets,
    unknown_domains: BoundedMap<Vec<u8>, Counter>,
    /// Whether labels of keys and values have no dots.
    without_dots: AtomicBool,
}

/// What readings leave for the next one.
#[derive(Debug, Default)]
struct ReadingState {
    readers: Readers,
    /// Hits that were published under labels which depend on requests, by the number of the label
    /// set of their rule. Bounded by the label sets of rules.
    of_requests: HashMap<u64, HitTotals>,
}

/// A reading under way; another waits for its end.
pub(super) struct Reading<'m> {
    limits: &'m LimitMetrics,
    state: MutexGuard<'m, ReadingState>,
}

// === impl LimitMetrics ===

impl LimitMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Result<Self, prometheus::Error> {
        let metrics = LabelSetMetrics::new(registry)?;
        let series = SeriesTable::new(registry)?;
        Ok(Self {
            readers: Mutex::default(),
            rule_sets: Mutex::new(RuleLabelSets::new(&series)),
            request_sets: RequestLabelSets::new(
                LimitCounters::new(&overflow_names(), &series, 0),
                metrics.request_sets_overflowed.clone(),
                metrics.freed_for_capacity.clone(),
            ),
            unknown_domains: BoundedMap::new(
                UNKNOWN_DOMAINS_MAX,
                metrics.domain_not_found.with_label_values(&[OVERFLOW]),
                metrics.unknown_domains_overflowed.clone(),
            ),
            series,
            metrics,
            without_dots: AtomicBool::new(false),
        })
    }

    /// Replaces the dots of labels that are made from now on.
    pub(super) fn replace_dots(&self) {
        self.without_dots.store(true, Ordering::Relaxed);
    }

    /// Expects this reader: label sets are kept for it too.
    pub(super) fn expect(&self, reader: Reader) {
        let mut state = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        state.readers.add(reader);
    }

    /// Begins a reading: publishes what was counted since the last one.
    pub(super) fn read(&self) -> Reading<'_> {
        let mut state = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        let sets = self.rule_sets();
        for counters in sets.all() {
            counters.publish();
        }
        if state.of_requests.len() > sets.len() {
            let numbers = sets.numbers();
            state.of_requests.retain(|owner, _| numbers.contains(owner));
        }
        drop(sets);
        self.request_sets
            .each(|counters| state.add_of_request(counters, &counters.publish()));
        Reading {
            limits: self,
            state,
        }
    }

    /// The hits of each of these rules since the start, in their order. A rule whose labels depend
    /// on requests has the hits of all of them.
    pub(super) fn rule_totals(&self, rules: &RuleCounters, into: &mut Vec<HitTotals>) {
        let reading = self.read();
        into.clear();
        into.extend(rules.each().map(|counters| {
            let own = counters.totals();
            match reading.state.of_requests.get(&counters.owner()) {
                Some(of_requests) => own.plus(of_requests),
                None => own,
            }
        }));
    }

    /// Counters for every rule of a rule set, which becomes the newest. Rules with the same
    /// labels share them, as do those of an earlier set.
    pub(super) fn rule_counters(&self, rules: &RuleSet) -> RuleCounters {
        let mut sets = self.rule_sets();
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
    pub(super) fn request_counters(
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

    fn rule_sets(&self) -> MutexGuard<'_, RuleLabelSets> {
        let sets = self.rule_sets.lock();
        sets.unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request for a domain without rules.
    pub(super) fn domain_not_found(&self, domain: &[u8]) {
        let domain = domain.get(..LABEL_BYTES_MAX).unwrap_or(domain);
        self.unknown_domains
            .get_or_add(domain, || {
                self.metrics
                    .domain_not_found
                    .with_label_values(&[&label(&String::from_utf8_lossy(domain))])
            })
            .inc();
    }
}

// === impl ReadingState ===

impl ReadingState {
    /// Adds hits that were published under labels which depend on requests.
    fn add_of_request(&mut self, counters: &LimitCounters, hits: &HitTotals) {
        let owner = counters.owner();
        // Without an owner the limit came with the request, or the labels met a bound.
        if owner != 0 && *hits != HitTotals::default() {
            let sum = self.of_requests.entry(owner).or_default();
            *sum = sum.plus(hits);
        }
    }
}

// === impl Reading ===

impl Reading<'_> {
    /// Hands out what was published and not yet sent, while `see` accepts it. True if it accepted
    /// all.
    pub(super) fn deltas(&self, see: &mut impl FnMut(&str, &'static str, u64) -> bool) -> bool {
        let mut all = self.limits.rule_sets().all().all(|one| one.deltas(see));
        let request_sets = &self.limits.request_sets;
        request_sets.each(|one| all = all && one.deltas(see));
        all
    }

    /// Ends a complete reading, and frees the label sets that were kept for it.
    pub(super) fn complete(mut self, reader: Reader) {
        let state = &mut *self.state;
        state.readers.add(reader);
        let limits = self.limits;
        let mut sets = limits.rule_sets();
        // What depends on requests first: it belongs to rules, and goes with them.
        let in_use = sets.in_use();
        let readers = state.readers;
        let published =
            |counters: &LimitCounters, hits: &HitTotals| state.add_of_request(counters, hits);
        let (of_requests, any_gone) = limits
            .request_sets
            .read_by(reader, readers, &in_use, published);
        let of_rules = sets.read_by(reader, readers);
        drop(sets);
        let freed = of_rules.saturating_add(of_requests);
        limits.metrics.freed_unused.inc_by(freed as u64);
        if of_rules > 0 || any_gone {
            limits.series.free_unused();
        }
    }
}
