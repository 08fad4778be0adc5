//! The identity of one bucket.
//!
//! Two questions share a bucket when they agree on domain, descriptor path, algorithm, window, the limit's name and
//! whether the limit came with the request: what a bucket is, never where a rule stands in a file. The parts are fed
//! to the hash length first, so no two lists of texts give the same bytes, whatever they contain; texts are hashed
//! whole and never kept.
//!
//! Why the hash is keyed and comes from outside: the texts come from strangers, who must not be able to aim many keys
//! at one partition or at each other's buckets; and `std` has no 128-bit keyed hash.
//!
//! What it deliberately does not do: choose a hash, or spell a key for people or for Redis.

use super::algorithm::Algorithm;
use super::descriptor::Entry;
use super::limit::Limit;

/// A keyed 128-bit hash of a bucket's identity.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key(pub u128);

/// A keyed hash function with its secret.
pub trait KeyHasher: Send + Sync {
    /// A hash under way.
    type Digest: Digest;

    /// Begins a hash.
    fn start(&self) -> Self::Digest;
}

/// A hash under way.
pub trait Digest {
    /// Takes these bytes in.
    fn write(&mut self, bytes: &[u8]);

    /// The hash of all that was taken in.
    fn finish(self) -> u128;
}

/// What makes a bucket that bucket.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'i> {
    /// The request's domain.
    pub domain: &'i [u8],
    /// The descriptor's entries as sent.
    pub entries: &'i [Entry<'i>],
    /// How hits are counted.
    pub algorithm: &'static dyn Algorithm,
    /// Of which the window counts; a change of the number of requests keeps the bucket.
    pub limit: &'i Limit,
    /// The limit's name, often empty.
    pub name: &'i str,
    /// Whether the limit came with the request.
    pub is_override: bool,
}

// === impl Identity ===

impl Identity<'_> {
    /// The key of the bucket.
    pub fn key(&self, hasher: &impl KeyHasher) -> Key {
        let mut digest = hasher.start();
        digest.write(&[u8::from(self.is_override)]);
        digest.write(&self.limit.window().as_us().to_le_bytes());
        text(&mut digest, self.algorithm.name().as_bytes());
        text(&mut digest, self.name.as_bytes());
        text(&mut digest, self.domain);
        for entry in self.entries {
            text(&mut digest, entry.key);
            text(&mut digest, entry.value);
        }
        Key(digest.finish())
    }
}

fn text(digest: &mut impl Digest, text: &[u8]) {
    digest.write(&(text.len() as u64).to_le_bytes());
    digest.write(text);
}
