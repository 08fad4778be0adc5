//! The marks of those buckets that have any: a table beside the buckets'.
//!
//! Why beside: most buckets have none, and would carry a pointer for nothing. Why counted in bytes: one bucket may need ten
//! thousand marks and another four.
//!
//! What it deliberately does not do: decide whose marks go. They go with their bucket.

use super::bucket::{Bucket, BucketMeta};
use super::table::{Slot, Table, allocated};
use tollgate_limiter::{Key, Mark, Marks, Timestamp};

/// See the file's own words.
#[derive(Debug)]
pub(super) struct MarksTable {
    table: Table<Marked>,
    /// For how many marks there is room.
    room: usize,
    /// What that room takes of the heap.
    heap: usize,
}

/// The marks of one bucket.
#[derive(Debug, Default)]
struct Marked {
    key: [u64; 2],
    marks: Marks,
}

/// For how many there is room when the first comes.
const FIRST_MARKS: usize = 4;

/// What these marks take of the heap.
fn heap(room: usize) -> usize {
    match room {
        0 => 0,
        room => allocated::<Mark>(room).saturating_add(allocated::<u8>(Marks::HEAP_BYTES)),
    }
}

// === impl MarksTable ===

impl MarksTable {
    pub(super) fn new() -> Self {
        Self {
            table: Table::new(),
            room: 0,
            heap: 0,
        }
    }

    /// For how many marks there is room.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// What all of it takes of the heap.
    pub(super) fn bytes(&self) -> usize {
        self.table.bytes().saturating_add(self.heap)
    }

    /// How much more of the heap another mark of this bucket would take; none when it has room for one. While a row of
    /// marks grows there are two.
    pub(super) fn bytes_for_one_more(&self, key: Key) -> Option<usize> {
        let marked = self.table.find(key).and_then(|place| self.table.get(place));
        match marked.map(|marked| (marked.marks.len(), marked.marks.capacity())) {
            None => Some(Self::first_bytes()),
            Some((len, room)) if len >= room => Some(heap(room.saturating_mul(2))),
            Some(_) => None,
        }
    }

    /// What the first mark of a bucket takes.
    pub(super) fn first_bytes() -> usize {
        heap(FIRST_MARKS)
    }

    /// Makes a place for the marks of this bucket, with no more than `bytes_max` for all there is. Says whether there is one.
    pub(super) fn make_room(&mut self, key: Key, bytes_max: usize) -> bool {
        self.table.find(key).is_some()
            || self
                .table
                .make_room(key, bytes_max.saturating_sub(self.heap))
    }

    /// Takes the marks of a bucket out, to be kept again at once.
    pub(super) fn lift(&mut self, key: Key) -> Marks {
        let Some(place) = self.table.find(key) else {
            return Marks::default();
        };
        let marks = self.table.lift(place).marks;
        self.uncount(&marks);
        marks
    }

    /// Keeps the marks of a bucket, for which there is a place.
    pub(super) fn keep(&mut self, key: Key, marks: Marks) {
        if marks.capacity() > 0 {
            self.room = self.room.saturating_add(marks.capacity());
            self.heap = self.heap.saturating_add(heap(marks.capacity()));
            self.table.put(Marked {
                key: key.to_halves(),
                marks,
            });
        }
    }

    /// Drops the marks of a bucket that goes.
    pub(super) fn release(&mut self, bucket: &Bucket) {
        if bucket.is_marked()
            && let Some(place) = self.table.find(bucket.key())
        {
            let marks = self.table.remove(place).marks;
            self.uncount(&marks);
        }
    }

    /// The second clock law, for a bucket that nobody asks.
    pub(super) fn bring_back(&mut self, bucket: &mut Bucket, now: Timestamp) {
        let (mut state, meta): (_, BucketMeta) = (bucket.state(), bucket.meta());
        if meta.marked {
            state.marks = self.lift(bucket.key());
        }
        state.rewind(now);
        let marks = std::mem::take(&mut state.marks);
        *bucket = Bucket::new(bucket.key(), &state, meta);
        self.keep(bucket.key(), marks);
    }

    /// Gives to the allocator what is not in use.
    pub(super) fn give_back_spare(&mut self) {
        self.table.give_back_spare();
    }

    fn uncount(&mut self, marks: &Marks) {
        self.room = self.room.saturating_sub(marks.capacity());
        self.heap = self.heap.saturating_sub(heap(marks.capacity()));
    }
}

impl Slot for Marked {
    fn key(&self) -> Key {
        Key::from_halves(self.key)
    }

    fn is_free(&self) -> bool {
        self.marks.capacity() == 0
    }

    fn is_kept(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_of_a_bucket_take_a_place_of_24_bytes() {
        assert_eq!((size_of::<Marked>(), size_of::<Mark>()), (24, 24));
    }
}
