//! Why a descriptor and a request were answered as they were.

use tollgate_limiter::{DescriptorPlan, LimitOrigin, MatchedRules, Request, Status};

use crate::ended::Matched;
use tollgate_admin_api::{Reason, Verdict};

impl Matched<'_> {
    /// Why the descriptor at `position` was answered as it was.
    pub(super) fn descriptor_reason(
        &self,
        request: &Request<'_>,
        position: usize,
        matched: &MatchedRules<'_>,
        status: &Status<'_>,
    ) -> Reason {
        match self.plan.descriptors().get(position) {
            Some(DescriptorPlan::Unlimited) => Reason::Unlimited,
            Some(DescriptorPlan::Checks(_)) => self.check_reason(status),
            Some(DescriptorPlan::NoLimit) | None => {
                if !matched.rules.is_empty() {
                    return Reason::Replaced;
                }
                let Some(domain) = self.rules.domain(request.domain) else {
                    return Reason::UnknownDomain;
                };
                let descriptor = request.descriptors().nth(position);
                let entries = descriptor
                    .map(|descriptor| descriptor.entries)
                    .unwrap_or_default();
                if domain.has_level(entries) {
                    Reason::NoLimit
                } else {
                    Reason::NoRule
                }
            }
        }
    }

    /// The reason of a descriptor that has limits, from the one that answered.
    fn check_reason(&self, status: &Status<'_>) -> Reason {
        let Some(position) = status.check_index else {
            return Reason::WithinLimit;
        };
        let Some(outcome) = self.outcomes.get(position).copied().flatten() else {
            return self.undecided.unwrap_or(Reason::Error);
        };
        let local = self.local.contains(&position);
        if outcome.allowed {
            return if local {
                Reason::StoreFailureLocal
            } else {
                Reason::WithinLimit
            };
        }
        let origin = self.plan.planned_check(position).map(|check| check.origin);
        if origin.is_some_and(LimitOrigin::shadow_mode) {
            return Reason::ShadowMode;
        }
        if self.decision.shadowed {
            return Reason::GlobalShadowMode;
        }
        if status.quota && !self.decision.quotas_refuse() {
            return Reason::Quota;
        }
        if local {
            Reason::StoreFailureLocal
        } else if outcome.blocked {
            Reason::Penalty
        } else if self.from_denial_cache {
            Reason::OverLimitCache
        } else {
            Reason::OverLimit
        }
    }
}

/// The reason of a whole request: of its descriptors' reasons, the one that explains the most.
pub(super) fn overall(verdict: Verdict, reasons: impl Iterator<Item = Reason>) -> Reason {
    match verdict {
        Verdict::Error => Reason::Error,
        Verdict::Ok | Verdict::OverLimit => reasons
            .min_by_key(|reason| rank(*reason))
            .unwrap_or(Reason::WithinLimit),
    }
}

/// Reasons that explain more come first.
fn rank(reason: Reason) -> u8 {
    match reason {
        Reason::OverLimit | Reason::Penalty => 0,
        Reason::OverLimitCache => 1,
        Reason::StoreFailureDenied => 2,
        Reason::OverloadDenied => 3,
        Reason::ExcessDenied => 4,
        Reason::GlobalShadowMode => 5,
        Reason::ShadowMode => 6,
        Reason::Quota => 7,
        Reason::StoreFailureLocal => 8,
        Reason::StoreFailureAllowed => 9,
        Reason::OverloadAllowed => 10,
        Reason::ExcessAllowed => 11,
        Reason::Error => 12,
        Reason::WithinLimit => 13,
        Reason::Unlimited => 14,
        Reason::Replaced => 15,
        Reason::NoLimit => 16,
        Reason::NoRule => 17,
        Reason::UnknownDomain => 18,
    }
}
