//! The last minute of hits: a sample each second, of all rules and of the heaviest ones.
//!
//! Bounded: 60 samples of at most 64 rules each, about 120 KB however many rules there are. A rule
//! that was not among the 64 heaviest of a second counts as 0 in it.

use std::collections::{BTreeMap, VecDeque};

use tollgate_limiter::Rule;

use super::quotas::RuleSums;
use crate::admin_api::{HistoryEvent, LimitHistory, Rates, rule_name};
use crate::metrics::{HitOutcome, LimitHits};
use crate::pipeline::Generation;

/// How many samples are kept.
const SAMPLES_MAX: usize = 60;

/// How many rules a sample has, and a response.
const LIMITS_MAX: usize = 64;

/// The samples of the last minute, the newest last.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The number of the generation that the rules of the samples belong to.
    generation: i64,
    samples: VecDeque<Sample>,
}

/// The rates of one second.
#[derive(Debug)]
struct Sample {
    /// Of all rules.
    rates: Rates,
    /// Of the heaviest ones.
    limits: Vec<LimitSample>,
}

/// The rates of one rule in one second.
#[derive(Clone, Copy, Debug, Default)]
struct LimitSample {
    index: usize,
    total: f64,
    refused: f64,
    would_refuse: f64,
}

/// The rates between two readings.
pub(super) fn rates_between(before: &LimitHits, last: &LimitHits, seconds: f64) -> Rates {
    #[allow(clippy::cast_precision_loss)] // a rate is shown with a few digits
    let rate = |last: u64, before: u64| {
        let rate = last.saturating_sub(before) as f64 / seconds;
        (rate * 1_000.0).round() / 1_000.0
    };
    let of = |outcome| rate(last.of(outcome), before.of(outcome));
    Rates {
        seconds: (seconds * 1_000.0).round() / 1_000.0,
        total: rate(last.total(), before.total()),
        admitted: of(HitOutcome::Admitted),
        refused: of(HitOutcome::Refused),
        would_refuse: of(HitOutcome::WouldRefuse),
        overruled: of(HitOutcome::Overruled),
        charged: of(HitOutcome::Charged),
        near: rate(last.near, before.near),
    }
}

// === impl History ===

impl History {
    /// Adds the difference of two readings of the same rules.
    pub(super) fn push(
        &mut self,
        generation: &Generation,
        (before, last): (&[LimitHits], &[LimitHits]),
        quotas: &RuleSums,
        seconds: f64,
    ) {
        if self.generation != generation.number {
            self.generation = generation.number;
            // The positions of rules have changed.
            for sample in &mut self.samples {
                sample.limits = Vec::new();
            }
        }
        let mut rates = Rates::default();
        let mut limits = Vec::new();
        for (rule, _) in generation.rules.written_rules() {
            let index = rule.index;
            let (Some(before), Some(last)) = (before.get(index), last.get(index)) else {
                continue;
            };
            let mut of_rule = rates_between(before, last, seconds);
            // What proxies report takes the place of what was asked of the service.
            if let Some(quota) = quotas.of(rule) {
                of_rule.total += quota.allowed + quota.denied;
                of_rule.admitted += quota.allowed;
                of_rule.refused += quota.denied;
            }
            if of_rule.total <= 0.0 {
                continue;
            }
            rates.add(&of_rule);
            limits.push(LimitSample {
                index,
                total: of_rule.total,
                refused: of_rule.refused,
                would_refuse: of_rule.would_refuse,
            });
        }
        rates.seconds = (seconds * 1_000.0).round() / 1_000.0;
        if limits.len() > LIMITS_MAX {
            limits.select_nth_unstable_by(LIMITS_MAX, heavier_first);
            limits.truncate(LIMITS_MAX);
        }
        limits.shrink_to_fit();
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { rates, limits });
    }

    /// The newest rates of all rules.
    pub(super) fn newest(&self) -> Rates {
        self.samples.back().map(|it| it.rates).unwrap_or_default()
    }

    /// The minute, with the names of the rules.
    pub(super) fn event(
        &self,
        generation: &Generation,
        label: impl Fn(&Rule) -> String,
    ) -> HistoryEvent {
        let is_current = self.generation == generation.number;
        let mut sums: BTreeMap<usize, LimitSample> = BTreeMap::new();
        for limit in self.samples.iter().flat_map(|sample| &sample.limits) {
            let sum = sums.entry(limit.index).or_default();
            sum.index = limit.index;
            sum.total += limit.total;
            sum.refused += limit.refused;
        }
        let mut heaviest: Vec<_> = sums.into_values().filter(|_| is_current).collect();
        heaviest.sort_by(heavier_first);
        heaviest.truncate(LIMITS_MAX);
        let limits = heaviest.iter().filter_map(|LimitSample { index, .. }| {
            let rule = generation.rules.rules().get(*index)?;
            let of_sample = |sample: &Sample| {
                let mut limits = sample.limits.iter();
                let limit = limits.find(|limit| limit.index == *index).copied();
                limit.unwrap_or_default()
            };
            let samples: Vec<_> = self.samples.iter().map(of_sample).collect();
            Some(LimitHistory {
                domain: rule.domain.to_string(),
                rule: rule_name(rule),
                label: label(rule),
                total: samples.iter().map(|it| it.total).collect(),
                refused: samples.iter().map(|it| it.refused).collect(),
                would_refuse: samples.iter().map(|it| it.would_refuse).collect(),
            })
        });
        HistoryEvent {
            samples: self.samples.iter().map(|sample| sample.rates).collect(),
            limits: limits.collect(),
        }
    }
}

/// The order of rules: those with the most refused hits, then those with the most hits.
fn heavier_first(a: &LimitSample, b: &LimitSample) -> std::cmp::Ordering {
    let refused = b.refused.total_cmp(&a.refused);
    refused.then(b.total.total_cmp(&a.total))
}
