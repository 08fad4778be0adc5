//! The estimates of buckets: a table of fixed size with one word a bucket.
//!
//! A word is a part of the bucket's identity and its estimate, so one atomic operation changes both
//! and no thread sees the estimate of another bucket. A bucket has one of eight places, which are
//! one cache line. Among full places the clock algorithm with counts chooses (A. J. Smith:
//! Sequentiality and Prefetching in Database Systems, 1978): a second use gives a bucket three
//! chances, and a new bucket takes the first place without any, from any place on, and takes one
//! chance from those that it passes. So buckets that are used once replace each other.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tollgate_limiter::Key;

use super::key_estimate::{ESTIMATE_BITS, KeyEstimate};

/// Commits of a bucket before its estimate is used.
pub(super) const KEY_COMMITS_MIN: u32 = 32;

/// The places of one bucket.
const PLACES: usize = 8;

/// How often a change is tried again when another thread changed the word. Then it is dropped.
const TRIES: usize = 4;

/// One chance of a word to keep its place. A word has three at most.
const CHANCE: u64 = 1 << ESTIMATE_BITS;
const CHANCES: u64 = 3 * CHANCE;

const ESTIMATE: u64 = CHANCE - 1;

/// The part of the identity in a word: its upper 34 bits, never 0. The others choose the places.
const TAG_SHIFT: u32 = ESTIMATE_BITS + 2;

/// One cache line of words.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Places([AtomicU64; PLACES]);

#[derive(Debug)]
pub(super) struct KeyTable {
    sets: Box<[Places]>,
}

/// What a bucket of a rule is found by. A key is a keyed hash, so clients cannot aim at a place.
pub(super) fn identity(rule: u64, key: Key) -> u64 {
    let [upper, lower] = key.to_halves();
    (upper ^ rule.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ lower
}

fn tag_of(identity: u64) -> u64 {
    (identity >> TAG_SHIFT).max(1) << TAG_SHIFT
}

// === impl KeyTable ===

impl KeyTable {
    /// As many keys as fit in this many bytes.
    pub(super) fn new(bytes: usize) -> Self {
        let sets = (bytes / size_of::<Places>()).max(1);
        Self {
            sets: (0..sets).map(|_| Places::default()).collect(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.sets.len() * size_of::<Places>()
    }

    /// The estimate of a bucket that has enough commits.
    pub(super) fn amount(&self, identity: u64) -> Option<u64> {
        let tag = tag_of(identity);
        let mut words = self.places(identity)?.0.iter();
        let (place, word) = words.find_map(|place| {
            let word = place.load(Relaxed);
            (word >> TAG_SHIFT << TAG_SHIFT == tag).then_some((place, word))
        })?;
        if word & CHANCES != CHANCES {
            // Fails where the word is another one by now, which is then used.
            let _ = place.compare_exchange(word, word | CHANCES, Relaxed, Relaxed);
        }
        let estimate = KeyEstimate::unpack(word & ESTIMATE);
        (estimate.commits >= KEY_COMMITS_MIN).then(|| estimate.amount())
    }

    /// Learns an amount; `first` is the estimate of a new bucket. True if another bucket lost its
    /// place.
    pub(super) fn learn(
        &self,
        identity: u64,
        percent: u8,
        amount: u64,
        first: impl Fn() -> u64,
    ) -> bool {
        let tag = tag_of(identity);
        let Some(Places(places)) = self.places(identity) else {
            return false;
        };
        for _ in 0..TRIES {
            let known = places.iter().find_map(|place| {
                let word = place.load(Relaxed);
                (word >> TAG_SHIFT << TAG_SHIFT == tag).then_some((place, word))
            });
            let (place, word, estimate) = if let Some((place, word)) = known {
                (place, word, KeyEstimate::unpack(word & ESTIMATE))
            } else {
                let Some(place) = replaceable(places, identity) else {
                    return false;
                };
                (place, place.load(Relaxed), KeyEstimate::first(first()))
            };
            let chances = if known.is_some() { CHANCES } else { 0 };
            let learnt = estimate.learn(amount, percent).pack() | chances | tag;
            if place
                .compare_exchange(word, learnt, Relaxed, Relaxed)
                .is_ok()
            {
                return known.is_none() && word != 0;
            }
        }
        false
    }

    fn places(&self, identity: u64) -> Option<&Places> {
        let set = (identity & ((1 << TAG_SHIFT) - 1)) % self.sets.len() as u64;
        self.sets.get(usize::try_from(set).ok()?)
    }
}

/// A free place, else the first one that was not used recently.
#[cold]
fn replaceable(places: &[AtomicU64; PLACES], identity: u64) -> Option<&AtomicU64> {
    if let Some(free) = places.iter().find(|place| place.load(Relaxed) == 0) {
        return Some(free);
    }
    let start = usize::try_from(identity >> TAG_SHIFT).unwrap_or_default() % PLACES;
    let mut rounds = places.iter().cycle().skip(start).take(PLACES * 4);
    rounds.find(|place| {
        let word = place.load(Relaxed);
        let has_chance = word & CHANCES != 0;
        if has_chance {
            // Another thread may have changed the word: then it keeps its chances.
            let _ = place.compare_exchange(word, word - CHANCE, Relaxed, Relaxed);
        }
        !has_chance
    })
}
