//! The fields of a protobuf message, read in place.
//!
//! What it deliberately does not do: know a message's fields, merge repeated ones, or read groups.

/// Wire types of protobuf.
const VARINT: u64 = 0;
const SIXTY_FOUR: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;
const THIRTY_TWO: u64 = 5;

/// The largest valid key: field number and wire type together.
const KEY_MAX: u64 = u32::MAX as u64;

/// Iterates over the fields of a message.
#[derive(Debug)]
pub struct Fields<'b>(
    /// What is left of the message.
    pub &'b [u8],
);

/// A field's value. Types that these messages do not use are skipped.
#[derive(Debug)]
pub enum Value<'b> {
    /// A number, a boolean or an enum.
    Varint(u64),
    /// A text, bytes or a message.
    Bytes(&'b [u8]),
    /// A value of a type that is skipped.
    Other,
}

// === impl Fields ===

impl<'b> Fields<'b> {
    /// The next field's number and value. `Some(None)` at the end; none when the bytes are not a
    /// message or contain a group.
    // Each of a check's dozen fields would cost a call and a value in memory.
    #[inline(always)]
    #[allow(clippy::option_option, clippy::should_implement_trait)] // the outer one is for `?`
    #[allow(clippy::inline_always)]
    pub fn next(&mut self) -> Option<Option<(u64, Value<'b>)>> {
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

    #[inline]
    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// The number in front of what is left. It has seven bits per byte, lowest first: at most ten
    /// bytes, of which the last has one bit.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        if *first < 0x80 {
            self.0 = rest;
            return Some(u64::from(*first));
        }
        self.long_varint()
    }

    #[cold]
    fn long_varint(&mut self) -> Option<u64> {
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
