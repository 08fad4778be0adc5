//! The rules of a candidate, their counters, and what its decision needs of a request that has its
//! answer.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_limiter::{
    Allowance, Code, Decision, Hits, Outcome, Plan, Request, Rule, RuleLines, RuleSet, Step,
    Timestamp,
};

use tollgate_admin_api::{CandidateOrigin, rule_name};
use tollgate_rules::reload::Rules;
use tollgate_telemetry::metrics::{CandidateCounters, Metrics, ResultCounts};

/// The rules of a candidate.
#[derive(Debug)]
pub struct CandidateRules {
    /// The rules.
    pub rules: RuleSet,
    /// The names of the rules, by their index.
    pub names: Arc<[Arc<str>]>,
    /// Where they come from.
    pub source: CandidateOrigin,
    /// The hash of their files.
    pub hash: u64,
    /// Since when these rules are counted; none without a clock.
    pub since: Option<Timestamp>,
    /// The counters of each rule, by its index.
    of_rules: Vec<Arc<CandidateCounters>>,
    /// The counters of each domain of the live rules and the candidate.
    of_domains: Vec<Arc<CandidateCounters>>,
    /// The numbers of the domains that the candidate or the rules in force have.
    pub(super) numbers: HashMap<Vec<u8>, usize>,
}

/// What a new candidate is made with.
pub(super) struct CandidateContext<'a> {
    /// The rules in force.
    pub(super) live: &'a RuleSet,
    /// The candidate before this one.
    pub(super) before: Option<&'a CandidateRules>,
    pub(super) metrics: &'a Metrics,
    pub(super) now: Option<Timestamp>,
}

/// The live answer to a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LiveVerdict {
    /// Whether it was refused.
    pub(super) refused: bool,
    /// Whether a limit refused it that has no candidate. Only known where rules name candidates.
    refused_elsewhere: bool,
}

/// What is counted of a request, beside its plan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CandidateRequest {
    /// The number of its domain, where the domain has counters.
    pub(super) domain: Option<usize>,
    /// Whether it asks for hits. If not, it is not counted.
    pub(super) takes: bool,
}

// === impl CandidateRules ===

impl CandidateRules {
    /// The candidate of these files.
    pub(super) fn of_files(files: &Rules, context: &CandidateContext<'_>) -> Self {
        let rules = files.loaded.rules.clone();
        Self::new(rules, CandidateOrigin::Files, files.hash, context)
    }

    /// The candidate that the rules in force name; none if they name none.
    pub(super) fn of_fields(hash: u64, context: &CandidateContext<'_>) -> Option<Self> {
        let rules = context.live.candidates()?;
        Some(Self::new(rules, CandidateOrigin::Fields, hash, context))
    }

    fn new(
        rules: RuleSet,
        source: CandidateOrigin,
        hash: u64,
        context: &CandidateContext<'_>,
    ) -> Self {
        let mut domains = rules.domains();
        if source == CandidateOrigin::Files {
            // A domain that the candidate lacks is one in which it admits everything.
            domains.extend(context.live.domains());
            domains.sort_unstable();
            domains.dedup();
        }
        let names: Vec<String> = rules.rules().iter().map(rule_name).collect();
        let of = |(rule, name): (&Rule, &String)| (rule.domain.to_string(), name.clone());
        let labels: Vec<_> = rules.rules().iter().zip(&names).map(of).collect();
        let (of_domains, of_rules) = context.metrics.candidate_counters(&domains, &labels);
        let of_rules = as_written(&rules, of_rules);
        let mut new = Self {
            names: names.into_iter().map(Arc::from).collect(),
            rules,
            source,
            hash,
            since: context.now,
            of_rules,
            of_domains,
            numbers: domains
                .into_iter()
                .map(String::into_bytes)
                .zip(0..)
                .collect(),
        };
        if let Some(before) = context.before {
            new.keep_counts(before);
        }
        new
    }

    /// Continues the counts of the candidate before this one, if it has the same limits. Counts of
    /// other limits would say nothing about these.
    fn keep_counts(&mut self, before: &Self) {
        let limits = |rules: &RuleSet| -> Vec<(u64, Allowance, Option<Box<RuleLines>>)> {
            let rules = rules.rules().iter();
            rules
                .map(|rule| (rule.fingerprint, rule.allowance, rule.lines.clone()))
                .collect()
        };
        let same = self.source == before.source
            && limits(&self.rules) == limits(&before.rules)
            && self.numbers == before.numbers;
        if same {
            self.since = before.since;
            self.of_rules.clone_from(&before.of_rules);
            self.of_domains.clone_from(&before.of_domains);
        }
    }

    /// The counters of the rule with this index.
    pub fn of_rule(&self, index: usize) -> Option<&Arc<CandidateCounters>> {
        self.of_rules.get(index)
    }

    /// The counters of the domain with this number.
    pub(super) fn of_domain(&self, number: Option<usize>) -> Option<&Arc<CandidateCounters>> {
        self.of_domains.get(number?)
    }

    /// The requests of all domains so far.
    pub fn counts(&self) -> ResultCounts {
        let mut all = ResultCounts::default();
        for counters in &self.of_domains {
            for (sum, count) in all.iter_mut().zip(counters.counts()) {
                *sum = sum.saturating_add(count);
            }
        }
        all
    }
}

/// The counters of rules, where a descriptor with a file of limits has one: the lines of the file
/// are rules of their own in a rule set, and count as the descriptor's.
fn as_written(
    rules: &RuleSet,
    counters: Vec<Arc<CandidateCounters>>,
) -> Vec<Arc<CandidateCounters>> {
    let mut shared: Vec<Arc<CandidateCounters>> = Vec::with_capacity(counters.len());
    let mut level = None;
    for (rule, own) in rules.rules().iter().zip(counters) {
        let of_level = rule.path.last().map(Arc::as_ptr);
        let before = shared.last().cloned();
        let before = before.filter(|_| rule.lines.is_some() && of_level == level);
        shared.push(before.unwrap_or(own));
        level = of_level;
    }
    shared
}

// === impl LiveVerdict ===

impl LiveVerdict {
    /// The live answer, by the plan and its outcomes.
    #[cold]
    pub(super) fn new(
        candidate: &CandidateRules,
        plan: &Plan<'_>,
        outcomes: &[Option<Outcome>],
        decision: &Decision<'_>,
    ) -> Self {
        let refused = decision.code == Code::OverLimit;
        let refuses_elsewhere = |position: usize| {
            let refused = outcomes
                .get(position)
                .is_some_and(|outcome| outcome.is_some_and(|outcome| !outcome.allowed));
            refused
                && plan.planned_check(position).is_some_and(|planned| {
                    let rule = planned.origin.rule();
                    !planned.origin.shadow_mode()
                        && rule.is_none_or(|rule| rule.candidate.is_none())
                })
        };
        Self {
            refused,
            refused_elsewhere: refused
                && candidate.source == CandidateOrigin::Fields
                && (0..plan.checks().len()).any(refuses_elsewhere),
        }
    }

    /// The answer to the request if the candidate were in force.
    pub(super) fn with(self, candidate: Code) -> Code {
        match candidate {
            Code::Ok if !self.refused_elsewhere => Code::Ok,
            _ => Code::OverLimit,
        }
    }
}

// === impl CandidateRequest ===

impl CandidateRequest {
    pub(super) fn new(candidate: &CandidateRules, request: &Request<'_>) -> Self {
        let mut descriptors = request.descriptors();
        Self {
            domain: candidate.numbers.get(request.domain).copied(),
            takes: descriptors.any(|descriptor| takes(descriptor.hits)),
        }
    }
}

/// Whether hits are asked for.
pub(super) fn takes(hits: Hits) -> bool {
    match hits {
        Hits::Take(hits) => hits > 0,
        Hits::Reservation(step) => matches!(step, Step::Reserve { .. }),
        Hits::Refund(_) | Hits::Undo { .. } | Hits::Charge(_) => false,
    }
}
