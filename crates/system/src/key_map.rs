//! Maps by the keys of buckets, which are keyed hashes and are not hashed again.
//!
//! What it deliberately does not do: hash what clients send (`keyed_hash`).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use tollgate_limiter::Key;

/// A map by keys, which are keyed hashes already and are not hashed again.
pub type KeyMap<V> = HashMap<Key, V, BuildHasherDefault<IdentityHasher>>;

/// The hash of a [`Key`]: its two halves, combined.
#[derive(Default)]
pub struct IdentityHasher(u64);

// === impl IdentityHasher ===

impl Hasher for IdentityHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    #[inline]
    fn write_u128(&mut self, key: u128) {
        let [upper, lower] = Key(key).to_halves();
        self.0 = upper ^ lower;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
