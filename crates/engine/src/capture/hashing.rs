//! Replaces values in written items by keyed hashes. The task that streams a recording does it, not
//! the threads that decide.

use super::compared::ComparedKeys;
use super::item::{CALL, REQUEST, RESET, put_item};
use super::walk::{Field, fields, items};
use crate::value_hash::ShownValues;
use tollgate_wire::fields::Value;
use tollgate_wire::put::{put_bytes, put_message};

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
    for item in items(buffer) {
        if ![REQUEST, RESET, CALL].contains(&item.field) {
            hashed.extend_from_slice(item.whole);
            continue;
        }
        let generation = fields(item.body).find_map(|field| match field.value {
            Value::Varint(generation) if field.number == GENERATION => Some(generation),
            _ => None,
        });
        let generation = generation.unwrap_or_default().cast_signed();
        let messages = MessageHasher {
            values,
            keys: compared(generation),
        };
        put_item(&mut hashed, item.field, |into| {
            for field in fields(item.body) {
                match field.value {
                    Value::Bytes(message) if field.number == MESSAGE => {
                        put_message(into, MESSAGE, |into| messages.request(message, into));
                    }
                    Value::Bytes(asked) if field.number == ASKED => {
                        put_message(into, ASKED, |into| messages.call(asked, into));
                    }
                    _ => into.extend_from_slice(field.whole),
                }
            }
        });
    }
    hashed
}

/// Writes messages with hashes in place of values.
struct MessageHasher<'a> {
    values: &'a ShownValues,
    keys: Option<&'a ComparedKeys>,
}

// === impl MessageHasher ===

impl MessageHasher<'_> {
    /// What a call asks, with the hash of the id: no rule compares one. An id in a descriptor has
    /// the same hash.
    fn call(&self, asked: &[u8], into: &mut Vec<u8>) {
        replace(RESERVATION, asked, into, |id, into| {
            put_bytes(into, RESERVATION, self.values.hashed(id).as_bytes());
        });
    }

    /// A `RateLimitRequest`.
    fn request(&self, message: &[u8], into: &mut Vec<u8>) {
        let domain = fields(message).find_map(|field| field.bytes_of(1));
        let domain = domain.unwrap_or_default();
        let entry = |entry: &[u8], into: &mut Vec<u8>| {
            put_message(into, 1, |into| self.entry(entry, domain, into));
        };
        replace(2, message, into, |descriptor, into| {
            put_message(into, 2, |into| replace(1, descriptor, into, entry));
        });
    }

    fn entry(&self, entry: &[u8], domain: &[u8], into: &mut Vec<u8>) {
        let last = |number| {
            fields(entry)
                .filter_map(|field| field.bytes_of(number))
                .last()
        };
        let key = last(1).unwrap_or_default();
        // Without a value there is nothing to hide.
        let value = last(2).unwrap_or_default();
        put_bytes(into, 1, key);
        if value.is_empty() || self.keys.is_some_and(|keys| keys.stays(domain, key, value)) {
            put_bytes(into, 2, value);
        } else {
            put_bytes(into, 2, self.values.hashed(value).as_bytes());
        }
    }
}

/// Writes a message, with what `put` writes in place of its fields of this number.
fn replace(number: u32, message: &[u8], into: &mut Vec<u8>, put: impl Fn(&[u8], &mut Vec<u8>)) {
    for field in fields(message) {
        match field.bytes_of(number) {
            None => into.extend_from_slice(field.whole),
            Some(bytes) => put(bytes, into),
        }
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
