//! Requests that one side admits and the other refuses, and their keys.

use std::collections::HashMap;

use prost::Message as _;
use tollgate_limiter::{Code, Key, RuleSet};

use super::engine::Decided;
use super::report::{KeyCount, KeyEntry, ReplayReport};
use crate::admin_api::rule_name;
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::simulation::Answer;
use crate::value_hash::plain_text;

/// How many keys are counted on each list. Requests of further keys are counted together.
const KEYS_MAX: usize = 100_000;

/// What a limit of the request itself is called.
pub(super) const OVERRIDE: &str = "(override)";

/// Compares the sides request by request. One side may decide a request later than the other.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// What the side that decided first said.
    waiting: HashMap<u64, First>,
    newly_refused: Keys,
    newly_admitted: Keys,
}

#[derive(Debug)]
struct First {
    is_base: bool,
    code: Option<Code>,
    refusals: Vec<Refusal>,
}

/// A check that refused.
#[derive(Clone, Debug)]
struct Refusal {
    rule: Option<usize>,
    key: Key,
    descriptor: usize,
}

/// Counts by key.
#[derive(Debug, Default)]
struct Keys {
    requests: u64,
    known: HashMap<(Option<usize>, Key), Counted>,
    /// Requests of keys beyond the bound.
    other: u64,
}

#[derive(Debug)]
struct Counted {
    domain: String,
    entries: Vec<KeyEntry>,
    count: u64,
}

// === impl Comparison ===

impl Comparison {
    /// Adds an answer of `--rules`.
    pub(super) fn base(&mut self, decided: &Decided, answer: &Answer) {
        self.add(true, decided, answer);
    }

    /// Adds an answer of `--against`.
    pub(super) fn other(&mut self, decided: &Decided, answer: &Answer) {
        self.add(false, decided, answer);
    }

    fn add(&mut self, is_base: bool, decided: &Decided, answer: &Answer) {
        let this = First {
            is_base,
            code: answer.code.as_ref().ok().copied(),
            refusals: refusals(answer),
        };
        let Some(first) = self.waiting.remove(&decided.id) else {
            self.waiting.insert(decided.id, this);
            return;
        };
        let (base, other) = if first.is_base {
            (first, this)
        } else {
            (this, first)
        };
        match (base.code, other.code) {
            (Some(Code::Ok), Some(Code::OverLimit)) => {
                self.newly_refused.add(decided, &other.refusals);
            }
            (Some(Code::OverLimit), Some(Code::Ok)) => {
                self.newly_admitted.add(decided, &base.refusals);
            }
            _ => {}
        }
    }

    /// Writes the keys, at most `rows_max` on each list.
    pub(super) fn describe(
        self,
        report: &mut ReplayReport,
        rules: &RuleSet,
        against: &RuleSet,
        rows_max: usize,
    ) {
        report.newly_refused = Some(self.newly_refused.requests);
        report.newly_admitted = Some(self.newly_admitted.requests);
        let (keys, omitted) = self.newly_refused.list(against, rows_max);
        report.keys_newly_refused = Some(keys);
        report.keys_newly_refused_omitted = Some(omitted);
        let (keys, omitted) = self.newly_admitted.list(rules, rows_max);
        report.keys_newly_admitted = Some(keys);
        report.keys_newly_admitted_omitted = Some(omitted);
    }
}

/// The checks that refused.
fn refusals(answer: &Answer) -> Vec<Refusal> {
    if answer.code != Ok(Code::OverLimit) {
        return Vec::new();
    }
    let refused = answer.checks.iter().filter(|check| {
        let status = answer.descriptors.get(check.descriptor);
        status.is_some_and(|status| status.code == Code::OverLimit)
            && check.outcome.is_some_and(|outcome| !outcome.allowed)
    });
    let refusals = refused.map(|check| Refusal {
        rule: check.rule,
        key: check.key,
        descriptor: check.descriptor,
    });
    refusals.collect()
}

// === impl Keys ===

impl Keys {
    /// Counts a request for each key that refused it.
    fn add(&mut self, decided: &Decided, refusals: &[Refusal]) {
        self.requests = self.requests.saturating_add(1);
        for (position, refusal) in refusals.iter().enumerate() {
            let same = |other: &Refusal| other.key == refusal.key && other.rule == refusal.rule;
            if refusals.iter().take(position).any(same) {
                continue;
            }
            let key = (refusal.rule, refusal.key);
            if let Some(counted) = self.known.get_mut(&key) {
                counted.count = counted.count.saturating_add(1);
            } else if self.known.len() < KEYS_MAX {
                let (domain, entries) = descriptor(&decided.recorded.request, refusal.descriptor);
                let counted = Counted {
                    domain,
                    entries,
                    count: 1,
                };
                self.known.insert(key, counted);
            } else {
                self.other = self.other.saturating_add(1);
            }
        }
    }

    /// The keys with the most requests, and how many more there are at least.
    fn list(self, rules: &RuleSet, rows_max: usize) -> (Vec<KeyCount>, u64) {
        let mut keys: Vec<_> = self.known.into_iter().collect();
        keys.sort_by(|((_, a_key), a), ((_, b_key), b)| {
            let by_count = b.count.cmp(&a.count);
            let by_text = a.domain.cmp(&b.domain);
            let by_text = by_text.then_with(|| texts(&a.entries).cmp(texts(&b.entries)));
            by_count.then(by_text).then(a_key.0.cmp(&b_key.0))
        });
        let omitted = keys.len().saturating_sub(rows_max) as u64;
        let omitted = omitted.saturating_add(u64::from(self.other > 0));
        let rows = keys.into_iter().take(rows_max);
        let rows = rows.map(|((rule, _), counted)| KeyCount {
            rule: name(rules, rule),
            domain: counted.domain,
            entries: counted.entries,
            count: counted.count,
        });
        (rows.collect(), omitted)
    }
}

fn texts(entries: &[KeyEntry]) -> impl Iterator<Item = (&str, &str)> {
    entries.iter().map(|entry| (&*entry.key, &*entry.value))
}

/// The name of a rule by its index.
pub(super) fn name(rules: &RuleSet, index: Option<usize>) -> String {
    let rule = index.and_then(|index| rules.rules().get(index));
    rule.map_or_else(|| OVERRIDE.to_owned(), rule_name)
}

/// Bytes as text, escaped where they are none.
pub(super) fn text(bytes: &[u8]) -> String {
    plain_text(bytes)
}

/// The domain of a request and the entries of one of its descriptors.
pub(super) fn descriptor(request: &[u8], position: usize) -> (String, Vec<KeyEntry>) {
    let Ok(request) = RateLimitRequest::decode(request) else {
        return (String::new(), Vec::new());
    };
    let entries = request.descriptors.get(position).map(|descriptor| {
        let entries = descriptor.entries.iter().map(|entry| KeyEntry {
            key: text(&entry.key),
            value: text(&entry.value),
        });
        entries.collect()
    });
    (text(&request.domain), entries.unwrap_or_default())
}
