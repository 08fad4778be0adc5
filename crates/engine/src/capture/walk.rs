//! Reads items that were written here, to cut or to change them.

use tollgate_wire::fields::{Fields, Value};

use super::item::{CALL, REQUEST};

/// One item in a buffer.
pub(super) struct WrittenItem<'b> {
    /// The whole item, its length in front included.
    pub(super) whole: &'b [u8],
    /// Its number in `Item`.
    pub(super) field: u32,
    /// What follows.
    pub(super) body: &'b [u8],
}

/// One field of a message.
pub(super) struct Field<'b> {
    pub(super) number: u32,
    pub(super) value: Value<'b>,
    /// The field as it is written.
    pub(super) whole: &'b [u8],
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
                value: Value::Varint(order),
                ..
            }) => order,
            _ => 0,
        }
    }
}

/// The items of a buffer.
pub(super) fn items(mut bytes: &[u8]) -> impl Iterator<Item = WrittenItem<'_>> {
    std::iter::from_fn(move || {
        let mut left = Fields(bytes);
        let len = usize::try_from(left.varint()?).ok()?;
        let (item, rest) = left.0.split_at_checked(len)?;
        let field = fields(item).next()?;
        let Value::Bytes(body) = field.value else {
            return None;
        };
        let whole = read(bytes, rest)?;
        bytes = rest;
        Some(WrittenItem {
            whole,
            field: field.number,
            body,
        })
    })
}

/// The fields of a message, until one is malformed.
pub(super) fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    let mut left = Fields(message);
    std::iter::from_fn(move || {
        let before = left.0;
        let (number, value) = left.next()??;
        Some(Field {
            number: u32::try_from(number).ok()?,
            value,
            whole: read(before, left.0)?,
        })
    })
}

/// The part of `bytes` in front of `rest`, which is its end.
fn read<'b>(bytes: &'b [u8], rest: &[u8]) -> Option<&'b [u8]> {
    bytes.get(..bytes.len().saturating_sub(rest.len()))
}
