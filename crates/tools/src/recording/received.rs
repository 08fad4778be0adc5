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
        while let Some((head, length)) = self.length(left)? {
            let end = head.saturating_add(length);
            let Some((item, rest)) = left.split_at_checked(end) else {
                break;
            };
            self.look_at(item.get(head..).unwrap_or_default())?;
            left = rest;
        }
        let done = whole.len().saturating_sub(left.len());
        if done > 0 {
            take(whole.get(..done).unwrap_or_default());
        }
        self.rest = left.to_vec();
        Ok(())
    }

    /// The length of the first item and of its length; none when they are not whole.
    fn length(&self, bytes: &[u8]) -> Result<Option<(usize, usize)>, ReadError> {
        let item = self.items.saturating_add(1);
        let mut rest = bytes;
        match prost::decode_length_delimiter(&mut rest) {
            Ok(length) if length <= ITEM_BYTES_MAX => {
                Ok(Some((bytes.len().saturating_sub(rest.len()), length)))
            }
            Ok(length) => Err(ReadError::TooLong {
                item,
                bytes: length as u64,
            }),
            Err(_) if bytes.len() < LENGTH_BYTES_MAX => Ok(None),
            Err(_) => Err(ReadError::Damaged {
                item,
                why: "its length is no number".to_owned(),
            }),
        }
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
        let message = Item::decode(item).map_err(|error| ReadError::Damaged {
            item: self.items,
            why: error.to_string(),
        })?;
        match message.item {
            Some(Kind::Header(header)) => self.header = Some(header),
            Some(Kind::Rules(rules)) => self.rules = Some(rules),
            Some(Kind::Skipped(more)) => super::reader::add_skipped(&mut self.skipped, &more),
            Some(Kind::End(end)) => self.ended = Some(end.reason),
            _ => {}
        }
        Ok(())
    }
}
