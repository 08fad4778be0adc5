//! A plan and its outcomes, concluded: the answer, and what to count about it.
//!
//! Why the counting is here: how many of the hits were near or over the limit is arithmetic of the reference service
//! ([`Tally`]), part of what operators alert on, and wants tests without a metrics library.
//!
//! What it deliberately does not do: encode, record, decide what an overloaded store should mean (a setting does).

use super::algorithm::Outcome;
use super::descriptor::Hits;
use super::limit::Limit;
use super::plan::{Check, Line, Plan, Subject};

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
    pub until_us: Option<u64>,
    /// Whether it counts as a quota.
    pub quota: bool,
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
    pub fn conclude(
        &self,
        outcomes: &[Option<Outcome>],
        undecided: Code,
        modes: Modes,
    ) -> Decision<'r> {
        let mut outcomes = outcomes.iter();
        self.decide(modes, |check, subject| {
            match (outcomes.next().copied().flatten(), undecided) {
                (Some(outcome), _) => Status::of(check, subject, &outcome),
                (None, Code::OverLimit)
                    if !subject.shadow_mode() && matches!(check.hits, Hits::Take(_)) =>
                {
                    Status {
                        code: Code::OverLimit,
                        current_limit: Some(subject.current_limit(check)),
                        until_us: Some(UNDECIDED_RETRY_US),
                        ..Status::pass()
                    }
                }
                (None, _) => Status::pass(),
            }
        })
    }

    fn decide(
        &self,
        modes: Modes,
        mut status: impl FnMut(&Check, Subject<'r>) -> Status<'r>,
    ) -> Decision<'r> {
        let mut statuses = Vec::with_capacity(self.lines.len());
        let (mut over, mut quotas, mut quotas_over) = (false, 0_usize, 0_usize);
        for line in &self.lines {
            let (mut status, quota) = match line {
                Line::Pass => (Status::pass(), modes.quota),
                // Takes no part, and is never over.
                Line::Unlimited => (Status::unlimited(), false),
                Line::Check { check, subject, .. } => {
                    (status(check, *subject), modes.quota || subject.quota_mode())
                }
            };
            status.quota = quota;
            let status_over = status.code == Code::OverLimit;
            if quota {
                quotas = quotas.saturating_add(1);
                quotas_over = quotas_over.saturating_add(usize::from(status_over));
            } else {
                over |= status_over;
            }
            statuses.push(status);
        }
        over |= quotas > 0 && quotas_over == quotas;
        Decision {
            code: if over && !modes.shadow {
                Code::OverLimit
            } else {
                Code::Ok
            },
            shadowed: over && modes.shadow,
            statuses,
        }
    }
}

// === impl Subject ===

impl<'r> Subject<'r> {
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
            until_us: None,
            quota: false,
        }
    }

    fn unlimited() -> Self {
        Self {
            remaining: u32::MAX,
            ..Self::pass()
        }
    }

    fn of(check: &Check, subject: Subject<'r>, outcome: &Outcome) -> Self {
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
            until_us: Some(match (code, outcome.retry_us, outcome.reset_us) {
                (Code::OverLimit, Some(retry_us), _) => retry_us,
                // Never, and nothing to wait for either: "try again in 0 s" would be asked again and again.
                (Code::OverLimit, None, 0) => check.limit.window().as_us(),
                (_, _, reset_us) => reset_us,
            }),
            quota: false,
        }
    }
}

// === impl Tally ===

impl Tally {
    /// The reference service's arithmetic, which splits hits that straddle the limit; where refused hits are not counted
    /// there is nothing to split. `near_ratio` is the share of the limit from which hits
    /// count as near it.
    pub fn of(check: &Check, outcome: &Outcome, shadow_mode: bool, near_ratio: f32) -> Self {
        let Hits::Take(hits) = check.hits else {
            return Self {
                negative_hits: check.hits.count(),
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
        } else if before >= limit || !check.algorithm.counts_refused() {
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

/// The reference computes it in 32-bit floats, and so must whoever wants its figures.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
#[allow(clippy::cast_sign_loss)] // `as` saturates
fn near_mark(limit: u64, ratio: f32) -> u64 {
    (limit as f32 * ratio).floor() as u64
}
