//! Compares answers: requests that one side admits and the other refuses, with their keys, and
//! requests that `--rules` decides in another way than the service did.

use std::collections::HashMap;

use prost::Message as _;
use tollgate_limiter::{Code, Key, RuleSet};

use super::engine::Decided;
use super::report::{Changes, Difference, KeyCount, Recorded, SideReport};
use crate::recording::Events;
use tollgate_admin_api::{Entry, rule_name, time_text};
use tollgate_engine::simulation::Answer;
use tollgate_engine::value_hash::plain_text as text;
use tollgate_wire::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate_wire::proto::tollgate::recording::v1::{Code as RecordedCode, Skipped};

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
    /// With their counts, without the name of the rule.
    known: HashMap<(Option<usize>, Key), KeyCount>,
    /// Requests of keys beyond the bound.
    other: u64,
}

// === impl Comparison ===

impl Comparison {
    /// Adds an answer of `--rules` or of `--against`.
    pub(super) fn add(&mut self, is_base: bool, decided: &Decided, answer: &Answer) {
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

    /// What changes, with at most `rows_max` keys on each list.
    pub(super) fn changes(
        self,
        against: SideReport,
        rules: &RuleSet,
        changed_rules: &RuleSet,
        rows_max: usize,
    ) -> Changes {
        let (newly_refused, newly_admitted) =
            (self.newly_refused.requests, self.newly_admitted.requests);
        let (keys_newly_refused, keys_newly_refused_omitted) =
            self.newly_refused.list(changed_rules, rows_max);
        let (keys_newly_admitted, keys_newly_admitted_omitted) =
            self.newly_admitted.list(rules, rows_max);
        Changes {
            against,
            newly_refused,
            newly_admitted,
            keys_newly_refused,
            keys_newly_refused_omitted,
            keys_newly_admitted,
            keys_newly_admitted_omitted,
        }
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
                let counted = KeyCount {
                    rule: String::new(),
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
            rule: rule
                .and_then(|index| rules.rules().get(index))
                .map_or_else(|| OVERRIDE.to_owned(), rule_name),
            ..counted
        });
        (rows.collect(), omitted)
    }
}

fn texts(entries: &[Entry]) -> impl Iterator<Item = (&str, &str)> {
    entries.iter().map(|entry| (&*entry.key, &*entry.value))
}

/// The domain of a request and the entries of one of its descriptors.
pub(super) fn descriptor(request: &[u8], position: usize) -> (String, Vec<Entry>) {
    let Ok(request) = RateLimitRequest::decode(request) else {
        return (String::new(), Vec::new());
    };
    let entries = request.descriptors.get(position).map(|descriptor| {
        let entries = descriptor.entries.iter().map(|entry| Entry {
            key: text(&entry.key),
            value: text(&entry.value),
        });
        entries.collect()
    });
    (text(&request.domain), entries.unwrap_or_default())
}

/// Counts requests with the recorded verdict and with another.
#[derive(Debug)]
pub(super) struct RecordedVerdicts {
    counts: Recorded,
    differences_max: usize,
    /// Whether any request has a verdict.
    any: bool,
}

// === impl RecordedVerdicts ===

impl RecordedVerdicts {
    pub(super) fn new(differences_max: usize) -> Self {
        Self {
            counts: Recorded::default(),
            differences_max,
            any: false,
        }
    }

    /// Adds an answer.
    pub(super) fn add(&mut self, decided: &Decided, answer: &Answer) {
        let recorded = decided.recorded.code();
        self.any |= recorded != RecordedCode::None;
        let is_own = decided.recorded.undecided_checks.is_empty();
        if !is_own || recorded == RecordedCode::None {
            self.counts.not_compared = self.counts.not_compared.saturating_add(1);
            return;
        }
        let replayed = match &answer.code {
            Ok(Code::Ok) => "OK",
            Ok(Code::OverLimit) => "OVER_LIMIT",
            Err(_) => "none",
        };
        if replayed == recorded.as_str_name() && same_descriptors(decided, answer) {
            self.counts.same = self.counts.same.saturating_add(1);
            return;
        }
        self.counts.different = self.counts.different.saturating_add(1);
        let (domain, entries) = descriptor(&decided.recorded.request, 0);
        let recorded = recorded.as_str_name();
        let mut known = self.counts.first_differences.iter_mut();
        let alike = known.find(|one| {
            (&*one.domain, &*one.recorded, &*one.replayed) == (&*domain, recorded, replayed)
                && one.entries == entries
        });
        if let Some(alike) = alike {
            alike.count = alike.count.saturating_add(1);
        } else if self.counts.first_differences.len() < self.differences_max {
            self.counts.first_differences.push(Difference {
                count: 1,
                at: time_text(decided.at),
                domain,
                entries,
                recorded: recorded.to_owned(),
                replayed: replayed.to_owned(),
            });
        }
    }

    /// The result. None when the input has no verdicts.
    pub(super) fn report(
        mut self,
        events: &dyn Events,
        rules_hash: u64,
        was_full: bool,
    ) -> Option<Recorded> {
        if !self.any {
            return None;
        }
        let not_compared = self.counts.not_compared;
        self.counts.why_they_may_differ = reasons(events, rules_hash, not_compared, was_full);
        Some(self.counts)
    }
}

/// Why verdicts may differ.
fn reasons(events: &dyn Events, rules_hash: u64, not_compared: u64, was_full: bool) -> Vec<String> {
    let (header, summary) = (events.header(), events.summary());
    let first = summary.generations.first();
    let lost = lost(&summary.skipped);
    let buckets = header.buckets_at_start;
    let is_shared = header.store != "memory" && !header.store.is_empty();
    let mut reasons = Vec::new();
    let mut reason = |applies: bool, words: &str| reasons.extend(applies.then(|| words.to_owned()));
    reason(
        first.is_some_and(|first| first.hash != rules_hash),
        "the rules of --rules are not those that were in force",
    );
    let changed = summary.generations.len() > 1;
    reason(changed, "the rules changed during the recording");
    let words = format!(
        "the service had {buckets} buckets when the recording began, and a replay begins with none"
    );
    reason(buckets > 0, &words);
    let words = "the limits were shared with other replicas through a store";
    reason(is_shared, words);
    let is_sampled = header.sampling.is_some();
    reason(is_sampled, "only some requests were recorded");
    let words = format!("{lost} requests were decided and not recorded");
    reason(lost > 0, &words);
    let words = "the recording was cut off; its last requests may be incomplete";
    reason(summary.ended.is_none(), words);
    let words = "values are hashes, and rules compare values";
    reason(header.hashed, words);
    let words = format!(
        "{not_compared} requests were not decided by their buckets alone, for example under overload"
    );
    reason(not_compared > 0, &words);
    let words = "the buckets of the replay needed more memory than --memory-max";
    reason(was_full, words);
    reasons
}

/// Requests that were decided and are missing.
pub(super) fn lost(skipped: &Skipped) -> u64 {
    let counts = [
        skipped.rate,
        skipped.slow_reader,
        skipped.too_long,
        skipped.caller_left,
    ];
    counts.into_iter().fold(0, u64::saturating_add)
}

/// Whether each descriptor has the recorded code.
fn same_descriptors(decided: &Decided, answer: &Answer) -> bool {
    let recorded = &decided.recorded.descriptor_codes;
    if recorded.len() != answer.descriptors.len() {
        // A setting answered, or the input has no codes of descriptors.
        return recorded.is_empty();
    }
    let mut pairs = recorded.iter().zip(&answer.descriptors);
    pairs.all(|(recorded, replayed)| {
        let code = match replayed.code {
            Code::Ok => RecordedCode::Ok,
            Code::OverLimit => RecordedCode::OverLimit,
        };
        i32::from(*recorded) == code as i32
    })
}
