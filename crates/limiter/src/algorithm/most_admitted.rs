//! The most that a limit can admit in an interval, and whether one limit can admit more than
//! another.
//!
//! Why: who adds to the rules of another owner must not raise a limit by accident. Two limits with
//! the same number are not alike: a fixed window of N admits 2N around an edge, a sliding log never
//! more than N in any window.
//!
//! The measure: of all intervals of one length, up to one window, the most hits that one of them
//! can admit, over all requests. A limit can admit more than another if it does so for any length.
//! With N requests in a window W, a burst of B and intervals of t microseconds:
//!
//! | algorithm | t = 1 | t > 1 |
//! | --- | --- | --- |
//! | `fixed_window` | N | 2N |
//! | `sliding_window` | N | N + N × (t − 2) / W |
//! | `sliding_window_segments`, the longest segment of s | N | 2N when t > W − s + 1, else N |
//! | `sliding_log` | N | N |
//! | `token_bucket`, `leaky_bucket` | B | B + N × (t − 1) / W |
//! | `token_bucket_interval` | B | B + the lesser of N and B |
//! | `concurrency` | no bound | no bound |
//!
//! What it deliberately does not do: compare limits of different windows. They can always admit
//! more.

use std::num::NonZeroU16;

use super::{Algorithm, Limit};

/// The most hits that an interval can admit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MostAdmitted {
    /// The number of hits at the shortest interval of this form.
    base: u64,
    /// What the length of the interval adds: requests × time, to be divided by the window.
    growth: u128,
    window_us: u64,
    /// Whether it grows with the length.
    grows: bool,
}

// === impl MostAdmitted ===

impl MostAdmitted {
    /// This number, however long the interval is.
    pub(super) fn constant(hits: u64) -> Self {
        Self {
            base: hits,
            growth: 0,
            window_us: 1,
            grows: false,
        }
    }

    /// `base`, and the limit's rate for `us`.
    pub(super) fn growing(base: u64, limit: &Limit, us: u64) -> Self {
        Self {
            base,
            growth: u128::from(limit.requests()).saturating_mul(u128::from(us)),
            window_us: limit.window().as_us(),
            grows: true,
        }
    }

    /// The number of hits.
    pub fn hits(self) -> u64 {
        let grown = self.growth.checked_div(u128::from(self.window_us));
        let grown = u64::try_from(grown.unwrap_or_default()).unwrap_or(u64::MAX);
        self.base.saturating_add(grown)
    }

    /// Whether this is more than `other`, both of the same interval.
    fn is_more_than(self, other: Self) -> bool {
        if !(self.grows && other.grows) {
            return self.hits() > other.hits();
        }
        // Both grow, and are rounded at different lengths, so the exact numbers are compared.
        let exact = |most: Self| {
            let base = u128::from(most.base).saturating_mul(u128::from(most.window_us));
            base.saturating_add(most.growth)
        };
        exact(self) > exact(other)
    }
}

/// Whether a limit can admit more than another in any interval up to one window.
///
/// Between two of the lengths that are compared each bound is constant or grows at its rate, and
/// no rate is higher than the one it is compared with when the requests are not more.
pub fn can_admit_more(
    (algorithm, limit): (&dyn Algorithm, &Limit),
    (other_algorithm, other): (&dyn Algorithm, &Limit),
) -> bool {
    let window_us = limit.window().as_us();
    if window_us != other.window().as_us()
        || limit.calendar() != other.calendar()
        || limit.requests() > other.requests()
    {
        return true;
    }
    let ends = [limit, other].map(shortest_turn_us);
    let lengths = ends.into_iter().flat_map(|us| [us, us.saturating_add(1)]);
    let mut lengths = lengths.chain([1, 2, window_us]);
    lengths.any(|span_us| {
        let span_us = span_us.clamp(1, window_us);
        let most = algorithm.most_admitted(limit, span_us);
        match most.zip(other_algorithm.most_admitted(other, span_us)) {
            Some((most, other)) => most.is_more_than(other),
            None => true,
        }
    })
}

/// The longest interval that the segments of one window always contain.
pub(super) fn shortest_turn_us(limit: &Limit) -> u64 {
    let window_us = limit.window().as_us();
    let segments = limit.segments().map_or(1, NonZeroU16::get);
    let longest_us = window_us.div_ceil(u64::from(segments));
    window_us.saturating_sub(longest_us).saturating_add(1)
}
