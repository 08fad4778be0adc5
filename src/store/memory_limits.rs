//! The limits of the memory store.

/// The memory store's bounds.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimits {
    /// How many partitions; at least 1.
    pub partitions: usize,
    /// How many checks may wait in one partition's queue.
    pub queue_checks_max: usize,
    /// How many bytes buckets, marks (logged hits, segments, slots) and all that they need to grow may take together.
    pub memory_max: usize,
    /// What becomes of new keys when there is no room and nothing may be forgotten.
    pub when_full: WhenFull,
}

/// What becomes of a check for whose bucket there is no room.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WhenFull {
    /// It is counted in a bucket that all such keys of its rule share, one a partition.
    Share,
    /// It passes and is not counted.
    Allow,
    /// It is refused.
    Deny,
    /// It is not decided.
    Error,
}
