//! Charges that are lost: hits that a limit refuses and does not count, where it is looked at
//! first.
//!
//! Why: a gateway that looks before a request (`hits_addend` 0) and charges its true cost
//! afterwards does not read the answer to the charge. If a charge larger than what is left is not
//! counted, what is left never shrinks, and every look passes. The limit then limits nothing. A
//! metric and one line of the log for each rule say so.
//!
//! How: a look gives its rule a credit, and a lost charge uses one up. So a single look, such as
//! that of `tollgate explain --addr`, does not make later refusals of plain checks lost charges.

use tollgate_limiter::{Code, Hits, LimitOrigin, Outcome, Plan};

use crate::pipeline::Generation;

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
