//! A quantile of the amounts of one bucket, in one number.
//!
//! A frugal quantile (Q. Ma, S. Muthukrishnan, M. Sandler: Frugal Streaming for Estimating
//! Quantiles, 2013, arXiv:1407.1121) with steps in proportion to the amount: an amount above the
//! estimate moves its logarithm up by `q` of a step, another one down by `1 - q` of it. Where both
//! moves cancel out, the share `q` of the amounts does not exceed the estimate, whatever their
//! distribution. Steps are large at first and then a quarter of an octave (Robbins, Monro: A
//! Stochastic Approximation Method, 1951).
//!
//! To double, an estimate takes 9 commits at most. To halve it takes 4 / (1 - q) of them: 80 for
//! `p95`, 400 for `p99`.

/// Parts of an octave: the unit of a logarithm.
const OCTAVE: u32 = 1 << 14;

/// The step after many commits.
const STEP: u32 = OCTAVE / 4;

/// The first steps are this divided by the number of the commit.
const FIRST_STEPS: u32 = OCTAVE * 4;

/// The logarithm of the largest amount, 2^53.
const LEVEL_MAX: u32 = 53 * OCTAVE;

/// Commits are counted up to this.
const COMMITS_MAX: u32 = 255;

/// What was learnt of one bucket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct KeyEstimate {
    /// The logarithm of the estimate, in parts of an octave.
    level: u32,
    /// How many commits it was learnt from, at most 255.
    pub(super) commits: u32,
}

/// The bits of [`KeyEstimate::pack`].
pub(super) const ESTIMATE_BITS: u32 = 28;

// === impl KeyEstimate ===

impl KeyEstimate {
    /// An estimate to begin with.
    pub(super) fn first(amount: u64) -> Self {
        Self {
            level: level_of(amount),
            commits: 0,
        }
    }

    /// Moves towards the quantile by one amount.
    #[must_use]
    pub(super) fn learn(self, amount: u64, percent: u8) -> Self {
        let step = (FIRST_STEPS / (self.commits + 1)).max(STEP);
        let percent = u32::from(percent.min(100));
        let level = if level_of(amount) > self.level {
            (self.level + step * percent / 100).min(LEVEL_MAX)
        } else {
            self.level.saturating_sub(step * (100 - percent) / 100)
        };
        Self {
            level,
            commits: (self.commits + 1).min(COMMITS_MAX),
        }
    }

    /// The estimate, rounded up.
    pub(super) fn amount(self) -> u64 {
        let amount = (f64::from(self.level) / f64::from(OCTAVE)).exp2().ceil();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // from 1 to 2^53
        let amount = amount as u64;
        amount
    }

    pub(super) fn pack(self) -> u64 {
        u64::from(self.level) | u64::from(self.commits) << 20
    }

    #[allow(clippy::cast_possible_truncation)] // the fields of `pack`
    pub(super) fn unpack(word: u64) -> Self {
        Self {
            level: (word & 0xF_FFFF) as u32,
            commits: (word >> 20 & 0xFF) as u32,
        }
    }
}

fn level_of(amount: u64) -> u32 {
    #[allow(clippy::cast_precision_loss)] // a logarithm of 14 bits
    let amount = amount.max(1) as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // from 0 to 64 octaves
    let level = (amount.log2() * f64::from(OCTAVE)) as u32;
    level.min(LEVEL_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_survives_packing() {
        for amount in [0, 1, 2, 999, 1 << 30, 1 << 53, u64::MAX] {
            let mut estimate = KeyEstimate::first(amount);
            for _ in 0..300 {
                assert!(estimate.pack() < 1 << ESTIMATE_BITS);
                assert_eq!(KeyEstimate::unpack(estimate.pack()), estimate);
                estimate = estimate.learn(u64::MAX, 99);
            }
        }
    }
}
