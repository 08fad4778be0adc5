//! Computes the expected response to a request from the outcomes of its checks.
//!
//! How: in the order of the request's descriptors, by the rules that were in use when the request
//! began. A check that was not decided is answered by the overload setting; a late one is always an
//! error. Neither the setting nor an error outweighs a check that was decided against the request.
//! Of several limits on one descriptor the tightest is reported, after refunds.
//!
//! What it deliberately does not do: check retry times (the limiter's laws). It checks only whether
//! the answer has one, and which of two refusals waits longer.

use tollgate::pipeline::RequestError;
use tollgate::store::StoreError;
use tollgate_limiter::{Hits, OnUndecided, Outcome};
use tollgate_test_support::grpc_client::{Code, RateLimitResponse};

use super::{Caller, CheckRecord};
use crate::simulation::scenario::{Mode, RuleEntry, Rules, Terms, unit_on_the_wire};

pub(crate) const OK: i32 = Code::Ok as i32;
const OVER: i32 = Code::OverLimit as i32;

/// The compared part of an answer: the overall code and the statuses, or the error.
pub(super) type Answer = Result<(i32, Vec<Status>), String>;

#[derive(Debug, Eq, PartialEq)]
pub(super) struct Status {
    code: i32,
    /// Number of requests, unit, and number of units.
    limit: Option<(u32, i32, u32)>,
    remaining: u32,
    has_reset: bool,
}

pub(super) fn compared(answer: &Result<RateLimitResponse, RequestError>) -> Answer {
    let answer = answer.as_ref().map_err(ToString::to_string)?;
    let statuses = answer.statuses.iter().map(|status| Status {
        code: status.code,
        limit: status.current_limit.as_ref().map(|limit| {
            (
                limit.requests_per_unit,
                limit.unit,
                limit.unit_multiplier.unwrap_or(1),
            )
        }),
        remaining: status.limit_remaining,
        has_reset: status.duration_until_reset.is_some(),
    });
    Ok((answer.overall_code, statuses.collect()))
}

/// One limit's contribution to the status of its descriptor.
struct LimitStatus {
    status: Status,
    /// Sort key; less is tighter. Limits that are over come first, also in shadow mode: first those
    /// that never pass, then by the longest wait. The others are ordered by remaining hits.
    tightness: (u8, u64),
}

pub(super) fn expected(caller: &Caller, rules: &Rules, on_overload: OnUndecided) -> Answer {
    let reply = caller.checks.iter().map(|check| check.reply.as_ref());
    let error = reply.flatten().find_map(|reply| reply.as_ref().err());
    let error_stands =
        on_overload == OnUndecided::Error || error == Some(&StoreError::DeadlineExceeded);
    let undecided = if on_overload == OnUndecided::Deny && !error_stands {
        OVER
    } else {
        OK
    };

    let over = is_over(caller, rules, undecided);
    if let (Some(error), true, false) = (error, error_stands, over) {
        return Err(error.to_string());
    }
    let mut from = 0;
    let statuses = caller.wishes.iter().map(|wish| match rules.say(wish) {
        RuleEntry::Nothing => Status::pass(0),
        RuleEntry::Unlimited => Status::pass(u32::MAX),
        RuleEntry::Limited(terms) => {
            let voices = (from..from + terms.len()).map(|position| {
                let back = if over {
                    refunded_hits(caller, position)
                } else {
                    0
                };
                LimitStatus::of(&caller.checks[position], undecided, back)
            });
            from += terms.len();
            let tightest = voices.min_by_key(|voice| voice.tightness);
            tightest.unwrap().status
        }
    });
    Ok((if over { OVER } else { OK }, statuses.collect()))
}

/// Whether the request is refused: by an enforced limit, or by all of its quotas.
fn is_over(caller: &Caller, rules: &Rules, undecided: i32) -> bool {
    let mut checks = caller.checks.iter();
    let mut quotas = Vec::new();
    let mut over = false;
    for wish in &caller.wishes {
        if let RuleEntry::Limited(terms) = rules.say(wish) {
            let of_wish = checks.by_ref().take(terms.len());
            let codes: Vec<_> = of_wish
                .map(|check| LimitStatus::of(check, undecided, 0).status.code)
                .collect();
            let wish_over = codes.contains(&OVER);
            match terms[0].mode {
                Mode::Quota => quotas.push(wish_over),
                Mode::Enforced | Mode::Shadow => over |= wish_over,
            }
        }
    }
    over || (!quotas.is_empty() && quotas.iter().all(|over| *over))
}

/// Additional hits that remain in the bucket of a check after a refused request was refunded: those
/// of this check and of earlier checks of the same bucket.
fn refunded_hits(caller: &Caller, position: usize) -> u64 {
    let bucket = |check: &CheckRecord| check.wish.bucket(&check.terms);
    let asked = &caller.checks[position];
    if !caller.on_trial {
        return 0;
    }
    let back = caller.checks[..=position].iter().filter(|check| {
        let took = matches!(&check.reply, Some(Ok(outcome)) if outcome.allowed);
        took && bucket(check) == bucket(asked) && !check.terms.keeps_what_others_refuse()
    });
    back.map(|check| check.wish.hits.requested()).sum()
}

fn limit(terms: &Terms) -> (u32, i32, u32) {
    match terms.algorithm {
        // Slots in flight have no unit.
        "concurrency" => (terms.requests, 0, 1),
        _ => (
            terms.requests,
            unit_on_the_wire(terms.unit),
            terms.multiplier,
        ),
    }
}

// === impl LimitStatus ===

impl LimitStatus {
    fn of(check: &CheckRecord, undecided: i32, back: u64) -> Self {
        let (terms, shadow) = (&check.terms, check.terms.mode == Mode::Shadow);
        let limit = Some(limit(terms));
        let Some(Ok(outcome)) = &check.reply else {
            let takes = matches!(check.wish.hits, Hits::Take(_));
            if undecided == OK || shadow || !takes {
                return Self {
                    status: Status::pass(0),
                    tightness: (3, 0),
                };
            }
            let status = Status {
                code: OVER,
                limit,
                remaining: 0,
                has_reset: true,
            };
            return Self {
                status,
                tightness: if check.wish.hits.requested() > terms.burst.into() {
                    // Never passes, whether or not the store decides.
                    (0, u64::MAX - terms.window_us())
                } else {
                    // The wait is a second.
                    (1, u64::MAX - 1_000_000)
                },
            };
        };
        let remaining = if outcome.allowed {
            // An earlier refund may have emptied the bucket.
            let left = (outcome.remaining + back).min(terms.burst.into());
            u32::try_from(left).unwrap()
        } else {
            0
        };
        let (code, tightness) = match (outcome.allowed, outcome.retry_us) {
            (true, _) => (OK, (2, remaining.into())),
            // Over, and only watched: it is reply until when it is not fresh.
            (false, _) if shadow => (OK, (1, u64::MAX - outcome.reset_us)),
            (false, Some(retry_us)) => (OVER, (1, u64::MAX - retry_us)),
            (false, None) => (OVER, (0, u64::MAX - waits_us(terms, outcome))),
        };
        Self {
            status: Status {
                code,
                limit,
                remaining,
                has_reset: true,
            },
            tightness,
        }
    }
}

/// The wait that is reported for hits that never pass.
fn waits_us(terms: &Terms, outcome: &Outcome) -> u64 {
    match outcome.reset_us {
        0 => terms.window_us(),
        reset_us => reset_us,
    }
}

// === impl Status ===

impl Status {
    fn pass(remaining: u32) -> Self {
        Self {
            code: OK,
            limit: None,
            remaining,
            has_reset: false,
        }
    }
}
