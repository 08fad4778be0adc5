//! A bucket in 40 bytes, including its key.
//!
//! The key is 16 bytes; the time and the two registers have 53 bits each (`REGISTER_MAX` in the
//! limiter). That leaves 33 bits of five words for everything else: whether the slot is used,
//! whether the bucket is exhausted, whether it has marks, when it resets, and how long it is kept.
//! The two durations are floating-point: ten significant bits, rounded up, so a bucket is never
//! removed too early, and at most one part in 512 too late.
//!
//! Marks are kept elsewhere: few buckets have any.

use super::table::Slot;
use tollgate_limiter::{Key, Marks, State, Timestamp};

/// A bucket, or a free slot: all zeros.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Bucket {
    key: [u64; 2],
    /// The time and the registers, each above eleven bits of other fields.
    words: [u64; 3],
}

/// What a partition needs to know about a bucket besides its state.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct BucketMeta {
    /// Whether its last outcome left nothing.
    pub(super) exhausted: bool,
    /// Whether it has marks in the marks table.
    pub(super) marked: bool,
    /// How long after its last use it resets.
    pub(super) reset_us: u64,
    /// How long after its last use it is kept. At least one window, so that it has reset even if
    /// the clock went back a little.
    pub(super) life_us: u64,
}

const USED: u64 = 1;
const EXHAUSTED: u64 = 1 << 1;
const MARKED: u64 = 1 << 2;
const FLAGS_BITS: u32 = 3;

/// How many bits of a word are free below a time or a register.
const SPARE_BITS: u32 = 11;
const SPARE: u64 = (1 << SPARE_BITS) - 1;

/// A duration: six bits of exponent above nine bits of fraction, with an implied leading one.
const FRACTION_BITS: u32 = 9;
const LENGTH_BITS: u32 = 15;
const LENGTH_MAX_US: u64 = 1 << 62;

// === impl Bucket ===

impl Bucket {
    /// A bucket with this state, without its marks.
    pub(super) fn new(key: Key, state: &State, meta: BucketMeta) -> Self {
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        let flags = USED | flag(meta.exhausted, EXHAUSTED) | flag(meta.marked, MARKED);
        let life = length(meta.life_us.max(meta.reset_us)) << FLAGS_BITS;
        let reset = length(meta.reset_us) << (FLAGS_BITS + LENGTH_BITS);
        let beside = flags | life | reset;
        let [first, second] = state.registers;
        let numbers = [state.updated_at.as_us(), first, second];
        let mut shift = 0;
        let words = numbers.map(|number| {
            let word = (number << SPARE_BITS) | ((beside >> shift) & SPARE);
            shift += SPARE_BITS;
            word
        });
        Self {
            key: key.to_halves(),
            words,
        }
    }

    /// The time and the registers, without the marks.
    pub(super) fn state(&self) -> State {
        let [seen, first, second] = self.words.map(|word| word >> SPARE_BITS);
        State {
            updated_at: Timestamp::from_us(seen),
            registers: [first, second],
            marks: Marks::default(),
        }
    }

    pub(super) fn meta(&self) -> BucketMeta {
        let beside = self.beside();
        BucketMeta {
            exhausted: beside & EXHAUSTED != 0,
            marked: beside & MARKED != 0,
            reset_us: length_us(beside >> (FLAGS_BITS + LENGTH_BITS)),
            life_us: length_us(beside >> FLAGS_BITS),
        }
    }

    /// The newest time that it has seen.
    pub(super) fn seen(&self) -> Timestamp {
        Timestamp::from_us(self.words[0] >> SPARE_BITS)
    }

    /// Whether it has marks.
    pub(super) fn is_marked(&self) -> bool {
        self.words[0] & MARKED != 0
    }

    /// When it resets, if the clock advances regularly.
    pub(super) fn fresh_at(&self) -> Timestamp {
        let reset_us = length_us(self.beside() >> (FLAGS_BITS + LENGTH_BITS));
        self.seen().plus_us(reset_us)
    }

    /// The bits that belong to no number.
    fn beside(&self) -> u64 {
        let [low, middle, high] = self.words.map(|word| word & SPARE);
        low | (middle << SPARE_BITS) | (high << (2 * SPARE_BITS))
    }
}

impl Slot for Bucket {
    fn key(&self) -> Key {
        Key::from_halves(self.key)
    }

    fn is_free(&self) -> bool {
        self.words[0] & USED == 0
    }

    fn is_kept(&self) -> bool {
        self.words[0] & EXHAUSTED != 0
    }
}

/// A duration in fifteen bits, rounded up; never 0.
fn length(us: u64) -> u64 {
    let us = us.clamp(1, LENGTH_MAX_US);
    let shift = (u64::BITS - us.leading_zeros()).saturating_sub(FRACTION_BITS + 1);
    let cut = us >> shift;
    // A carry into the exponent gives the right result.
    let rounded = cut + u64::from(cut << shift != us);
    // Short durations need no exponent: their leading one is then the lowest bit of the exponent.
    (u64::from(shift) << FRACTION_BITS) + rounded
}

fn length_us(bits: u64) -> u64 {
    let bits = bits & ((1 << LENGTH_BITS) - 1);
    let (exponent, fraction) = (bits >> FRACTION_BITS, bits & ((1 << FRACTION_BITS) - 1));
    match exponent.checked_sub(1) {
        None => fraction,
        Some(shift) => (fraction | (1 << FRACTION_BITS)) << shift,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tollgate_limiter::REGISTER_MAX;

    #[test]
    fn a_bucket_takes_forty_bytes() {
        assert_eq!(size_of::<Bucket>(), 40);
    }

    #[test]
    fn lengths_are_rounded_up_by_no_more_than_one_part_in_512() {
        for us in (0..2_000).chain([60_000_000, 3_600_000_000, 31_556_952_000_000, 1 << 53]) {
            for us in [us, us + 1, us + 77] {
                let kept = length_us(length(us));
                assert!(
                    kept >= us && kept - us <= us / 512 + u64::from(us == 0),
                    "{us} {kept}"
                );
            }
        }
        assert_eq!(length_us(length(u64::MAX)), LENGTH_MAX_US);
    }

    proptest! {
        #[test]
        fn packed_values_round_trip(
            key in any::<u128>(),
            seen in 0..=Timestamp::MAX_US,
            registers in [0..=REGISTER_MAX, 0..=REGISTER_MAX],
            (exhausted, marked) in any::<(bool, bool)>(),
            (reset_us, life_us) in (1..1_u64 << 60, 1..1_u64 << 60),
        ) {
            let state = State { updated_at: Timestamp::from_us(seen), registers, marks: Marks::default() };
            let meta = BucketMeta { exhausted, marked, reset_us, life_us };
            let bucket = Bucket::new(Key(key), &state, meta);
            prop_assert_eq!(bucket.key(), Key(key));
            prop_assert_eq!(bucket.state(), state);
            prop_assert_eq!((bucket.is_free(), bucket.is_kept(), bucket.is_marked()), (false, exhausted, marked));
            let kept = bucket.meta();
            prop_assert_eq!((kept.exhausted, kept.marked), (exhausted, marked));
            prop_assert!(kept.reset_us >= reset_us && kept.reset_us - reset_us <= reset_us / 512);
            let life_us = life_us.max(reset_us);
            prop_assert!(kept.life_us >= life_us && kept.life_us - life_us <= life_us / 512);
        }
    }
}
