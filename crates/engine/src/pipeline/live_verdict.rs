//! What a candidate's decision needs of a request that has its answer.

use tollgate_limiter::{Code, Decision, Hits, Outcome, Plan, Request, Step};

use crate::pipeline::candidate_rules::CandidateRules;
use tollgate_admin_api::CandidateOrigin;

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
