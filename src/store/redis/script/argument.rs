//! A check as the script is asked it: one string of fixed places, little-endian.
//!
//! Why packed: one call of `struct.unpack` reads it, where a decimal number costs the script a conversion each. Why everything
//! in every argument: the script then knows no rule and no algorithm's own layout, and checks alike are strings alike, which
//! it unpacks once.
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | the algorithm's number in the table, from 1 |
//! | 1 | 0 take, 1 refund, 2 give back |
//! | 1 | what becomes of refused hits: 0 not counted, 1 blocking, 2 all |
//! | 7, 7 | hits; when they were taken, if given back |
//! | 7, 7 | the window; how long the bucket is to be kept after it was last written, µs |
//! | 4, 4 | requests, burst |
//! | 4, 7, 7 | the rate: hits, per_us, reduced_by |
//! | 2 | segments |
//! | 1 | how many edges of a calendar follow; 255: it is a counter of Envoy's reference service |
//! | 8 | the holder, zeros for nobody |
//! | 7 each | those edges; or the time by which that counter was named, the caller's own |
//!
//! Hits past 2^53 become it: no limit and no register is as large, so nothing is decided otherwise. (What is *answered* may be
//! larger.) A calendar is in none of the script's libraries, so its windows are sent along: the one before the caller's present,
//! and as many as a bucket's time may lie ahead.
//!
//! What it deliberately does not do: allocate, but for the room that `into` lacks.

use std::num::NonZeroU16;

use tollgate_limiter::algorithm::count_refused;
use tollgate_limiter::{ALGORITHMS, Calendar, Check, CountRefused, Hits, Timestamp};

/// What is asked.
pub(super) const TAKE: u8 = 0;
/// The same.
pub(super) const REFUND: u8 = 1;
/// The same.
pub(super) const GIVE_BACK: u8 = 2;

/// What becomes of refused hits.
pub(super) const NOT_COUNTED: u8 = 0;
/// The same.
pub(super) const BLOCKING: u8 = 1;
const ALL: u8 = 2;

/// Where the holder stands, counted from 1 as Lua does.
pub(super) const HOLDER: u8 = 61;
/// Where a calendar's edges begin, counted likewise.
pub(super) const EDGES: u8 = HOLDER + 8;

/// In place of a number of edges: what lies under the key is a counter of Envoy's reference service.
pub(super) const REFERENCE: u8 = 255;

/// Such a counter is kept for its window and up to so many seconds more, so that not all that began with a window go at once:
/// as long as that service keeps its own.
const REFERENCE_JITTER_SECONDS: u64 = 300;

/// How long a bucket is kept at most: 71 years, so that what is added to the present stays a time.
const LIFE_MAX_US: u64 = 1 << 51;

/// How many edges of a calendar are sent at most. The shortest windows are days, and no bucket's time lies more than 76 hours
/// ahead.
const EDGES_MAX: usize = 12;

/// Appends the time of a call; none is Redis's own.
pub fn time_argument(now: Option<Timestamp>, into: &mut Vec<u8>) {
    if let Some(now) = now {
        into.extend_from_slice(&seven(now.as_us()));
    }
}

/// Appends what is asked. `near` is the caller's own time, of which a calendar's windows are told; Redis's decides, but for
/// counters of Envoy's reference service, which `near` has named.
pub fn argument(check: &Check, near: Timestamp, into: &mut Vec<u8>) {
    let Check {
        limit,
        algorithm,
        operation: ask,
        ..
    } = check;
    let (kind, hits, taken_at) = match ask.hits {
        Hits::Take(hits) => (TAKE, hits, 0),
        Hits::Refund(hits) => (REFUND, hits, 0),
        Hits::Undo { hits, taken_at } => (GIVE_BACK, hits, taken_at.as_us()),
    };
    let refused = match count_refused(*algorithm, limit) {
        CountRefused::None => NOT_COUNTED,
        CountRefused::Blocking => BLOCKING,
        CountRefused::All => ALL,
    };
    let number = ALGORITHMS.iter().position(|other| other == algorithm);
    let number = number.and_then(|place| u8::try_from(place.saturating_add(1)).ok());
    let life_us = match check.bucket_name {
        None => algorithm.ttl_us(limit),
        Some(_) => reference_life_us(check),
    };
    let life_us = life_us.min(LIFE_MAX_US);
    let segments = limit.segments().map_or(1, NonZeroU16::get);
    let holder = ask.holder.map_or(0, |holder| holder.0.get());
    let rate = limit.rate();

    into.extend_from_slice(&[number.unwrap_or(0), kind, refused]);
    into.extend_from_slice(&seven(hits));
    into.extend_from_slice(&seven(taken_at));
    into.extend_from_slice(&seven(limit.window().as_us()));
    into.extend_from_slice(&seven(life_us));
    into.extend_from_slice(&four(limit.requests()));
    into.extend_from_slice(&four(limit.burst()));
    into.extend_from_slice(&four(rate.hits));
    into.extend_from_slice(&seven(rate.per_us));
    into.extend_from_slice(&seven(rate.divisor));
    into.extend_from_slice(&segments.to_le_bytes());
    let edges_at = into.len();
    into.push(0);
    into.extend_from_slice(&holder.to_le_bytes());
    if check.bucket_name.is_some() {
        if let Some(place) = into.get_mut(edges_at) {
            *place = REFERENCE;
        }
        into.extend_from_slice(&seven(near.as_us()));
        return;
    }
    if let Some(calendar) = limit.calendar() {
        let edges = push_edges(calendar, near, into);
        if let Some(place) = into.get_mut(edges_at) {
            *place = edges;
        }
    }
}

/// How long a counter is kept whose name the reference's is, in whole seconds. The key says how much more than the window:
/// for a counter it stays the same.
fn reference_life_us(check: &Check) -> u64 {
    let [_, lower] = check.key.to_halves();
    let more_us = (lower % REFERENCE_JITTER_SECONDS).saturating_mul(1_000_000);
    check.limit.window().as_us().saturating_add(more_us)
}

/// Appends where windows begin, from the one before that of `near`, and the end of the last. Gives how many edges those are.
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
        // Time has ended.
        if next.end <= end {
            break;
        }
        end = next.end;
    }
    edges
}

/// The lower 7 bytes of a number; what a double does not hold exactly becomes the largest that it does.
fn seven(number: u64) -> [u8; 7] {
    let bytes = number.min(Timestamp::MAX_US).to_le_bytes();
    bytes.first_chunk().copied().unwrap_or_default()
}

/// The lower 4 bytes of a number that is no larger.
fn four(number: u64) -> [u8; 4] {
    u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes()
}
