//! The counters of all limits: which there are, under which labels, and how many there may be.
//!
//! Why counters are handed out: the hot path must not look a label up. A rule's counters are resolved when its rules are
//! loaded. What a stranger can name (an unknown domain, the labels of a limit that came with a request) is counted by label
//! up to a bound, and under `overflow` beyond it; looking one up takes no lock.
//!
//! What it deliberately does not do: count (`limit`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::{IntCounter, IntCounterVec, Registry};

use super::bounded_map::BoundedMap;
use super::counters;
use super::label::{LABEL_BYTES_MAX, label};
use super::limit::{LimitCounters, Told};
use crate::limiter::{Key, Rule, RuleSet};

/// How many rules have counters of their own; those beyond share the labels [`OVERFLOW`].
pub const RULE_LABEL_SETS_MAX: usize = 10_000;

/// How many label sets that depend on requests have counters of their own: limits that came along, and rules with
/// `detailed_metric` or `value_to_metric`.
pub const REQUEST_LABEL_SETS_MAX: usize = 1_000;

/// How many unknown domains are counted by name.
pub const UNKNOWN_DOMAINS_MAX: usize = 100;

/// The label of whatever came after a bound was met.
pub const OVERFLOW: &str = "overflow";

/// How much of a request can stand in labels: levels, and bytes of each text.
pub const REQUEST_LABEL_PARTS: (usize, usize) = (2, LABEL_BYTES_MAX);

/// The labels of a limit's counters, as the reference's mapping gives them: levels deeper than the second are dropped. Where
/// limits have the same, their sum is told.
type LimitLabels<'l> = [&'l str; 3];

/// The metrics of limits.
#[derive(Debug)]
pub(super) struct LimitMetrics {
    vecs: LimitVecs,
    domain_not_found: IntCounterVec,
    label_overflow: IntCounterVec,
    /// Label sets given to rules so far.
    rule_labels: Mutex<HashMap<Vec<String>, Arc<LimitCounters>>>,
    request_counters: BoundedMap<Key, Arc<LimitCounters>>,
    unknown_domains: BoundedMap<Vec<u8>, IntCounter>,
}

/// The counters of every rule of one rule set, by [`Rule::index`].
#[derive(Debug, Default)]
pub struct RuleCounters(Vec<Arc<LimitCounters>>);

#[derive(Debug)]
struct LimitVecs {
    total_hits: IntCounterVec,
    over_limit: IntCounterVec,
    near_limit: IntCounterVec,
    within_limit: IntCounterVec,
    shadow_mode: IntCounterVec,
    negative_hits: IntCounterVec,
}

// === impl LimitMetrics ===

impl LimitMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self, prometheus::Error> {
        let label_overflow = counters(
            r,
            "tollgate_label_overflow_total",
            "Times something was counted under the label \"overflow\" because a bound on labels was met",
            &["bound"],
        )?;
        let vecs = LimitVecs::new(r)?;
        let domain_not_found = counters(
            r,
            "ratelimit_service_rate_limit_domain_not_found",
            "Requests for a domain without rules",
            &["domain"],
        )?;
        Ok(Self {
            request_counters: BoundedMap::new(
                REQUEST_LABEL_SETS_MAX,
                Arc::new(vecs.counters(&overflow_labels())),
                label_overflow.with_label_values(&["request_label_sets"]),
            ),
            unknown_domains: BoundedMap::new(
                UNKNOWN_DOMAINS_MAX,
                domain_not_found.with_label_values(&[OVERFLOW]),
                label_overflow.with_label_values(&["unknown_domains"]),
            ),
            rule_labels: Mutex::default(),
            vecs,
            domain_not_found,
            label_overflow,
        })
    }

    /// Tells readers what was counted since they were last told. What two of them are told of is told once, as long as the
    /// first holds what comes back.
    #[must_use]
    pub(super) fn tell(&self) -> impl Drop {
        let known = self
            .rule_labels
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for counters in known.values() {
            counters.tell();
        }
        self.request_counters.each(|counters| counters.tell());
        known
    }

    /// Tells readers, and gives away what was told and is no news yet, as long as `see` takes it. Says whether it took all.
    pub(super) fn news(&self, see: &mut impl FnMut(&str, &'static str, u64) -> bool) -> bool {
        drop(self.tell());
        let known = self
            .rule_labels
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut all = known.values().all(|counters| counters.news(see));
        self.request_counters
            .each(|counters| all = all && counters.news(see));
        all
    }

    /// Counters for every rule of a rule set. Rules with the same labels share them, as do those of an earlier set.
    pub(super) fn rule_counters(&self, rules: &RuleSet) -> RuleCounters {
        let mut known = self
            .rule_labels
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        RuleCounters(
            rules
                .rules()
                .iter()
                .map(|rule| {
                    let mut labels = names(&rule.domain, &rule.labels());
                    if known.len() >= RULE_LABEL_SETS_MAX && !known.contains_key(&labels) {
                        self.label_overflow
                            .with_label_values(&["rule_label_sets"])
                            .inc();
                        labels = overflow_labels();
                    }
                    let counters = known
                        .entry(labels)
                        .or_insert_with_key(|labels| Arc::new(self.vecs.counters(labels)));
                    Arc::clone(counters)
                })
                .collect(),
        )
    }

    /// Counters whose labels depend on the request. `labels`, a domain and a path, is asked for only when the key is new
    /// here.
    pub(super) fn request_counters(
        &self,
        key: Key,
        labels: impl FnOnce() -> (String, Vec<String>),
    ) -> Arc<LimitCounters> {
        self.request_counters.get_or_add(&key, || {
            let (domain, path) = labels();
            Arc::new(self.vecs.counters(&names(&domain, &path)))
        })
    }

    /// Counts a request for a domain without rules.
    pub(super) fn domain_not_found(&self, domain: &[u8]) {
        let domain = domain.get(..LABEL_BYTES_MAX).unwrap_or(domain);
        self.unknown_domains
            .get_or_add(domain, || {
                self.domain_not_found
                    .with_label_values(&[&label(&String::from_utf8_lossy(domain))])
            })
            .inc();
    }
}

fn overflow_labels() -> Vec<String> {
    [OVERFLOW, OVERFLOW].map(String::from).to_vec()
}

/// The domain and each level, sanitised: what tells a limit's counters from others.
fn names(domain: &str, path: &[String]) -> Vec<String> {
    let path = path.iter().map(String::as_str);
    std::iter::once(domain).chain(path).map(label).collect()
}

fn labels(names: &[String]) -> LimitLabels<'_> {
    let level = |at: usize| names.get(at).map_or("", String::as_str);
    [level(0), level(1), level(2)]
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

    fn counters(&self, names: &[String]) -> LimitCounters {
        let labels = labels(names);
        let of = |counters: &IntCounterVec| counters.with_label_values(&labels);
        LimitCounters::new(Told {
            total_hits: of(&self.total_hits),
            over_limit: of(&self.over_limit),
            near_limit: of(&self.near_limit),
            within_limit: of(&self.within_limit),
            shadow_mode: of(&self.shadow_mode),
            negative_hits: of(&self.negative_hits),
            stat_key: names.join("."),
            unsent: Default::default(),
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
