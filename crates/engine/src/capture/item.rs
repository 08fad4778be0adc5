//! Items of a recording in protobuf's wire format, written by hand into a vector.
//!
//! Why by hand: a thread writes each request that it decides, and must not allocate. A test
//! compares the bytes with those of the generated types.

use tollgate_limiter::Timestamp;

use tollgate_store::CheckStamp;

/// The numbers of the items in `Item`.
pub(super) const RULES: u32 = 2;
pub(super) const REQUEST: u32 = 3;
pub(super) const REFUND: u32 = 4;
pub(super) const RESET: u32 = 5;
const HEADER: u32 = 1;
const SKIPPED: u32 = 6;
const WATERMARK: u32 = 7;
const END: u32 = 8;
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
        let checks = self.checks.len().saturating_mul(CHECK_BYTES_MAX);
        let most = texts.iter().sum::<usize>().saturating_add(checks);
        let len = into
            .len()
            .saturating_add(most)
            .saturating_add(FIXED_BYTES_MAX);
        if len > len_max && !into.is_empty() {
            return false;
        }
        let field = if self.call.is_empty() { REQUEST } else { CALL };
        put_item(field, into, |into| {
            put_field(1, self.order, into);
            put_field(2, self.at.as_us(), into);
            put_bytes(3, self.message, into);
            put_field(4, u64::from(self.code), into);
            put_bytes(5, self.descriptor_codes, into);
            put_field(6, self.generation.cast_unsigned(), into);
            for (position, stamp) in self.stamps() {
                put_stamp(7, position, stamp, into);
            }
            let checks = self.checks.iter().enumerate();
            let undecided = checks.filter(|(_, check)| !check.is_decided);
            put_packed(8, undecided.map(|(position, _)| position as u64), into);
            put_packed(
                9,
                self.checks.iter().map(|check| u64::from(check.rule)),
                into,
            );
            let refused = self.checks.iter().map(|check| u64::from(check.is_refused));
            put_packed(10, refused, into);
            put_field(11, u64::from(self.is_late), into);
            put_bytes(12, self.call, into);
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
    put_item(REFUND, into, |into| {
        put_field(1, order, into);
        put_field(2, at.as_us(), into);
        put_packed(3, taken.iter().copied().filter(|order| *order != 0), into);
    });
}

/// Writes a reset. The stamps are those of its checks, by position.
pub(super) fn put_reset(message: &[u8], stamps: &[CheckStamp], into: &mut Vec<u8>) {
    let first = stamps.iter().min_by_key(|stamp| stamp.order);
    let first = first.copied().unwrap_or_default();
    put_item(RESET, into, |into| {
        put_field(1, first.order, into);
        put_field(2, first.at.as_us(), into);
        put_bytes(3, message, into);
        for (position, stamp) in (0..).zip(stamps) {
            if stamp.order != first.order {
                put_stamp(4, position, *stamp, into);
            }
        }
    });
}

/// Writes what was not recorded, by cause in the order of the format.
pub(super) fn put_skipped(counts: &[u64], into: &mut Vec<u8>) {
    put_item(SKIPPED, into, |into| {
        for (field, count) in (1..).zip(counts) {
            put_field(field, *count, into);
        }
    });
}

/// Writes that nothing with a lower order follows.
pub(super) fn put_watermark(order: u64, into: &mut Vec<u8>) {
    put_item(WATERMARK, into, |into| put_field(1, order, into));
}

/// Writes the end.
pub(super) fn put_end(reason: &str, requests: u64, into: &mut Vec<u8>) {
    put_item(END, into, |into| {
        put_bytes(1, reason.as_bytes(), into);
        put_field(2, requests, into);
    });
}

/// Writes an encoded header as an item.
pub fn encode_header_item(header: &[u8], into: &mut Vec<u8>) {
    put_item(HEADER, into, |into| into.extend_from_slice(header));
}

/// Writes encoded rules as an item.
pub fn encode_rules_item(rules: &[u8], into: &mut Vec<u8>) {
    put_item(RULES, into, |into| into.extend_from_slice(rules));
}

/// Writes an item, with its length in front.
pub(super) fn put_item(field: u32, into: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = into.len();
    put_message(field, into, body);
    let len = into.len().saturating_sub(start);
    put_varint(len as u64, into);
    move_to_front(start, len, into);
}

/// Writes a message, also an empty one. Its length is known once it is written, and goes in front.
pub(super) fn put_message(field: u32, into: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = into.len();
    body(into);
    let len = into.len().saturating_sub(start);
    put_tag(field, 2, into);
    put_varint(len as u64, into);
    move_to_front(start, len, into);
}

/// Moves what was written behind the `len` bytes from `start` in front of them.
fn move_to_front(start: usize, len: usize, into: &mut [u8]) {
    if let Some(written) = into.get_mut(start..) {
        written.rotate_left(len);
    }
}

fn put_stamp(field: u32, position: u64, stamp: CheckStamp, into: &mut Vec<u8>) {
    put_message(field, into, |into| {
        put_field(1, position, into);
        put_field(2, stamp.order, into);
        put_field(3, stamp.at.as_us(), into);
    });
}

fn put_tag(field: u32, wire: u32, into: &mut Vec<u8>) {
    put_varint(u64::from(field << 3 | wire), into);
}

/// Writes a number. 0 is not written.
fn put_field(field: u32, value: u64, into: &mut Vec<u8>) {
    if value != 0 {
        put_tag(field, 0, into);
        put_varint(value, into);
    }
}

pub(super) fn put_bytes(field: u32, bytes: &[u8], into: &mut Vec<u8>) {
    if !bytes.is_empty() {
        put_tag(field, 2, into);
        put_varint(bytes.len() as u64, into);
        into.extend_from_slice(bytes);
    }
}

fn put_packed(field: u32, values: impl Iterator<Item = u64>, into: &mut Vec<u8>) {
    let mut values = values.peekable();
    if values.peek().is_some() {
        put_message(field, into, |into| {
            values.for_each(|value| put_varint(value, into));
        });
    }
}

#[allow(clippy::cast_possible_truncation)] // seven bits at a time
fn put_varint(mut value: u64, into: &mut Vec<u8>) {
    while value > 0x7f {
        into.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}
