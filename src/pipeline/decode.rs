//! A `RateLimitRequest` read straight from its bytes.
//!
//! Why: prost makes a vector for each list and a reference-counted slice for each text, a dozen allocations a check. How:
//! two passes over the message's own bytes. The first finds what applies to all descriptors (the domain, the request's
//! hits), wherever it stands; the second walks the descriptors and pushes slices into a request whose vectors are used
//! again and again.
//!
//! It reads what it is sure of. Whatever is broken, or unusual enough that merging rules of protobuf would be needed (a
//! message field that stands twice, a group), it leaves to prost, which then says what is wrong in its own words. So there
//! are no errors here, only [`None`]; `agreement` and the fuzz target `wire` hold both readers against each other.
//!
//! What it deliberately does not do: refuse anything, copy a text, know gRPC's frame (`frame`).

use crate::pipeline::message::{self, OverrideFields};
use crate::pipeline::policy::RequestPolicy;
use tollgate_limiter::{Entry, Request};

/// How protobuf says what follows a field's number.
const VARINT: u64 = 0;
const SIXTY_FOUR: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;
const THIRTY_TWO: u64 = 5;

/// The largest field number and wire type together: more is no field.
const KEY_MAX: u64 = u32::MAX as u64;

/// Reads a message into `request`, which is emptied first. None when prost should have a look at it; `request` then holds
/// nothing of use.
pub(crate) fn decode<'b>(
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
            // Twice would have to be merged.
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

/// As protobuf does: the lower half.
#[allow(clippy::cast_possible_truncation)]
fn uint32(varint: u64) -> u32 {
    varint as u32
}

/// The same, with a sign.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
fn int32(varint: u64) -> i32 {
    varint as i32
}

/// What is left of a message.
struct Fields<'b>(&'b [u8]);

/// What a field holds; of those that no message here has, nothing.
enum Value<'b> {
    Varint(u64),
    Bytes(&'b [u8]),
    Other,
}

// === impl Fields ===

impl<'b> Fields<'b> {
    /// The next field's number and value; `Some(None)` at the end, none when the bytes are not a message or hold a group.
    #[inline]
    #[allow(clippy::option_option)] // the outer one is for `?`
    fn next(&mut self) -> Option<Option<(u64, Value<'b>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let key = self.varint()?;
        let number = key >> 3;
        if key > KEY_MAX || number == 0 {
            return None;
        }
        let value = match key & 7 {
            VARINT => Value::Varint(self.varint()?),
            LENGTH_DELIMITED => {
                let length = usize::try_from(self.varint()?).ok()?;
                Value::Bytes(self.take(length)?)
            }
            SIXTY_FOUR => {
                self.take(8)?;
                Value::Other
            }
            THIRTY_TWO => {
                self.take(4)?;
                Value::Other
            }
            _ => return None,
        };
        Some(Some((number, value)))
    }

    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Seven bits a byte, the lowest first; at most ten bytes, of which the last has one bit.
    #[inline]
    fn varint(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        if *first < 0x80 {
            self.0 = rest;
            return Some(u64::from(*first));
        }
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && *byte > 1 {
                return None;
            }
            value |= bits << shift;
            if *byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}
