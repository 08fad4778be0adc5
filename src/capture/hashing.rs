//! Replaces values in written items by keyed hashes. The task that streams a recording does it, not
//! the threads that decide.

use super::compared::ComparedKeys;
use super::item::{CALL, REQUEST, RESET, begin_item, put_bytes};
use super::walk::{Field, Value, fields, items};
use crate::value_hash::ShownValues;

/// The field with the encoded request, in requests and in resets.
const MESSAGE: u32 = 3;

/// The field with the generation, in requests.
const GENERATION: u32 = 6;

/// The field with what a call of the API asks.
const ASKED: u32 = 12;

/// The field with the id of a reservation, in what a call asks.
const RESERVATION: u32 = 2;

/// The items of a buffer with hashes in place of values. `compared` has the compared keys of a
/// generation; without them every value is hashed. A reset has no generation and asks for that
/// of 0.
pub fn hash_values<'k>(
    buffer: &[u8],
    values: &ShownValues,
    compared: impl Fn(i64) -> Option<&'k ComparedKeys>,
) -> Vec<u8> {
    let mut hashed = Vec::with_capacity(buffer.len());
    let mut body = Vec::new();
    for item in items(buffer) {
        if ![REQUEST, RESET, CALL].contains(&item.field) {
            hashed.extend_from_slice(item.whole);
            continue;
        }
        let generation = fields(item.body).find_map(|field| match field.value {
            Value::Number(generation) if field.number == GENERATION => Some(generation),
            _ => None,
        });
        let generation = generation.unwrap_or_default().cast_signed();
        let keys = compared(generation);
        body.clear();
        for field in fields(item.body) {
            match field.value {
                Value::Bytes(message) if field.number == MESSAGE => {
                    put_bytes(MESSAGE, &hash_message(message, values, keys), &mut body);
                }
                Value::Bytes(asked) if field.number == ASKED => {
                    put_bytes(ASKED, &hash_id(asked, values), &mut body);
                }
                _ => body.extend_from_slice(field.whole),
            }
        }
        begin_item(item.field, body.len(), &mut hashed);
        hashed.extend_from_slice(&body);
    }
    hashed
}

/// What a call asks, with the hash of the id: no rule compares one. An id in a descriptor has the
/// same hash.
fn hash_id(asked: &[u8], values: &ShownValues) -> Vec<u8> {
    let mut hashed = Vec::with_capacity(asked.len());
    for field in fields(asked) {
        match field.bytes_of(RESERVATION) {
            None => hashed.extend_from_slice(field.whole),
            Some(id) => put_bytes(RESERVATION, values.hashed(id).as_bytes(), &mut hashed),
        }
    }
    hashed
}

/// A `RateLimitRequest` with hashes.
fn hash_message(message: &[u8], values: &ShownValues, keys: Option<&ComparedKeys>) -> Vec<u8> {
    let domain = fields(message).find_map(|field| field.bytes_of(1));
    let domain = domain.unwrap_or_default();
    let mut hashed = Vec::with_capacity(message.len());
    for field in fields(message) {
        match field.bytes_of(2) {
            None => hashed.extend_from_slice(field.whole),
            Some(descriptor) => {
                let descriptor = hash_descriptor(descriptor, domain, values, keys);
                put_message(2, &descriptor, &mut hashed);
            }
        }
    }
    hashed
}

fn hash_descriptor(
    descriptor: &[u8],
    domain: &[u8],
    values: &ShownValues,
    keys: Option<&ComparedKeys>,
) -> Vec<u8> {
    let mut hashed = Vec::with_capacity(descriptor.len());
    for field in fields(descriptor) {
        match field.bytes_of(1) {
            None => hashed.extend_from_slice(field.whole),
            Some(entry) => put_message(1, &hash_entry(entry, domain, values, keys), &mut hashed),
        }
    }
    hashed
}

fn hash_entry(
    entry: &[u8],
    domain: &[u8],
    values: &ShownValues,
    keys: Option<&ComparedKeys>,
) -> Vec<u8> {
    let last = |number| {
        fields(entry)
            .filter_map(|field| field.bytes_of(number))
            .last()
    };
    let key = last(1).unwrap_or_default();
    // Without a value there is nothing to hide.
    let value = last(2).unwrap_or_default();
    let mut hashed = Vec::with_capacity(entry.len());
    put_bytes(1, key, &mut hashed);
    if value.is_empty() || keys.is_some_and(|keys| keys.stays(domain, key, value)) {
        put_bytes(2, value, &mut hashed);
    } else {
        put_bytes(2, values.hashed(value).as_bytes(), &mut hashed);
    }
    hashed
}

/// Writes a message, also an empty one.
fn put_message(number: u32, message: &[u8], into: &mut Vec<u8>) {
    if message.is_empty() {
        into.extend_from_slice(&[u8::try_from(number << 3 | 2).unwrap_or_default(), 0]);
    } else {
        put_bytes(number, message, into);
    }
}

// === impl Field ===

impl<'b> Field<'b> {
    /// The bytes of the field, if it has this number.
    fn bytes_of(&self, number: u32) -> Option<&'b [u8]> {
        match self.value {
            Value::Bytes(bytes) if self.number == number => Some(bytes),
            _ => None,
        }
    }
}
