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

use crate::pipeline::RequestPolicy;
use crate::pipeline::message::{self, OverrideFields};
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

/// A call of more descriptors takes turns from the beginning, which one in the batch of its
/// connection does not.
pub(super) const SHORT_CALL_DESCRIPTORS_MAX: usize = 16;

/// Bytes of a buffer for checks that are kept from one to the next.
const KEPT_CHECK_BYTES_MAX: usize = 4_096;

/// The field of a request's hits, 1.
const ONE_HIT: [u8; 2] = [3 << 3, 1];

/// A `CheckRequest` of tollgate's API as a `RateLimitRequest` with explicit hits: both have these
/// bytes where no descriptor has hits of its own. They are written to `buffer` where the message
/// has no hits. None for a message that is not so, takes nothing, or is invalid.
pub fn check_as_request<'m>(message: &'m [u8], buffer: &'m mut Vec<u8>) -> Option<&'m [u8]> {
    let (mut has_domain, mut descriptors, mut has_hits) = (false, 0_usize, false);
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Bytes(domain)) if is_text(domain) => has_domain = true,
            (2, Value::Bytes(descriptor)) => {
                plain_descriptor(descriptor)?;
                descriptors = descriptors.saturating_add(1);
            }
            (3, Value::Varint(1..=0xffff_ffff)) => has_hits = true,
            _ => return None,
        }
    }
    if !has_domain || !(1..=SHORT_CALL_DESCRIPTORS_MAX).contains(&descriptors) {
        return None;
    }
    if has_hits {
        return Some(message);
    }
    buffer.clear();
    buffer.shrink_to(KEPT_CHECK_BYTES_MAX);
    buffer.extend_from_slice(message);
    buffer.extend_from_slice(&ONE_HIT);
    Some(buffer)
}

/// Whether a descriptor has nothing but entries with keys.
fn plain_descriptor(message: &[u8]) -> Option<()> {
    let mut entries = 0_usize;
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        let (1, Value::Bytes(entry)) = field else {
            return None;
        };
        let mut has_key = false;
        let mut fields = Fields(entry);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Bytes(key)) if is_text(key) => has_key = true,
                (2, Value::Bytes(value)) if value.is_empty() || is_text(value) => {}
                _ => return None,
            }
        }
        has_key.then_some(())?;
        entries = entries.saturating_add(1);
    }
    (entries > 0).then_some(())
}

/// Whether bytes are a text that is not empty.
fn is_text(bytes: &[u8]) -> bool {
    // Most are ASCII, which is known sooner.
    !bytes.is_empty() && (bytes.is_ascii() || std::str::from_utf8(bytes).is_ok())
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
    request.finish_descriptor(hits);
    if let Some(limit) = limit {
        let limit: OverrideFields = limit;
        request.set_limit(limit.under(policy));
    }
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
    const BURST: u64 = message::BURST as u64;
    let mut limit = OverrideFields::default();
    let mut fields = Fields(message);
    while let Some(field) = fields.next()? {
        match field {
            (1, Value::Varint(requests)) => limit.requests_per_unit = uint32(requests),
            (2, Value::Varint(unit)) => limit.unit = int32(unit),
            (3, Value::Bytes(message)) if limit.unit_multiplier.is_none() => {
                limit.unit_multiplier = Some(uint32(wrapped(message)?));
            }
            (BURST, Value::Varint(burst)) => limit.burst = Some(uint32(burst)),
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

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use tollgate_limiter::Hits;
    use tollgate_wire::proto::tollgate::v1::{CheckRequest, Descriptor, Entry as Pair, call::Call};

    use super::*;
    use crate::api_calls::read;

    fn descriptor(pairs: &[(&str, &str)], hits: Option<u64>) -> Descriptor {
        let entries = pairs.iter().map(|(key, value)| Pair {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
        });
        Descriptor {
            entries: entries.collect(),
            hits,
        }
    }

    /// What both readers find: the domain, and the hits and entries of each descriptor.
    fn found(request: &Request<'_>) -> String {
        let descriptors = request
            .descriptors()
            .map(|one| (one.hits, one.entries.to_vec()));
        format!("{:?} {:?}", request.domain, descriptors.collect::<Vec<_>>())
    }

    #[test]
    fn a_check_is_read_as_a_request_of_envoy_or_not_at_all() {
        let policy = RequestPolicy {
            negative_hits: true,
            overrides: true,
        };
        let good = descriptor(&[("user", "ann"), ("path", "")], None);
        let lists = [
            vec![],
            vec![good.clone()],
            vec![good.clone(), descriptor(&[("k", "é")], None)],
            vec![good.clone(), descriptor(&[("k", "v")], Some(3))],
            vec![descriptor(&[], None)],
            vec![descriptor(&[("", "v")], None)],
            vec![good.clone(); SHORT_CALL_DESCRIPTORS_MAX],
            vec![good; SHORT_CALL_DESCRIPTORS_MAX + 1],
        ];
        let (mut read_quickly, mut buffer) = (0, Vec::new());
        for domain in ["", "d"] {
            for descriptors in &lists {
                for hits in [None, Some(0), Some(1), Some(7), Some(1 << 32)] {
                    let check = CheckRequest {
                        domain: domain.to_owned(),
                        descriptors: descriptors.clone(),
                        hits,
                    };
                    let message = check.encode_to_vec();
                    let Some(quick) = check_as_request(&message, &mut buffer) else {
                        continue;
                    };
                    read_quickly += 1;
                    let mut request = Request::default();
                    decode(quick, policy, &mut request).unwrap();
                    let call = Call::Check(check);
                    let (expected, _) = read(&call).unwrap();
                    assert_eq!(found(&request), found(&expected));
                    let hits = request.descriptors().map(|one| one.hits);
                    let hits: Vec<_> = hits.collect();
                    assert!(!hits.contains(&Hits::PEEK), "{hits:?}");
                }
            }
        }
        // Three lists, each with no hits, 1 and 7.
        assert_eq!(read_quickly, 9);
        let text = CheckRequest {
            domain: "d".to_owned(),
            descriptors: lists[1].clone(),
            hits: None,
        };
        let mut message = text.encode_to_vec();
        let at = message.windows(3).position(|part| part == b"ann").unwrap();
        message[at] = 0xff;
        assert!(
            check_as_request(&message, &mut buffer).is_none(),
            "no UTF-8"
        );
        assert!(check_as_request(&[8, 1], &mut buffer).is_none(), "no text");
    }
}
