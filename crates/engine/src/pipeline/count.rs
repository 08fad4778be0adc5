//! Counting hits by limit, by override and by request label, and charges that are lost: hits
//! that a limit refuses and does not count, where it is looked at first.
//!
//! Why the latter: a gateway that looks before a request (`hits_addend` 0) and charges its true
//! cost afterwards does not read the answer to the charge. If a charge larger than what is left is
//! not counted, what is left never shrinks, and every look passes. The limit then limits nothing. A
//! metric and one line of the log for each rule say so.
//!
//! How: a look gives its rule a credit, and a lost charge uses one up. So a single look, such as
//! that of `tollgate explain --addr`, does not make later refusals of plain checks lost charges.

use std::sync::Arc;

use tollgate_limiter::key::label_key;
use tollgate_limiter::{
    Check, Code, DescriptorPlan, Entry, Hits, Key, LimitOrigin, Outcome, Plan, PlannedCheck,
    Request, Rule, Step, Tally,
};

use crate::ended::Matched;
use crate::pipeline::{Generation, Pipeline};
use tollgate_telemetry::metrics::{HitOutcome, LimitCounters, REQUEST_LABEL_PARTS, RequestCounts};

impl Pipeline {
    /// Whether counting this plan's outcomes needs the request's entries.
    pub(super) fn labels_need_request(plan: &Plan<'_>) -> bool {
        let mut checks = plan.planned_checks();
        checks.any(|asked| asked.origin.rule().is_none_or(Rule::has_request_labels))
    }

    /// Adds each decided check to the counts of its limit. Without a code the request had no
    /// answer. `request` is read only where [`Pipeline::labels_need_request`].
    pub(super) fn count_outcomes(
        &self,
        rules: &Generation,
        request: &Request<'_>,
        matched: &Matched<'_>,
        code: Option<Code>,
        counts: &mut RequestCounts,
    ) {
        let (plan, decision) = (matched.plan, matched.decision);
        let quotas_refuse = code == Some(Code::OverLimit) && decision.quotas_refuse();
        let planned = plan.descriptors().iter().zip(&decision.statuses);
        for (descriptor, (planned, status)) in planned.enumerate() {
            let DescriptorPlan::Checks(positions) = planned else {
                continue;
            };
            for position in positions.clone() {
                let (Some(asked), Some(Some(outcome))) =
                    (plan.planned_check(position), matched.outcomes.get(position))
                else {
                    continue;
                };
                let PlannedCheck { check, origin } = asked;
                let near_ratio = self.config.near_limit_ratio;
                let tally = Tally::of(check, outcome, origin.shadow_mode(), near_ratio);
                let became =
                    hit_outcome(check, outcome, origin, code, !status.quota || quotas_refuse);
                let (of_limit, has_own_series) = match origin {
                    LimitOrigin::Rule(rule) => {
                        (rules.counters.of(rule), !rule.has_request_labels())
                    }
                    LimitOrigin::Override => (rules.counters.of_overrides(request.domain), false),
                };
                let answers = status.check_index == Some(position);
                if let Some(counters) = of_limit {
                    counts.add(counters, became, &tally, answers && has_own_series);
                }
                // In the series of the reference, only the limit that answered counts.
                if answers
                    && !has_own_series
                    && let Some(counters) = self.counters_of(rules, request, descriptor, origin)
                {
                    counts.add(&counters, became, &tally, true);
                }
            }
        }
    }

    /// The counters of the limit that answers a descriptor.
    pub(super) fn counters_of(
        &self,
        rules: &Generation,
        request: &Request<'_>,
        descriptor: usize,
        origin: LimitOrigin<'_>,
    ) -> Option<Arc<LimitCounters>> {
        match origin {
            LimitOrigin::Rule(rule) if rule.has_request_labels() => {
                // Without a last entry that names a slot's holder: each holder is another one.
                let entries = entries_of(request, descriptor);
                let entries = entries.get(..rule.path.len()).unwrap_or(entries);
                let labels = || (rule.domain.to_string(), rule.request_labels(entries));
                let key = self.label_key(Some(rule), request, entries);
                let of_rule = rules.counters.of(rule).map(|counters| &**counters);
                Some(self.metrics.limits.request_counters(key, of_rule, labels))
            }
            LimitOrigin::Rule(rule) => rules.counters.of(rule).cloned(),
            LimitOrigin::Override => {
                let entries = entries_of(request, descriptor);
                let labels = || override_labels(request, entries);
                let key = self.label_key(None, request, entries);
                Some(self.metrics.limits.request_counters(key, None, labels))
            }
        }
    }

    fn label_key(&self, rule: Option<&Rule>, request: &Request<'_>, entries: &[Entry<'_>]) -> Key {
        let parts = REQUEST_LABEL_PARTS;
        label_key(rule, request.domain, entries, parts, &self.hash)
    }
}

/// What became of the hits of a check, in a request with this answer, if it has one. `refuses`: its
/// descriptor refuses the request when it is over limit, which a quota beside one with hits left
/// does not.
#[inline]
pub(super) fn hit_outcome(
    check: &Check,
    outcome: &Outcome,
    origin: LimitOrigin<'_>,
    code: Option<Code>,
    refuses: bool,
) -> HitOutcome {
    match check.operation.hits {
        Hits::Take(_) | Hits::Reservation(Step::Reserve { .. }) => match (outcome.allowed, code) {
            (true, Some(Code::Ok)) => HitOutcome::Admitted,
            (true, _) => HitOutcome::Overruled,
            (false, Some(Code::OverLimit)) if refuses && !origin.shadow_mode() => {
                HitOutcome::Refused
            }
            (false, _) => HitOutcome::WouldRefuse,
        },
        _ => HitOutcome::Charged,
    }
}

/// The entries of one descriptor.
fn entries_of<'r, 'a>(request: &'r Request<'a>, descriptor: usize) -> &'r [Entry<'a>] {
    let descriptor = request.descriptors().nth(descriptor);
    descriptor
        .map(|descriptor| descriptor.entries)
        .unwrap_or_default()
}

/// The labels of a limit that came with a request.
fn override_labels(request: &Request<'_>, entries: &[Entry<'_>]) -> (String, Vec<String>) {
    let domain = String::from_utf8_lossy(request.domain).into_owned();
    (domain, entries.iter().map(Entry::label).collect())
}

/// Whether a check of the plan looks only, or was refused.
#[inline]
pub(super) fn looks_or_refuses(plan: &Plan<'_>, outcomes: &[Option<Outcome>]) -> bool {
    let mut decided = plan.checks().iter().zip(outcomes);
    decided.any(|(check, outcome)| {
        check.operation.hits == Hits::PEEK
            || outcome.as_ref().is_some_and(|outcome| !outcome.allowed)
    })
}

// === impl Generation ===

impl Generation {
    /// Counts the looks and the lost charges of a request that was decided.
    #[cold]
    pub(super) fn count_dropped(&self, plan: &Plan<'_>, outcomes: &[Option<Outcome>], code: Code) {
        // What the other limits took went back.
        let gave_back = code == Code::OverLimit && plan.all_or_nothing();
        for (planned, outcome) in plan.planned_checks().zip(outcomes) {
            let (LimitOrigin::Rule(rule), Some(outcome)) = (planned.origin, outcome) else {
                continue;
            };
            let (check, hits) = (planned.check, planned.check.operation.hits);
            if rule.shadow_mode || !check.can_lose_charges() {
                continue;
            }
            let lost = match hits {
                Hits::PEEK => {
                    if let Some(counters) = self.counters.of(rule) {
                        counters.add_look();
                    }
                    continue;
                }
                Hits::Take(hits) if outcome.allowed => {
                    if gave_back && !check.keeps_refused_hits() {
                        hits
                    } else {
                        0
                    }
                }
                _ => check.lost_when_refused(outcome),
            };
            let counters = (lost > 0).then(|| self.counters.of(rule)).flatten();
            if counters.is_some_and(|counters| counters.add_lost_charge(lost)) {
                let (rule, algorithm) = (rule.full_name(), check.algorithm.name());
                tracing::warn!(
                    target: "tollgate::pipeline::dropped",
                    rule,
                    algorithm,
                    hits = lost,
                    "a charge was lost: the limit is looked at first, and does not count refused hits; set `charged: afterwards`"
                );
            }
        }
    }
}
