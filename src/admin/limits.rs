//! `GET /limits`: every rule, its limit, its hits and their rates; and the candidate, which `state`
//! events have too.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;

use super::AdminState;
use super::http::Client;
use super::query::{ApiFailure, Query, long_json};
use super::quotas::RuleSums;
use super::rates::LimitCounts;
use crate::admin_api::{
    CandidateCounts, CandidateLimit, CandidateOrigin, CandidateRule, CandidateState, LimitFigures,
    LimitState, Limits, LimitsFrom, ReserveFigures, rule_name, time_text,
};
use crate::metrics::ResultCounts;
use crate::pipeline::{CandidateRules, Generation, Shadow};
use tollgate_limiter::{Allowance, Cost, LimitTable, OverrideCounts, Rule, Timestamp};

/// How many rules one response has.
const LIMITS_MAX: usize = 10_000;

/// Until when rules are in shadow mode, by domain and name.
pub(super) struct ShadowEnds(HashMap<(String, String), Timestamp>);

/// How many rules that only the candidate has are listed.
const NEW_RULES_MAX: usize = 1_000;

/// The candidate's rules by domain and name.
pub(super) struct CandidateLimits<'g> {
    rules: &'g CandidateRules,
    by_name: HashMap<(&'g str, &'g str), usize>,
}

/// What the states of rules are read from.
pub(super) struct LimitStates<'g> {
    pub(super) counts: LimitCounts<'g>,
    ends: ShadowEnds,
    candidates: Option<CandidateLimits<'g>>,
    quotas: RuleSums,
    overrides: OverrideCounts,
}

// === impl ShadowEnds ===

impl ShadowEnds {
    pub(super) fn new(shadows: Vec<Shadow>) -> Self {
        let ends = shadows
            .into_iter()
            .map(|shadow| ((shadow.domain, shadow.rule), shadow.until));
        Self(ends.collect())
    }

    /// When the shadow mode of a rule ends, if an operator set it.
    pub(super) fn of(&self, domain: &str, rule: &str) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let until = self.0.get(&(domain.to_owned(), rule.to_owned()))?;
        Some(time_text(*until))
    }
}

pub(super) async fn limits(
    State(state): State<AdminState>,
    Extension(client): Extension<Client>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiFailure> {
    let query = Query::parse(query.as_deref(), &["domain", "rule"])?;
    long_json(state, client, move |state| limits_of(state, &query)).await
}

/// The rules that the query asks for.
fn limits_of(state: &AdminState, query: &Query) -> Limits {
    let mut limits = Limits {
        instance: state.instance.to_string(),
        at: time_text(state.parts.engine.clock.now()),
        limits: Vec::new(),
        omitted: 0,
        candidate: None,
    };
    let generation = state.parts.engine.generations.current();
    limits.candidate = candidate_state(state, generation.as_ref());
    let Some(generation) = generation else {
        return limits;
    };
    let states = LimitStates::new(state, &generation);
    let (domain, name) = (query.text("domain"), query.text("rule"));
    for (rule, table) in generation.rules.written_rules() {
        if domain.is_some_and(|domain| *rule.domain != *domain)
            || name.is_some_and(|name| rule_name(rule) != name)
        {
            continue;
        }
        if limits.limits.len() < LIMITS_MAX {
            let mut state = states.of(rule, table);
            if let Some(origin) = generation.origins.of(rule.index) {
                (state.source, state.overlay) = (Some(origin.rule), origin.overlay);
            }
            limits.limits.push(state);
        } else {
            limits.omitted = limits.omitted.saturating_add(1);
        }
    }
    limits
}

// === impl LimitStates ===

impl<'g> LimitStates<'g> {
    pub(super) fn new(state: &'g AdminState, generation: &'g Generation) -> Self {
        Self {
            counts: state.rates.counts(generation),
            ends: ShadowEnds::new(state.parts.engine.generations.shadowed()),
            candidates: CandidateLimits::new(generation),
            quotas: RuleSums::new(&state.parts.quotas),
            overrides: generation.rules.override_counts(),
        }
    }

    /// One rule, and its table. Where it is written is not set.
    pub(super) fn of(&self, rule: &Rule, table: Option<&Arc<LimitTable>>) -> LimitState {
        let (name, counts) = (rule_name(rule), &self.counts);
        let candidates = self.candidates.as_ref();
        LimitState {
            limit: figures(rule),
            unlimited: matches!(rule.allowance, Allowance::Unlimited) && rule.lines.is_none(),
            limits_from: table.map(|table| LimitsFrom {
                file: table.source().to_string(),
                limits: table.len() as u64,
            }),
            reserve: rule.reserve.as_deref().map(ReserveFigures::of),
            cost: (rule.cost != Cost::default()).then(|| rule.cost.to_string()),
            budget: rule.budget.as_deref().map(str::to_owned),
            overrides: self.overrides.of_rule(rule),
            shadow_mode: rule.shadow_mode,
            shadow_until: self.ends.of(&rule.domain, &name),
            source: None,
            overlay: None,
            quota_mode: rule.quota_mode,
            rlqs: self.quotas.of(rule),
            hits: counts.hits(rule.index),
            reservations: counts.reservations(rule),
            rates: counts.rates(rule.index),
            candidate: candidates.and_then(|candidates| candidates.of(&rule.domain, &name)),
            label: counts.label(rule).to_owned(),
            domain: rule.domain.to_string(),
            rule: name,
        }
    }
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
    let error = state.parts.engine.generations.candidate_refused();
    if limits.is_none() && error.is_none() {
        return None;
    }
    let metrics = &state.parts.engine.metrics.candidates;
    let skipped = [
        &metrics.skipped_queue_full,
        &metrics.skipped_memory_full,
        &metrics.skipped_no_verdict,
        &metrics.skipped_matching_steps,
    ];
    let skipped = skipped.iter().map(|counter| counter.get());
    let rules = limits.as_ref().map(|limits| limits.rules);
    Some(CandidateState {
        source: rules.map_or(CandidateOrigin::Files, |rules| rules.source),
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
