//! Messages of calls, as what the pipeline carries out.

use tollgate_limiter::{Entry, Hits, OnExpiry, Otherwise, Request};
use tonic::Status;

use crate::grpc::services::api_call::{expiry_ms, internal, invalid_field};
use crate::pipeline::{ApiStep, new_reservation_id};
use crate::proto::tollgate::v1 as proto;
use crate::proto::tollgate::v1::call::Call;

/// Which descriptors say how many hits they want.
#[derive(Clone, Copy, Eq, PartialEq)]
enum OwnHits {
    None,
    Some,
    All,
}

/// Makes the id of a reservation whose caller gives none.
pub(super) fn fill_id(call: &mut Call) -> Result<(), Status> {
    if let Call::Reserve(call) = call
        && call.reservation.is_empty()
    {
        call.reservation = new_reservation_id().map_err(internal)?;
    }
    Ok(())
}

/// The id of the reservation that a call names.
pub(super) fn id_of(call: &Call) -> &str {
    match call {
        Call::Check(_) | Call::Peek(_) => "",
        Call::Reserve(call) => &call.reservation,
        Call::Extend(call) => &call.reservation,
        Call::Commit(call) => &call.reservation,
        Call::Release(call) => &call.reservation,
    }
}

/// The descriptors of a call.
pub(super) fn descriptors_of(call: &Call) -> &[proto::Descriptor] {
    match call {
        Call::Check(call) | Call::Peek(call) => &call.descriptors,
        Call::Reserve(call) => &call.descriptors,
        Call::Extend(call) => &call.descriptors,
        Call::Commit(call) => &call.descriptors,
        Call::Release(call) => &call.descriptors,
    }
}

/// The request and the step of a call. The error names the field that is invalid.
pub(super) fn read(call: &Call) -> Result<(Request<'_>, ApiStep<'_>), Status> {
    let id = id_of(call).as_bytes();
    match call {
        Call::Check(call) => Ok((checked(call)?, ApiStep::Check)),
        Call::Peek(call) => Ok((checked(call)?, ApiStep::Peek)),
        Call::Reserve(call) => {
            let has_hits = has_hits(call.hits, &call.descriptors);
            if !has_hits && own_hits(&call.descriptors) == OwnHits::Some {
                let why = "is missing; send hits for the call or for every descriptor, or for none \
                           to reserve what the rules say";
                return Err(invalid_field("hits", why));
            }
            let request = request(&call.domain, &call.descriptors, |own| {
                own.or(call.hits).unwrap_or(0)
            })?;
            let step = ApiStep::Reserve {
                id,
                expires_ms: call.expires.as_ref().map(expires).transpose()?,
                on_expiry: on_expiry(call.on_expiry)?,
                uses_rule_amount: !has_hits,
            };
            Ok((request, step))
        }
        Call::Extend(call) => {
            let expires_sent = call
                .expires
                .as_ref()
                .ok_or_else(|| invalid_field("expires", "is missing; send a duration from now"))?;
            let step = ApiStep::Extend {
                id,
                expires_ms: expires(expires_sent)?,
            };
            Ok((request(&call.domain, &call.descriptors, |_| 0)?, step))
        }
        Call::Commit(call) => {
            if !has_hits(call.hits, &call.descriptors) {
                return Err(invalid_field("hits", "is missing; send the true amount"));
            }
            let step = ApiStep::Commit {
                id,
                otherwise: Otherwise::Unknown,
            };
            let request = request(&call.domain, &call.descriptors, |own| {
                own.or(call.hits).unwrap_or(0)
            })?;
            Ok((request, step))
        }
        Call::Release(call) => {
            let request = request(&call.domain, &call.descriptors, |_| 0)?;
            Ok((request, ApiStep::Release { id }))
        }
    }
}

fn checked(call: &proto::CheckRequest) -> Result<Request<'_>, Status> {
    request(&call.domain, &call.descriptors, |own| {
        own.or(call.hits).unwrap_or(1)
    })
}

/// A request with so many hits for each descriptor, by those of its own.
fn request<'c>(
    domain: &'c str,
    descriptors: &'c [proto::Descriptor],
    hits: impl Fn(Option<u64>) -> u64,
) -> Result<Request<'c>, Status> {
    if domain.is_empty() {
        return Err(invalid_field(
            "domain",
            "is empty; send the domain of the rules",
        ));
    }
    if descriptors.is_empty() {
        return Err(invalid_field("descriptors", "is empty; send at least one"));
    }
    let mut request = Request::new(domain.as_bytes());
    for (position, descriptor) in descriptors.iter().enumerate() {
        if descriptor.entries.is_empty() {
            let field = format!("descriptors[{position}].entries");
            return Err(invalid_field(&field, "is empty; send at least one"));
        }
        for (at, entry) in descriptor.entries.iter().enumerate() {
            if entry.key.is_empty() {
                let field = format!("descriptors[{position}].entries[{at}].key");
                return Err(invalid_field(&field, "is empty; send the key of a rule"));
            }
            request.push_entry(Entry {
                key: entry.key.as_bytes(),
                value: entry.value.as_bytes(),
            });
        }
        request.finish_descriptor(Hits::Take(hits(descriptor.hits)), None);
    }
    Ok(request)
}

fn own_hits(descriptors: &[proto::Descriptor]) -> OwnHits {
    let count = descriptors.iter().filter(|one| one.hits.is_some()).count();
    match count {
        0 => OwnHits::None,
        count if count == descriptors.len() => OwnHits::All,
        _ => OwnHits::Some,
    }
}

fn has_hits(of_call: Option<u64>, descriptors: &[proto::Descriptor]) -> bool {
    of_call.is_some() || own_hits(descriptors) == OwnHits::All
}

fn expires(sent: &prost_types::Duration) -> Result<std::num::NonZeroU32, Status> {
    expiry_ms(sent).map_err(|why| invalid_field("expires", why))
}

fn on_expiry(sent: i32) -> Result<Option<OnExpiry>, Status> {
    match proto::OnExpiry::try_from(sent) {
        Ok(proto::OnExpiry::Unspecified) => Ok(None),
        Ok(proto::OnExpiry::Charge) => Ok(Some(OnExpiry::Charge)),
        Ok(proto::OnExpiry::Release) => Ok(Some(OnExpiry::Release)),
        Err(_) => Err(invalid_field(
            "on_expiry",
            "is unknown; send ON_EXPIRY_CHARGE or ON_EXPIRY_RELEASE",
        )),
    }
}
