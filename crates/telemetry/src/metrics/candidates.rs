//! Metrics of candidates, and the label sets of their rules.
//!
//! A label set belongs to a domain, or to one rule of the candidate. It is freed when neither the
//! newest candidate nor the one before it has its rule, so reloads never let the sets grow.
//!
//! Each request counts under one result. Sums of one task are added once a turn
//! ([`CandidateSums`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use prometheus::proto::MetricFamily;

use super::counts::{Counts, Sums, plus};
use super::declaration::{Counter, Gauge, LabelValues, metrics};
use super::gauges::{CollectedCounters, PolledGauge};
use super::label::{OVERFLOW, label};
use super::label_sets::RULE_LABEL_SETS_MAX;
use tollgate_system::per_thread::lock;

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
        CollectedCounters "tollgate_candidate_requests_total" [domain: DOMAINS, result: RESULTS]
            => pub(super) requests;

        /// Requests that a rule of the candidate decided, by its verdict and that of the rules in
        /// force.
        CollectedCounters "tollgate_candidate_decisions_total" [domain: DOMAINS, rule: RULES, result: RESULTS]
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

tollgate_limiter::named! {
    /// The verdicts of a candidate and of the rules in force for one request.
    pub enum CandidateResult {
        /// Both admit it.
        Admitted = "admitted",
        /// Both refuse it.
        Refused = "refused",
        /// The candidate refuses it, and the rules in force admit it.
        NewlyRefused = "newly_refused",
        /// The candidate admits it, and the rules in force refuse it.
        NewlyAdmitted = "newly_admitted",
    }
}

/// Requests of a domain or of a rule since the start of a candidate, by [`CandidateResult`].
#[derive(Debug, Default)]
pub struct CandidateCounters(Counts<RESULT_COUNT>);

/// Requests by [`CandidateResult`].
pub type ResultCounts = [u64; RESULT_COUNT];

/// Sums of one task that are not yet added to the counters.
#[derive(Debug, Default)]
pub struct CandidateSums(Sums<CandidateCounters, RESULT_COUNT>);

/// The label sets of domains and rules.
#[derive(Debug)]
pub(super) struct CandidateLabelSets {
    known: Mutex<Known>,
    metrics: CandidateMetrics,
}

#[derive(Debug, Default)]
struct Known {
    /// Candidates so far.
    generation: u64,
    /// By a domain, or by a domain and a rule.
    sets: HashMap<Vec<String>, LabelSet>,
}

/// What all candidates counted under the same labels.
#[derive(Debug, Default)]
struct LabelSet {
    /// Requests of candidates that nothing counts for any more.
    past: ResultCounts,
    counters: Vec<Arc<CandidateCounters>>,
    /// The newest candidate that has it.
    generation: u64,
}

// === impl CandidateResult ===

impl CandidateResult {
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
    /// The requests so far.
    pub fn counts(&self) -> ResultCounts {
        self.0.get()
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
        self.0.add(counters, one, |counters| &counters.0);
    }

    /// Adds all sums to the counters.
    pub fn flush(&mut self) {
        self.0.flush(|counters| &counters.0);
    }
}

// === impl CandidateLabelSets ===

impl CandidateLabelSets {
    pub(super) fn new(metrics: CandidateMetrics) -> Self {
        Self {
            known: Mutex::default(),
            metrics,
        }
    }

    /// Counters for the domains and rules of a candidate, which becomes the newest. Each rule is
    /// its domain and its name. Beyond the bound, rules share one label set.
    pub(super) fn counters_of(
        &self,
        domains: &[String],
        rules: &[(String, String)],
    ) -> (Vec<Arc<CandidateCounters>>, Vec<Arc<CandidateCounters>>) {
        let mut known = lock(&self.known);
        known.generation = known.generation.saturating_add(1);
        let of_domains = domains.iter().enumerate().map(|(position, domain)| {
            let is_within = position < RULE_LABEL_SETS_MAX;
            known.add(vec![label(if is_within { domain } else { OVERFLOW })])
        });
        let of_domains: Vec<_> = of_domains.collect();
        let of_rules = rules.iter().enumerate().map(|(position, (domain, rule))| {
            known.add(if position < RULE_LABEL_SETS_MAX {
                vec![label(domain), label(rule)]
            } else {
                vec![OVERFLOW.to_owned(), OVERFLOW.to_owned()]
            })
        });
        let of_rules: Vec<_> = of_rules.collect();
        known.free_unused();
        (of_domains, of_rules)
    }

    /// The families of both.
    pub(super) fn families(&self) -> [MetricFamily; 2] {
        let known = lock(&self.known);
        let metrics = &self.metrics;
        [(&metrics.requests, 1), (&metrics.decisions, 2)].map(|(family, names_len)| {
            let sets = known
                .sets
                .iter()
                .filter(|(names, _)| names.len() == names_len);
            family.0.of(sets.flat_map(|(names, set)| {
                let results = CandidateResult::NAMES.into_iter().zip(set.counts());
                results.map(|(result, count)| {
                    let labels = names.iter().map(String::as_str);
                    (labels.chain([result]), count)
                })
            }))
        })
    }
}

// === impl Known ===

impl Known {
    /// New counters under these names.
    fn add(&mut self, names: Vec<String>) -> Arc<CandidateCounters> {
        let set = self.sets.entry(names).or_default();
        set.generation = self.generation;
        let counters = Arc::<CandidateCounters>::default();
        set.counters.push(Arc::clone(&counters));
        counters
    }

    /// Frees the label sets that neither the newest candidate nor the one before it has, and the
    /// counters of candidates that are gone.
    fn free_unused(&mut self) {
        let oldest = self.generation.saturating_sub(1);
        self.sets.retain(|_, set| {
            set.fold();
            set.generation >= oldest
        });
        let len = self.sets.len();
        self.sets.shrink_to(len.saturating_mul(2));
    }
}

// === impl LabelSet ===

impl LabelSet {
    fn counts(&self) -> ResultCounts {
        let counters = self.counters.iter();
        counters.fold(self.past, |sum, counters| plus(sum, counters.counts()))
    }

    /// Adds the counters that only this list holds to the past.
    fn fold(&mut self) {
        let past = &mut self.past;
        self.counters.retain_mut(|counters| {
            let gone = Arc::get_mut(counters).map(|counters| counters.counts());
            *past = plus(*past, gone.unwrap_or_default());
            gone.is_none()
        });
    }
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
