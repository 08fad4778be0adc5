//! Messages of answers.

use prost::Message as _;
use tollgate_limiter::{Code, ReservationOutcome};
use tonic::Status;

use crate::pipeline::{ApiAnswer, ApiLimit};
use crate::proto::tollgate::v1 as proto;
use crate::proto::tollgate::v1::answer::Answer;
use crate::proto::tollgate::v1::call::Call;

/// The answer to a call.
pub(super) fn answer(call: Call, answer: ApiAnswer) -> Answer {
    let verdict = verdict(answer.verdict);
    let reset = answer.reset_us.map(duration);
    let retry_after = answer.retry_us.map(duration);
    let expires = answer
        .expires_ms
        .map(|ms| duration(u64::from(ms).saturating_mul(1_000)));
    let passed = answer.verdict == Code::Ok;
    let limits = answer.limits.into_iter().map(limit).collect();
    let remaining = answer.remaining;
    let settle = |reservation, settled: bool| {
        Answer::Settle(proto::SettleResponse {
            reservation,
            reserved: if settled { answer.settled.reserved } else { 0 },
            committed: if settled { answer.settled.committed } else { 0 },
            repeated: answer.reservation == ReservationOutcome::SettledBefore,
            remaining,
            reset,
            expires: if settled { None } else { expires },
            limits: Vec::new(),
        })
    };
    let mut made = match call {
        Call::Check(_) | Call::Peek(_) => Answer::Check(proto::CheckResponse {
            verdict,
            remaining,
            reset,
            retry_after,
            limits: Vec::new(),
        }),
        Call::Reserve(call) => Answer::Reserve(proto::ReserveResponse {
            verdict,
            reservation: if passed {
                call.reservation
            } else {
                String::new()
            },
            hits: answer.hits,
            expires: expires.filter(|_| passed),
            remaining,
            reset,
            retry_after,
            limits: Vec::new(),
        }),
        Call::Extend(call) => settle(call.reservation, false),
        Call::Commit(call) => settle(call.reservation, true),
        Call::Release(call) => settle(call.reservation, true),
    };
    match &mut made {
        Answer::Check(answer) => answer.limits = limits,
        Answer::Reserve(answer) => answer.limits = limits,
        Answer::Settle(answer) => answer.limits = limits,
        Answer::Failure(_) => {}
    }
    made
}

/// The answer to a call that failed: the fields of its status.
pub(super) fn failure(status: &Status) -> Answer {
    let details = tonic_types::pb::Status::decode(status.details());
    Answer::Failure(proto::Failure {
        code: i32::from(status.code()),
        message: status.message().to_owned(),
        // They were encoded by this process.
        details: details.map(|status| status.details).unwrap_or_default(),
    })
}

fn limit(limit: ApiLimit) -> proto::LimitStatus {
    proto::LimitStatus {
        descriptor: u32::try_from(limit.descriptor).unwrap_or(u32::MAX),
        name: limit.name,
        rule: limit.rule.to_string(),
        requests_per_unit: limit.requests_per_unit,
        window: limit.window,
        verdict: verdict(limit.verdict),
        remaining: limit.remaining,
        reset: Some(duration(limit.reset_us)),
        retry_after: limit.retry_us.map(duration),
    }
}

fn verdict(code: Code) -> i32 {
    let verdict = match code {
        Code::Ok => proto::Verdict::Ok,
        Code::OverLimit => proto::Verdict::OverLimit,
    };
    verdict.into()
}

/// A duration to the microsecond.
fn duration(us: u64) -> prost_types::Duration {
    prost_types::Duration {
        // At most 2^64 / 10^6.
        seconds: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(us % 1_000_000 * 1_000).unwrap_or_default(),
    }
}
