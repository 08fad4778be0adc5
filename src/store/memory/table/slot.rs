//! The parts of a table: slots, blocks of slots, and the heap bytes of a block.

use tollgate_limiter::Key;

/// An entry of a table, or a free slot.
pub(crate) trait Slot: Default {
    /// The key: a keyed hash, which the table uses as it is.
    fn key(&self) -> Key;

    /// Whether the slot is free; the default is.
    fn is_free(&self) -> bool;

    /// Whether [`Table::forget`](super::Table::forget) must leave it.
    fn is_kept(&self) -> bool;
}

/// How many slots a block has.
pub(crate) const BLOCK_SLOTS: usize = 64;

/// A row of slots, allocated together.
pub(super) type Block<S> = Box<[S]>;

/// The heap bytes of an allocation of `count` values, with what a usual allocator adds.
pub(crate) fn allocated<T>(count: usize) -> usize {
    match count.saturating_mul(size_of::<T>()) {
        0 => 0,
        bytes => bytes.saturating_add(8).max(24).next_multiple_of(16),
    }
}
