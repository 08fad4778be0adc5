//! What a request should be answered, from what its checks came to.
//!
//! How: in the order of the descriptors asked, from the rules that were in use when the request
//! began. A check that was not decided is answered by the overload setting, but a late one only
//! ever with an error; and neither setting nor error outweighs a check that was decided against the
//! request. Of several limits on one descriptor the tightest speaks, after what goes back has gone
//! back.
//!
//! What it deliberately does not do: say when to come back (`tests/laws`), only whether the answer
//! speaks of it, and which of two refusals is the longer.

use tollgate::pipeline::RequestError;
use tollgate::settings::Verdict;
use tollgate::store::StoreError;
use tollgate_limiter::{Hits, Outcome};
use tollgate_test_support::grpc_client::{Code, RateLimitResponse};

use super::{Caller, CheckSeen};
use crate::scenario::{Mode, Rules, Said, Terms, unit_on_the_wire};

pub(crate) const OK: i32 = Code::Ok as i32;
const OVER: i32 = Code::OverLimit as i32;

/// An answer, as far as it is foretold: the overall code and the statuses, or the error.
pub(super) type Answer = Result<(i32, Vec<Status>), String>;

#[derive(Debug, Eq, PartialEq)]
pub(super) struct Status {
    code: i32,
    /// How many, of which unit, and how many of those.
    limit: Option<(u32, i32, u32)>,
    remaining: u32,
    says_when: bool,
}

pub(super) fn said(answer: &Result<RateLimitResponse, RequestError>) -> Answer {
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
        says_when: status.duration_until_reset.is_some(),
    });
    Ok((answer.overall_code, statuses.collect()))
}

/// What one limit says of its descriptor.
struct Voice {
    status: Status,
    /// Less is tighter: who is over before who is not, also where it passes; for ever, then the
    /// longest wait; the least left.
    tightness: (u8, u64),
}

pub(super) fn expected(caller: &Caller, rules: &Rules, on_overload: Verdict) -> Answer {
    let told = caller.checks.iter().map(|check| check.told.as_ref());
    let error = told.flatten().find_map(|told| told.as_ref().err());
    let error_stands =
        on_overload == Verdict::Error || error == Some(&StoreError::DeadlineExceeded);
    let undecided = if on_overload == Verdict::Deny && !error_stands {
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
        Said::Nothing => Status::pass(0),
        Said::Unlimited => Status::pass(u32::MAX),
        Said::Limited(terms) => {
            let voices = (from..from + terms.len()).map(|position| {
                let back = if over { goes_back(caller, position) } else { 0 };
                Voice::of(&caller.checks[position], undecided, back)
            });
            from += terms.len();
            let tightest = voices.min_by_key(|voice| voice.tightness);
            tightest.unwrap().status
        }
    });
    Ok((if over { OVER } else { OK }, statuses.collect()))
}

/// Whether the request is refused: by a limit that is enforced, or by all quotas there are.
fn is_over(caller: &Caller, rules: &Rules, undecided: i32) -> bool {
    let mut checks = caller.checks.iter();
    let mut quotas = Vec::new();
    let mut over = false;
    for wish in &caller.wishes {
        if let Said::Limited(terms) = rules.say(wish) {
            let of_wish = checks.by_ref().take(terms.len());
            let codes: Vec<_> = of_wish
                .map(|check| Voice::of(check, undecided, 0).status.code)
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

/// How much more is left of the limit of a check when a refused request has given back what it
/// took: what this check took, and those before it from the same bucket.
fn goes_back(caller: &Caller, position: usize) -> u64 {
    let bucket = |check: &CheckSeen| check.wish.bucket(&check.terms);
    let asked = &caller.checks[position];
    if !caller.on_trial {
        return 0;
    }
    let back = caller.checks[..=position].iter().filter(|check| {
        let took = matches!(&check.told, Some(Ok(outcome)) if outcome.allowed);
        took && bucket(check) == bucket(asked) && !check.terms.keeps_what_others_refuse()
    });
    back.map(|check| check.wish.hits.requested()).sum()
}

fn limit(terms: &Terms) -> (u32, i32, u32) {
    match terms.algorithm {
        // Of any moment.
        "concurrency" => (terms.requests, 0, 1),
        _ => (
            terms.requests,
            unit_on_the_wire(terms.unit),
            terms.multiplier,
        ),
    }
}

// === impl Voice ===

impl Voice {
    fn of(check: &CheckSeen, undecided: i32, back: u64) -> Self {
        let (terms, shadow) = (&check.terms, check.terms.mode == Mode::Shadow);
        let limit = Some(limit(terms));
        let Some(Ok(outcome)) = &check.told else {
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
                says_when: true,
            };
            return Self {
                status,
                tightness: if check.wish.hits.requested() > terms.burst.into() {
                    // Never passes, whoever decides.
                    (0, u64::MAX - terms.window_us())
                } else {
                    // Comes back in a second.
                    (1, u64::MAX - 1_000_000)
                },
            };
        };
        let remaining = if outcome.allowed {
            // A refund before it may have freed all there is.
            let left = (outcome.remaining + back).min(terms.burst.into());
            u32::try_from(left).unwrap()
        } else {
            0
        };
        let (code, tightness) = match (outcome.allowed, outcome.retry_us) {
            (true, _) => (OK, (2, remaining.into())),
            // Over, and only watched: it is told until when it is not fresh.
            (false, _) if shadow => (OK, (1, u64::MAX - outcome.reset_us)),
            (false, Some(retry_us)) => (OVER, (1, u64::MAX - retry_us)),
            (false, None) => (OVER, (0, u64::MAX - waits_us(terms, outcome))),
        };
        Self {
            status: Status {
                code,
                limit,
                remaining,
                says_when: true,
            },
            tightness,
        }
    }
}

/// How long who never passes is told to wait.
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
            says_when: false,
        }
    }
}
