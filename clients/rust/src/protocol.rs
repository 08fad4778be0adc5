//! Translation between calls and the messages of both protocols.

use std::time::Duration;

use tonic::Status;

use crate::generated::{envoy, tollgate};
use crate::request::hits_by_descriptor;
use crate::{Check, Decision, Descriptor, Limit, NoLimit, OnExpiry, Reserve, Source};

pub(crate) const CHECK: &str = "/tollgate.v1.RateLimits/Check";
pub(crate) const PEEK: &str = "/tollgate.v1.RateLimits/Peek";
pub(crate) const RESERVE: &str = "/tollgate.v1.RateLimits/Reserve";
pub(crate) const EXTEND: &str = "/tollgate.v1.RateLimits/Extend";
pub(crate) const COMMIT: &str = "/tollgate.v1.RateLimits/Commit";
pub(crate) const RELEASE: &str = "/tollgate.v1.RateLimits/Release";
pub(crate) const LEASE: &str = "/tollgate.v1.RateLimits/Lease";
pub(crate) const BATCH: &str = "/tollgate.v1.RateLimits/Batch";
pub(crate) const STREAM: &str = "/tollgate.v1.RateLimits/Stream";
pub(crate) const SHOULD_RATE_LIMIT: &str =
    "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

pub(crate) fn check_request(domain: &str, check: &Check) -> tollgate::CheckRequest {
    tollgate::CheckRequest {
        domain: domain.to_owned(),
        descriptors: check.descriptors.iter().map(descriptor).collect(),
        hits: check.hits,
    }
}

pub(crate) fn reserve_request(domain: &str, reserve: &Reserve) -> tollgate::ReserveRequest {
    let on_expiry = match reserve.on_expiry {
        None => tollgate::OnExpiry::Unspecified,
        Some(OnExpiry::Charge) => tollgate::OnExpiry::Charge,
        Some(OnExpiry::Release) => tollgate::OnExpiry::Release,
    };
    tollgate::ReserveRequest {
        domain: domain.to_owned(),
        descriptors: reserve.check.descriptors.iter().map(descriptor).collect(),
        hits: reserve.check.hits,
        reservation: reserve.id.clone(),
        expires: reserve.expires.map(proto_duration),
        on_expiry: on_expiry.into(),
    }
}

/// Descriptors for calls that settle: without hits.
pub(crate) fn without_hits(descriptors: &[Descriptor]) -> Vec<tollgate::Descriptor> {
    let bare = |from: &Descriptor| tollgate::Descriptor {
        hits: None,
        ..descriptor(from)
    };
    descriptors.iter().map(bare).collect()
}

fn descriptor(from: &Descriptor) -> tollgate::Descriptor {
    let entry = |(key, value): &(String, String)| tollgate::Entry {
        key: key.clone(),
        value: value.clone(),
    };
    tollgate::Descriptor {
        entries: from.entries.iter().map(entry).collect(),
        hits: from.hits,
    }
}

/// A check in Envoy's protocol, or a peek, which takes 0 hits.
pub(crate) fn envoy_request(domain: &str, check: &Check, peek: bool) -> envoy::RateLimitRequest {
    let hits = hits_by_descriptor(check);
    let descriptors = check.descriptors.iter().zip(hits).map(|(from, hits)| {
        let hits = if peek { 0 } else { hits };
        let entry = |(key, value): &(String, String)| envoy::rate_limit_descriptor::Entry {
            key: key.clone(),
            value: value.clone(),
        };
        envoy::RateLimitDescriptor {
            entries: from.entries.iter().map(entry).collect(),
            hits_addend: (hits != 1).then_some(hits),
        }
    });
    envoy::RateLimitRequest {
        domain: domain.to_owned(),
        descriptors: descriptors.collect(),
        hits_addend: 0,
    }
}

/// Whether a verdict allows. A verdict that is not known is an error of the service.
fn allows(verdict: i32) -> Result<bool, Status> {
    match tollgate::Verdict::try_from(verdict) {
        Ok(tollgate::Verdict::Ok) => Ok(true),
        Ok(tollgate::Verdict::OverLimit) => Ok(false),
        Ok(tollgate::Verdict::Unspecified) | Err(_) => Err(Status::internal(format!(
            "the service answered with the unknown verdict {verdict}"
        ))),
    }
}

pub(crate) fn check_decision(answer: tollgate::CheckResponse) -> Result<Decision, Status> {
    Ok(Decision {
        allowed: allows(answer.verdict)?,
        source: Source::Server,
        remaining: answer.remaining,
        reset: answer.reset.map(duration),
        retry_after: answer.retry_after.map(duration),
        limits: limits(answer.limits).into(),
        no_limit: NoLimit::of(&answer.no_limit),
        ..Decision::default()
    })
}

pub(crate) fn reserve_decision(answer: &mut tollgate::ReserveResponse) -> Result<Decision, Status> {
    Ok(Decision {
        allowed: allows(answer.verdict)?,
        source: Source::Server,
        remaining: answer.remaining,
        reset: answer.reset.map(duration),
        retry_after: answer.retry_after.map(duration),
        limits: limits(std::mem::take(&mut answer.limits)).into(),
        no_limit: NoLimit::of(&answer.no_limit),
        ..Decision::default()
    })
}

/// The answer to a call for a lease.
pub(crate) struct Granted {
    pub(crate) decision: Decision,
    /// Whether the limits can be leased.
    pub(crate) leasable: bool,
    pub(crate) id: String,
    pub(crate) hits: u64,
    /// How long the lease is valid, or the limits cannot be leased.
    pub(crate) expires: Duration,
}

pub(crate) fn granted(answer: tollgate::LeaseResponse) -> Result<Granted, Status> {
    Ok(Granted {
        decision: Decision {
            allowed: allows(answer.verdict)?,
            source: Source::Server,
            remaining: answer.remaining,
            reset: answer.reset.map(duration),
            retry_after: answer.retry_after.map(duration),
            limits: limits(answer.limits).into(),
            ..Decision::default()
        },
        leasable: answer.not_leased.is_empty(),
        id: answer.lease,
        hits: answer.granted,
        expires: answer.expires.map(duration).unwrap_or_default(),
    })
}

/// The answer to one lease of a batch.
pub(crate) fn granted_of(answer: Option<tollgate::Answer>) -> Result<Granted, Status> {
    match answer.and_then(|answer| answer.answer) {
        Some(tollgate::answer::Answer::Lease(answer)) => granted(answer),
        Some(tollgate::answer::Answer::Failure(failure)) => {
            Err(Status::new(failure.code.into(), failure.message))
        }
        _ => Err(Status::internal("the answer is not one of a lease")),
    }
}

pub(crate) fn limits(limits: Vec<tollgate::LimitStatus>) -> Vec<Limit> {
    let limit = |from: tollgate::LimitStatus| Limit {
        descriptor: from.descriptor,
        allowed: from.verdict != i32::from(tollgate::Verdict::OverLimit),
        name: from.name,
        rule: from.rule,
        requests_per_unit: from.requests_per_unit,
        window: from.window,
        remaining: from.remaining,
        reset: from.reset.map(duration),
        retry_after: from.retry_after.map(duration),
    };
    limits.into_iter().map(limit).collect()
}

pub(crate) fn envoy_decision(answer: envoy::RateLimitResponse) -> Result<Decision, Status> {
    use envoy::rate_limit_response::Code;
    let allowed = match Code::try_from(answer.overall_code) {
        Ok(Code::Ok) => true,
        Ok(Code::OverLimit) => false,
        Ok(Code::Unknown) | Err(_) => {
            let code = answer.overall_code;
            return Err(Status::internal(format!(
                "the service answered with the unknown code {code}"
            )));
        }
    };
    let mut decision = Decision {
        allowed,
        source: Source::Server,
        ..Decision::default()
    };
    let mut limits = Vec::new();
    for (position, status) in answer.statuses.into_iter().enumerate() {
        let refused = status.code == i32::from(Code::OverLimit);
        let reset = status.duration_until_reset.map(duration);
        let retry_after = reset.filter(|_| refused);
        if !allowed {
            decision.retry_after = decision.retry_after.max(retry_after);
        }
        if let Some(limit) = status.current_limit {
            limits.push(Limit {
                descriptor: u32::try_from(position).unwrap_or(u32::MAX),
                window: window(&limit),
                name: limit.name,
                rule: String::new(),
                requests_per_unit: limit.requests_per_unit.into(),
                allowed: !refused,
                remaining: status.limit_remaining.into(),
                reset,
                retry_after,
            });
        }
    }
    decision.limits = limits.into();
    let tightest = decision
        .tightest()
        .map(|limit| (limit.remaining, limit.reset));
    if let Some((remaining, reset)) = tightest {
        decision.remaining = Some(remaining);
        decision.reset = reset;
    }
    Ok(decision)
}

/// A window in words, such as `15 minutes`. Empty if the unit is not known.
fn window(limit: &envoy::rate_limit_response::RateLimit) -> String {
    use envoy::rate_limit_response::rate_limit::Unit;
    let unit = match limit.unit() {
        Unit::UnknownUnit => return String::new(),
        Unit::Second => "second",
        Unit::Minute => "minute",
        Unit::Hour => "hour",
        Unit::Day => "day",
        Unit::Week => "week",
        Unit::Month => "month",
        Unit::Year => "year",
    };
    match limit.unit_multiplier {
        None | Some(0 | 1) => format!("1 {unit}"),
        Some(count) => format!("{count} {unit}s"),
    }
}

/// A duration of the service. A negative one is 0.
pub(crate) fn duration(from: prost_types::Duration) -> Duration {
    Duration::try_from(from).unwrap_or_default()
}

pub(crate) fn proto_duration(from: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(from.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(from.subsec_nanos()).unwrap_or_default(),
    }
}
