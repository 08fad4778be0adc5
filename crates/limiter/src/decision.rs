//! A plan and its outcomes, concluded: the answer, and what to count about it.
//!
//! Why the counting is here: how many of the hits were near or over the limit is arithmetic of the reference service
//! ([`Tally`]), part of what operators alert on, and wants tests without a metrics library.
//!
//! What it deliberately does not do: encode, record, decide what an overloaded store should mean (a setting does).

use std::collections::HashMap;

use super::algorithm::{self, Outcome};
use super::descriptor::Hits;
use super::key::Key;
use super::limit::{CountRefused, Limit};
use super::plan::{Check, DescriptorPlan, LimitOrigin, Plan, PlannedCheck};

/// Pass or do not pass.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Code {
    /// May pass.
    Ok,
    /// Is over a limit.
    OverLimit,
}

/// The limit that a status speaks of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CurrentLimit<'r> {
    /// The rule's name; empty if it has none.
    pub name: &'r str,
    /// How many, in how long.
    pub limit: Limit,
}

/// The answer for one descriptor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Status<'r> {
    /// Pass or not.
    pub code: Code,
    /// Absent when no limit applies.
    pub current_limit: Option<CurrentLimit<'r>>,
    /// Hits left; `u32::MAX` when unlimited.
    pub remaining: u32,
    /// Retry when over limit, reset otherwise; absent when no limit applies.
    pub until_reset_us: Option<u64>,
    /// Whether `until_reset_us` is when the same hits would pass: over limit, and not for ever.
    pub can_retry: bool,
    /// Whether it counts as a quota.
    pub quota: bool,
    /// Which of [`Plan::checks`] it speaks of: of several limits on one descriptor, the tightest.
    pub check_index: Option<usize>,
}

/// What applies to every rule of a service.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Modes {
    /// Requests over limit pass and are counted; statuses tell the truth.
    pub shadow: bool,
    /// Every descriptor counts as a quota, those without a limit too.
    pub quota: bool,
}

/// The answer for a whole request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Decision<'r> {
    /// What is to be done. Over limit when any status is; where there are quotas, when any other status is or all
    /// quotas are.
    pub code: Code,
    /// It would be over limit, were it not for [`Modes::shadow`].
    pub shadowed: bool,
    /// One a descriptor, in the order asked.
    pub statuses: Vec<Status<'r>>,
}

impl Decision<'_> {
    /// A decision without statuses, for a request that was not held against any rule.
    pub fn of_code(code: Code) -> Self {
        Self {
            code,
            shadowed: false,
            statuses: Vec::new(),
        }
    }

    /// The vector of its statuses, empty, for decisions by other rules.
    pub fn recycle_statuses<'s>(mut self) -> Vec<Status<'s>> {
        self.statuses.clear();
        // Nothing is left to map; the vector's memory goes along (`service/door/allocations` holds it).
        self.statuses.into_iter().map(|_| Status::pass()).collect()
    }
}

/// What one outcome adds to its limit's counters, in hits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    /// Asked for.
    pub total_hits: u64,
    /// Beyond the limit.
    pub over_limit: u64,
    /// Beyond the near mark (a share of the limit, 0.8 by default) and not beyond the limit.
    pub near_limit: u64,
    /// Of requests that passed.
    pub within_limit: u64,
    /// Beyond the limit of a rule in shadow mode.
    pub shadow_mode: u64,
    /// Given back.
    pub negative_hits: u64,
}

/// How long a caller should wait when the store could not say, in microseconds: one second.
const UNDECIDED_RETRY_US: u64 = 1_000_000;

// === impl Plan ===

impl<'r> Plan<'r> {
    /// The decision, given one outcome a check in the order of [`Plan::checks`]. For a check that has none, because the
    /// store did not decide it, `undecided` stands; but what is never enforced is not refused for that either.
    pub fn decide(
        &self,
        outcomes: &[Option<Outcome>],
        undecided: Code,
        modes: Modes,
    ) -> Decision<'r> {
        self.decide_into(Vec::new(), outcomes, undecided, modes)
    }

    /// The same, with the statuses in a vector that was used before.
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
            // Who is over stays so; which limit leaves the least may be another one now.
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
        let status = |line: &DescriptorPlan| {
            let (mut status, quota) = match line {
                DescriptorPlan::NoLimit => (Status::pass(), modes.quota),
                // Takes no part, and is never over.
                DescriptorPlan::Unlimited => (Status::unlimited(), false),
                DescriptorPlan::Checks(checks) => {
                    let each = checks.clone().filter_map(|position| {
                        let outcome = outcomes.get(position).copied().flatten();
                        let asked = self.planned_check(position)?;
                        let mut status = Status::of(&asked, outcome.as_ref(), undecided);
                        status.check_index = Some(position);
                        let over = outcome.is_some_and(|outcome| !outcome.allowed);
                        let quota = modes.quota || asked.origin.quota_mode();
                        Some((status.slack(over), status, quota))
                    });
                    // Of several alike the first.
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

    /// What was taken for nothing goes back, and is left over: what a check took, and those before it from the same bucket.
    fn after_refunds(&self, outcomes: &[Option<Outcome>]) -> Vec<Option<Outcome>> {
        let mut going_back: HashMap<Key, u64> = HashMap::new();
        let asked = self.checks().iter().zip(outcomes);
        let after = asked.map(|(check, outcome)| {
            let mut outcome = (*outcome)?;
            let back = going_back.entry(check.key).or_default();
            if outcome.allowed && !check.keeps_refused_hits() {
                *back = back.saturating_add(check.operation.hits.requested());
            }
            // No more than there is: a refund may have freed it before.
            let left = outcome.remaining.saturating_add(*back);
            outcome.remaining = left.min(check.limit.burst().max(outcome.remaining));
            Some(outcome)
        });
        after.collect()
    }
}

// === impl Check ===

impl Check {
    /// Whether what it took stays taken when another limit of the request refuses, all or nothing or not.
    pub fn keeps_refused_hits(&self) -> bool {
        algorithm::count_refused(self.algorithm, &self.limit) == CountRefused::All
    }
}

// === impl Subject ===

impl<'r> LimitOrigin<'r> {
    /// Whether it is counted and never enforced.
    pub fn shadow_mode(self) -> bool {
        match self {
            Self::Rule(rule) => rule.shadow_mode,
            Self::Override => false,
        }
    }

    /// Whether it is one of several ways to pass.
    pub fn quota_mode(self) -> bool {
        match self {
            Self::Rule(rule) => rule.quota_mode,
            Self::Override => false,
        }
    }

    fn current_limit(self, check: &Check) -> CurrentLimit<'r> {
        CurrentLimit {
            name: match self {
                Self::Rule(rule) => &rule.name,
                Self::Override => "",
            },
            limit: check.limit,
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
            remaining: u32::MAX,
            ..Self::pass()
        }
    }

    /// The status that one check gives its descriptor. Where the store did not decide, `undecided` stands; but what is
    /// never enforced is not refused for that either.
    fn of(asked: &PlannedCheck<'_, 'r>, outcome: Option<&Outcome>, undecided: Code) -> Self {
        let PlannedCheck {
            check,
            origin: subject,
        } = asked;
        let Some(outcome) = outcome else {
            let takes = matches!(check.operation.hits, Hits::Take(_));
            return match undecided {
                Code::OverLimit if takes && !subject.shadow_mode() => Self {
                    code: Code::OverLimit,
                    current_limit: Some(subject.current_limit(check)),
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
        let code = if over && !subject.shadow_mode() {
            Code::OverLimit
        } else {
            Code::Ok
        };
        Self {
            code,
            current_limit: Some(subject.current_limit(check)),
            remaining: if over {
                0
            } else {
                u32::try_from(outcome.remaining).unwrap_or(u32::MAX)
            },
            until_reset_us: Some(match (code, outcome.retry_us, outcome.reset_us) {
                (Code::OverLimit, Some(retry_us), _) => retry_us,
                // Never, and nothing to wait for either: "try again in 0 s" would be asked again and again.
                (Code::OverLimit, None, 0) => check.limit.window().as_us(),
                (_, _, reset_us) => reset_us,
            }),
            can_retry: code == Code::OverLimit && outcome.retry_us.is_some(),
            ..Self::pass()
        }
    }

    /// How much room a limit leaves: of several on one descriptor the one with least answers. Over comes before within,
    /// also where that is only watched (or nobody would be told of it); the longer wait before the shorter, for ever before
    /// any; and within, the one with less left.
    fn slack(&self, over: bool) -> (u8, bool, u64) {
        let wait = self.until_reset_us.unwrap_or_default();
        match self.code {
            Code::OverLimit => (0, self.can_retry, u64::MAX.saturating_sub(wait)),
            Code::Ok if over => (0, true, u64::MAX.saturating_sub(wait)),
            Code::Ok if self.current_limit.is_some() => (1, true, u64::from(self.remaining)),
            Code::Ok => (2, true, 0),
        }
    }
}

// === impl Tally ===

impl Tally {
    /// The reference service's arithmetic, which splits hits that straddle the limit; where refused hits are not counted
    /// there is nothing to split. `near_ratio` is the share of the limit from which hits
    /// count as near it.
    pub fn of(check: &Check, outcome: &Outcome, shadow_mode: bool, near_ratio: f32) -> Self {
        let Hits::Take(hits) = check.operation.hits else {
            return Self {
                negative_hits: check.operation.hits.count(),
                ..Self::default()
            };
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
            // Refused whole, and none of it stays.
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
    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// No number above `hits_max`.
    #[must_use]
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

/// The reference computes it in 32-bit floats, and so must whoever wants its figures.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
#[allow(clippy::cast_sign_loss)] // `as` saturates
fn near_mark(limit: u64, ratio: f32) -> u64 {
    (limit as f32 * ratio).floor() as u64
}
