//! Writes the fields of a protobuf message into a vector, without an allocation of its own.
//!
//! What it deliberately does not do: know a message's fields, or leave out an empty message.

/// Wire types of protobuf.
const VARINT: u32 = 0;
const LENGTH_DELIMITED: u32 = 2;

/// Puts a number, unless it is 0, which protobuf leaves out.
#[inline]
pub fn put_number(into: &mut Vec<u8>, field: u32, number: u64) {
    if number != 0 {
        put_varint(into, u64::from(field << 3 | VARINT));
        put_varint(into, number);
    }
}

/// Puts a text or bytes, unless they are empty.
#[inline]
pub fn put_bytes(into: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    if !bytes.is_empty() {
        put_varint(into, u64::from(field << 3 | LENGTH_DELIMITED));
        put_varint(into, bytes.len() as u64);
        into.extend_from_slice(bytes);
    }
}

/// Puts a message, also an empty one.
#[inline]
pub fn put_message(into: &mut Vec<u8>, field: u32, body: impl FnOnce(&mut Vec<u8>)) {
    put_varint(into, u64::from(field << 3 | LENGTH_DELIMITED));
    put_delimited(into, body);
}

/// Puts packed numbers, if there are any.
pub fn put_packed(into: &mut Vec<u8>, field: u32, numbers: impl Iterator<Item = u64>) {
    let mut numbers = numbers.peekable();
    if numbers.peek().is_some() {
        put_message(into, field, |into| {
            numbers.for_each(|number| put_varint(into, number));
        });
    }
}

/// Puts what `body` writes after its length, which mostly takes one byte. That byte is left for it.
#[inline]
pub fn put_delimited(into: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    into.push(0);
    let start = into.len();
    body(into);
    let length = into.len() - start;
    match (u8::try_from(length), into.get_mut(start - 1)) {
        (Ok(short @ ..0x80), Some(place)) => *place = short,
        _ => put_long_length(into, start, length),
    }
}

/// Puts the length of what begins at `start` in place of the byte before it.
#[cold]
fn put_long_length(into: &mut Vec<u8>, start: usize, length: usize) {
    into.remove(start - 1);
    put_varint(into, length as u64);
    if let Some(written) = into.get_mut(start - 1..) {
        written.rotate_left(length);
    }
}

#[inline]
#[allow(clippy::cast_possible_truncation)] // seven bits at a time
fn put_varint(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}
