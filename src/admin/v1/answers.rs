//! Bodies of responses. Numbers are numbers, durations are text in seconds, and what does not apply
//! is left out.

use serde::Serialize;
use tollgate_limiter::{Code, ReservationOutcome};

use super::calls::CallKind;
use super::duration::seconds_text;
use super::failure::ErrorBody;
use crate::pipeline::{ApiAnswer, ApiLimit};

/// Whether a call or a limit passes.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum Verdict {
    Ok,
    OverLimit,
}

/// The answer to any call.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum CallAnswer {
    Check(CheckAnswer),
    Reserve(ReserveAnswer),
    Settle(SettleAnswer),
}

/// The answer to a check or a peek.
#[derive(Debug, Serialize)]
pub(super) struct CheckAnswer {
    verdict: Verdict,
    #[serde(flatten)]
    level: Level,
}

/// The answer to a reservation.
#[derive(Debug, Serialize)]
pub(super) struct ReserveAnswer {
    verdict: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<String>,
    hits: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(flatten)]
    level: Level,
}

/// The answer to a commit, a release, or an extension.
#[derive(Debug, Serialize)]
pub(super) struct SettleAnswer {
    verdict: Verdict,
    reservation: String,
    #[serde(flatten)]
    settled: Option<Settled>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(flatten)]
    level: Level,
}

#[derive(Debug, Serialize)]
struct Settled {
    reserved: u64,
    committed: u64,
    repeated: bool,
}

/// What is left.
#[derive(Debug, Serialize)]
struct Level {
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<String>,
    limits: Vec<LimitAnswer>,
}

#[derive(Debug, Serialize)]
struct LimitAnswer {
    descriptor: usize,
    name: String,
    rule: String,
    requests_per_unit: u32,
    window: String,
    verdict: Verdict,
    remaining: u64,
    reset: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<String>,
}

/// The answer to one call of a batch: one of the four, and the status that it would have alone.
#[derive(Debug, Serialize)]
pub(super) struct TaggedAnswer {
    pub(super) tag: u64,
    pub(super) status: u16,
    #[serde(flatten)]
    pub(super) answer: OneAnswer,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OneAnswer {
    Check(CheckAnswer),
    Reserve(ReserveAnswer),
    Settle(SettleAnswer),
    Error(ErrorBody),
}

// === impl CallAnswer ===

impl CallAnswer {
    /// The answer to a call with this id of a reservation.
    pub(super) fn of(kind: CallKind, id: String, answer: ApiAnswer) -> Self {
        let verdict = answer.verdict.into();
        let expires = answer
            .expires_ms
            .map(|ms| seconds_text(u64::from(ms).saturating_mul(1_000)));
        let settled = answer.settled;
        let repeated = answer.reservation == ReservationOutcome::SettledBefore;
        let (passed, hits) = (answer.verdict == Code::Ok, answer.hits);
        let level = Level::of(answer);
        match kind {
            CallKind::Check | CallKind::Peek => Self::Check(CheckAnswer { verdict, level }),
            CallKind::Reserve => Self::Reserve(ReserveAnswer {
                verdict,
                reservation: passed.then_some(id),
                hits,
                expires: expires.filter(|_| passed),
                level,
            }),
            CallKind::Extend => Self::Settle(SettleAnswer {
                verdict,
                reservation: id,
                settled: None,
                expires,
                level,
            }),
            CallKind::Commit | CallKind::Release => Self::Settle(SettleAnswer {
                verdict,
                reservation: id,
                settled: Some(Settled {
                    reserved: settled.reserved,
                    committed: settled.committed,
                    repeated,
                }),
                expires: None,
                level,
            }),
        }
    }
}

impl From<CallAnswer> for OneAnswer {
    fn from(answer: CallAnswer) -> Self {
        match answer {
            CallAnswer::Check(answer) => Self::Check(answer),
            CallAnswer::Reserve(answer) => Self::Reserve(answer),
            CallAnswer::Settle(answer) => Self::Settle(answer),
        }
    }
}

// === impl Level ===

impl Level {
    fn of(answer: ApiAnswer) -> Self {
        Self {
            remaining: answer.remaining,
            reset: answer.reset_us.map(seconds_text),
            retry_after: answer.retry_us.map(seconds_text),
            limits: answer.limits.into_iter().map(LimitAnswer::of).collect(),
        }
    }
}

impl LimitAnswer {
    fn of(limit: ApiLimit) -> Self {
        Self {
            descriptor: limit.descriptor,
            name: limit.name,
            rule: limit.rule.to_string(),
            requests_per_unit: limit.requests_per_unit,
            window: limit.window,
            verdict: limit.verdict.into(),
            remaining: limit.remaining,
            reset: seconds_text(limit.reset_us),
            retry_after: limit.retry_us.map(seconds_text),
        }
    }
}

impl From<Code> for Verdict {
    fn from(code: Code) -> Self {
        match code {
            Code::Ok => Self::Ok,
            Code::OverLimit => Self::OverLimit,
        }
    }
}
