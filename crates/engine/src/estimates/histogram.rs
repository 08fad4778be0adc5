//! A quantile of the last amounts of a rule: a histogram with logarithmic buckets that forgets.
//!
//! Buckets as those of `HdrHistogram` (G. Tene, <http://hdrhistogram.org>): 16 of equal width for
//! each power of two, so that a bucket's upper bound is at most 1/16 above any amount in it. To
//! follow a change, all counts are halved when they reach [`WINDOW`]: an exponential decay by
//! count, as forward decay does by time (Cormode, Shkapenyuk, Srivastava, Xu: Forward Decay, ICDE
//! 2009). An old amount then has half its weight after each [`WINDOW`] / 2 commits.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// All counts are halved when their sum is this.
pub(super) const WINDOW: u32 = 1_024;

/// Buckets of a power of two, as a power of two.
const SUB_BITS: u32 = 4;
const SUB: usize = 1 << SUB_BITS;

/// The largest amount has this many bits; what is larger counts as the largest.
const AMOUNT_BITS: u32 = 53;

/// Amounts below 16 have a bucket each, and so on for every further power of two.
pub(super) const BUCKETS: usize = (AMOUNT_BITS - SUB_BITS + 1) as usize * SUB;

/// A quantile is computed again after this many commits.
const REFRESH: u32 = 16;

/// The last amounts of one rule.
#[derive(Debug)]
pub(super) struct Histogram {
    counts: [AtomicU16; BUCKETS],
    /// The sum of the counts.
    total: AtomicU32,
    /// Commits since the start; wraps.
    commits: AtomicU32,
    /// The last computed quantile: which, after how many commits, and its bucket. 0 for none.
    cached: AtomicU64,
}

/// A computed quantile.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Computed {
    percent: u8,
    /// Commits / [`REFRESH`].
    stamp: u32,
    bucket: u16,
}

// === impl Histogram ===

impl Histogram {
    pub(super) fn new() -> Self {
        Self {
            counts: [const { AtomicU16::new(0) }; BUCKETS],
            total: AtomicU32::new(0),
            commits: AtomicU32::new(0),
            cached: AtomicU64::new(0),
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        for count in &self.counts {
            count.store(0, Relaxed);
        }
        self.total.store(0, Relaxed);
        self.cached.store(0, Relaxed);
    }

    /// Adds an amount.
    pub(super) fn learn(&self, amount: u64) {
        // The thread that halves may be delayed. Others must not overflow a count meanwhile.
        if self.total.load(Relaxed) >= WINDOW * 2 {
            return;
        }
        if let Some(count) = self.counts.get(bucket_of(amount)) {
            count.fetch_add(1, Relaxed);
        }
        self.commits.fetch_add(1, Relaxed);
        // One thread alone sees the sum reach the window.
        if self.total.fetch_add(1, Relaxed) == WINDOW - 1 {
            self.halve();
        }
    }

    /// The number of amounts that count, at most [`WINDOW`] with its races.
    pub(super) fn total(&self) -> u32 {
        self.total.load(Relaxed)
    }

    /// An amount that this share of the amounts does not exceed.
    pub(super) fn quantile(&self, percent: u8) -> u64 {
        let stamp = self.commits.load(Relaxed) / REFRESH;
        let known = Computed::unpack(self.cached.load(Relaxed));
        // Few amounts change the quantile much.
        let is_fresh = self.total() >= REFRESH * 8;
        if known.percent == percent && known.stamp == stamp && is_fresh {
            return upper_bound(known.bucket.into());
        }
        let bucket = self.quantile_bucket(percent);
        let computed = Computed {
            percent,
            stamp,
            bucket: u16::try_from(bucket).unwrap_or_default(),
        };
        self.cached.store(computed.pack(), Relaxed);
        upper_bound(bucket)
    }

    #[cold]
    fn quantile_bucket(&self, percent: u8) -> usize {
        let wanted = u64::from(self.total()) * u64::from(percent);
        let mut sum = 0;
        let mut last = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            let count = u64::from(count.load(Relaxed));
            if count > 0 {
                last = bucket;
                sum += count * 100;
                if sum >= wanted {
                    break;
                }
            }
        }
        last
    }

    #[cold]
    fn halve(&self) {
        let mut removed = 0;
        // What is left of an odd count is taken from the next one: rounding each would change the
        // share of rare amounts. The start alternates, so that no single amount stays for ever.
        let halvings = self.commits.load(Relaxed) / (WINDOW / 2);
        let mut left = u16::from(halvings.is_multiple_of(2));
        for count in &self.counts {
            let sum = count.load(Relaxed) + left;
            let half = (sum / 2).min(sum - left);
            left = sum % 2;
            if half > 0 {
                count.fetch_sub(half, Relaxed);
                removed += u32::from(half);
            }
        }
        self.total.fetch_sub(removed, Relaxed);
    }
}

// === impl Computed ===

impl Computed {
    fn pack(self) -> u64 {
        u64::from(self.stamp) | u64::from(self.percent) << 32 | u64::from(self.bucket) << 40
    }

    #[allow(clippy::cast_possible_truncation)] // the fields of `pack`
    fn unpack(word: u64) -> Self {
        Self {
            stamp: word as u32,
            percent: (word >> 32) as u8,
            bucket: (word >> 40) as u16,
        }
    }
}

/// The bucket of an amount.
fn bucket_of(amount: u64) -> usize {
    let amount = amount.min((1 << AMOUNT_BITS) - 1);
    let bits = u64::BITS - amount.leading_zeros();
    let shift = bits.saturating_sub(SUB_BITS + 1);
    let top = usize::try_from(amount >> shift).unwrap_or_default();
    shift as usize * SUB + top
}

/// The largest amount of a bucket.
fn upper_bound(bucket: usize) -> u64 {
    let shift = (bucket / SUB).saturating_sub(1);
    let top = (bucket - shift * SUB) as u64;
    ((top + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_exceeds_its_amounts_by_a_sixteenth_at_most() {
        let edges = (0..AMOUNT_BITS).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for amount in (0..5_000).chain(edges) {
            let bucket = bucket_of(amount);
            assert!(bucket < BUCKETS, "{amount}");
            let bound = upper_bound(bucket);
            assert!(
                bound >= amount && bound - amount <= amount / 16,
                "{amount}: {bound}"
            );
            assert_eq!(bucket_of(bound), bucket);
            assert_eq!(
                bucket_of(bound + 1),
                (bucket + 1).min(BUCKETS - 1),
                "{amount}"
            );
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn halving_keeps_the_sum_of_the_counts() {
        let histogram = Histogram::new();
        for amount in 0..10_000 {
            histogram.learn(amount % 777);
            let counts = histogram.counts.iter();
            let sum: u32 = counts.map(|count| u32::from(count.load(Relaxed))).sum();
            assert_eq!(sum, histogram.total());
            assert!(sum < WINDOW);
        }
    }
}
