//! Arguments of calls.

use std::cell::Cell;
use std::time::Duration;

/// What a limit counts: a list of keys and values, and optionally hits of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Descriptor {
    pub(crate) entries: Vec<(String, String)>,
    pub(crate) hits: Option<u64>,
}

impl Descriptor {
    /// A descriptor of these keys and values, in this order.
    pub fn new<K, V>(entries: impl IntoIterator<Item = (K, V)>) -> Self
    where
        K: Into<String>,
        V: Into<String>,
    {
        let entries = entries
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect();
        Self {
            entries,
            hits: None,
        }
    }

    /// Sets hits that replace those of the call. From 0 to 9,007,199,254,740,991.
    #[must_use]
    pub fn hits(mut self, hits: u64) -> Self {
        self.hits = Some(hits);
        self
    }

    /// The keys and values.
    pub fn entries(&self) -> &[(String, String)] {
        &self.entries
    }
}

/// Arguments of a check or a peek.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Check {
    pub(crate) domain: Option<String>,
    pub(crate) descriptors: Vec<Descriptor>,
    pub(crate) hits: Option<u64>,
    pub(crate) dry_run: bool,
    /// Whether it is one of the middleware, which may take leased hits by default.
    pub(crate) middleware: bool,
}

impl Check {
    /// A check of these descriptors.
    pub fn new(descriptors: impl IntoIterator<Item = Descriptor>) -> Self {
        Self {
            descriptors: descriptors.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Sets the domain; default: that of the client.
    #[must_use]
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Sets the hits; default: 1. From 0 to 9,007,199,254,740,991.
    #[must_use]
    pub fn hits(mut self, hits: u64) -> Self {
        self.hits = Some(hits);
        self
    }

    /// Takes no hits, as a peek; default: off. It needs [`Protocol::Tollgate`](crate::Protocol), and
    /// a peek ignores it.
    #[must_use]
    pub fn dry_run(mut self, dry_run: bool) -> Self {
        self.dry_run = dry_run;
        self
    }

    /// The descriptors.
    pub fn descriptors(&self) -> &[Descriptor] {
        &self.descriptors
    }

    /// Whether no hits are taken.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }
}

impl From<Descriptor> for Check {
    fn from(descriptor: Descriptor) -> Self {
        Self::new([descriptor])
    }
}

impl From<Vec<Descriptor>> for Check {
    fn from(descriptors: Vec<Descriptor>) -> Self {
        Self::new(descriptors)
    }
}

impl<const N: usize> From<[Descriptor; N]> for Check {
    fn from(descriptors: [Descriptor; N]) -> Self {
        Self::new(descriptors)
    }
}

/// What the service does with the hits of a reservation that expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnExpiry {
    /// The hits stay charged.
    Charge,
    /// The hits go back.
    Release,
}

/// Arguments of a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reserve {
    pub(crate) check: Check,
    pub(crate) id: String,
    pub(crate) expires: Option<Duration>,
    pub(crate) on_expiry: Option<OnExpiry>,
}

impl Reserve {
    /// A reservation in the limits of these descriptors.
    pub fn new(descriptors: impl IntoIterator<Item = Descriptor>) -> Self {
        Self {
            check: Check::new(descriptors),
            ..Self::default()
        }
    }

    /// Sets the domain; default: that of the client.
    #[must_use]
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.check = self.check.domain(domain);
        self
    }

    /// Sets the hits; default: the amount of each rule. From 0 to 9,007,199,254,740,991.
    #[must_use]
    pub fn hits(mut self, hits: u64) -> Self {
        self.check = self.check.hits(hits);
        self
    }

    /// Sets the id, at most 256 bytes; default: the service makes one.
    #[must_use]
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// Sets the time until the reservation ends by itself, 1 ms to 1 day; default: the rule's, else
    /// 60 s.
    #[must_use]
    pub fn expires(mut self, expires: Duration) -> Self {
        self.expires = Some(expires);
        self
    }

    /// Sets what happens to the hits at the expiry; default: the rule's, else [`OnExpiry::Charge`].
    #[must_use]
    pub fn on_expiry(mut self, on_expiry: OnExpiry) -> Self {
        self.on_expiry = Some(on_expiry);
        self
    }
}

impl From<Descriptor> for Reserve {
    fn from(descriptor: Descriptor) -> Self {
        Self::new([descriptor])
    }
}

/// The true amount of a commit. Made from a `u64`, or from one `u64` a descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Amount {
    /// The same amount for every descriptor.
    Each(u64),
    /// One amount a descriptor, in their order.
    PerDescriptor(Vec<u64>),
}

impl From<u64> for Amount {
    fn from(hits: u64) -> Self {
        Self::Each(hits)
    }
}

impl From<Vec<u64>> for Amount {
    fn from(hits: Vec<u64>) -> Self {
        Self::PerDescriptor(hits)
    }
}

impl<const N: usize> From<[u64; N]> for Amount {
    fn from(hits: [u64; N]) -> Self {
        Self::PerDescriptor(hits.to_vec())
    }
}

/// Descriptors as text that no other descriptors have, without their hits.
///
/// Lengths stand before the parts, so keys and values cannot be mistaken for one another.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct DescriptorKey(Vec<u8>);

/// Longest keys and values of descriptors that are remembered, in bytes.
const MAX_REMEMBERED_BYTES: usize = 1_024;

thread_local! {
    /// The memory of [`DescriptorKey::with`].
    static KEY: Cell<DescriptorKey> = const { Cell::new(DescriptorKey(Vec::new())) };
}

impl DescriptorKey {
    pub(crate) fn new(domain: &str, descriptors: &[Descriptor]) -> Self {
        let mut key = Self(Vec::with_capacity(128));
        key.write(domain, descriptors);
        key
    }

    /// Calls a function with a key. It allocates nothing for a key of a usual length.
    pub(crate) fn with<R>(
        domain: &str,
        descriptors: &[Descriptor],
        use_key: impl FnOnce(&Self) -> R,
    ) -> R {
        let mut key = KEY.take();
        key.0.clear();
        key.write(domain, descriptors);
        let result = use_key(&key);
        if key.0.capacity() <= 2 * MAX_REMEMBERED_BYTES {
            KEY.set(key);
        }
        result
    }

    fn write(&mut self, domain: &str, descriptors: &[Descriptor]) {
        self.part(domain);
        for descriptor in descriptors {
            self.length(descriptor.entries.len());
            for (name, value) in &descriptor.entries {
                self.part(name);
                self.part(value);
            }
        }
    }

    fn part(&mut self, text: &str) {
        self.length(text.len());
        self.0.extend_from_slice(text.as_bytes());
    }

    fn length(&mut self, length: usize) {
        self.0.extend_from_slice(&(length as u64).to_le_bytes());
    }
}

/// Whether descriptors are short enough to be remembered.
pub(crate) fn is_rememberable(descriptors: &[Descriptor]) -> bool {
    let entries = descriptors
        .iter()
        .flat_map(|descriptor| &descriptor.entries);
    let bytes: usize = entries.map(|(key, value)| key.len() + value.len()).sum();
    bytes <= MAX_REMEMBERED_BYTES
}

/// Hits of each descriptor, with those of the call where a descriptor has none.
pub(crate) fn hits_by_descriptor(check: &Check) -> impl Iterator<Item = u64> {
    let default = check.hits.unwrap_or(1);
    let descriptors = check.descriptors.iter();
    descriptors.map(move |descriptor| descriptor.hits.unwrap_or(default))
}
