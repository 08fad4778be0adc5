//! Items of a recording in protobuf's wire format.
//!
//! Requests, refunds and resets are written by hand: a thread writes each request that it decides,
//! and must not allocate. A test compares the bytes with those of the generated types, which write
//! the other items.

use prost::Message as _;
use tollgate_limiter::Timestamp;

use tollgate_store::CheckStamp;
use tollgate_wire::proto::tollgate::recording::v1::Item;
use tollgate_wire::proto::tollgate::recording::v1::item::Item as Kind;
use tollgate_wire::put::{put_bytes, put_delimited, put_message, put_number, put_packed};

/// The numbers in `Item` of the items that are written by hand.
pub(super) const REQUEST: u32 = 3;
pub(super) const REFUND: u32 = 4;
pub(super) const RESET: u32 = 5;
pub(super) const CALL: u32 = 9;

/// A check of a captured request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CapturedCheck {
    /// The index of its rule, plus 1; 0 for a limit of the request itself.
    pub(crate) rule: u32,
    pub(crate) is_refused: bool,
    /// Whether its bucket decided it.
    pub(crate) is_decided: bool,
    pub(crate) stamp: CheckStamp,
}

/// The most bytes of a request's item without what clients choose, and of each check in it.
const FIXED_BYTES_MAX: usize = 128;
const CHECK_BYTES_MAX: usize = 64;

/// A request as it is written.
#[derive(Debug)]
pub(super) struct RequestItem<'a> {
    pub(super) order: u64,
    pub(super) at: Timestamp,
    pub(super) message: &'a [u8],
    /// A value of `Code`.
    pub(super) code: u8,
    pub(super) descriptor_codes: &'a [u8],
    pub(super) generation: i64,
    pub(super) checks: &'a [CapturedCheck],
    pub(super) is_late: bool,
    /// What a call of the API asks, encoded. Empty for a request of another way in.
    pub(super) call: &'a [u8],
}

// === impl RequestItem ===

impl RequestItem<'_> {
    /// Writes it, if the vector then has at most `len_max` bytes or was empty. False if not.
    pub(super) fn write(&self, into: &mut Vec<u8>, len_max: usize) -> bool {
        let texts = [self.message, self.descriptor_codes, self.call].map(<[u8]>::len);
        let most = texts.iter().sum::<usize>() + self.checks.len() * CHECK_BYTES_MAX;
        if into.len() + most + FIXED_BYTES_MAX > len_max && !into.is_empty() {
            return false;
        }
        let field = if self.call.is_empty() { REQUEST } else { CALL };
        put_item(into, field, |into| {
            put_number(into, 1, self.order);
            put_number(into, 2, self.at.as_us());
            put_bytes(into, 3, self.message);
            put_number(into, 4, u64::from(self.code));
            put_bytes(into, 5, self.descriptor_codes);
            put_number(into, 6, self.generation.cast_unsigned());
            for (position, stamp) in self.stamps() {
                put_stamp(7, position, stamp, into);
            }
            let checks = self.checks.iter().enumerate();
            let undecided = checks.filter(|(_, check)| !check.is_decided);
            put_packed(into, 8, undecided.map(|(position, _)| position as u64));
            let rules = self.checks.iter().map(|check| u64::from(check.rule));
            put_packed(into, 9, rules);
            let refused = self.checks.iter().map(|check| u64::from(check.is_refused));
            put_packed(into, 10, refused);
            put_number(into, 11, u64::from(self.is_late));
            put_bytes(into, 12, self.call);
        });
        true
    }

    /// The stamps of checks that were not decided together with the first.
    fn stamps(&self) -> impl Iterator<Item = (u64, CheckStamp)> {
        // The checks of one batch have numbers in a row, in the order of their positions. Numbers
        // of other batches can follow by chance: those have another time.
        let mut next = self.order;
        let checks = self.checks.iter().enumerate();
        checks.filter_map(move |(position, check)| {
            let stamp = check.stamp;
            if stamp.order == next && stamp.at == self.at {
                next = next.saturating_add(1);
                return None;
            }
            (stamp.order != 0).then_some((position as u64, stamp))
        })
    }
}

/// Writes a refund of the hits that these checks took; 0 stands for a check without a number.
pub(super) fn put_refund(order: u64, at: Timestamp, taken: &[u64], into: &mut Vec<u8>) {
    put_item(into, REFUND, |into| {
        put_number(into, 1, order);
        put_number(into, 2, at.as_us());
        put_packed(into, 3, taken.iter().copied().filter(|order| *order != 0));
    });
}

/// Writes a reset. The stamps are those of its checks, by position.
pub(super) fn put_reset(message: &[u8], stamps: &[CheckStamp], into: &mut Vec<u8>) {
    let first = stamps.iter().min_by_key(|stamp| stamp.order);
    let first = first.copied().unwrap_or_default();
    put_item(into, RESET, |into| {
        put_number(into, 1, first.order);
        put_number(into, 2, first.at.as_us());
        put_bytes(into, 3, message);
        for (position, stamp) in (0..).zip(stamps) {
            if stamp.order != first.order {
                put_stamp(4, position, *stamp, into);
            }
        }
    });
}

/// An item, with its length in front.
pub fn encode_item(item: Kind) -> Vec<u8> {
    Item { item: Some(item) }.encode_length_delimited_to_vec()
}

/// Writes an item by hand, with its length in front.
pub(super) fn put_item(into: &mut Vec<u8>, field: u32, body: impl FnOnce(&mut Vec<u8>)) {
    put_delimited(into, |into| put_message(into, field, body));
}

fn put_stamp(field: u32, position: u64, stamp: CheckStamp, into: &mut Vec<u8>) {
    put_message(into, field, |into| {
        put_number(into, 1, position);
        put_number(into, 2, stamp.order);
        put_number(into, 3, stamp.at.as_us());
    });
}
