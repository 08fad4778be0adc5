//! Counts that many tasks add to, and sums of one task that are not yet added to them.
//!
//! Why sums: counters are shared by all cores, and a cache line that every core writes on every
//! request moves between them each time. A task sums up a batch of requests and adds the sums once,
//! before the answers are sent, so that no client sees an answer that is not yet counted. Rare
//! events go to their counters at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many counters have a sum; what is for others is added to them at once.
const SUMS_MAX: usize = 64;

/// How many of the newest sums are searched.
const SUMS_LOOKED_AT: usize = 4;

/// Numbers that only grow.
#[derive(Debug)]
pub(super) struct Counts<const N: usize>([AtomicU64; N]);

/// Sums of one task, each of the counters that it belongs to.
#[derive(Debug)]
pub(super) struct Sums<C, const N: usize>(Vec<(Arc<C>, [u64; N])>);

// === impl Counts ===

impl<const N: usize> Counts<N> {
    #[inline]
    pub(super) fn add(&self, more: [u64; N]) {
        for (count, more) in self.0.iter().zip(more) {
            if more > 0 {
                count.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn get(&self) -> [u64; N] {
        self.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }
}

impl<const N: usize> Default for Counts<N> {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; N])
    }
}

/// Both, combined number by number.
#[inline]
fn combine<const N: usize>(
    one: [u64; N],
    other: [u64; N],
    of: impl Fn(u64, u64) -> u64,
) -> [u64; N] {
    let mut combined = one;
    for (number, other) in combined.iter_mut().zip(other) {
        *number = of(*number, other);
    }
    combined
}

/// The sums of both. A client can make counters wrap.
pub(super) fn plus<const N: usize>(one: [u64; N], other: [u64; N]) -> [u64; N] {
    combine(one, other, u64::wrapping_add)
}

/// The differences of both.
pub(super) fn minus<const N: usize>(one: [u64; N], other: [u64; N]) -> [u64; N] {
    combine(one, other, u64::wrapping_sub)
}

// === impl Sums ===

impl<C, const N: usize> Sums<C, N> {
    /// Adds to the sum of these counters; `of` has those that the sums belong to.
    #[inline]
    pub(super) fn add(&mut self, counters: &Arc<C>, more: [u64; N], of: fn(&C) -> &Counts<N>) {
        let mut newest = self.0.iter_mut().rev().take(SUMS_LOOKED_AT);
        if let Some((_, sum)) = newest.find(|(known, _)| Arc::ptr_eq(known, counters)) {
            *sum = plus(*sum, more);
        } else if self.0.len() < SUMS_MAX {
            self.0.push((Arc::clone(counters), more));
        } else {
            of(counters).add(more);
        }
    }

    /// Adds all sums to the counters. Most turns have none of one kind or another.
    #[inline]
    pub(super) fn flush(&mut self, of: fn(&C) -> &Counts<N>) {
        if !self.0.is_empty() {
            self.add_to_counters(of);
        }
    }

    #[inline(never)]
    fn add_to_counters(&mut self, of: fn(&C) -> &Counts<N>) {
        for (counters, sum) in self.0.drain(..) {
            of(&counters).add(sum);
        }
    }
}

impl<C, const N: usize> Default for Sums<C, N> {
    fn default() -> Self {
        Self(Vec::new())
    }
}
