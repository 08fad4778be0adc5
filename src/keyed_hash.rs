//! The keyed 128-bit hash behind [`KeyHasher`]: SipHash-1-3 (Aumasson and Bernstein, 2012) by the `siphasher` crate.
//!
//! Why this one: keys come from strangers, so the hash must be keyed or they could aim at one partition; 128 bits so
//! that two buckets never meet by chance (at a billion keys: one in 10^20). The secret is made when the process starts
//! and leaves it never; replicas that share a store must agree, and are all given the same.
//!
//! What it deliberately does not do: choose between the two (`app` does).

use std::fmt;
use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13};

use tollgate_limiter::{Digest, KeyHasher};

/// SipHash with a secret.
#[derive(Clone, Copy)]
pub struct KeyedHash {
    secret: [u8; 16],
}

/// A hash under way.
#[derive(Clone, Debug)]
pub struct SipDigest(SipHasher13);

// === impl KeyedHash ===

impl KeyedHash {
    /// With a secret that nobody knows.
    ///
    /// # Errors
    ///
    /// When the system has no randomness to give.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret)?;
        Ok(Self { secret })
    }

    /// With a secret made of another that is of any length: the same for the same.
    pub fn derived_from(secret: &[u8]) -> Self {
        let mut digest = SipHasher13::new_with_key(b"tollgate's keys!");
        digest.write(secret);
        Self {
            secret: digest.finish128().as_u128().to_le_bytes(),
        }
    }

    /// With a known secret: tests repeat, and replicas agree.
    pub const fn with_secret(secret: [u8; 16]) -> Self {
        Self { secret }
    }
}

impl KeyHasher for KeyedHash {
    type Digest = SipDigest;

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
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn finish(self) -> u128 {
        self.0.finish128().as_u128()
    }
}
