//! Encodes the answer to a check as a `CheckResponse`, into buffers that a thread uses again.
//!
//! Why: plain checks are the clients' common call, and prost allocates three strings a limit.
//!
//! What it deliberately does not do: choose the content (`api/answer`), encode other calls, whose
//! tasks use prost.

use std::sync::Arc;

use tollgate_limiter::{Code, Decision, DescriptorPlan, Outcome, Plan, PlannedCheck};

use crate::pipeline::headers::retry_after_us;
use tollgate_wire::proto::tollgate::v1::Verdict;
use tollgate_wire::put::{put_bytes, put_message, put_number};

/// Numbers of a response's fields.
const VERDICT: u32 = 1;
const REMAINING: u32 = 2;
const ZERO_REMAINING: [u8; 2] = [2 << 3, 0];
const RESET: u32 = 3;
const RETRY_AFTER: u32 = 4;
const LIMITS: u32 = 5;
const NO_LIMIT: u32 = 6;
/// Numbers of a limit's fields.
const DESCRIPTOR: u32 = 1;
const NAME: u32 = 2;
const RULE: u32 = 3;
const REQUESTS_PER_UNIT: u32 = 4;
const WINDOW: u32 = 5;
const LIMIT_VERDICT: u32 = 6;
const LIMIT_REMAINING: u32 = 7;
const LIMIT_RESET: u32 = 8;
const LIMIT_RETRY_AFTER: u32 = 9;
/// Numbers of a duration's fields.
const SECONDS: u32 = 1;
const NANOS: u32 = 2;

/// The checks of a call that were decided, for this encoder and that of `api/answer`.
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

/// The buffers of answers, used again.
#[derive(Debug, Default)]
pub(super) struct CheckBuffers {
    answer: Vec<u8>,
    /// The encoded limits, which stand behind what is left of the tightest of them.
    limits: Vec<u8>,
    window: String,
    duration: LastDuration,
}

/// The duration that was encoded last. The next one mostly equals it: the reset of a request's
/// tightest limit is written twice.
#[derive(Debug, Default)]
struct LastDuration {
    us: u64,
    encoded: Vec<u8>,
}

// === impl CheckBuffers ===

impl CheckBuffers {
    /// The answer of this decision: what prost would write of it. There are no checks where a
    /// setting answered; the rules' names are by their index.
    #[inline]
    pub(super) fn encode(
        &mut self,
        decision: &Decision<'_>,
        checks: Option<(&DecidedChecks<'_>, &[Arc<str>])>,
    ) -> &[u8] {
        let mut tightest: Option<((bool, u64), Outcome)> = None;
        self.limits.clear();
        if let Some((checks, names)) = checks {
            for one in checks.iter() {
                let rule = one.planned.origin.rule();
                let name = rule.and_then(|rule| names.get(rule.index));
                self.put_limit(&one, name.map_or("", |name| name), checks.refuses(&one));
                let tightness = checks.tightness(&one);
                if tightest.is_none_or(|(least, _)| tightness < least) {
                    tightest = Some((tightness, one.outcome));
                }
            }
        }
        let (into, duration) = (&mut self.answer, &mut self.duration);
        into.clear();
        put_number(into, VERDICT, verdict(decision.code));
        if let Some((_, tightest)) = tightest {
            // Absent means that there is no limit, so a 0 is written.
            if tightest.remaining == 0 {
                into.extend_from_slice(&ZERO_REMAINING);
            }
            put_number(into, REMAINING, tightest.remaining);
            duration.put(into, RESET, tightest.reset_us);
        }
        if let Some(retry_us) = retry_after_us(decision) {
            duration.put(into, RETRY_AFTER, retry_us);
        }
        into.extend_from_slice(&self.limits);
        if self.limits.is_empty()
            && let Some((checks, _)) = checks
            && let Some(why) = NoLimit::of(checks.plan)
        {
            put_bytes(into, NO_LIMIT, why.name().as_bytes());
        }
        into
    }

    /// Adds a limit, of the rule of this name.
    fn put_limit(&mut self, check: &DecidedCheck<'_>, rule: &str, is_refused: bool) {
        let (limit, outcome) = (&check.planned.check.limit, check.outcome);
        let name = check.planned.origin.rule().map_or("", |rule| &*rule.name);
        let code = if is_refused {
            Code::OverLimit
        } else {
            Code::Ok
        };
        self.window.clear();
        limit.write_window(&mut self.window);
        let duration = &mut self.duration;
        put_message(&mut self.limits, LIMITS, |into| {
            put_number(into, DESCRIPTOR, check.descriptor as u64);
            put_bytes(into, NAME, name.as_bytes());
            put_bytes(into, RULE, rule.as_bytes());
            put_number(into, REQUESTS_PER_UNIT, limit.requests());
            put_bytes(into, WINDOW, self.window.as_bytes());
            put_number(into, LIMIT_VERDICT, verdict(code));
            put_number(into, LIMIT_REMAINING, outcome.remaining);
            duration.put(into, LIMIT_RESET, outcome.reset_us);
            if let Some(retry_us) = outcome.retry_us.filter(|_| is_refused) {
                duration.put(into, LIMIT_RETRY_AFTER, retry_us);
            }
        });
    }
}

fn verdict(code: Code) -> u64 {
    let verdict = match code {
        Code::Ok => Verdict::Ok,
        Code::OverLimit => Verdict::OverLimit,
    };
    verdict as u64
}

// === impl LastDuration ===

impl LastDuration {
    /// Puts a duration to the microsecond, also one of 0.
    fn put(&mut self, into: &mut Vec<u8>, field: u32, us: u64) {
        if self.us != us {
            self.us = us;
            self.encoded.clear();
            put_number(&mut self.encoded, SECONDS, us / 1_000_000);
            put_number(&mut self.encoded, NANOS, us % 1_000_000 * 1_000);
        }
        put_message(into, field, |into| into.extend_from_slice(&self.encoded));
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
