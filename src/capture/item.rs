//! Items of a recording in protobuf's wire format, written by hand into a vector.
//!
//! Why by hand: a thread writes each request that it decides, and must not allocate. A test
//! compares the bytes with those of the generated types.

use tollgate_limiter::Timestamp;

use crate::store::CheckStamp;

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
    fn body_len(&self) -> usize {
        let stamps = self.stamps().map(|(position, stamp)| {
            let len = stamp_len(position, stamp);
            1_usize
                .saturating_add(varint_len(len as u64))
                .saturating_add(len)
        });
        let lens = [
            field_len(self.order),
            field_len(self.at.as_us()),
            bytes_len(self.message.len()),
            field_len(u64::from(self.code)),
            bytes_len(self.descriptor_codes.len()),
            field_len(self.generation.cast_unsigned()),
            stamps.sum(),
            bytes_len(self.undecided().map(varint_len).sum()),
            bytes_len(self.rules().map(varint_len).sum()),
            bytes_len(self.checks.len()),
            field_len(u64::from(self.is_late)),
            bytes_len(self.call.len()),
        ];
        lens.iter().sum()
    }

    /// Writes it, if the vector then has at most `len_max` bytes or was empty. False if not.
    pub(super) fn write(&self, into: &mut Vec<u8>, len_max: usize) -> bool {
        let body = self.body_len();
        let field = if self.call.is_empty() { REQUEST } else { CALL };
        let len = into.len().saturating_add(item_len(field, body));
        if len > len_max && !into.is_empty() {
            return false;
        }
        begin_item(field, body, into);
        put_field(1, self.order, into);
        put_field(2, self.at.as_us(), into);
        put_bytes(3, self.message, into);
        put_field(4, u64::from(self.code), into);
        put_bytes(5, self.descriptor_codes, into);
        put_field(6, self.generation.cast_unsigned(), into);
        for (position, stamp) in self.stamps() {
            put_stamp(7, position, stamp, into);
        }
        put_packed(8, self.undecided(), into);
        put_packed(9, self.rules(), into);
        if !self.checks.is_empty() {
            put_tag(10, 2, into);
            put_varint(self.checks.len() as u64, into);
            into.extend(self.checks.iter().map(|check| u8::from(check.is_refused)));
        }
        put_field(11, u64::from(self.is_late), into);
        put_bytes(12, self.call, into);
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

    fn undecided(&self) -> impl Iterator<Item = u64> + Clone {
        let checks = self.checks.iter().enumerate();
        checks.filter_map(|(position, check)| (!check.is_decided).then_some(position as u64))
    }

    fn rules(&self) -> impl Iterator<Item = u64> + Clone {
        self.checks.iter().map(|check| u64::from(check.rule))
    }
}

/// Writes a refund of the hits that these checks took; 0 stands for a check without a number.
pub(super) fn put_refund(order: u64, at: Timestamp, taken: &[u64], into: &mut Vec<u8>) {
    let known = || taken.iter().copied().filter(|order| *order != 0);
    let lens = [
        field_len(order),
        field_len(at.as_us()),
        bytes_len(known().map(varint_len).sum()),
    ];
    begin_item(REFUND, lens.iter().sum(), into);
    put_field(1, order, into);
    put_field(2, at.as_us(), into);
    put_packed(3, known(), into);
}

/// Writes a reset. The stamps are those of its checks, by position.
pub(super) fn put_reset(message: &[u8], stamps: &[CheckStamp], into: &mut Vec<u8>) {
    let first = stamps.iter().min_by_key(|stamp| stamp.order);
    let first = first.copied().unwrap_or_default();
    let others = || {
        let stamps = stamps.iter().enumerate();
        stamps.filter(|(_, stamp)| stamp.order != first.order)
    };
    let lens = others().map(|(position, stamp)| {
        let len = stamp_len(position as u64, *stamp);
        1_usize
            .saturating_add(varint_len(len as u64))
            .saturating_add(len)
    });
    let lens = [
        field_len(first.order),
        field_len(first.at.as_us()),
        bytes_len(message.len()),
        lens.sum(),
    ];
    begin_item(RESET, lens.iter().sum(), into);
    put_field(1, first.order, into);
    put_field(2, first.at.as_us(), into);
    put_bytes(3, message, into);
    for (position, stamp) in others() {
        put_stamp(4, position as u64, *stamp, into);
    }
}

/// Writes what was not recorded, by cause in the order of the format.
pub(super) fn put_skipped(counts: &[u64], into: &mut Vec<u8>) {
    let len = counts.iter().map(|count| field_len(*count)).sum();
    begin_item(SKIPPED, len, into);
    for (field, count) in (1..).zip(counts) {
        put_field(field, *count, into);
    }
}

/// Writes that nothing with a lower order follows.
pub(super) fn put_watermark(order: u64, into: &mut Vec<u8>) {
    begin_item(WATERMARK, field_len(order), into);
    put_field(1, order, into);
}

/// Writes the end.
pub(super) fn put_end(reason: &str, requests: u64, into: &mut Vec<u8>) {
    let len = bytes_len(reason.len()).saturating_add(field_len(requests));
    begin_item(END, len, into);
    put_bytes(1, reason.as_bytes(), into);
    put_field(2, requests, into);
}

/// Writes an encoded header as an item.
pub fn encode_header_item(header: &[u8], into: &mut Vec<u8>) {
    begin_item(HEADER, header.len(), into);
    into.extend_from_slice(header);
}

/// Writes encoded rules as an item.
pub fn encode_rules_item(rules: &[u8], into: &mut Vec<u8>) {
    begin_item(RULES, rules.len(), into);
    into.extend_from_slice(rules);
}

/// The length of an item with this body, with its own length in front.
fn item_len(field: u32, body: usize) -> usize {
    let item = varint_len(u64::from(tag(field, 2)))
        .saturating_add(varint_len(body as u64))
        .saturating_add(body);
    varint_len(item as u64).saturating_add(item)
}

/// Writes all of an item but its body.
pub(super) fn begin_item(field: u32, body: usize, into: &mut Vec<u8>) {
    let item = varint_len(u64::from(tag(field, 2)))
        .saturating_add(varint_len(body as u64))
        .saturating_add(body);
    put_varint(item as u64, into);
    put_tag(field, 2, into);
    put_varint(body as u64, into);
}

fn stamp_len(position: u64, stamp: CheckStamp) -> usize {
    let lens = [position, stamp.order, stamp.at.as_us()].map(field_len);
    lens.iter().sum()
}

fn put_stamp(field: u32, position: u64, stamp: CheckStamp, into: &mut Vec<u8>) {
    put_tag(field, 2, into);
    put_varint(stamp_len(position, stamp) as u64, into);
    put_field(1, position, into);
    put_field(2, stamp.order, into);
    put_field(3, stamp.at.as_us(), into);
}

const fn tag(field: u32, wire: u32) -> u32 {
    (field << 3) | wire
}

fn put_tag(field: u32, wire: u32, into: &mut Vec<u8>) {
    put_varint(u64::from(tag(field, wire)), into);
}

/// The length of a field whose number is below 16. A field of 0 is not written.
fn field_len(value: u64) -> usize {
    match value {
        0 => 0,
        value => varint_len(value).saturating_add(1),
    }
}

fn put_field(field: u32, value: u64, into: &mut Vec<u8>) {
    if value != 0 {
        put_tag(field, 0, into);
        put_varint(value, into);
    }
}

fn bytes_len(len: usize) -> usize {
    match len {
        0 => 0,
        len => varint_len(len as u64).saturating_add(1).saturating_add(len),
    }
}

pub(super) fn put_bytes(field: u32, bytes: &[u8], into: &mut Vec<u8>) {
    if !bytes.is_empty() {
        put_tag(field, 2, into);
        put_varint(bytes.len() as u64, into);
        into.extend_from_slice(bytes);
    }
}

fn put_packed(field: u32, values: impl Iterator<Item = u64> + Clone, into: &mut Vec<u8>) {
    let len: usize = values.clone().map(varint_len).sum();
    if len > 0 {
        put_tag(field, 2, into);
        put_varint(len as u64, into);
        for value in values {
            put_varint(value, into);
        }
    }
}

#[allow(clippy::cast_possible_truncation)] // at most ten
const fn varint_len(value: u64) -> usize {
    let bits = (value | 1).ilog2().saturating_add(1);
    bits.div_ceil(7) as usize
}

#[allow(clippy::cast_possible_truncation)] // seven bits at a time
pub(super) fn put_varint(mut value: u64, into: &mut Vec<u8>) {
    while value > 0x7f {
        into.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}
