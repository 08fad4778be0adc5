//! Items as they come from a service, in pieces of any length.
//!
//! Whole items are passed on as they are. Only the few that say something about the recording are
//! decoded; requests are told by their first byte.

use prost::Message as _;

use super::{ITEM_BYTES_MAX, ReadError};
use tollgate_wire::proto::tollgate::recording::v1::item::Item as Kind;
use tollgate_wire::proto::tollgate::recording::v1::{Header, Item, Rules, Skipped};

/// The key of the field `request` of an item.
const REQUEST_KEY: u8 = 3 << 3 | 2;

/// The key of the field `call` of an item.
const CALL_KEY: u8 = 9 << 3 | 2;

/// The longest length of an item, in bytes.
const LENGTH_BYTES_MAX: usize = 10;

/// An item, and what follows it.
type Split<'b> = (&'b [u8], &'b [u8]);

/// What was received so far.
#[derive(Debug, Default)]
pub struct Received {
    /// The beginning of an item.
    rest: Vec<u8>,
    items: u64,
    /// The header, once it has come.
    pub header: Option<Header>,
    /// The newest rules.
    pub rules: Option<Rules>,
    /// How many requests came.
    pub requests: u64,
    /// What the service skipped.
    pub skipped: Skipped,
    /// Why the service ended the recording.
    pub ended: Option<String>,
}

// === impl Received ===

impl Received {
    /// Adds bytes, and passes all whole items to `take`.
    ///
    /// # Errors
    ///
    /// When the bytes are no items.
    pub fn push(&mut self, bytes: &[u8], take: &mut dyn FnMut(&[u8])) -> Result<(), ReadError> {
        let joined;
        let mut left = if self.rest.is_empty() {
            bytes
        } else {
            self.rest.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.rest);
            &joined
        };
        let whole = left;
        while let Some((item, rest)) = split_item(left, self.items.saturating_add(1))? {
            self.look_at(item)?;
            left = rest;
        }
        let done = whole.len().saturating_sub(left.len());
        if done > 0 {
            take(whole.get(..done).unwrap_or_default());
        }
        self.rest = left.to_vec();
        Ok(())
    }

    fn look_at(&mut self, item: &[u8]) -> Result<(), ReadError> {
        self.items = self.items.saturating_add(1);
        if item
            .first()
            .is_some_and(|key| [REQUEST_KEY, CALL_KEY].contains(key))
        {
            self.requests = self.requests.saturating_add(1);
            return Ok(());
        }
        match decode_item(item, self.items)?.item {
            Some(Kind::Header(header)) => self.header = Some(header),
            Some(Kind::Rules(rules)) => self.rules = Some(rules),
            Some(Kind::Skipped(more)) => add_skipped(&mut self.skipped, &more),
            Some(Kind::End(end)) => self.ended = Some(end.reason),
            _ => {}
        }
        Ok(())
    }
}

/// The first item, without its length, and what follows it; none where it is not whole. `number` is
/// its number, for errors.
pub(super) fn split_item(bytes: &[u8], number: u64) -> Result<Option<Split<'_>>, ReadError> {
    let mut rest = bytes;
    match prost::decode_length_delimiter(&mut rest) {
        Ok(length) if length <= ITEM_BYTES_MAX => Ok(rest.split_at_checked(length)),
        Ok(length) => Err(ReadError::TooLong {
            item: number,
            bytes: length as u64,
        }),
        Err(_) if bytes.len() < LENGTH_BYTES_MAX => Ok(None),
        Err(_) => Err(ReadError::Damaged {
            item: number,
            why: "its length is no number".to_owned(),
        }),
    }
}

pub(super) fn decode_item(item: &[u8], number: u64) -> Result<Item, ReadError> {
    Item::decode(item).map_err(|error| ReadError::Damaged {
        item: number,
        why: error.to_string(),
    })
}

/// Adds counts of what was not recorded.
pub(super) fn add_skipped(sum: &mut Skipped, more: &Skipped) {
    for (sum, more) in [
        (&mut sum.rate, more.rate),
        (&mut sum.slow_reader, more.slow_reader),
        (&mut sum.without_entry, more.without_entry),
        (&mut sum.too_long, more.too_long),
        (&mut sum.caller_left, more.caller_left),
    ] {
        *sum = sum.saturating_add(more);
    }
}
