//! Text of the events in a run, short enough that a run of two hundred events can be read.
//!
//! What it deliberately does not do: print a whole outcome or key. The trace's hash is computed
//! from this text.

use std::fmt;

use tollgate::store::CheckResult;
use tollgate_limiter::{Check, Hits, Outcome};
use tollgate_test_support::grpc_client::Code;

use crate::simulation::journal::{Entry, Ticket};
use crate::simulation::judge::Now;
use crate::simulation::run::RequestResult;
use crate::simulation::scenario::{HOLDERS, KEYS, VALUES, Wish};

/// Items, separated by semicolons.
pub(crate) struct List<'l, T>(pub(crate) &'l [T]);

/// The answer to a caller.
pub(crate) struct AnswerDisplay<'a>(pub(crate) &'a RequestResult);

struct CheckDisplay<'c>(&'c Check);

struct OutcomeDisplay<'o>(&'o Outcome);

struct ReplyDisplay<'a>(&'a CheckResult);

impl<T: fmt::Display> fmt::Display for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, one) in self.0.iter().enumerate() {
            let before = if position == 0 { "" } else { "; " };
            write!(f, "{before}{one}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value) = (KEYS[self.key], VALUES[self.value]);
        write!(f, "{:?} of {key}={value}", self.hits)?;
        if let Some(holder) = self.holder {
            write!(f, " by {}", HOLDERS[holder])?;
        }
        if let Some((requests, unit)) = self.limit_override {
            write!(f, " within {requests} a {}", unit.name())?;
        }
        Ok(())
    }
}

impl fmt::Display for Now {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, us) = (self.now_us / 1_000_000, self.now_us % 1_000_000);
        write!(f, "{seconds}.{us:06} s, uptime {} µs", self.uptime_us)
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "check {}.{}", self.caller, self.position)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent {
                first,
                checks,
                terms,
            } => {
                let checks: Vec<_> = checks.iter().map(CheckDisplay).collect();
                write!(f, "sent from {first} on ({terms:?}): {}", List(&checks))
            }
            Self::Decided {
                ticket,
                ask,
                outcome,
            } => {
                let what = match ask.hits {
                    Hits::Undo { .. } => "refunded",
                    Hits::Take(_) | Hits::Refund(_) => "decided",
                    Hits::Charge(_) => "charged",
                    Hits::Reservation(_) => unreachable!("no algorithm is asked for a step"),
                };
                write!(f, "{what} {ticket}: {}", OutcomeDisplay(outcome))
            }
            Self::Replied { first, answers, .. } => {
                write!(f, "replied from {first} on: ")?;
                match answers {
                    Ok(answers) => {
                        let answers: Vec<_> = answers.iter().map(ReplyDisplay).collect();
                        List(&answers).fmt(f)
                    }
                    Err(error) => write!(f, "{error:?}"),
                }
            }
        }
    }
}

impl fmt::Display for CheckDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Check {
            key,
            limit,
            algorithm,
            operation: ask,
            ..
        } = self.0;
        let hits = ask.hits;
        // Enough of the key to tell one bucket from another.
        let key = key.0 >> 112;
        let (requests, burst) = (limit.requests(), limit.burst());
        let window_us = limit.window().as_us();
        let name = algorithm.name();
        write!(
            f,
            "{hits:?} of {key:04x}, {name} {requests} (burst {burst}) in {window_us} µs"
        )
    }
}

impl fmt::Display for OutcomeDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.0.allowed { "passes" } else { "is over" };
        let Outcome {
            used_before,
            remaining,
            reset_us,
            ..
        } = self.0;
        write!(
            f,
            "{verdict} ({used_before} used, {remaining} left, reset in {reset_us} µs)"
        )
    }
}

impl fmt::Display for ReplyDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ok(outcome) => OutcomeDisplay(outcome).fmt(f),
            Err(error) => write!(f, "{error:?}"),
        }
    }
}

impl fmt::Display for AnswerDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = |code: i32| match Code::try_from(code) {
            Ok(Code::Ok) => "OK",
            Ok(Code::OverLimit) => "OVER_LIMIT",
            _ => "?",
        };
        match self.0 {
            Ok(answer) => {
                let statuses = answer.statuses.iter().map(|status| {
                    let code = code(status.code);
                    let limit = status.current_limit.as_ref();
                    let of = limit.map_or("no limit".to_owned(), |limit| {
                        format!(
                            "{} left of {}",
                            status.limit_remaining, limit.requests_per_unit
                        )
                    });
                    format!("{code}, {of}")
                });
                let statuses: Vec<_> = statuses.collect();
                write!(
                    f,
                    "answered {}: {}",
                    code(answer.overall_code),
                    List(&statuses)
                )
            }
            Err(error) => write!(f, "not answered: {error}"),
        }
    }
}
