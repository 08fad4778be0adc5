//! Counting decided checks by key, for top keys.
//!
//! The text of a key is in the message alone. `begin` keeps the message for `end` only where a
//! key has no text yet: see [`Recorder::wants_text`].

use tollgate_limiter::{
    Check, Code, DescriptorPlan, Hits, LimitOrigin, Outcome, Plan, Request, ReservationOutcome,
    Step,
};

use crate::ended::{Ended, Matched};
use crate::pipeline::Pipeline;
use crate::pipeline::count::hit_outcome;
use crate::top_keys::{Hit, OVERRIDE, Recorder, Text};
use tollgate_telemetry::metrics::HitOutcome;

/// The fingerprint that keys of this check are counted under.
#[cold]
fn fingerprint(plan: &Plan<'_>, position: usize) -> u64 {
    let planned = plan.planned_check(position);
    let rule = planned.and_then(|planned| planned.origin.rule());
    rule.map_or(OVERRIDE, |rule| rule.fingerprint)
}

impl Pipeline {
    /// Whether a key of this plan has no text yet.
    pub(super) fn wants_texts(recorder: &mut Recorder, plan: &Plan<'_>) -> bool {
        let mut checks = plan.checks().iter().enumerate();
        checks.any(|(position, check)| {
            !recorder.has_text(check.key.0)
                && recorder.wants_text(fingerprint(plan, position), check.key.0)
        })
    }

    /// Counts the keys of the checks that were decided, and keeps texts of keys that have none.
    pub(super) fn count_keys(
        &self,
        recorder: &mut Recorder,
        ended: &Ended<'_>,
        matched: &Matched<'_>,
        wants_texts: bool,
        now_us: u64,
    ) {
        recorder.begin(now_us);
        if !matched.outcomes.is_empty() {
            count(matched, ended.end.code(), recorder, now_us);
        }
        if wants_texts {
            self.keep_texts(matched.plan, ended.request, recorder);
        }
    }

    /// Keeps the texts of keys that have none.
    #[cold]
    fn keep_texts(&self, plan: &Plan<'_>, request: &Request<'_>, recorder: &mut Recorder) {
        let planned = plan.descriptors().iter().zip(plan.matched());
        for (descriptor, (planned, matched)) in request.descriptors().zip(planned) {
            let DescriptorPlan::Checks(checks) = planned else {
                continue;
            };
            for position in checks.clone() {
                let Some(check) = plan.planned_check(position) else {
                    continue;
                };
                let (rule, levels) = match check.origin {
                    LimitOrigin::Rule(rule) => (Some(rule), matched.entries),
                    LimitOrigin::Override => (None, descriptor.entries.len()),
                };
                let key = check.check.key.0;
                if recorder.wants_text(fingerprint(plan, position), key) {
                    let entries = descriptor.entries;
                    let entries = entries.get(..levels).unwrap_or(entries);
                    let values = self.top_keys.values();
                    let text = Text::new(rule, request.domain, entries, values);
                    recorder.keep_text(key, text);
                }
            }
        }
    }
}

/// The hits that a key is counted with: those that it asked for. A reservation counts when it is
/// made, a commit with what it exceeds the reservation by, or in full where there was none.
#[inline]
fn counted_hits(check: &Check, outcome: &Outcome) -> u64 {
    match check.operation.hits {
        Hits::Take(hits) => hits,
        hits => hits_of_settle(hits, outcome),
    }
}

#[cold]
fn hits_of_settle(hits: Hits, outcome: &Outcome) -> u64 {
    match hits {
        Hits::Charge(hits) => hits,
        Hits::Reservation(Step::Commit { hits, .. }) => match outcome.reservation {
            ReservationOutcome::Settled => {
                let settled = outcome.settled().unwrap_or_default();
                settled.committed.saturating_sub(settled.reserved)
            }
            ReservationOutcome::Charged => hits,
            _ => 0,
        },
        hits => hits.requested(),
    }
}

/// What became of hits over the limit.
fn over_outcome(
    matched: &Matched<'_>,
    position: usize,
    outcome: &Outcome,
    code: Option<Code>,
) -> HitOutcome {
    let Matched { plan, decision, .. } = *matched;
    let mut planned = plan.descriptors().iter().zip(&decision.statuses);
    let status = planned.find_map(|(planned, status)| match planned {
        DescriptorPlan::Checks(positions) => positions.contains(&position).then_some(status),
        _ => None,
    });
    let refuses = status.is_none_or(|status| !status.quota) || decision.quotas_refuse();
    let planned = plan.planned_check(position);
    planned.map_or(HitOutcome::Refused, |planned| {
        hit_outcome(planned.check, outcome, planned.origin, code, refuses)
    })
}

/// Counts the hits of each check that was decided, in a request that the recorder has begun.
#[inline]
fn count(matched: &Matched<'_>, code: Option<Code>, recorder: &mut Recorder, now_us: u64) {
    let plan = matched.plan;
    for (position, (check, outcome)) in plan.checks().iter().zip(matched.outcomes).enumerate() {
        if let Some(outcome) = outcome
            && let hits = counted_hits(check, outcome)
            && hits > 0
        {
            let key = check.key.0;
            let became = if outcome.allowed {
                HitOutcome::Admitted
            } else {
                over_outcome(matched, position, outcome, code)
            };
            // No summary has the fingerprint of an override.
            let hit = Hit::new(now_us, check.fingerprint, key, hits, became);
            if !recorder.record_known(&hit) {
                let rule = fingerprint(plan, position);
                recorder.record(&Hit { rule, ..hit });
            }
        }
    }
}
