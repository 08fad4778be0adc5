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
use super::rule::Rule;

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
    /// The rule whose limit it is; none when the limit came with the request.
    pub rule: Option<&'i Rule>,
}

// === impl Identity ===

impl Identity<'_> {
    /// The key of the bucket.
    pub fn key(&self, hasher: &impl KeyHasher) -> Key {
        let mut digest = hasher.start();
        digest.write(&[u8::from(self.rule.is_none())]);
        digest.write(&self.limit.window().as_us().to_le_bytes());
        text(&mut digest, self.algorithm.name().as_bytes());
        text(
            &mut digest,
            self.rule.map_or("", |rule| &rule.name).as_bytes(),
        );
        text(&mut digest, self.domain);
        for (level, entry) in self.entries.iter().enumerate() {
            let shared = self.rule.and_then(|rule| rule.shared_value(level));
            text(&mut digest, entry.key);
            text(&mut digest, shared.unwrap_or(entry.value));
        }
        Key(digest.finish())
    }
}

/// Tells one set of labels that depend on the request from another: by what stands in them, no more than `levels` levels
/// and `bytes` bytes of each text. Without a rule every level stands in them as sent.
pub fn label_key(
    rule: Option<&Rule>,
    domain: &[u8],
    entries: &[Entry<'_>],
    (levels, bytes): (usize, usize),
    hasher: &impl KeyHasher,
) -> Key {
    let mut digest = hasher.start();
    text(&mut digest, domain);
    for (level, entry) in entries.iter().enumerate().take(levels) {
        let configured = rule.and_then(|rule| Some((rule, rule.path.get(level)?)));
        let (key, value) = match configured {
            Some((rule, level)) if !rule.label_has_value(level) => {
                (level.key.as_bytes(), level.value.as_bytes())
            }
            _ => (entry.key, entry.value),
        };
        for part in [key, value] {
            text(&mut digest, part.get(..bytes).unwrap_or(part));
        }
    }
    Key(digest.finish())
}

fn text(digest: &mut impl Digest, text: &[u8]) {
    digest.write(&(text.len() as u64).to_le_bytes());
    digest.write(text);
}
