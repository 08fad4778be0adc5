//! The question as asked: a domain, and descriptors to check in it.
//!
//! Why borrowed and flat: a request lives for one decision, its texts are slices of the message it came in, and two
//! vectors hold all of it however many descriptors there are. Keys and values are bytes: they hold what a stranger's
//! header held, and bytes are not text until proven.
//!
//! What it deliberately does not do: know protobuf, judge what was asked, copy a value.

use std::num::NonZeroU64;
use std::ops::Range;

use super::limit::Limit;
use super::timestamp::Timestamp;

/// One key and its value, as sent.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Entry<'a> {
    /// The key, not empty in practice and never assumed to be.
    pub key: &'a [u8],
    /// The value, often empty.
    pub value: &'a [u8],
}

/// How many hits one descriptor takes or gives back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hits {
    /// Take this many; 0 only looks.
    Take(u64),
    /// Give this many back. Never refused, floored at an unused bucket.
    Refund(u64),
    /// Undo a take that led to nothing: as far as it still weighs, and never so that more could pass than if it had not
    /// been. No caller asks for it; a store does.
    Undo {
        /// How many were taken.
        hits: u64,
        /// When, by the bucket's own time.
        taken_at: Timestamp,
    },
}

/// Who holds a slot, as a keyed hash of the id sent: two ids meet once in 2^64, and nobody can aim.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Holder(pub NonZeroU64);

/// What a bucket is asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Operation {
    /// Taking or giving back how much.
    pub hits: Hits,
    /// On whose behalf, where slots have holders; none is anonymous.
    pub holder: Option<Holder>,
}

/// A limit that came with the request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Override {
    /// It applies in place of the configured one, in a bucket of its own.
    Limit(Limit),
    /// Its unit is 0 or undefined. The configured rule applies and a counter says so: an error would let the caller
    /// through.
    Invalid,
}

/// One descriptor of a request, seen through it.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'r, 'a> {
    /// The entries in the order sent. There may be none.
    pub entries: &'r [Entry<'a>],
    /// What it takes or gives back.
    pub hits: Hits,
    /// The limit it brought along, if any.
    pub limit: Option<Override>,
}

/// A whole request. Build it with [`Request::new`] and [`Request::push`].
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// The namespace of the limits, as sent.
    pub domain: &'a [u8],
    /// The entries of all descriptors, one after the other.
    entries: Vec<Entry<'a>>,
    /// What each descriptor is besides its entries, and where those lie in `entries`.
    descriptors: Vec<DescriptorParts>,
}

#[derive(Clone, Debug)]
struct DescriptorParts {
    entries: Range<usize>,
    hits: Hits,
    limit: Option<Override>,
}

/// In place of an entry where there is none.
const NO_ENTRY: Entry<'static> = Entry {
    key: &[],
    value: &[],
};

// === impl Entry ===

impl Entry<'_> {
    /// `key_value`, or `key` beside an empty value: for people and labels. What is not UTF-8 is replaced.
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
    /// Takes nothing: is the bucket within its limit as it stands?
    pub const PEEK: Self = Self::Take(0);

    /// The number, taken or given back.
    pub const fn count(self) -> u64 {
        match self {
            Self::Take(hits) | Self::Refund(hits) | Self::Undo { hits, .. } => hits,
        }
    }

    /// What these hits ask a bucket to make room for: nothing, when they are given back.
    pub const fn requested(self) -> u64 {
        match self {
            Self::Take(hits) => hits,
            Self::Refund(_) | Self::Undo { .. } => 0,
        }
    }
}

// === impl Holder ===

impl Holder {
    /// The holder of that hash; the one hash that means nobody becomes its neighbour.
    pub const fn from_hash(hash: u64) -> Self {
        match NonZeroU64::new(hash) {
            Some(hash) => Self(hash),
            None => Self(NonZeroU64::MIN),
        }
    }
}

// === impl Ask ===

impl From<Hits> for Operation {
    /// Asked by nobody in particular.
    fn from(hits: Hits) -> Self {
        Self { hits, holder: None }
    }
}

// === impl Request ===

impl<'a> Request<'a> {
    /// A request in `domain` with no descriptor yet.
    pub fn new(domain: &'a [u8]) -> Self {
        Self {
            domain,
            entries: Vec::new(),
            descriptors: Vec::new(),
        }
    }

    /// Makes it a request in `domain` with no descriptor yet. What it had is forgotten, but for the room it took.
    pub fn reset(&mut self, domain: &'a [u8]) {
        self.domain = domain;
        self.entries.clear();
        self.descriptors.clear();
    }

    /// Adds a descriptor after those already there.
    pub fn push_descriptor(
        &mut self,
        entries: impl IntoIterator<Item = Entry<'a>>,
        hits: Hits,
        limit: Option<Override>,
    ) {
        self.entries.extend(entries);
        self.finish_descriptor(hits, limit);
    }

    /// Adds an entry to the descriptor that [`Request::finish_descriptor`] will end.
    pub fn push_entry(&mut self, entry: Entry<'a>) {
        self.entries.push(entry);
    }

    /// Makes a descriptor of the entries since the last one.
    pub fn finish_descriptor(&mut self, hits: Hits, limit: Option<Override>) {
        let start = self.descriptors.last().map_or(0, |head| head.entries.end);
        self.descriptors.push(DescriptorParts {
            entries: start..self.entries.len(),
            hits,
            limit,
        });
    }

    /// An empty request that takes over the room of this one, for texts that live elsewhere.
    #[must_use]
    pub fn recycle<'b>(mut self) -> Request<'b> {
        self.reset(&[]);
        Request {
            domain: &[],
            // Nothing is left to map; the vector's memory goes along (`service/door/allocations` holds it).
            entries: self.entries.into_iter().map(|_| NO_ENTRY).collect(),
            descriptors: self.descriptors,
        }
    }

    /// How many descriptors there are.
    pub fn len(&self) -> usize {
        self.descriptors.len()
    }

    /// Whether there is no descriptor.
    pub fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// The descriptors in the order sent.
    pub fn descriptors(&self) -> impl ExactSizeIterator<Item = Descriptor<'_, 'a>> {
        self.descriptors.iter().map(|head| Descriptor {
            entries: self.entries.get(head.entries.clone()).unwrap_or_default(),
            hits: head.hits,
            limit: head.limit,
        })
    }
}
