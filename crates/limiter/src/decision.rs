//! Turns a plan and its outcomes into the answer and into counts.
//!
//! Why the counting is here: which hits were near or over the limit is arithmetic of the reference
//! service ([`Tally`]). Operators alert on it, and its tests need no metrics library.
//!
//! What it deliberately does not do: encode, record, or decide what an overloaded store means (a
//! setting does).

use std::collections::HashMap;

use super::algorithm::{self, Outcome, Settled};
use super::check::{Check, LimitOrigin, PlannedCheck};
use super::descriptor::Hits;
use super::key::Key;
use super::limit::{CountRefused, Limit};
use super::plan::{DescriptorPlan, Plan};
use super::reservation::{ReservationOutcome, Step};

/// The most checks of a refused request that are compared with each other. More are hashed.
const COMPARED_CHECKS_MAX: usize = 16;

/// Whether a request or a descriptor passes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Code {
    /// Passes.
    Ok,
    /// Exceeds a limit.
    OverLimit,
}

/// The limit that a status reports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CurrentLimit<'r> {
    /// The rule's name; empty if it has none.
    pub name: &'r str,
    /// The limit.
    pub limit: Limit,
}

/// The answer for one descriptor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Status<'r> {
    /// Whether the descriptor passes.
    pub code: Code,
    /// Absent when no limit applies.
    pub current_limit: Option<CurrentLimit<'r>>,
    /// Hits left; `u32::MAX` when unlimited.
    pub remaining: u64,
    /// Retry time when over limit, reset time otherwise; absent when no limit applies.
    pub until_reset_us: Option<u64>,
    /// Whether the same hits would pass after `until_reset_us`: over limit, and not for ever.
    pub can_retry: bool,
    /// Whether it counts as a quota.
    pub quota: bool,
    /// The index in [`Plan::checks`] of the check that it reports: of several limits on one
    /// descriptor, the tightest.
    pub check_index: Option<usize>,
}

/// Modes that apply to every rule of a service.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Modes {
    /// Requests over limit pass and are counted. Statuses still report the refusal.
    pub shadow: bool,
    /// Every descriptor counts as a quota, also without a limit.
    pub quota: bool,
}

/// The answer for a whole request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Decision<'r> {
    /// The answer to send. Over limit when any status is. With quotas: when any other status is, or
    /// all quotas are.
    pub code: Code,
    /// Whether it would be over limit without [`Modes::shadow`].
    pub shadowed: bool,
    /// One for each descriptor, in the order sent.
    pub statuses: Vec<Status<'r>>,
}

impl Decision<'_> {
    /// Whether all descriptors that count as quotas are over limit: only then do quotas refuse.
    pub fn quotas_refuse(&self) -> bool {
        let mut quotas = self.statuses.iter().filter(|status| status.quota);
        quotas.all(|status| status.code == Code::OverLimit)
    }

    /// A decision without statuses, for a request that was not matched against rules.
    #[inline]
    pub fn of_code(code: Code) -> Self {
        Self {
            code,
            shadowed: false,
            statuses: Vec::new(),
        }
    }

    /// The empty vector of its statuses, for a decision by other rules.
    #[inline]
    pub fn recycle_statuses<'s>(mut self) -> Vec<Status<'s>> {
        self.statuses.clear();
        // The iterator is empty. `collect` reuses the allocation (the allocation tests check it).
        self.statuses.into_iter().map(|_| Status::pass()).collect()
    }
}

/// What one outcome adds to its limit's counters, in hits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    /// Hits that were requested.
    pub total_hits: u64,
    /// Beyond the limit.
    pub over_limit: u64,
    /// Beyond the near mark (a share of the limit, 0.8 by default) and not beyond the limit.
    pub near_limit: u64,
    /// Hits of requests that passed.
    pub within_limit: u64,
    /// Beyond the limit of a rule in shadow mode.
    pub shadow_mode: u64,
    /// Hits that were given back.
    pub negative_hits: u64,
}

/// The retry time when the store did not decide, in microseconds: one second.
const UNDECIDED_RETRY_US: u64 = 1_000_000;

// === impl Plan ===

impl<'r> Plan<'r> {
    /// Decides, given one outcome for each of [`Plan::checks`], in order. `undecided` applies to a
    /// check without an outcome, which the store did not decide. A limit that is never enforced
    /// does not refuse for that reason either.
    #[inline]
    pub fn decide(
        &self,
        outcomes: &[Option<Outcome>],
        undecided: Code,
        modes: Modes,
    ) -> Decision<'r> {
        self.decide_into(Vec::new(), outcomes, undecided, modes)
    }

    /// Decides, with the statuses in a vector that was used before.
    pub fn decide_into(
        &self,
        mut statuses: Vec<Status<'r>>,
        outcomes: &[Option<Outcome>],
        undecided: Code,
        modes: Modes,
    ) -> Decision<'r> {
        self.write_statuses(&mut statuses, outcomes, undecided, modes);
        let (mut over, mut quotas, mut quotas_over) = (false, 0_usize, 0_usize);
        for status in &statuses {
            let status_over = status.code == Code::OverLimit;
            if status.quota {
                quotas = quotas.saturating_add(1);
                quotas_over = quotas_over.saturating_add(usize::from(status_over));
            } else {
                over |= status_over;
            }
        }
        over |= quotas > 0 && quotas_over == quotas;
        let refused = over && !modes.shadow;
        if refused && self.all_or_nothing() {
            // The statuses that are over limit stay so. Which limit has the least left can change.
            let after = self.after_refunds(outcomes);
            self.write_statuses(&mut statuses, &after, undecided, modes);
        }
        Decision {
            code: if refused { Code::OverLimit } else { Code::Ok },
            shadowed: over && modes.shadow,
            statuses,
        }
    }

    fn write_statuses(
        &self,
        statuses: &mut Vec<Status<'r>>,
        outcomes: &[Option<Outcome>],
        undecided: Code,
        modes: Modes,
    ) {
        let status = |planned: &DescriptorPlan| {
            let (mut status, quota) = match planned {
                DescriptorPlan::NoLimit => (Status::pass(), modes.quota),
                // Does not take part, and is never over limit.
                DescriptorPlan::Unlimited => (Status::unlimited(), false),
                DescriptorPlan::Checks(checks) => {
                    let each = checks.clone().filter_map(|position| {
                        let deciding = self.deciding(position);
                        let outcome = outcomes.get(deciding).copied().flatten();
                        let planned = self.planned_check(position)?;
                        let mut status = Status::of(&planned, outcome.as_ref(), undecided);
                        status.check_index = Some(position);
                        let over = outcome.is_some_and(|outcome| !outcome.allowed);
                        let quota = modes.quota || planned.origin.quota_mode();
                        Some((status.slack(over), status, quota))
                    });
                    // The first of several that are equal.
                    let tightest = each.min_by_key(|(slack, ..)| *slack);
                    tightest.map_or((Status::pass(), modes.quota), |(_, status, quota)| {
                        (status, quota)
                    })
                }
            };
            status.quota = quota;
            status
        };
        statuses.clear();
        statuses.extend(self.descriptors().iter().map(status));
    }

    /// The outcomes after the refunds of a refused request: what a check took is left again, and
    /// what earlier checks took from the same bucket.
    pub fn after_refunds(&self, outcomes: &[Option<Outcome>]) -> Vec<Option<Outcome>> {
        let checks = self.checks();
        let own = |check: &Check, outcome: &Outcome| {
            let goes_back = outcome.allowed && !check.keeps_refused_hits();
            if goes_back {
                check.operation.hits.requested()
            } else {
                0
            }
        };
        let planned = || checks.iter().zip(outcomes);
        let mut going_back: HashMap<Key, u64> = HashMap::new();
        let after = planned().enumerate().map(|(position, (check, outcome))| {
            let mut outcome = (*outcome)?;
            let back = if checks.len() <= COMPARED_CHECKS_MAX {
                let until = planned().take(position.saturating_add(1));
                let same = until.filter(|(other, _)| other.key == check.key);
                same.fold(0, |sum: u64, (other, outcome)| {
                    let back = outcome.as_ref().map_or(0, |outcome| own(other, outcome));
                    sum.saturating_add(back)
                })
            } else {
                let back = going_back.entry(check.key).or_default();
                *back = back.saturating_add(own(check, &outcome));
                *back
            };
            // Not more than the limit: a refund can have freed it before.
            let left = outcome.remaining.saturating_add(back);
            outcome.remaining = left.min(check.limit.burst().max(outcome.remaining));
            Some(outcome)
        });
        after.collect()
    }
}

// === impl CurrentLimit ===

impl<'r> CurrentLimit<'r> {
    fn of(planned: &PlannedCheck<'_, 'r>) -> Self {
        Self {
            name: match planned.origin {
                LimitOrigin::Rule(rule) => &rule.name,
                LimitOrigin::Override => "",
            },
            limit: planned.check.limit,
        }
    }
}

// === impl Status ===

impl<'r> Status<'r> {
    fn pass() -> Self {
        Self {
            code: Code::Ok,
            current_limit: None,
            remaining: 0,
            until_reset_us: None,
            can_retry: false,
            quota: false,
            check_index: None,
        }
    }

    fn unlimited() -> Self {
        Self {
            remaining: u32::MAX.into(),
            ..Self::pass()
        }
    }

    /// The status that one check gives its descriptor. `undecided` applies where the store did not
    /// decide. A limit that is never enforced does not refuse for that reason either.
    #[inline]
    fn of(planned: &PlannedCheck<'_, 'r>, outcome: Option<&Outcome>, undecided: Code) -> Self {
        let PlannedCheck { check, origin } = planned;
        let Some(outcome) = outcome else {
            let takes = check.operation.hits.can_be_refused();
            return match undecided {
                Code::OverLimit if takes && !origin.shadow_mode() => Self {
                    code: Code::OverLimit,
                    current_limit: Some(CurrentLimit::of(planned)),
                    until_reset_us: Some(if check.can_ever_pass() {
                        UNDECIDED_RETRY_US
                    } else {
                        check.limit.window().as_us()
                    }),
                    can_retry: check.can_ever_pass(),
                    ..Self::pass()
                },
                Code::OverLimit | Code::Ok => Self::pass(),
            };
        };
        let over = !outcome.allowed;
        let code = if over && !origin.shadow_mode() {
            Code::OverLimit
        } else {
            Code::Ok
        };
        Self {
            code,
            current_limit: Some(CurrentLimit::of(planned)),
            remaining: if over { 0 } else { outcome.remaining },
            until_reset_us: Some(match (code, outcome.retry_us, outcome.reset_us) {
                (Code::OverLimit, Some(retry_us), _) => retry_us,
                // It never passes, and there is no reset to wait for. A retry time of 0 s would
                // make callers retry at once, again and again.
                (Code::OverLimit, None, 0) => check.limit.window().as_us(),
                (_, _, reset_us) => reset_us,
            }),
            can_retry: code == Code::OverLimit && outcome.retry_us.is_some(),
            ..Self::pass()
        }
    }

    /// Orders limits by how little they leave: of several on one descriptor the first answers. Over
    /// limit comes before within, also for a limit in shadow mode, or no status would report it.
    /// Over limit, the longer wait comes first, and "never" before any wait. Within, the limit with
    /// less left comes first.
    fn slack(&self, over: bool) -> (u8, bool, u64) {
        let wait = self.until_reset_us.unwrap_or_default();
        match self.code {
            Code::OverLimit => (0, self.can_retry, u64::MAX.saturating_sub(wait)),
            Code::Ok if over => (0, true, u64::MAX.saturating_sub(wait)),
            Code::Ok if self.current_limit.is_some() => (1, true, self.remaining),
            Code::Ok => (2, true, 0),
        }
    }
}

// === impl Tally ===

impl Tally {
    /// Counts as the reference service does, which splits hits that straddle the limit. Where
    /// refused hits are not counted there is nothing to split. `near_ratio` is the share of the
    /// limit from which hits count as near it.
    pub fn of(check: &Check, outcome: &Outcome, shadow_mode: bool, near_ratio: f32) -> Self {
        let hits = match check.operation.hits {
            Hits::Take(hits) | Hits::Reservation(Step::Reserve { hits, .. }) => hits,
            hits => return Self::of_settled(hits, outcome),
        };
        let limit = check.limit.burst();
        let near = near_mark(limit, near_ratio);
        let before = outcome.used_before;
        let after = before.saturating_add(hits);
        let mut tally = Self {
            total_hits: hits,
            ..Self::default()
        };
        if outcome.allowed {
            tally.within_limit = hits;
            if after > near {
                tally.near_limit = if before >= near {
                    hits
                } else {
                    after.saturating_sub(near)
                };
            }
        } else if before >= limit
            || algorithm::count_refused(check.algorithm, &check.limit) == CountRefused::None
        {
            // Refused as a whole; no part of it counts.
            tally.over_limit = hits;
        } else {
            tally.over_limit = after.saturating_sub(limit);
            tally.near_limit = limit.saturating_sub(near.max(before));
        }
        if shadow_mode {
            tally.shadow_mode = tally.over_limit;
        }
        tally
    }
}

impl Tally {
    /// Counts hits that cannot be refused: what was given back, and what was charged beyond a
    /// reservation.
    #[cold]
    fn of_settled(hits: Hits, outcome: &Outcome) -> Self {
        let (charged, returned) = match (hits, outcome.reservation) {
            (Hits::Charge(hits), _) => (hits, 0),
            (_, ReservationOutcome::Charged) => (hits.count(), 0),
            (_, ReservationOutcome::Settled) => {
                let Settled {
                    reserved,
                    committed,
                } = outcome.settled().unwrap_or_default();
                (
                    committed.saturating_sub(reserved),
                    reserved.saturating_sub(committed),
                )
            }
            (Hits::Reservation(_), _) => (0, 0),
            (hits, _) => (0, hits.count()),
        };
        Self {
            total_hits: charged,
            within_limit: charged,
            negative_hits: returned,
            ..Self::default()
        }
    }

    /// The sum of both.
    #[must_use]
    #[inline]
    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// Caps every number at `hits_max`.
    #[must_use]
    #[inline]
    pub fn at_most(&self, hits_max: u64) -> Self {
        self.with(self, |hits, _| hits.min(hits_max))
    }

    fn with(&self, other: &Self, each: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            total_hits: each(self.total_hits, other.total_hits),
            over_limit: each(self.over_limit, other.over_limit),
            near_limit: each(self.near_limit, other.near_limit),
            within_limit: each(self.within_limit, other.within_limit),
            shadow_mode: each(self.shadow_mode, other.shadow_mode),
            negative_hits: each(self.negative_hits, other.negative_hits),
        }
    }
}

/// Uses 32-bit floats as the reference service does, to get the same figures.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
#[allow(clippy::cast_sign_loss)] // `as` saturates
fn near_mark(limit: u64, ratio: f32) -> u64 {
    (limit as f32 * ratio).floor() as u64
}
