//! One rule set with its counters and warnings.
//!
//! A request keeps one [`Generation`] from beginning to end, so rules and their counters change
//! together.
//!
//! What it deliberately does not do: become current (`generations`), or hold buckets. Buckets
//! survive a reload, because a bucket's key does not depend on the position of its rule.

use std::collections::HashMap;
use std::sync::Arc;

use super::candidate_rules::CandidateRules;
use super::overrides::Overrides;
use tollgate_admin_api::rule_name;
use tollgate_limiter::algorithm::count_refused;
use tollgate_limiter::{Allowance, Limit, LimitTable, Rule, RuleSet, TableDifference, Timestamp};
use tollgate_rules::file::{LoadedRules, Plans, RequestMappings, RuleOrigins};
use tollgate_rules::reload::Rules;
use tollgate_telemetry::metrics::RuleCounters;

/// The module of its log lines, for filters.
const LOG: &str = "tollgate::pipeline::generation";

/// How many warnings of one load are logged and kept for `/readyz?verbose`.
const WARNINGS_KEPT_MAX: usize = 10;

/// A rule set and its counters.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The rules.
    pub rules: RuleSet,
    /// Their counters.
    pub counters: RuleCounters,
    /// The names of the rules, by their index.
    pub names: Arc<[Arc<str>]>,
    /// The most bytes of the limits of one descriptor in an answer of the API.
    pub(super) descriptor_bytes_max: usize,
    /// Number of files, or of resources of an xDS server.
    pub sources: usize,
    /// Where the rules were written.
    pub origins: Arc<RuleOrigins>,
    /// How descriptors are made of HTTP requests, by domain.
    pub requests: Arc<RequestMappings>,
    /// The plans.
    pub plans: Arc<Plans>,
    /// Warnings of the rules.
    pub warnings: RulesWarnings,
    /// Counted from 1. A change of shadow mode by an operator does not change it.
    pub number: i64,
    /// When the rules were loaded; none without a clock.
    pub loaded_at: Option<Timestamp>,
    /// Whether a limit has `notify`.
    pub(super) notifies: bool,
    /// Rules that an operator put in shadow mode, by index; their files do not.
    pub(super) shadowed: Vec<usize>,
    /// The same for the same files, on every replica; 48 bits.
    pub hash: u64,
    /// The keys of rules with `rlqs`.
    pub(crate) quota_orders: Arc<QuotaOrders>,
    /// The rules that are tried beside these.
    pub candidate: Option<Arc<CandidateRules>>,
}

/// Warnings of one rule set, in words. At most ten are kept; the others are counted.
#[derive(Clone, Debug, Default)]
pub struct RulesWarnings {
    /// The first ones, each with its place and its help.
    pub first: Vec<String>,
    /// How many more there are.
    pub more: usize,
}

/// The most bytes of a limit in an answer of the API, beside its names. JSON has more than
/// protobuf.
const LIMIT_BYTES: usize = 256;

fn limit_bytes(rule: &Rule, names: &[Arc<str>]) -> usize {
    let name = names.get(rule.index).map_or(0, |name| name.len());
    LIMIT_BYTES + rule.name.len() + name
}

/// The most bytes of the limits of one descriptor in an answer of the API.
fn descriptor_bytes_max(rules: &RuleSet, names: &[Arc<str>]) -> usize {
    let limits = rules.rules().iter().chain(rules.override_rules());
    let limit_bytes_max = limits.map(|rule| limit_bytes(rule, names)).max();
    limit_bytes_max.unwrap_or(LIMIT_BYTES) * rules.descriptor_limits_max()
}

/// The keys of a path, sorted, and the place of each in the path.
type Places = HashMap<Vec<Box<[u8]>>, Vec<usize>>;

/// The order of the keys of rules with `rlqs`, by domain: a bucket's id has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuotaOrders {
    domains: HashMap<Box<[u8]>, Places>,
}

// === impl Generation ===

impl Generation {
    /// The first with these rules: without a number, a time, shadow modes or a candidate.
    pub(super) fn new(loaded: Rules, warnings: RulesWarnings, counters: RuleCounters) -> Self {
        let (sources, hash, loaded) = (loaded.sources, loaded.hash, loaded.loaded);
        let rules = loaded.rules;
        let names: Arc<[Arc<str>]> = rules.rules().iter().map(rule_name).map(Arc::from).collect();
        Self {
            descriptor_bytes_max: descriptor_bytes_max(&rules, &names),
            names,
            notifies: rules.rules().iter().any(|rule| rule.notify.is_some()),
            quota_orders: Arc::new(QuotaOrders::of(&rules)),
            rules,
            counters,
            sources,
            origins: Arc::new(loaded.origins),
            requests: loaded.requests,
            plans: loaded.plans,
            warnings,
            number: 0,
            loaded_at: None,
            shadowed: Vec::new(),
            hash,
            candidate: None,
        }
    }

    /// Sets overrides in its rules.
    pub(super) fn override_by(&mut self, overrides: &Overrides) {
        overrides.apply(&mut self.rules, &self.plans);
        self.descriptor_bytes_max = descriptor_bytes_max(&self.rules, &self.names);
    }

    /// The most bytes of this limit in an answer of the API; none is that of a limit of a request.
    pub(super) fn limit_bytes(&self, rule: Option<&Rule>) -> usize {
        rule.map_or(LIMIT_BYTES, |rule| limit_bytes(rule, &self.names))
    }
}

// === impl RulesWarnings ===

impl RulesWarnings {
    pub(super) fn of(loaded: &LoadedRules) -> Self {
        let warnings = &loaded.warnings;
        let first = warnings.iter().take(WARNINGS_KEPT_MAX);
        Self {
            first: first.map(ToString::to_string).collect(),
            more: warnings.len().saturating_sub(WARNINGS_KEPT_MAX) + loaded.warnings_omitted,
        }
    }

    /// Adds what new rules weaken in the current ones.
    pub(super) fn add_weakened(&mut self, current: Option<&Generation>, rules: &RuleSet) {
        for weakened in weakened(current, rules) {
            if self.first.len() < WARNINGS_KEPT_MAX {
                self.first.push(weakened);
            } else {
                self.more = self.more.saturating_add(1);
            }
        }
    }

    pub(super) fn log(&self) {
        for warning in &self.first {
            tracing::warn!(target: LOG, "{warning}");
        }
        if self.more > 0 {
            tracing::warn!(
                target: LOG,
                more = self.more,
                "the rules have more warnings; `tollgate check` prints them"
            );
        }
    }
}

/// The limits of new rules that count fewer refused hits than the current ones, with another
/// algorithm: hits that are charged after the work would be lost.
fn weakened(current: Option<&Generation>, rules: &RuleSet) -> Vec<String> {
    let Some(current) = current else {
        return Vec::new();
    };
    let name = |rule: &Rule| (rule.full_name(), rule.name.clone());
    let limited = |rule: &Rule| match rule.allowance {
        Allowance::Limited { limit, algorithm } => Some((limit, algorithm)),
        Allowance::Unlimited => None,
    };
    let mut before: HashMap<_, Vec<_>> = HashMap::new();
    for rule in current.rules.rules() {
        before.entry(name(rule)).or_default().extend(limited(rule));
    }
    let weaker = |rule: &Rule| {
        let (limit, algorithm) = limited(rule)?;
        let known = before.get(&name(rule))?;
        // Of several limits the one with the same algorithm, else the one with the same window.
        if known.iter().any(|(_, known)| *known == algorithm) {
            return None;
        }
        let same_window = |(known, _): &&(Limit, _)| known.window() == limit.window();
        let (old, old_algorithm) = known.iter().find(same_window)?;
        let old = count_refused(*old_algorithm, old);
        let new = count_refused(algorithm, &limit);
        let ((old_field, old_value), (field, value)) = (old.field(), new.field());
        new.is_weaker_than(old).then(|| {
            format!(
                "warning: {}: algorithm {} has {field} {value}, which is weaker than {old_field} {old_value} before; \
                 set `charged: afterwards` if requests are charged after the work",
                rule.full_name(),
                algorithm.name()
            )
        })
    };
    rules.rules().iter().filter_map(weaker).collect()
}

/// The tables of new rules that are not those of the current ones, and how each differs from the
/// one of its file.
pub(super) fn changed_tables(
    current: Option<&Generation>,
    rules: &RuleSet,
) -> Vec<(Arc<LimitTable>, TableDifference)> {
    let before = |table: &LimitTable| {
        let mut known = current?.rules.limit_tables();
        known.find(|known| known.source() == table.source())
    };
    let changed = rules.limit_tables().filter_map(|table| {
        let difference = match before(table) {
            Some(before) if Arc::ptr_eq(before, table) => return None,
            Some(before) => table.difference(before),
            None => TableDifference {
                added: table.len(),
                ..TableDifference::default()
            },
        };
        Some((Arc::clone(table), difference))
    });
    changed.collect()
}

// === impl QuotaOrders ===

impl QuotaOrders {
    /// Those of all rules with `rlqs`.
    pub(crate) fn of(rules: &RuleSet) -> Self {
        let mut orders = Self::default();
        for rule in rules.rules().iter().filter(|rule| rule.rlqs) {
            let levels = rule.path.iter().enumerate();
            let mut keys: Vec<(Box<[u8]>, usize)> = levels
                .map(|(place, level)| (Box::from(level.key.as_bytes()), place))
                .collect();
            keys.sort_unstable();
            let (keys, places) = keys.into_iter().unzip();
            let domain = orders
                .domains
                .entry(Box::from(rule.domain.as_bytes()))
                .or_default();
            domain.insert(keys, places);
        }
        orders
    }

    /// Whether no rule has `rlqs`.
    pub(crate) fn is_empty(&self) -> bool {
        self.domains.is_empty()
    }

    /// Whether a domain has such rules.
    pub(crate) fn has_domain(&self, domain: &[u8]) -> bool {
        self.domains.contains_key(domain)
    }

    /// The place of each key in its path; the keys are sorted. None if no path has these keys.
    pub(crate) fn of_keys<'k>(
        &self,
        domain: &[u8],
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Option<&[usize]> {
        let keys: Vec<Box<[u8]>> = keys.map(Box::from).collect();
        let places = self.domains.get(domain)?.get(&keys)?;
        Some(places)
    }
}
