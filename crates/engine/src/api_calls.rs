//! Calls of tollgate's API as messages, and what the pipeline carries out for each: for gRPC, for
//! the JSON of `/v1`, and in part for Kuadrant's API.
//!
//! A call with several faults names the same one in both: first a field that cannot have its value,
//! then a field that is missing, in the order of the fields.
//!
//! What it deliberately does not do: decode messages (`grpc`, `admin::v1`), or check the bounds of
//! requests (`pipeline`).

use std::num::NonZeroU32;

use prost_types::Duration;
use tollgate_limiter::{
    Code, EXPIRY_MS_MAX, Entry, Hits, OnExpiry, Otherwise, Request, ReservationOutcome,
};

use crate::pipeline::{
    API_HITS_MAX, ApiAnswer, ApiLimit, ApiOperation, ApiStep, CallerDecisions, LeaseAnswer,
    LeaseCall, NoLimit, ReturnCall, new_reservation_id,
};
use tollgate_wire::proto::tollgate::v1 as proto;
use tollgate_wire::proto::tollgate::v1::answer::Answer;
use tollgate_wire::proto::tollgate::v1::call::Call;

/// A field of a call is invalid.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InvalidField {
    /// Its path, such as `descriptors[0].entries`.
    pub path: String,
    pub fault: Fault,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    NoDomain,
    NoDescriptors,
    NoEntries,
    NoKey,
    NoReservation,
    NoLease,
    NoExpiry,
    NegativeExpiry,
    ExpiryOfNoTime,
    ExpiryTooLong,
    ManyNanos,
    NoHits,
    HitsOfSome,
    TooManyHits,
    UnknownOnExpiry,
    LeaseOfNoHits,
    HitsOfDescriptor,
}

// === impl Fault ===

impl Fault {
    /// The text for a client of gRPC, to follow the path of the field.
    pub fn grpc_text(self) -> &'static str {
        self.texts().0
    }

    /// The text for a client of JSON.
    pub fn json_text(self) -> &'static str {
        self.texts().1
    }

    /// What is missing in JSON can be empty in a message.
    fn texts(self) -> (&'static str, &'static str) {
        let both = |text| (text, text);
        match self {
            Self::NoDomain => (
                "is empty; send the domain of the rules",
                "is missing; send the domain of the rules",
            ),
            Self::NoDescriptors => (
                "is empty; send at least one",
                r#"is missing; send [{"entries": [{"key": "KEY", "value": "VALUE"}]}]"#,
            ),
            Self::NoEntries => (
                "is empty; send at least one",
                r#"is missing; send [{"key": "KEY", "value": "VALUE"}]"#,
            ),
            Self::NoKey => (
                "is empty; send the key of a rule",
                "is missing; send the key as in the rules",
            ),
            Self::NoReservation => (
                "is missing; send the id of the reservation",
                "is missing; send the id that the reservation was made with",
            ),
            Self::NoLease => both("is missing; send the id of the lease"),
            Self::LeaseOfNoHits => both("is 0; send how many hits are wanted at most"),
            Self::HitsOfDescriptor => both(
                "is not of a lease, which takes as many hits from every descriptor; send hits of the call",
            ),
            Self::NoExpiry => (
                "is missing; send a duration from now",
                r#"is missing; send a duration from now, such as "60s""#,
            ),
            Self::NegativeExpiry => (
                "is negative; send 1 ms to a day",
                "is negative; write a duration from 1ms to 1d",
            ),
            Self::ExpiryOfNoTime => (
                "is 0; send 1 ms to a day",
                "is 0; write a duration from 1ms to 1d",
            ),
            Self::ExpiryTooLong => (
                "is longer than a day; send at most a day",
                "is longer than a day; write a duration from 1ms to 1d",
            ),
            Self::ManyNanos => both("has a second or more in nanos; send at most 999999999"),
            Self::NoHits => both("is missing; send the true amount"),
            Self::HitsOfSome => both(
                "is missing; send hits for the call or for every descriptor, or for none \
                 to reserve what the rules say",
            ),
            Self::TooManyHits => both("is more than 9007199254740991; send less at once"),
            Self::UnknownOnExpiry => (
                "is unknown; send ON_EXPIRY_CHARGE or ON_EXPIRY_RELEASE",
                r#"is unknown; write "charge" or "release""#,
            ),
        }
    }

    /// This fault of the field at `path`.
    pub fn at(self, path: impl Into<String>) -> InvalidField {
        let path = path.into();
        InvalidField { path, fault: self }
    }
}

/// Makes the id of a reservation whose caller gives none.
pub fn fill_id(call: &mut Call) -> Result<(), String> {
    if let Call::Reserve(call) = call
        && call.reservation.is_empty()
    {
        call.reservation = new_reservation_id()?;
    }
    Ok(())
}

/// The id of the reservation or the lease that a call names.
pub fn id_of(call: &Call) -> &str {
    match call {
        Call::Check(_) | Call::Peek(_) => "",
        Call::Lease(call) => &call.lease,
        Call::GiveBack(call) => &call.lease,
        Call::Reserve(call) => &call.reservation,
        Call::Extend(call) => &call.reservation,
        Call::Commit(call) => &call.reservation,
        Call::Release(call) => &call.reservation,
    }
}

/// The descriptors of a call.
pub fn descriptors_of(call: &Call) -> &[proto::Descriptor] {
    match call {
        Call::Check(call) | Call::Peek(call) => &call.descriptors,
        Call::Reserve(call) => &call.descriptors,
        Call::Extend(call) => &call.descriptors,
        Call::Commit(call) => &call.descriptors,
        Call::Release(call) => &call.descriptors,
        Call::Lease(call) => &call.descriptors,
        Call::GiveBack(call) => &call.descriptors,
    }
}

/// The request of a call, and what it asks of its limits.
pub fn read(call: &Call) -> Result<(Request<'_>, ApiOperation), InvalidField> {
    let has_id = |fault: Fault, field| match id_of(call) {
        "" => Err(fault.at(field)),
        _ => Ok(()),
    };
    match call {
        Call::Check(call) => Ok((checked(call)?, ApiOperation::Step(ApiStep::Check))),
        Call::Peek(call) => Ok((checked(call)?, ApiOperation::Step(ApiStep::Peek))),
        Call::Reserve(call) => {
            let request = request(&call.domain, &call.descriptors, |own| {
                own.or(call.hits).unwrap_or(0)
            })?;
            let on_expiry = on_expiry(call.on_expiry)?;
            let has_hits = has_hits(call.hits, &call.descriptors);
            if !has_hits && call.descriptors.iter().any(|one| one.hits.is_some()) {
                return Err(Fault::HitsOfSome.at("hits"));
            }
            has_id(Fault::NoReservation, "reservation")?;
            let step = ApiStep::Reserve {
                expires_ms: call.expires.as_ref().map(expires).transpose()?,
                on_expiry,
                uses_rule_amount: !has_hits,
            };
            Ok((request, ApiOperation::Step(step)))
        }
        Call::Extend(call) => {
            let request = request(&call.domain, &call.descriptors, |_| 0)?;
            has_id(Fault::NoReservation, "reservation")?;
            let until = call.expires.as_ref();
            let until = until.ok_or_else(|| Fault::NoExpiry.at("expires"))?;
            let expires_ms = expires(until)?;
            let step = ApiStep::Extend { expires_ms };
            Ok((request, ApiOperation::Step(step)))
        }
        Call::Commit(call) => {
            let request = request(&call.domain, &call.descriptors, |own| {
                own.or(call.hits).unwrap_or(0)
            })?;
            if !has_hits(call.hits, &call.descriptors) {
                return Err(Fault::NoHits.at("hits"));
            }
            has_id(Fault::NoReservation, "reservation")?;
            let otherwise = Otherwise::Unknown;
            let step = ApiStep::Commit { otherwise };
            Ok((request, ApiOperation::Step(step)))
        }
        Call::Release(call) => {
            let request = request(&call.domain, &call.descriptors, |_| 0)?;
            has_id(Fault::NoReservation, "reservation")?;
            Ok((request, ApiOperation::Step(ApiStep::Release)))
        }
        Call::Lease(call) => {
            let request = leased(&call.domain, &call.descriptors)?;
            let hits = call.hits.unwrap_or(1);
            if hits == 0 {
                return Err(Fault::LeaseOfNoHits.at("hits"));
            }
            let lease = LeaseCall {
                hits: at_most_max("hits", hits)?,
                decided: decided(call.admitted, call.refused)?,
            };
            Ok((request, ApiOperation::Lease(lease)))
        }
        Call::GiveBack(call) => {
            let request = leased(&call.domain, &call.descriptors)?;
            has_id(Fault::NoLease, "lease")?;
            let lease = ReturnCall {
                unused: at_most_max("unused", call.unused)?,
                decided: decided(call.admitted, call.refused)?,
            };
            Ok((request, ApiOperation::Return(lease)))
        }
    }
}

/// The request of a lease, whose descriptors have no hits of their own.
fn leased<'c>(
    domain: &'c str,
    descriptors: &'c [proto::Descriptor],
) -> Result<Request<'c>, InvalidField> {
    let request = request(domain, descriptors, |_| 0)?;
    match descriptors.iter().position(|one| one.hits.is_some()) {
        Some(at) => Err(Fault::HitsOfDescriptor.at(format!("descriptors[{at}].hits"))),
        None => Ok(request),
    }
}

/// What a caller says that it decided.
fn decided(admitted: Option<u64>, refused: Option<u64>) -> Result<CallerDecisions, InvalidField> {
    let known = |field, hits: Option<u64>| hits.map(|hits| at_most_max(field, hits)).transpose();
    Ok(CallerDecisions {
        admitted: known("admitted", admitted)?,
        refused: known("refused", refused)?,
    })
}

fn at_most_max(field: &str, hits: u64) -> Result<u64, InvalidField> {
    match hits {
        0..=API_HITS_MAX => Ok(hits),
        _ => Err(Fault::TooManyHits.at(field)),
    }
}

fn checked(call: &proto::CheckRequest) -> Result<Request<'_>, InvalidField> {
    request(&call.domain, &call.descriptors, |own| {
        own.or(call.hits).unwrap_or(1)
    })
}

/// A request with so many hits for each descriptor, by those of its own.
fn request<'c>(
    domain: &'c str,
    descriptors: &'c [proto::Descriptor],
    hits: impl Fn(Option<u64>) -> u64,
) -> Result<Request<'c>, InvalidField> {
    if domain.is_empty() {
        return Err(Fault::NoDomain.at("domain"));
    }
    if descriptors.is_empty() {
        return Err(Fault::NoDescriptors.at("descriptors"));
    }
    for (position, descriptor) in descriptors.iter().enumerate() {
        if descriptor.entries.is_empty() {
            return Err(Fault::NoEntries.at(format!("descriptors[{position}].entries")));
        }
        let mut entries = descriptor.entries.iter();
        if let Some(at) = entries.position(|entry| entry.key.is_empty()) {
            return Err(Fault::NoKey.at(format!("descriptors[{position}].entries[{at}].key")));
        }
    }
    if descriptors.iter().any(|one| hits(one.hits) > API_HITS_MAX) {
        return Err(Fault::TooManyHits.at("hits"));
    }
    let descriptors = descriptors.iter().map(|descriptor| {
        let entries = descriptor.entries.iter();
        let entries = entries.map(|entry| (entry.key.as_bytes(), entry.value.as_bytes()));
        (hits(descriptor.hits), entries)
    });
    Ok(limiter_request(domain.as_bytes(), descriptors))
}

/// A request of these descriptors: the hits of each, and its entries.
pub fn limiter_request<'c, E>(
    domain: &'c [u8],
    descriptors: impl Iterator<Item = (u64, E)>,
) -> Request<'c>
where
    E: Iterator<Item = (&'c [u8], &'c [u8])>,
{
    let mut request = Request::new(domain);
    for (hits, entries) in descriptors {
        for (key, value) in entries {
            request.push_entry(Entry { key, value });
        }
        request.finish_descriptor(Hits::Take(hits));
    }
    request
}

/// Whether the call or all of its descriptors say how many hits.
fn has_hits(of_call: Option<u64>, descriptors: &[proto::Descriptor]) -> bool {
    let all_say = descriptors.iter().all(|one| one.hits.is_some());
    of_call.is_some() || (all_say && !descriptors.is_empty())
}

fn expires(sent: &Duration) -> Result<NonZeroU32, InvalidField> {
    expiry_ms(sent).map_err(|fault| fault.at("expires"))
}

/// An expiry of at most a day, rounded up to milliseconds.
pub fn expiry_ms(sent: &Duration) -> Result<NonZeroU32, Fault> {
    let (Ok(seconds), Ok(nanos)) = (u64::try_from(sent.seconds), u64::try_from(sent.nanos)) else {
        return Err(Fault::NegativeExpiry);
    };
    if nanos > 999_999_999 {
        return Err(Fault::ManyNanos);
    }
    let ms = seconds
        .saturating_mul(1_000)
        .saturating_add(nanos.div_ceil(1_000_000));
    let ms = u32::try_from(ms).ok().and_then(NonZeroU32::new);
    match ms {
        Some(ms) if ms.get() <= EXPIRY_MS_MAX => Ok(ms),
        None if (seconds, nanos) == (0, 0) => Err(Fault::ExpiryOfNoTime),
        _ => Err(Fault::ExpiryTooLong),
    }
}

fn on_expiry(sent: i32) -> Result<Option<OnExpiry>, InvalidField> {
    match proto::OnExpiry::try_from(sent) {
        Ok(proto::OnExpiry::Unspecified) => Ok(None),
        Ok(proto::OnExpiry::Charge) => Ok(Some(OnExpiry::Charge)),
        Ok(proto::OnExpiry::Release) => Ok(Some(OnExpiry::Release)),
        Err(_) => Err(Fault::UnknownOnExpiry.at("on_expiry")),
    }
}

/// The message that answers a call.
pub fn answer(call: Call, answer: ApiAnswer) -> Answer {
    let passed = answer.verdict == Code::Ok;
    let verdict = verdict_of(answer.verdict);
    let (hits, remaining) = (answer.hits, answer.remaining);
    let reset = answer.reset_us.map(duration);
    let retry_after = answer.retry_us.map(duration);
    let expires_ms = answer.expires_ms.map(u64::from);
    let expires = expires_ms.map(|ms| duration(ms.saturating_mul(1_000)));
    let no_limit = answer.no_limit.map_or("", NoLimit::name).to_owned();
    let limits = answer.limits.into_iter().map(limit).collect();
    match call {
        Call::Check(_) | Call::Peek(_) => Answer::Check(proto::CheckResponse {
            verdict,
            remaining,
            reset,
            retry_after,
            limits,
            no_limit,
        }),
        Call::Reserve(call) => Answer::Reserve(proto::ReserveResponse {
            verdict,
            reservation: Some(call.reservation)
                .filter(|_| passed)
                .unwrap_or_default(),
            hits,
            expires: expires.filter(|_| passed),
            remaining,
            reset,
            retry_after,
            limits,
            no_limit,
        }),
        Call::Extend(proto::ExtendRequest { reservation, .. }) => {
            Answer::Settle(proto::SettleResponse {
                reservation,
                remaining,
                reset,
                limits,
                expires,
                ..proto::SettleResponse::default()
            })
        }
        Call::Commit(proto::CommitRequest { reservation, .. })
        | Call::Release(proto::ReleaseRequest { reservation, .. }) => {
            Answer::Settle(proto::SettleResponse {
                reservation,
                reserved: answer.settled.reserved,
                committed: answer.settled.committed,
                repeated: answer.reservation == ReservationOutcome::SettledBefore,
                remaining,
                reset,
                limits,
                expires: None,
            })
        }
        Call::Lease(_) => {
            let (lease, granted, not_leased, valid_us) = match answer.lease {
                Some(LeaseAnswer::Granted {
                    lease,
                    hits,
                    valid_us,
                }) => (lease, hits, "", Some(valid_us)),
                Some(LeaseAnswer::NotLeased { reason, valid_us }) => {
                    (String::new(), 0, reason.word(), Some(valid_us))
                }
                Some(LeaseAnswer::Refused | LeaseAnswer::Returned(_)) | None => {
                    (String::new(), 0, "", None)
                }
            };
            Answer::Lease(proto::LeaseResponse {
                verdict,
                lease,
                granted,
                expires: valid_us.map(duration),
                remaining,
                reset,
                retry_after,
                limits,
                not_leased: not_leased.to_owned(),
            })
        }
        Call::GiveBack(_) => Answer::GiveBack(proto::ReturnResponse {
            returned: match answer.lease {
                Some(LeaseAnswer::Returned(hits)) => hits,
                _ => 0,
            },
        }),
    }
}

fn limit(limit: ApiLimit) -> proto::LimitStatus {
    proto::LimitStatus {
        descriptor: u32::try_from(limit.descriptor).unwrap_or(u32::MAX),
        name: limit.name,
        rule: limit.rule.to_string(),
        requests_per_unit: limit.requests_per_unit,
        window: limit.window,
        verdict: verdict_of(limit.verdict),
        remaining: limit.remaining,
        reset: Some(duration(limit.reset_us)),
        retry_after: limit.retry_us.map(duration),
    }
}

pub fn verdict_of(code: Code) -> i32 {
    let verdict = match code {
        Code::Ok => proto::Verdict::Ok,
        Code::OverLimit => proto::Verdict::OverLimit,
    };
    verdict.into()
}

/// A duration to the microsecond.
fn duration(us: u64) -> Duration {
    Duration {
        // At most 2^64 / 10^6.
        seconds: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
        nanos: i32::try_from(us % 1_000_000 * 1_000).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiries_are_rounded_up_and_never_negative() {
        let sent = |seconds, nanos| Duration { seconds, nanos };
        for (seconds, nanos, ms) in [
            (60, 0, 60_000),
            (0, 1, 1),
            (1, 500_000_001, 1_501),
            (86_400, 0, EXPIRY_MS_MAX),
        ] {
            let read = expiry_ms(&sent(seconds, nanos)).map(NonZeroU32::get);
            assert_eq!(read, Ok(ms), "{seconds} {nanos}");
        }
        for (seconds, nanos) in [
            (-1, 0),
            (0, -1),
            (i64::MIN, i32::MIN),
            (0, 0),
            (1, i32::MAX),
            (86_400, 1),
            (315_576_000_000, 0),
            (i64::MAX, 999_999_999),
        ] {
            assert!(
                expiry_ms(&sent(seconds, nanos)).is_err(),
                "{seconds} {nanos}"
            );
        }
    }
}
