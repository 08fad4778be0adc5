//! The candidate in `GET /limits` and in `state` events.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::AdminState;
use crate::admin_api::{
    CandidateCounts, CandidateLimit, CandidateOrigin, CandidateRule, CandidateState, LimitFigures,
    rule_name, time_text,
};
use crate::metrics::ResultCounts;
use crate::pipeline::{CandidateRules, CandidateSource, Generation};
use tollgate_limiter::{Allowance, Rule};

/// How many rules that only the candidate has are listed.
const NEW_RULES_MAX: usize = 1_000;

/// The candidate's rules by domain and name.
pub(super) struct CandidateLimits<'g> {
    rules: &'g CandidateRules,
    by_name: HashMap<(&'g str, &'g str), usize>,
}

// === impl CandidateLimits ===

impl<'g> CandidateLimits<'g> {
    /// None without a candidate.
    pub(super) fn new(generation: &'g Generation) -> Option<Self> {
        let rules = generation.candidate.as_deref()?;
        let named = rules.rules.written_rules();
        let named = named.filter_map(|(rule, _)| Some((rule, rules.names.get(rule.index)?)));
        let by_name = named.map(|(rule, name)| ((&*rule.domain, &**name), rule.index));
        Some(Self {
            rules,
            by_name: by_name.collect(),
        })
    }

    /// The candidate of the rule with this name.
    pub(super) fn of(&self, domain: &str, rule: &str) -> Option<CandidateLimit> {
        let index = *self.by_name.get(&(domain, rule))?;
        let rule = self.rules.rules.rules().get(index)?;
        Some(CandidateLimit {
            limit: figures(rule),
            counts: self.counts(index),
        })
    }

    fn counts(&self, index: usize) -> CandidateCounts {
        let counters = self.rules.of_rule(index);
        counts_of(
            counters
                .map(|counters| counters.counts())
                .unwrap_or_default(),
        )
    }

    /// Its rules that the rules in force do not have.
    fn new_rules(&self, live: &Generation) -> Vec<CandidateRule> {
        let live: HashSet<(&str, String)> = live
            .rules
            .rules()
            .iter()
            .map(|rule| (&*rule.domain, rule_name(rule)))
            .collect();
        let named = self.rules.rules.written_rules();
        let named = named.map(|(rule, table)| (rule, rule_name(rule), table));
        let new = named.filter(|(rule, name, table)| {
            // A rule that only keeps what it replaces has no limit in the candidate.
            let is_counted = table.is_some() || rule.allowance != Allowance::Unlimited;
            is_counted && !live.contains(&(&*rule.domain, name.clone()))
        });
        let new = new
            .take(NEW_RULES_MAX)
            .map(|(rule, name, _)| CandidateRule {
                domain: rule.domain.to_string(),
                rule: name,
                limit: figures(rule),
                counts: self.counts(rule.index),
            });
        new.collect()
    }
}

/// The state of the candidate; none if none is tried and none was refused.
pub(super) fn candidate_state(
    state: &AdminState,
    generation: Option<&Arc<Generation>>,
) -> Option<CandidateState> {
    let limits = generation.and_then(|generation| CandidateLimits::new(generation));
    let error = state.generations.candidate_refused();
    if limits.is_none() && error.is_none() {
        return None;
    }
    let metrics = &state.metrics.candidates;
    let skipped = [
        &metrics.skipped_queue_full,
        &metrics.skipped_memory_full,
        &metrics.skipped_no_verdict,
        &metrics.skipped_matching_steps,
    ];
    let skipped = skipped.iter().map(|counter| counter.get());
    let rules = limits.as_ref().map(|limits| limits.rules);
    Some(CandidateState {
        source: match rules.map(|rules| rules.source) {
            Some(CandidateSource::Fields) => CandidateOrigin::Fields,
            Some(CandidateSource::Files) | None => CandidateOrigin::Files,
        },
        hash: rules.map(|rules| format!("{:012x}", rules.hash)),
        since: rules.and_then(|rules| rules.since).map(time_text),
        error: error.map(|error| error.to_string()),
        counts: counts_of(rules.map(CandidateRules::counts).unwrap_or_default()),
        skipped: skipped.fold(0, u64::saturating_add),
        memory_bytes: metrics.memory_bytes.value(),
        memory_max_bytes: u64::try_from(metrics.memory_max_bytes.get()).unwrap_or_default(),
        new_rules: match (&limits, generation) {
            (Some(limits), Some(generation)) => limits.new_rules(generation),
            _ => Vec::new(),
        },
    })
}

fn figures(rule: &Rule) -> Option<LimitFigures> {
    match &rule.allowance {
        // Limits by value are many.
        Allowance::Limited { .. } if rule.lines.is_some() => None,
        Allowance::Unlimited => None,
        Allowance::Limited { limit, algorithm } => Some(LimitFigures::of(limit, *algorithm)),
    }
}

/// Each request counts in one of the four results.
fn counts_of([admitted, refused, newly_refused, newly_admitted]: ResultCounts) -> CandidateCounts {
    CandidateCounts::new(
        admitted.saturating_add(newly_admitted),
        refused.saturating_add(newly_refused),
        newly_refused,
        newly_admitted,
    )
}
