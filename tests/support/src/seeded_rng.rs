//! A random number generator whose sequence depends on its seed alone.
//!
//! Why our own: a seed must give the same run on every machine and after every `cargo update`. It
//! is splitmix64 (Steele, Lea and Flood, 2014), a counter and a mix of its bits. Its choices are
//! not uniform to the last bit: a remainder is good enough to choose among ten things.

use std::str::FromStr;

/// The number in a variable of the environment, which says how much to try.
///
/// # Panics
///
/// When the variable is set and is no number.
pub fn from_environment<T: FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    let number = text.parse().ok();
    assert!(number.is_some(), "{name}={text} is not a number");
    number
}

/// The random choices of one run.
pub struct SeededRng(u64);

// === impl SeededRng ===

impl SeededRng {
    pub fn of_seed(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// From `least` to `most`, both included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    pub fn between_u32(&mut self, least: u32, most: u32) -> u32 {
        u32::try_from(self.between(least.into(), most.into())).unwrap()
    }

    /// True with probability 1 / `times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A position in a list of this length.
    pub fn position(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.position(of.len())]
    }

    /// A position in a list of weights; one of weight 0 never comes. Not all may be 0.
    pub fn weighed(&mut self, weights: &[u64]) -> usize {
        let mut left = self.below(weights.iter().sum());
        for (position, weight) in weights.iter().enumerate() {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return position,
            }
        }
        unreachable!("the sum is more than what was drawn")
    }

    /// Sixteen bytes for a keyed hash.
    pub fn secret(&mut self) -> [u8; 16] {
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&self.next().to_le_bytes());
        secret[8..].copy_from_slice(&self.next().to_le_bytes());
        secret
    }
}
