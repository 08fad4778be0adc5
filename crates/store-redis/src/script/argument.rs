//! Packs a check into the script's argument: one string of fixed fields, little-endian.
//!
//! Packed, because one `struct.unpack` reads it all, while decimal numbers would need a conversion
//! each. Complete, because the script then knows no rule and no algorithm's layout, and equal
//! checks are equal strings: each is sent once ([`CallArguments`]) and unpacked once.
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | the algorithm's number in the table, from 1 |
//! | 1 | 0 take, 1 refund, 2 give back, 3 reset, 4 charge, 5 take from the next window, 6 take what is left; from 16 a step of a reservation |
//! | 1 | denied hits: 0 not counted, 1 blocking, 2 all, 3 in full; 128 more: a penalty follows |
//! | 7, 7 | hits; for a give-back, when they were taken; for a step, a time |
//! | 7, 7 | the window; how long the bucket is kept after its last write, µs |
//! | 7, 7 | requests, burst |
//! | 7, 7, 7 | the rate: hits, per_us, reduced_by |
//! | 2 | segments |
//! | 1 | how many calendar edges follow; 255: a counter of Envoy's reference service |
//! | 8 | the holder, or the id of a reservation; zeros for none |
//! | 7 each | the calendar edges, or the caller's time, by which that counter is named |
//! | 15 | the penalty: after, factor (1 byte), within, block, max |
//!
//! Hits above 2^53 are sent as 2^54. No limit and no two registers together are as large, so such
//! hits are refused, and as a refund they empty the bucket.
//! (Answers may be larger.) The script has no calendar, so windows are sent: the one before the
//! caller's time, and as many after it as a bucket's time may be ahead.
//!
//! Allocates only to grow `into`.

use std::collections::HashMap;
use std::num::{NonZeroU16, NonZeroU32};
use std::ops::Range;

use tollgate_limiter::algorithm::{REGISTER_MAX, count_refused};
use tollgate_limiter::{
    ALGORITHMS, Calendar, Check, CountRefused, Hits, Key, OnExpiry, Otherwise, Step, Timestamp,
};
use tollgate_store::Purpose;

/// The number of the algorithm for which the script has a short way.
pub(super) const FIXED_WINDOW: u8 = 1;

/// The kinds of a check: hits are taken,
pub(super) const TAKE: u8 = 0;
/// refunded by the client,
pub(super) const REFUND: u8 = 1;
/// or given back because the request did not pass.
pub(super) const GIVE_BACK: u8 = 2;
/// The bucket is removed, whatever the hits.
pub(super) const RESET: u8 = 3;

/// Hits are added beyond the limit.
pub(super) const CHARGE: u8 = 4;
/// Hits are taken from the window that follows.
pub(super) const TAKE_AHEAD: u8 = 5;
/// Hits are taken, as many as the present window has left.
pub(super) const TAKE_UP_TO: u8 = 6;
/// A step of the reservation that the holder names: hits are reserved (1 more: they go back when it
/// expires; 2 more: a refusal is remembered). The second number is the expiry in microseconds.
pub(super) const RESERVE: u8 = 16;
/// The reservation is settled. 1 more: without one the hits are charged, unless a refusal is
/// remembered; 2 more: they are charged, unless it was settled before.
pub(super) const COMMIT: u8 = 20;
/// It is extended by the second number, in microseconds.
pub(super) const EXTEND: u8 = 24;
/// It is void. The second number is the time at which it was made. 1 more: a refusal is remembered.
pub(super) const WITHDRAW: u8 = 28;

/// What happens to denied hits: they are not counted,
pub(super) const NOT_COUNTED: u8 = 0;
/// or the limit that denied them counts them.
pub(super) const BLOCKING: u8 = 1;
const ALL: u8 = 2;
/// All limits that were asked count them in full.
pub(super) const IN_FULL: u8 = 3;

/// The limit has a penalty, which ends the argument.
pub(super) const PUNISHES: u8 = 128;

/// The position of the holder, from 1 as in Lua.
pub(super) const HOLDER: u8 = 70;
/// The position of the first calendar edge.
pub(super) const EDGES: u8 = HOLDER + 8;

/// In place of the number of edges: the key holds a counter of Envoy's reference service.
pub(super) const REFERENCE: u8 = 255;

/// Such a counter is kept for its window and up to this many seconds longer, as the reference
/// service keeps it, so that the counters of a window do not all expire at once.
const REFERENCE_JITTER_SECONDS: u64 = 300;

/// How long a bucket is kept at most: 71 years, so that the sum with the present time is still a
/// timestamp.
pub(super) const LIFE_MAX_US: u64 = 1 << 51;

/// The most hits that are sent as they are: a double holds them exactly, and no limit does.
const HITS_MAX: u64 = 1 << 53;

/// How many calendar edges are sent at most. The shortest windows are days, and a bucket's time is
/// at most 76 hours ahead.
const EDGES_MAX: usize = 12;

/// Among how many of the newest arguments an equal one is searched.
const COMPARED_MAX: usize = 8;

/// The arguments of a call's checks, each different one once.
#[derive(Debug, Default)]
pub struct CallArguments {
    order: Vec<u8>,
    packed: Vec<u8>,
    /// Where each argument is in `packed`.
    ranges: Vec<Range<usize>>,
}

/// Which checks of a call without keys share buckets: each different bucket is sent once. Reading
/// one costs Redis more in such a call than in one `MGET`, and the checks of a busy service often
/// share them.
#[derive(Debug, Default)]
pub struct CallBuckets {
    /// The number of the first check of each bucket, from 1.
    first: HashMap<Key, u8>,
    places: Vec<u8>,
}

// === impl CallArguments ===

impl CallArguments {
    /// Adds the argument of the next check.
    pub fn push(&mut self, check: &Check, purpose: Purpose, near: Timestamp) {
        let start = self.packed.len();
        argument(check, purpose, near, &mut self.packed);
        self.conclude(start);
    }

    /// Adds an argument that is packed already, for the next check.
    pub fn push_packed(&mut self, argument: &[u8]) {
        let start = self.packed.len();
        self.packed.extend_from_slice(argument);
        self.conclude(start);
    }

    /// Keeps the bytes from `start` as an argument, unless there is an equal one.
    fn conclude(&mut self, start: usize) {
        let new = start..self.packed.len();
        let bytes = |range: &Range<usize>| self.packed.get(range.clone());
        let mut newest = self.ranges.iter().enumerate().rev().take(COMPARED_MAX);
        let equal = newest.find(|(_, range)| bytes(range) == bytes(&new));
        if let Some(number) = equal.and_then(|(index, _)| u8::try_from(index + 1).ok()) {
            self.packed.truncate(start);
            self.order.push(number);
        } else {
            self.ranges.push(new);
            self.order.push(0);
        }
    }

    /// One byte per check: the number of its argument, from 1, or 0 for the next one.
    pub fn order(&self) -> &[u8] {
        &self.order
    }

    /// The different arguments, in order.
    pub fn arguments(&self) -> impl Iterator<Item = &[u8]> {
        let ranges = self.ranges.iter();
        ranges.filter_map(|range| self.packed.get(range.clone()))
    }
}

// === impl CallBuckets ===

impl CallBuckets {
    /// Adds the bucket of the next check.
    pub fn push(&mut self, bucket: Key) {
        let first = self.first.get(&bucket).copied();
        if first.is_none()
            && let Ok(number) = u8::try_from(self.places.len().saturating_add(1))
        {
            self.first.insert(bucket, number);
        }
        self.places.push(first.unwrap_or(0));
    }

    /// One byte per check: the number of the first check of its bucket, or 0 for a bucket that is
    /// sent. A bucket may be sent twice.
    pub fn places(&self) -> &[u8] {
        &self.places
    }
}

/// Appends the time of a call; none for Redis's own.
pub fn time_argument(now: Option<Timestamp>, into: &mut Vec<u8>) {
    if let Some(now) = now {
        into.extend_from_slice(&seven(now.as_us()));
    }
}

/// Appends a check; the hits of a reset do not matter. `near` is the caller's time: it chooses the
/// calendar windows to send. Redis decides by its own time, except for counters of Envoy's
/// reference service, whose names contain `near`.
pub fn argument(check: &Check, purpose: Purpose, near: Timestamp, into: &mut Vec<u8>) {
    let (kind, hits, taken_at) = match (purpose, check.operation.hits) {
        (Purpose::Reset, _) => (RESET, 0, 0),
        (Purpose::TakeAhead, hits) => (TAKE_AHEAD, hits.requested(), 0),
        (Purpose::TakeUpTo, Hits::Take(hits)) => (TAKE_UP_TO, hits, 0),
        (_, Hits::Take(hits)) => (TAKE, hits, 0),
        (_, Hits::Refund(hits)) => (REFUND, hits, 0),
        (_, Hits::Undo { hits, taken_at }) => (GIVE_BACK, hits, taken_at.as_us()),
        (_, Hits::Charge(hits)) => (CHARGE, hits, 0),
        (_, Hits::Reservation(step)) => step_kind(step),
    };
    push(kind, hits, taken_at, check, near, into);
}

/// The kind and the two numbers of a step.
fn step_kind(step: Step) -> (u8, u64, u64) {
    let ms = |ms: NonZeroU32| u64::from(ms.get()).saturating_mul(1_000);
    match step {
        Step::Reserve {
            hits,
            expiry,
            remember_refused,
        } => {
            let releases = u8::from(expiry.on_expiry == OnExpiry::Release);
            let remembers = if remember_refused { 2 } else { 0 };
            (RESERVE | releases | remembers, hits, ms(expiry.after_ms))
        }
        Step::Commit { hits, otherwise } => {
            let otherwise = match otherwise {
                Otherwise::Unknown => 0,
                Otherwise::Charge => 1,
                Otherwise::ChargeOnce => 2,
            };
            // A record has no more than a register.
            (COMMIT | otherwise, hits.min(REGISTER_MAX), 0)
        }
        Step::Release => (COMMIT, 0, 0),
        Step::Extend(after) => (EXTEND, 0, ms(after)),
        Step::Withdraw {
            taken_at,
            remember_refused,
        } => (WITHDRAW | u8::from(remember_refused), 0, taken_at.as_us()),
    }
}

fn push(kind: u8, hits: u64, taken_at: u64, check: &Check, near: Timestamp, into: &mut Vec<u8>) {
    let Check {
        limit, algorithm, ..
    } = check;
    let refused = match count_refused(*algorithm, limit) {
        CountRefused::None => NOT_COUNTED,
        CountRefused::Blocking => BLOCKING,
        CountRefused::All => ALL,
        CountRefused::InFull => IN_FULL,
    };
    let number = ALGORITHMS.iter().position(|other| other == algorithm);
    let number = number.and_then(|place| u8::try_from(place.saturating_add(1)).ok());
    let life_us = match check.bucket_name {
        None => algorithm.ttl_us(limit),
        Some(_) => reference_life_us(check),
    };
    let life_us = life_us.min(LIFE_MAX_US);
    let segments = limit.segments().map_or(1, NonZeroU16::get);
    let holder = check.operation.holder.map_or(0, |holder| holder.0.get());
    let rate = limit.rate();

    // A counter of the reference service has no space for what a penalty remembers.
    let penalty = limit.penalty().filter(|_| check.bucket_name.is_none());
    let refused = refused | penalty.map_or(0, |_| PUNISHES);

    into.extend_from_slice(&[number.unwrap_or(0), kind, refused]);
    into.extend_from_slice(&seven(if hits > HITS_MAX { 2 * HITS_MAX } else { hits }));
    into.extend_from_slice(&seven(taken_at));
    into.extend_from_slice(&seven(limit.window().as_us()));
    into.extend_from_slice(&seven(life_us));
    into.extend_from_slice(&seven(limit.requests()));
    into.extend_from_slice(&seven(limit.burst()));
    into.extend_from_slice(&seven(rate.hits));
    into.extend_from_slice(&seven(rate.per_us));
    into.extend_from_slice(&seven(rate.divisor));
    into.extend_from_slice(&segments.to_le_bytes());
    let edges_at = into.len();
    into.push(0);
    into.extend_from_slice(&holder.to_le_bytes());
    let edges = if check.bucket_name.is_some() {
        into.extend_from_slice(&seven(near.as_us()));
        REFERENCE
    } else if let Some(calendar) = limit.calendar() {
        push_edges(calendar, near, into)
    } else {
        0
    };
    if let Some(count) = into.get_mut(edges_at) {
        *count = edges;
    }
    if let Some(penalty) = penalty {
        into.extend_from_slice(&penalty.after.get().to_le_bytes());
        into.push(penalty.factor.get());
        for seconds in [penalty.within_s, penalty.block_s, penalty.max_s] {
            into.extend_from_slice(&seconds.to_le_bytes());
        }
    }
}

/// How long a counter with the reference service's name is kept, in whole seconds. The key chooses
/// the jitter, so that it stays the same for a counter.
fn reference_life_us(check: &Check) -> u64 {
    let [_, lower] = check.key.to_halves();
    let more_us = (lower % REFERENCE_JITTER_SECONDS).saturating_mul(1_000_000);
    check.limit.window().as_us().saturating_add(more_us)
}

/// Appends the starts of windows, from the one before that of `near`, and the end of the last
/// window. Returns how many.
fn push_edges(calendar: &dyn Calendar, near: Timestamp, into: &mut Vec<u8>) -> u8 {
    let ahead = near.plus_us(calendar.window_max_us());
    let present = calendar.window_at(near);
    let before = calendar.window_at(present.start.minus_us(1));
    let mut edges = 0;
    let mut push = |edge: Timestamp| {
        into.extend_from_slice(&seven(edge.as_us()));
        edges += 1;
        usize::from(edges) < EDGES_MAX
    };
    if before.start < present.start {
        push(before.start);
    }
    push(present.start);
    let mut end = present.end;
    while push(end) && end <= ahead {
        let next = calendar.window_at(end);
        // No window follows.
        if next.end <= end {
            break;
        }
        end = next.end;
    }
    edges
}

/// The lower 7 bytes of a number, which has no more.
fn seven(number: u64) -> [u8; 7] {
    let bytes = number.to_le_bytes();
    bytes.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_is_the_fixed_windows() {
        let number = usize::from(FIXED_WINDOW);
        assert_eq!(ALGORITHMS[number - 1].name(), "fixed_window");
    }

    #[test]
    fn equal_arguments_are_sent_once() {
        let mut call = CallArguments::default();
        for argument in [b"one", b"two", b"one", b"two", b"six"] {
            call.push_packed(argument);
        }
        assert_eq!(call.order(), [0, 0, 1, 2, 0]);
        let sent: Vec<_> = call.arguments().collect();
        assert_eq!(sent, [b"one", b"two", b"six"]);
        // A number has one byte, and the search is short.
        for number in 0..600_u32 {
            call.push_packed(&number.to_be_bytes());
        }
        call.push_packed(&599_u32.to_be_bytes());
        call.push_packed(b"one");
        assert_eq!(call.order().len(), 607);
        assert!(call.order().iter().skip(5).all(|number| *number == 0));
        assert_eq!(call.arguments().count(), 605);
    }
}
