//! The identity of one bucket.
//!
//! Two checks share a bucket when they agree on domain, descriptor path, algorithm, window, the
//! limit's name, and whether the limit came with the request. The position of a rule in a file does
//! not matter. The time that a slot is held is not a window: slots stay held when it changes. A
//! calendar is part of the window: a month in Paris is not a month in UTC. Limits of one budget
//! share a bucket: in place of their last level and their name it has the budget's name. The id of
//! a reservation is no part of a bucket. Each part is hashed
//! after its length, so no two lists of texts give the same bytes. Texts are hashed whole and never
//! kept. At a level of addresses the address counts, not its spelling.
//!
//! Why the hash is keyed and comes from outside: clients choose the texts, and must not be able to
//! aim many keys at one partition or at each other's buckets. `std` has no 128-bit keyed hash.
//!
//! What it deliberately does not do: choose a hash, or format a key for people or for Redis.

use std::sync::Arc;

use super::address::{Address, Prefix};
use super::algorithm::Algorithm;
use super::descriptor::{Entry, Holder};
use super::limit::Limit;
use super::rule::{IdentityValue, Rule};
use super::values::Values;

/// A keyed 128-bit hash of a bucket's identity.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key(pub u128);

/// A keyed hash function and its secret.
pub trait KeyHasher: Send + Sync {
    /// A hash in progress.
    type Digest: Digest;

    /// Starts a hash.
    fn start(&self) -> Self::Digest;
}

/// A hash in progress.
pub trait Digest {
    /// Adds these bytes.
    fn write(&mut self, bytes: &[u8]);

    /// The hash of all bytes added.
    fn finish(self) -> u128;
}

/// What identifies a bucket.
#[derive(Clone, Copy, Debug)]
pub struct BucketIdentity<'i> {
    /// The request's domain.
    pub domain: &'i [u8],
    /// The descriptor's entries as sent, without one that names the holder of a slot.
    pub entries: &'i [Entry<'i>],
    /// The algorithm that counts.
    pub algorithm: &'static dyn Algorithm,
    /// Only its window counts: a change of the number of requests keeps the bucket.
    pub limit: &'i Limit,
    /// The rule whose limit it is; none when the limit came with the request.
    pub rule: Option<&'i Rule>,
}

/// Gives a bucket a name of another scheme, or none where that scheme has no name for it. See
/// `Plan::name_buckets`.
pub type BucketNaming = fn(&BucketIdentity<'_>) -> Option<Arc<[u8]>>;

/// Stands in place of a text's length before an address. No text is that long.
const AN_ADDRESS: u64 = u64::MAX;

/// Stands in place of a text's length before all values of a level.
const ALL_VALUES: u64 = u64::MAX - 1;

/// Stands in place of an empty value's length when its label is `key_`, not `key`.
const EMPTY_WITH_UNDERSCORE: u64 = u64::MAX - 2;

// === impl Key ===

impl Key {
    /// Its upper and its lower half. A key of two words is aligned to 8 bytes and needs no padding.
    #[inline]
    pub fn to_halves(self) -> [u64; 2] {
        let lower = self.0 & u128::from(u64::MAX);
        [self.0 >> 64, lower].map(|half| u64::try_from(half).unwrap_or_default())
    }

    /// The key with these halves.
    #[inline]
    pub fn from_halves([upper, lower]: [u64; 2]) -> Self {
        Self((u128::from(upper) << 64) | u128::from(lower))
    }
}

// === impl BucketIdentity ===

impl BucketIdentity<'_> {
    /// The key of the bucket.
    pub fn key(&self, hasher: &impl KeyHasher) -> Key {
        let mut digest = hasher.start();
        let calendar = self.limit.calendar();
        let (name, entries, origin) = match (self.rule, self.entries) {
            (None, entries) => ("", entries, 1),
            (Some(rule), entries) => match (&rule.budget, entries) {
                (None, entries) => (&*rule.name, entries, 0),
                (Some(budget), [shared @ .., _]) => (&**budget, shared, 4),
                (Some(budget), []) => (&**budget, entries, 4),
            },
        };
        let kind = origin | u8::from(calendar.is_some()) << 1;
        digest.write(&[kind]);
        let window_us = match self.limit.unit() {
            Some(_) => self.limit.window().as_us(),
            None => 0,
        };
        digest.write(&window_us.to_le_bytes());
        if let Some(calendar) = calendar {
            text(&mut digest, calendar.name().as_bytes());
        }
        text(&mut digest, self.algorithm.name().as_bytes());
        text(&mut digest, name.as_bytes());
        text(&mut digest, self.domain);
        for (level, entry) in entries.iter().enumerate() {
            text(&mut digest, entry.key);
            match self.rule {
                Some(rule) => value(&mut digest, rule.identity_value(level, entry.value)),
                None => text(&mut digest, entry.value),
            }
        }
        Key(digest.finish())
    }
}

/// The holder of a slot: a hash of the `id` that was sent.
#[inline]
pub fn hash_holder(id: &[u8], hasher: &impl KeyHasher) -> Holder {
    let mut digest = hasher.start();
    text(&mut digest, id);
    let lower = digest.finish() & u128::from(u64::MAX);
    Holder::from_hash(u64::try_from(lower).unwrap_or_default())
}

/// Identifies a set of labels that depend on the request, by at most `levels` levels and `bytes`
/// bytes of each text in them. Without a rule the labels hold every level as sent.
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
                (level.key.as_bytes(), level.values.text().as_bytes())
            }
            Some((rule, _))
                if entry.value.is_empty() && rule.empty_values_keep_underscore(entries) =>
            {
                text(&mut digest, entry.key.get(..bytes).unwrap_or(entry.key));
                digest.write(&EMPTY_WITH_UNDERSCORE.to_le_bytes());
                continue;
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

/// Hashes what a value counts as. Tags keep an address or a whole level distinct from any text that
/// a client can send. A whole level is identified by its first item: no sibling has that item, and
/// a list of ten thousand costs no more than one of two.
fn value(digest: &mut impl Digest, identity_value: IdentityValue<'_>) {
    match identity_value {
        IdentityValue::Text(value) => text(digest, value),
        IdentityValue::Address(prefix) => {
            digest.write(&AN_ADDRESS.to_le_bytes());
            address(digest, prefix);
        }
        IdentityValue::All(values) => {
            digest.write(&ALL_VALUES.to_le_bytes());
            match &**values {
                Values::Any | Values::Text(_) => {
                    digest.write(&[0]);
                    text(digest, values.text().as_bytes());
                }
                Values::List(values) => {
                    digest.write(&[1]);
                    text(digest, values.first().map_or(b"", |first| first.as_bytes()));
                }
                Values::Prefixes(prefixes) => {
                    digest.write(&[2]);
                    if let Some(first) = prefixes.first() {
                        address(digest, *first);
                    }
                }
                Values::Regex(regex) => {
                    digest.write(&[3]);
                    text(digest, regex.as_bytes());
                }
            }
        }
    }
}

fn address(digest: &mut impl Digest, prefix: Prefix) {
    match prefix.address() {
        Address::V4(bits) => {
            digest.write(&[4, prefix.length()]);
            digest.write(&bits.to_be_bytes());
        }
        Address::V6(bits) => {
            digest.write(&[6, prefix.length()]);
            digest.write(&bits.to_be_bytes());
        }
    }
}
