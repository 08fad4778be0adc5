//! The identity of one bucket.
//!
//! Two questions share a bucket when they agree on domain, descriptor path, algorithm, window, the limit's name and
//! whether the limit came with the request: what a bucket is, never where a rule stands in a file. (The time a slot is
//! held is no window: slots stay held when it changes. A calendar is one: a month in Paris is not a month in UTC.) The parts are fed
//! to the hash length first, so no two lists of texts give the same bytes, whatever they contain; texts are hashed
//! whole and never kept. Where a level speaks of addresses, the address is what counts and not its spelling.
//!
//! Why the hash is keyed and comes from outside: the texts come from strangers, who must not be able to aim many keys
//! at one partition or at each other's buckets; and `std` has no 128-bit keyed hash.
//!
//! One other thing is spelled here: what Envoy's reference service calls the same counter ([`BucketIdentity::reference_key`]), for
//! those who move over from it. That joins texts with `_`, so two descriptors may meet; nothing else ever uses it.
//!
//! What it deliberately does not do: choose a hash, or spell a key of its own for people or for Redis.

use std::sync::Arc;

use super::address::{Address, Prefix};
use super::algorithm::{Algorithm, FixedWindow};
use super::descriptor::{Entry, Holder};
use super::limit::{CountRefused, Limit};
use super::rule::{IdentityValue, Rule};
use super::values::Values;

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
pub struct BucketIdentity<'i> {
    /// The request's domain.
    pub domain: &'i [u8],
    /// The descriptor's entries as sent, but for one that says who holds a slot.
    pub entries: &'i [Entry<'i>],
    /// How hits are counted.
    pub algorithm: &'static dyn Algorithm,
    /// Of which the window counts; a change of the number of requests keeps the bucket.
    pub limit: &'i Limit,
    /// The rule whose limit it is; none when the limit came with the request.
    pub rule: Option<&'i Rule>,
}

/// How long the reference's name of a counter may be, in bytes; what is longer keeps a key of ours.
pub const REFERENCE_KEY_BYTES_MAX: usize = 512;

/// In place of a text's length: what follows is an address. No text is that long.
const AN_ADDRESS: u64 = u64::MAX;

/// The same: what follows stands for all values of a level.
const ALL_VALUES: u64 = u64::MAX - 1;

/// In place of an empty value's length: its label is `key_`, not `key`.
const EMPTY_WITH_UNDERSCORE: u64 = u64::MAX - 2;

// === impl Key ===

impl Key {
    /// Its upper and its lower half: in words of 8 bytes a key lies as closely as they do.
    pub fn to_halves(self) -> [u64; 2] {
        let lower = self.0 & u128::from(u64::MAX);
        [self.0 >> 64, lower].map(|half| u64::try_from(half).unwrap_or_default())
    }

    /// The key of these halves.
    pub fn from_halves([upper, lower]: [u64; 2]) -> Self {
        Self((u128::from(upper) << 64) | u128::from(lower))
    }
}

// === impl Identity ===

impl BucketIdentity<'_> {
    /// The key of the bucket.
    pub fn key(&self, hasher: &impl KeyHasher) -> Key {
        let mut digest = hasher.start();
        let calendar = self.limit.calendar();
        let kind = u8::from(self.rule.is_none()) | u8::from(calendar.is_some()) << 1;
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
        text(
            &mut digest,
            self.rule.map_or("", |rule| &rule.name).as_bytes(),
        );
        text(&mut digest, self.domain);
        for (level, entry) in self.entries.iter().enumerate() {
            text(&mut digest, entry.key);
            match self.rule {
                Some(rule) => value(&mut digest, rule.identity_value(level, entry.value)),
                None => text(&mut digest, entry.value),
            }
        }
        Key(digest.finish())
    }

    /// What Envoy's reference service calls the counter of these hits: `domain_key_value_…_`, behind which stands the second
    /// in which the window begins. None where it has no such counter: another algorithm, another length of window, refused
    /// hits that count otherwise, values that count as addresses or as all of a list; or the name is too long.
    pub fn reference_key(&self) -> Option<Arc<[u8]>> {
        let counts = self.algorithm.name() == FixedWindow.name()
            && self.limit.unit().is_some()
            && self.limit.unit_multiplier().get() == 1
            && self.limit.calendar().is_none()
            && matches!(
                self.limit.count_refused(),
                None | Some(CountRefused::Blocking)
            );
        if !counts {
            return None;
        }
        let mut name = self.domain.to_vec();
        name.push(b'_');
        for (level, entry) in self.entries.iter().enumerate() {
            name.extend_from_slice(entry.key);
            name.push(b'_');
            match self.rule {
                Some(rule) => rule.push_reference_value(level, entry, &mut name)?,
                None => name.extend_from_slice(entry.value),
            }
            name.push(b'_');
        }
        (name.len() <= REFERENCE_KEY_BYTES_MAX).then(|| name.into())
    }
}

/// Who holds a slot: `id` as sent, hashed.
pub fn hash_holder(id: &[u8], hasher: &impl KeyHasher) -> Holder {
    let mut digest = hasher.start();
    text(&mut digest, id);
    let lower = digest.finish() & u128::from(u64::MAX);
    Holder::from_hash(u64::try_from(lower).unwrap_or_default())
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

/// What a value counts as, so that an address or a whole level is never what a text is, whatever somebody sends. A
/// whole level is told by its first item: no sibling has it too, and a list of ten thousand costs no more than one of
/// two.
fn value(digest: &mut impl Digest, counts_as: IdentityValue<'_>) {
    match counts_as {
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
