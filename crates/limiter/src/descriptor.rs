//! A request: a domain, and the descriptors to check in it.
//!
//! Why borrowed and flat: a request lives for one decision, its texts are slices of the message it
//! came in, and two vectors hold all of it, however many descriptors there are. Keys and values are
//! bytes, because they hold what clients sent in headers, and that need not be UTF-8.
//!
//! What it deliberately does not do: know protobuf, validate the request, copy a value.

use std::num::NonZeroU64;
use std::ops::Range;

use super::limit::Limit;
use super::reservation::{Cost, Step};
use super::time::Timestamp;

/// One key and its value, as sent.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Entry<'a> {
    /// The key. Rarely empty.
    pub key: &'a [u8],
    /// The value, often empty.
    pub value: &'a [u8],
}

/// The hits that one descriptor takes or gives back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hits {
    /// Takes this many. 0 only looks.
    Take(u64),
    /// Gives this many back. Never refused, and never below an unused bucket.
    Refund(u64),
    /// Undoes a take that is void: as far as it still counts, and never so that more could pass
    /// than without it. Stores use it; clients cannot send it.
    Undo {
        /// How many hits were taken.
        hits: u64,
        /// The bucket's time of the take ([`Outcome::bucket_time`](super::algorithm::Outcome)).
        taken_at: Timestamp,
    },
    /// Adds this many beyond the limit: they were used already. Never refused, and the debt has no
    /// bound. Clients send it only as part of a reservation or a report.
    Charge(u64),
    /// A step of the reservation whose id is the operation's holder.
    Reservation(Step),
}

/// The holder of a slot, or the id of a reservation, as a keyed hash of the id that was sent. Two
/// ids collide with probability 2^-64, and clients cannot aim.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Holder(pub NonZeroU64);

/// One operation on a bucket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Operation {
    /// The hits to take or give back.
    pub hits: Hits,
    /// The holder, for algorithms with slots; none is anonymous. The id, for steps of reservations.
    pub holder: Option<Holder>,
}

/// A limit that came with the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Override {
    /// Applies in place of the configured one, in a bucket of its own.
    Limit(Limit),
    /// The same as a token bucket. It needs no rules: a domain that they do not have will do.
    Bucket(Limit),
    /// Its unit is 0 or undefined. The configured rule applies, and a counter records it: an error
    /// would let the request through.
    Invalid,
}

/// One descriptor of a request.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'r, 'a> {
    /// The entries in the order sent. There may be none.
    pub entries: &'r [Entry<'a>],
    /// The hits that it takes or gives back.
    pub hits: Hits,
    /// Whether the request said how many hits to take.
    pub has_explicit_hits: bool,
    /// The limit that it carries, if any. By reference, because a descriptor is copied several
    /// times on its way, and few carry one.
    pub limit: Option<&'r Override>,
}

/// A whole request. Build it with [`Request::new`] and [`Request::push_descriptor`].
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// The namespace of the limits, as sent.
    pub domain: &'a [u8],
    /// The entries of all descriptors, one after the other.
    entries: Vec<Entry<'a>>,
    /// The parts of each descriptor besides its entries, and the range of those in `entries`.
    descriptors: Vec<DescriptorParts>,
    /// The limits that descriptors carry.
    limits: Vec<Override>,
}

#[derive(Clone, Debug)]
struct DescriptorParts {
    entries: Range<usize>,
    hits: Hits,
    has_explicit_hits: bool,
    /// The index of its limit.
    limit: Option<usize>,
}

/// Stands for a missing entry.
const NO_ENTRY: Entry<'static> = Entry {
    key: &[],
    value: &[],
};

// === impl Entry ===

impl Entry<'_> {
    /// `key_value`, or `key` with an empty value, for labels. Bytes that are not UTF-8 are
    /// replaced.
    pub fn label(&self) -> String {
        let key = String::from_utf8_lossy(self.key);
        if self.value.is_empty() {
            key.into_owned()
        } else {
            format!("{key}_{}", String::from_utf8_lossy(self.value))
        }
    }
}

// === impl Hits ===

impl Hits {
    /// Takes nothing. The outcome tells whether the bucket is within its limit.
    pub const PEEK: Self = Self::Take(0);

    /// The number of hits, taken or given back.
    #[inline]
    pub const fn count(self) -> u64 {
        match self {
            Self::Take(hits)
            | Self::Refund(hits)
            | Self::Undo { hits, .. }
            | Self::Charge(hits) => hits,
            Self::Reservation(step) => step.hits(),
        }
    }

    /// The same hits at this price, rounded up.
    #[must_use]
    #[cold]
    #[inline(never)]
    pub fn priced(self, cost: Cost) -> Self {
        match self {
            Self::Take(hits) => Self::Take(cost.of(hits)),
            Self::Refund(hits) => Self::Refund(cost.of(hits)),
            Self::Charge(hits) => Self::Charge(cost.of(hits)),
            // They have their price already.
            Self::Undo { .. } | Self::Reservation(_) => self,
        }
    }

    /// Whether it can leave something in a bucket that is unused.
    #[inline]
    pub const fn can_fill(self) -> bool {
        match self {
            Self::Take(hits) | Self::Charge(hits) => hits > 0,
            Self::Refund(_) | Self::Undo { .. } => false,
            Self::Reservation(step) => step.can_fill(),
        }
    }

    /// Whether it can give hits back.
    #[inline]
    pub const fn can_give_back(self) -> bool {
        match self {
            Self::Take(_) | Self::Charge(_) => false,
            Self::Refund(_) | Self::Undo { .. } => true,
            Self::Reservation(step) => step.can_give_back(),
        }
    }

    /// Whether it asks for capacity, and can be refused. A peek does, too.
    #[inline]
    pub const fn can_be_refused(self) -> bool {
        matches!(
            self,
            Self::Take(_) | Self::Reservation(Step::Reserve { .. })
        )
    }

    /// The number of hits that need capacity: 0 when hits are given back.
    #[inline]
    pub const fn requested(self) -> u64 {
        match self {
            Self::Take(hits) | Self::Reservation(Step::Reserve { hits, .. }) => hits,
            Self::Refund(_) | Self::Undo { .. } | Self::Charge(_) | Self::Reservation(_) => 0,
        }
    }
}

// === impl Holder ===

impl Holder {
    /// The holder with that hash. The hash 0, which would mean no holder, becomes 1.
    #[inline]
    pub const fn from_hash(hash: u64) -> Self {
        match NonZeroU64::new(hash) {
            Some(hash) => Self(hash),
            None => Self(NonZeroU64::MIN),
        }
    }
}

// === impl Operation ===

impl From<Hits> for Operation {
    /// An operation without a holder.
    fn from(hits: Hits) -> Self {
        Self { hits, holder: None }
    }
}

// === impl Request ===

impl<'a> Request<'a> {
    /// A request in `domain` with no descriptor yet.
    #[inline]
    pub fn new(domain: &'a [u8]) -> Self {
        Self {
            domain,
            ..Self::default()
        }
    }

    /// Clears the request for use in another domain. Keeps its allocations.
    #[inline]
    pub fn reset(&mut self, domain: &'a [u8]) {
        self.domain = domain;
        self.entries.clear();
        self.descriptors.clear();
        self.limits.clear();
    }

    /// Appends a descriptor.
    #[inline]
    pub fn push_descriptor(
        &mut self,
        entries: impl IntoIterator<Item = Entry<'a>>,
        hits: Hits,
        limit: Option<Override>,
    ) {
        self.entries.extend(entries);
        self.finish_descriptor(hits);
        if let Some(limit) = limit {
            self.set_limit(limit);
        }
    }

    /// Appends an entry to the descriptor that [`Request::finish_descriptor`] will finish.
    #[inline]
    pub fn push_entry(&mut self, entry: Entry<'a>) {
        self.entries.push(entry);
    }

    /// Makes a descriptor of the entries since the last one. Its hits are not explicit, and it
    /// carries no limit.
    #[inline]
    pub fn finish_descriptor(&mut self, hits: Hits) {
        let start = self.descriptors.last().map_or(0, |parts| parts.entries.end);
        self.descriptors.push(DescriptorParts {
            entries: start..self.entries.len(),
            hits,
            has_explicit_hits: false,
            limit: None,
        });
    }

    /// Sets the limit that the last descriptor carries.
    #[cold]
    pub fn set_limit(&mut self, limit: Override) {
        if let Some(parts) = self.descriptors.last_mut() {
            parts.limit = Some(self.limits.len());
            self.limits.push(limit);
        }
    }

    /// Notes that the request said how many hits the last descriptor takes: with the id of a
    /// reservation, explicit hits are its start (0) or its end.
    #[inline]
    pub fn set_explicit_hits(&mut self) {
        if let Some(parts) = self.descriptors.last_mut() {
            parts.has_explicit_hits = true;
        }
    }

    /// An empty request with the allocations of this one, for texts with another lifetime.
    #[must_use]
    #[inline]
    pub fn recycle<'b>(mut self) -> Request<'b> {
        self.reset(&[]);
        Request {
            domain: &[],
            // The iterator is empty. `collect` reuses the allocation (the allocation tests check
            // it).
            entries: self.entries.into_iter().map(|_| NO_ENTRY).collect(),
            descriptors: self.descriptors,
            limits: self.limits,
        }
    }

    /// The number of descriptors.
    #[inline]
    pub fn len(&self) -> usize {
        self.descriptors.len()
    }

    /// Whether there is no descriptor.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// The descriptors in the order sent.
    #[inline]
    pub fn descriptors(&self) -> impl ExactSizeIterator<Item = Descriptor<'_, 'a>> {
        self.descriptors.iter().map(|parts| Descriptor {
            entries: self.entries.get(parts.entries.clone()).unwrap_or_default(),
            hits: parts.hits,
            has_explicit_hits: parts.has_explicit_hits,
            limit: parts.limit.and_then(|limit| self.limits.get(limit)),
        })
    }
}
