//! The limits of the memory store.

/// The limits of the memory store.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimits {
    /// How many partitions; at least 1.
    pub partitions: usize,
    /// How many checks may wait in one partition's queue.
    pub queue_checks_max: usize,
    /// How many bytes buckets, marks (logged hits, segments, slots) and the memory that they need
    /// to grow may take together.
    pub memory_max: usize,
    /// What to do with new keys when there is no space and nothing may be evicted.
    pub when_full: WhenFull,
}

/// What to do with a check for whose bucket there is no space.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WhenFull {
    /// Count it in a bucket that all such keys of its rule share, one per partition.
    Share,
    /// Let it pass uncounted.
    Allow,
    /// Deny it.
    Deny,
    /// Answer with an error.
    Error,
}
