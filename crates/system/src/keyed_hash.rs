//! Keyed 128-bit hash behind [`KeyHasher`]: SipHash-1-3 (Aumasson and Bernstein, 2012), from the
//! `siphasher` crate.
//!
//! Why this one: clients choose the keys, so the hash must be keyed, or they could aim at one
//! partition. 128 bits make chance collisions of buckets negligible (at a billion keys: one in
//! 10^20). The secret is generated at start and leaves the process only in a snapshot
//! (`--snapshot`); replicas that share a store are all configured with the same one.
//!
//! What it deliberately does not do: choose between the two (`app` does).

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use siphasher::sip128::{Hasher128 as _, SipHasher13};
use tollgate_limiter::{Digest, Key, KeyHasher};

/// SipHash with a secret key.
#[derive(Clone, Copy)]
pub struct KeyedHash {
    secret: [u8; 16],
}

/// A hash in progress.
#[derive(Clone, Debug)]
pub struct SipDigest(SipHasher13);

// === impl KeyedHash ===

impl KeyedHash {
    /// With a random secret.
    ///
    /// # Errors
    ///
    /// When the system provides no randomness.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret)?;
        Ok(Self { secret })
    }

    /// With a secret derived from a key of any length. The same key gives the same secret.
    pub fn derived_from(secret: &[u8]) -> Self {
        let mut digest = SipHasher13::new_with_key(b"tollgate's keys!");
        digest.write(secret);
        Self {
            secret: digest.finish128().as_u128().to_le_bytes(),
        }
    }

    /// Its secret, for a file that only the owner may read.
    pub const fn secret(self) -> [u8; 16] {
        self.secret
    }

    /// With a known secret, for tests and for replicas that must agree.
    pub const fn with_secret(secret: [u8; 16]) -> Self {
        Self { secret }
    }
}

impl KeyHasher for KeyedHash {
    type Digest = SipDigest;

    #[inline]
    fn start(&self) -> SipDigest {
        SipDigest(SipHasher13::new_with_key(&self.secret))
    }
}

impl fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyedHash(secret)")
    }
}

// === impl SipDigest ===

impl Digest for SipDigest {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    #[inline]
    fn finish(self) -> u128 {
        self.0.finish128().as_u128()
    }
}

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
