//! The checks of a call of the API that were decided, for the two encoders of its answer.

use tollgate_limiter::{DescriptorPlan, Outcome, Plan, PlannedCheck};

/// The checks of a call that were decided.
pub(super) struct DecidedChecks<'a> {
    pub(super) plan: &'a Plan<'a>,
    pub(super) outcomes: &'a [Option<Outcome>],
    /// Whether no limit is enforced.
    pub(super) shadow: bool,
}

/// One of them.
pub(super) struct DecidedCheck<'a> {
    pub(super) descriptor: usize,
    pub(super) planned: PlannedCheck<'a, 'a>,
    pub(super) outcome: Outcome,
}

tollgate_limiter::named! {
    /// Why no limit applies to a call. The names are for callers, as in records of decisions.
    pub enum NoLimit {
        /// No rules have its domain.
        UnknownDomain = "unknown_domain",
        /// No rule with a limit matches a descriptor.
        NoRule = "no_rule",
        /// A rule that matches says `unlimited`.
        Unlimited = "unlimited",
    }
}

// === impl DecidedChecks ===

impl DecidedChecks<'_> {
    /// Each of them, in the order of the descriptors.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = DecidedCheck<'_>> {
        let checks = self.plan.descriptor_checks();
        checks.filter_map(|(descriptor, position)| {
            Some(DecidedCheck {
                descriptor,
                planned: self.plan.planned_check(position)?,
                outcome: {
                    let deciding = self.plan.deciding(position);
                    self.outcomes.get(deciding).copied().flatten()?
                },
            })
        })
    }

    /// Whether the limit refuses the request.
    pub(super) fn refuses(&self, one: &DecidedCheck<'_>) -> bool {
        !one.outcome.allowed && !one.planned.origin.shadow_mode() && !self.shadow
    }

    /// Orders limits from the tightest: one that refused, then by the hits that are left.
    pub(super) fn tightness(&self, one: &DecidedCheck<'_>) -> (bool, u64) {
        (!self.refuses(one), one.outcome.remaining)
    }

    /// The outcome of the tightest limit.
    pub(super) fn tightest(&self, checks: &[DecidedCheck<'_>]) -> Option<Outcome> {
        let tightest = checks.iter().min_by_key(|one| self.tightness(one));
        tightest.map(|one| one.outcome)
    }
}

// === impl NoLimit ===

impl NoLimit {
    /// Of a plan. None where it has a limit.
    pub(crate) fn of(plan: &Plan<'_>) -> Option<Self> {
        let mut descriptors = plan.descriptors().iter();
        if plan.descriptor_checks().next().is_some() {
            None
        } else if !plan.domain_known() {
            Some(Self::UnknownDomain)
        } else if descriptors.any(|one| matches!(one, DescriptorPlan::Unlimited)) {
            Some(Self::Unlimited)
        } else {
            Some(Self::NoRule)
        }
    }
}
