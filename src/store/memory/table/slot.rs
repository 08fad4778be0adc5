//! What a table is made of: slots in blocks, and what a block takes of the heap.

use tollgate_limiter::Key;

/// What stands in a slot, or nothing does.
pub(crate) trait Slot: Default {
    /// Whose it is; a keyed hash, which the table uses as it is.
    fn key(&self) -> Key;

    /// Whether nothing stands here; so it is by default.
    fn is_free(&self) -> bool;

    /// Whether [`Table::forget`] may not take it.
    fn is_kept(&self) -> bool;
}

/// How many slots a block has.
pub(crate) const BLOCK_SLOTS: usize = 64;

/// A row of slots, allocated together.
pub(super) type Block<S> = Box<[S]>;

/// What an allocation of so many `T` takes of the heap, with what a usual allocator adds.
pub(crate) fn allocated<T>(count: usize) -> usize {
    match count.saturating_mul(size_of::<T>()) {
        0 => 0,
        bytes => bytes.saturating_add(8).max(24).next_multiple_of(16),
    }
}
