//! Reads items that were written here, to cut or to change them.

use super::item::{CALL, REQUEST};

/// One item in a buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct WrittenItem<'b> {
    /// The whole item, its length in front included.
    pub(super) whole: &'b [u8],
    /// Its number in `Item`.
    pub(super) field: u32,
    /// What follows.
    pub(super) body: &'b [u8],
}

/// One field of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Field<'b> {
    pub(super) number: u32,
    pub(super) value: Value<'b>,
    /// The field as it is written.
    pub(super) whole: &'b [u8],
}

/// The value of a field.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Value<'b> {
    Number(u64),
    Bytes(&'b [u8]),
    /// Of a fixed length.
    Fixed,
}

// === impl WrittenItem ===

impl WrittenItem<'_> {
    /// Whether it is a request.
    pub(super) fn is_request(&self) -> bool {
        self.field == REQUEST || self.field == CALL
    }

    /// The first field of a request, a refund or a reset: its order.
    pub(super) fn order(&self) -> u64 {
        match fields(self.body).next() {
            Some(Field {
                number: 1,
                value: Value::Number(order),
                ..
            }) => order,
            _ => 0,
        }
    }
}

/// The items of a buffer.
pub(super) fn items(mut bytes: &[u8]) -> impl Iterator<Item = WrittenItem<'_>> {
    std::iter::from_fn(move || {
        let from = bytes;
        let (len, rest) = varint(bytes)?;
        let (item, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
        let field = fields(item).next()?;
        let Value::Bytes(body) = field.value else {
            return None;
        };
        let whole = from.get(..from.len().saturating_sub(rest.len()))?;
        bytes = rest;
        Some(WrittenItem {
            whole,
            field: field.number,
            body,
        })
    })
}

/// The fields of a message, until one is malformed.
pub(super) fn fields(mut bytes: &[u8]) -> impl Iterator<Item = Field<'_>> {
    std::iter::from_fn(move || {
        let from = bytes;
        let (tag, rest) = varint(bytes)?;
        let number = u32::try_from(tag >> 3).ok()?;
        let (value, rest) = match tag & 7 {
            0 => {
                let (value, rest) = varint(rest)?;
                (Value::Number(value), rest)
            }
            1 => (Value::Fixed, rest.get(8..)?),
            2 => {
                let (len, rest) = varint(rest)?;
                let (value, rest) = rest.split_at_checked(usize::try_from(len).ok()?)?;
                (Value::Bytes(value), rest)
            }
            5 => (Value::Fixed, rest.get(4..)?),
            _ => return None,
        };
        let whole = from.get(..from.len().saturating_sub(rest.len()))?;
        bytes = rest;
        Some(Field {
            number,
            value,
            whole,
        })
    })
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (place, byte) in bytes.iter().enumerate().take(10) {
        let shift = u32::try_from(place).ok()?.checked_mul(7)?;
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(place.checked_add(1)?..)?));
        }
    }
    None
}
