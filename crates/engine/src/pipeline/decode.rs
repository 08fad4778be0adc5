//! Decodes a `RateLimitRequest` without allocation.
//!
//! prost allocates a vector for each list and a reference-counted slice for each string: a dozen
//! allocations per check. This decoder makes two passes over the message. The first finds the
//! fields that apply to all descriptors (the domain, the request's hits), which may come anywhere.
//! The second visits the descriptors and pushes slices into a request whose vectors are reused.
//!
//! Messages that are malformed, or that would need protobuf's merging rules (a repeated message
//! field, a group), are left to prost, which reports the error. So the decoder has no errors, only
//! [`None`]. `agreement` and the fuzz target `wire` compare both decoders.
//!
//! What it deliberately does not do: reject a request, copy a string, parse gRPC's frame.

use crate::pipeline::message::{self, OverrideFields};
use crate::pipeline::policy::RequestPolicy;
use tollgate_limiter::{Entry, Request};
use tollgate_wire::fields::{Fields, Value};

/// Decodes a message into `request`, which is cleared first. None when prost must decode it;
/// `request` is then incomplete.
pub fn decode<'b>(
    message: &'b [u8],
    policy: RequestPolicy,
    request: &mut Request<'b>,
) -> Option<()> {
    let mut domain: &[u8] = &[];
    let mut request_hits = 0;
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Bytes(text)) => domain = text,
            (2, Value::Bytes(_)) => {}
            (3, Value::Varint(hits)) => request_hits = uint32(hits),
            (1..=3, _) => return None,
            _ => {}
        }
    }
    request.reset(domain);
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        if let (2, Value::Bytes(descriptor)) = field {
            read_descriptor(descriptor, request_hits, policy, request)?;
        }
    }
    Some(())
}

fn read_descriptor<'b>(
    message: &'b [u8],
    request_hits: u32,
    policy: RequestPolicy,
    request: &mut Request<'b>,
) -> Option<()> {
    let (mut limit, mut own_hits, mut negative) = (None, None, false);
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Bytes(entry)) => request.push_entry(read_entry(entry)?),
            // A second one would have to be merged.
            (2, Value::Bytes(message)) if limit.is_none() => limit = Some(read_limit(message)?),
            (3, Value::Bytes(message)) if own_hits.is_none() => own_hits = Some(wrapped(message)?),
            (4, Value::Varint(flag)) => negative = flag != 0,
            (1..=4, _) => return None,
            _ => {}
        }
    }
    let hits = message::hits(request_hits, own_hits, negative, policy);
    let limit = limit.map(|limit: OverrideFields| limit.under(policy));
    request.finish_descriptor(hits, limit);
    if message::has_explicit_hits(request_hits, own_hits, negative) {
        request.set_explicit_hits();
    }
    Some(())
}

fn read_entry(message: &[u8]) -> Option<Entry<'_>> {
    let mut entry = Entry {
        key: &[],
        value: &[],
    };
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Bytes(text)) => entry.key = text,
            (2, Value::Bytes(text)) => entry.value = text,
            (1..=2, _) => return None,
            _ => {}
        }
    }
    Some(entry)
}

fn read_limit(message: &[u8]) -> Option<OverrideFields> {
    let mut limit = OverrideFields::default();
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Varint(requests)) => limit.requests_per_unit = uint32(requests),
            (2, Value::Varint(unit)) => limit.unit = int32(unit),
            (3, Value::Bytes(message)) if limit.unit_multiplier.is_none() => {
                limit.unit_multiplier = Some(uint32(wrapped(message)?));
            }
            (1..=3, _) => return None,
            _ => {}
        }
    }
    Some(limit)
}

/// The number in one of protobuf's wrapper messages.
fn wrapped(message: &[u8]) -> Option<u64> {
    let mut number = 0;
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Varint(value)) => number = value,
            (1, _) => return None,
            _ => {}
        }
    }
    Some(number)
}

/// Truncates to 32 bits, as protobuf does.
#[allow(clippy::cast_possible_truncation)]
fn uint32(varint: u64) -> u32 {
    varint as u32
}

/// Truncates to 32 bits and interprets the result as signed, as protobuf does.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
fn int32(varint: u64) -> i32 {
    varint as i32
}
