//! Metrics of candidates, and the label sets of their rules.
//!
//! A label set belongs to a domain, or to one rule of the candidate. It is freed when neither the
//! newest candidate nor the one before it has its rule, so reloads never let the sets grow.
//!
//! Each request counts under one result. Sums of one task are added once a turn
//! ([`CandidateSums`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::declaration::{Counter, CounterVec, Gauge, LabelValues, metrics};
use super::gauges::PolledGauge;
use super::label::{OVERFLOW, label};
use super::label_sets::RULE_LABEL_SETS_MAX;

const DOMAINS: LabelValues = LabelValues::Bounded("10,000 domains of the rules, and `overflow`");

const RULES: LabelValues = LabelValues::Bounded("10,000 rules of the candidate, and `overflow`");

const RESULTS: LabelValues = LabelValues::OneOf(&CandidateResult::NAMES);

/// How many results there are.
const RESULT_COUNT: usize = CandidateResult::NAMES.len();

metrics! {
    /// Metrics of candidates.
    pub struct CandidateMetrics {
        /// Requests that a candidate decided, by the verdicts of the candidate and of the rules in
        /// force: admitted and refused by both, newly_admitted and newly_refused by the candidate
        /// alone.
        CounterVec "tollgate_candidate_requests_total" [domain: DOMAINS, result: RESULTS]
            => pub(super) requests;

        /// Requests that a rule of the candidate decided, by its verdict and that of the rules in
        /// force.
        CounterVec "tollgate_candidate_decisions_total" [domain: DOMAINS, rule: RULES, result: RESULTS]
            => pub(super) decisions;

        /// Requests that the candidate did not decide, by reason.
        Counter "tollgate_candidate_skipped_total" by reason {
            skipped_queue_full = "queue_full",
            skipped_memory_full = "memory_full",
            skipped_no_verdict = "no_verdict",
            skipped_matching_steps = "matching_steps",
        }

        /// Candidate rule sets accepted.
        Counter "tollgate_candidate_rules_accepted_total" => pub taken;

        /// Candidate rule sets refused.
        Counter "tollgate_candidate_rules_errors_total" => pub refused;

        /// Whether the newest candidate rules were refused and so are not tried: 1 or 0.
        Gauge "tollgate_candidate_rules_refused" => pub newest_refused;

        /// Bytes that the buckets of the candidate use.
        PolledGauge "tollgate_candidate_memory_bytes" => pub memory_bytes;

        /// Bytes that the buckets of the candidate may use.
        Gauge "tollgate_candidate_memory_max_bytes" => pub memory_max_bytes;
    }
}

/// The verdicts of a candidate and of the rules in force for one request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CandidateResult {
    /// Both admit it.
    Admitted,
    /// Both refuse it.
    Refused,
    /// The candidate refuses it, and the rules in force admit it.
    NewlyRefused,
    /// The candidate admits it, and the rules in force refuse it.
    NewlyAdmitted,
}

/// Requests by result since the start of a candidate, and the counters that readers of metrics
/// see.
#[derive(Debug)]
pub struct CandidateCounters {
    counts: [AtomicU64; RESULT_COUNT],
    exported: Exported,
}

/// Requests by [`CandidateResult`].
pub type ResultCounts = [u64; RESULT_COUNT];

type Exported = [Counter; RESULT_COUNT];

/// Sums of one task that are not yet added to the counters.
#[derive(Debug, Default)]
pub struct CandidateSums(Vec<(Arc<CandidateCounters>, ResultCounts)>);

/// How many counters have a sum; counts of others are added at once.
const SUMS_MAX: usize = 64;

/// How many of the newest sums are searched.
const SUMS_LOOKED_AT: usize = 4;

/// The label sets of domains and rules.
#[derive(Debug, Default)]
pub(super) struct CandidateLabelSets(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Candidates so far.
    generation: u64,
    sets: HashMap<Vec<String>, (Exported, u64)>,
}

// === impl CandidateResult ===

impl CandidateResult {
    /// The names, as labels have them.
    pub const NAMES: [&'static str; 4] = ["admitted", "refused", "newly_refused", "newly_admitted"];

    /// The result for these verdicts.
    #[inline]
    pub fn new(live_refused: bool, candidate_refused: bool) -> Self {
        match (live_refused, candidate_refused) {
            (false, false) => Self::Admitted,
            (true, true) => Self::Refused,
            (false, true) => Self::NewlyRefused,
            (true, false) => Self::NewlyAdmitted,
        }
    }
}

// === impl CandidateCounters ===

impl CandidateCounters {
    fn new(exported: Exported) -> Self {
        Self {
            counts: Default::default(),
            exported,
        }
    }

    fn add(&self, sums: &ResultCounts) {
        let counters = self.counts.iter().zip(&self.exported);
        for ((count, exported), sum) in counters.zip(sums) {
            if *sum > 0 {
                count.fetch_add(*sum, Ordering::Relaxed);
                exported.inc_by(*sum);
            }
        }
    }

    /// The requests so far.
    pub fn counts(&self) -> ResultCounts {
        self.counts
            .each_ref()
            .map(|count| count.load(Ordering::Relaxed))
    }
}

// === impl CandidateSums ===

impl CandidateSums {
    /// Counts one request.
    #[inline]
    pub fn add(&mut self, counters: &Arc<CandidateCounters>, result: CandidateResult) {
        let mut one = ResultCounts::default();
        if let Some(count) = one.get_mut(result as usize) {
            *count = 1;
        }
        let mut newest = self.0.iter_mut().rev().take(SUMS_LOOKED_AT);
        if let Some((_, sums)) = newest.find(|(known, _)| Arc::ptr_eq(known, counters)) {
            for (sum, one) in sums.iter_mut().zip(one) {
                *sum = sum.saturating_add(one);
            }
        } else if self.0.len() < SUMS_MAX {
            self.0.push((Arc::clone(counters), one));
        } else {
            counters.add(&one);
        }
    }

    /// Adds all sums to the counters.
    pub fn flush(&mut self) {
        for (counters, sums) in self.0.drain(..) {
            counters.add(&sums);
        }
    }
}

// === impl CandidateLabelSets ===

impl CandidateLabelSets {
    /// Counters for the domains and rules of a candidate, which becomes the newest. Each rule is
    /// its domain and its name. Beyond the bound, rules share one label set.
    pub(super) fn counters_of(
        &self,
        metrics: &CandidateMetrics,
        domains: &[String],
        rules: &[(String, String)],
    ) -> (Vec<Arc<CandidateCounters>>, Vec<Arc<CandidateCounters>>) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.generation = known.generation.saturating_add(1);
        let of_domains = domains.iter().enumerate().map(|(position, domain)| {
            let is_within = position < RULE_LABEL_SETS_MAX;
            let name = if is_within { domain } else { OVERFLOW };
            known.get(vec![label(name)], &metrics.requests)
        });
        let of_domains: Vec<_> = of_domains.collect();
        let of_rules = rules.iter().enumerate().map(|(position, (domain, rule))| {
            let names = if position < RULE_LABEL_SETS_MAX {
                vec![label(domain), label(rule)]
            } else {
                vec![OVERFLOW.to_owned(), OVERFLOW.to_owned()]
            };
            known.get(names, &metrics.decisions)
        });
        let of_rules: Vec<_> = of_rules.collect();
        known.free_unused(metrics);
        (of_domains, of_rules)
    }
}

// === impl Known ===

impl Known {
    fn get(&mut self, names: Vec<String>, family: &CounterVec) -> Arc<CandidateCounters> {
        let generation = self.generation;
        let (exported, last) = self.sets.entry(names).or_insert_with_key(|names| {
            let of = |result| family.with_label_values(&labels(names, result));
            (CandidateResult::NAMES.map(of), generation)
        });
        *last = generation;
        Arc::new(CandidateCounters::new(exported.clone()))
    }

    /// Frees the label sets that neither the newest candidate nor the one before it has.
    fn free_unused(&mut self, metrics: &CandidateMetrics) {
        let oldest = self.generation.saturating_sub(1);
        let gone = self.sets.extract_if(|_, (_, last)| *last < oldest);
        for (names, _) in gone {
            let family = match names.len() {
                1 => &metrics.requests,
                _ => &metrics.decisions,
            };
            for result in CandidateResult::NAMES {
                // It fails where there is no such series: then nothing is left to do.
                let _ = family.remove_label_values(&labels(&names, result));
            }
        }
        let len = self.sets.len();
        self.sets.shrink_to(len.saturating_mul(2));
    }
}

fn labels<'l>(names: &'l [String], result: &'l str) -> Vec<&'l str> {
    let names = names.iter().map(String::as_str);
    names.chain([result]).collect()
}

#[cfg(test)]
mod tests {
    use crate::metrics::Metrics;

    #[test]
    fn reloads_keep_the_label_sets_of_the_last_two_candidates() {
        let metrics = Metrics::new().unwrap();
        let domains = ["d".to_owned()];
        for number in 0..50 {
            let rules = [("d".to_owned(), format!("d.rule-{number}"))];
            metrics.candidate_counters(&domains, &rules);
        }
        let text = metrics.render().unwrap();
        let series = |name: &str| {
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines.count()
        };
        assert_eq!(series("tollgate_candidate_requests_total{"), 4);
        assert_eq!(series("tollgate_candidate_decisions_total{"), 2 * 4);
        assert!(text.contains("rule=\"d.rule-49\""), "{text}");
        assert!(text.contains("rule=\"d.rule-48\""), "{text}");
    }
}
