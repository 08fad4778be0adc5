//! The marks of buckets that have any, in a separate table.
//!
//! Most buckets have no marks, and a pointer in each would be wasted. The table counts bytes, since
//! one bucket may have ten thousand marks and another four. Marks are removed with their bucket.

use super::bucket::{Bucket, BucketMeta};
use super::table::{Slot, Table, allocated};
use tollgate_limiter::{Key, Ledger, Mark, Marks, OnExpiry, Timestamp};

/// Marks by bucket key.
#[derive(Debug)]
pub(super) struct MarksTable {
    table: Table<Marked>,
    /// The capacity of all marks together.
    pub(super) capacity: usize,
    /// The heap bytes of that capacity, and of all reservations.
    heap: usize,
    /// The records of all reservations together.
    pub(super) records: usize,
    /// The open reservations of all buckets together.
    pub(super) open: usize,
    pub(super) counts: RecordCounts,
    /// Whether one of these numbers may have changed since it was last reset.
    pub(super) changed: bool,
}

/// What became of records of reservations without a request of their own.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct RecordCounts {
    /// Open reservations that expired, by what became of their hits.
    pub(super) charged: u64,
    pub(super) released: u64,
    /// Settled and refused records that were dropped for want of space.
    pub(super) dropped: u64,
    /// New reservations that were refused for want of memory.
    pub(super) without_space: u64,
    /// New reservations that were refused because their bucket had as many as it can.
    pub(super) too_many: u64,
}

/// The marks of one bucket.
#[derive(Debug, Default)]
struct Marked {
    key: [u64; 2],
    marks: Marks,
}

/// The capacity for a bucket's first mark.
const FIRST_MARKS: usize = 4;

/// The heap bytes of marks with this capacity.
fn heap(capacity: usize) -> usize {
    match capacity {
        0 => 0,
        capacity => allocated::<Mark>(capacity) + heap_of_box(),
    }
}

/// The heap bytes of marks without any mark.
fn heap_of_box() -> usize {
    allocated::<u8>(Marks::HEAP_BYTES)
}

/// The heap bytes of the marks and the reservations of a bucket.
pub(super) fn bytes_of(marks: &Marks) -> usize {
    let Some(ledger) = marks.ledger() else {
        return heap(marks.capacity());
    };
    let marks = heap(marks.capacity()).max(heap_of_box());
    marks + ledger.heap_bytes()
}

/// The open reservations that are charged when they expire, and those that are released.
pub(super) fn open_counts(ledger: &Ledger) -> [usize; 2] {
    [OnExpiry::Charge, OnExpiry::Release].map(|on_expiry| ledger.open_by(on_expiry))
}

// === impl MarksTable ===

impl MarksTable {
    pub(super) fn new() -> Self {
        Self {
            table: Table::new(),
            capacity: 0,
            heap: 0,
            records: 0,
            open: 0,
            counts: RecordCounts::default(),
            changed: false,
        }
    }

    /// Counts what became of records.
    pub(super) fn counts_mut(&mut self) -> &mut RecordCounts {
        self.changed = true;
        &mut self.counts
    }

    /// How many bytes of the heap the table takes.
    pub(super) fn bytes(&self) -> usize {
        self.table.bytes() + self.heap
    }

    /// How many more heap bytes another mark of this bucket needs; none when there is capacity for
    /// it. While marks grow, the old and the new allocation both exist.
    pub(super) fn bytes_for_one_more(&self, key: Key) -> Option<usize> {
        let marked = self.table.find(key).and_then(|place| self.table.get(place));
        match marked.map(|marked| (marked.marks.len(), marked.marks.capacity())) {
            None => Some(Self::first_bytes()),
            Some((len, capacity)) if len >= capacity => Some(heap(capacity.saturating_mul(2))),
            Some(_) => None,
        }
    }

    /// The heap bytes for the first mark of a bucket.
    pub(super) fn first_bytes() -> usize {
        heap(FIRST_MARKS)
    }

    /// The heap bytes that one more record of a reservation needs, with those of a bucket's first.
    pub(super) fn record_bytes() -> usize {
        heap_of_box() + Ledger::bytes_for_one_more()
    }

    /// Makes a slot for the marks of this bucket within `bytes_max` for the whole table. Returns
    /// whether there is one.
    pub(super) fn make_space(&mut self, key: Key, bytes_max: usize) -> bool {
        let bytes_max = bytes_max.saturating_sub(self.heap);
        self.table.find(key).is_some() || self.table.make_space(key, bytes_max)
    }

    /// The marks of a bucket, which stay here; none when it has none.
    pub(super) fn get(&self, key: Key) -> Option<&Marks> {
        let place = self.table.find(key)?;
        self.table.get(place).map(|marked| &marked.marks)
    }

    /// Takes the marks of a bucket out; the caller puts them back at once.
    pub(super) fn lift(&mut self, key: Key) -> Marks {
        let Some(place) = self.table.find(key) else {
            return Marks::default();
        };
        let marks = self.table.lift(place).marks;
        self.uncount(&marks);
        marks
    }

    /// Puts the marks of a bucket in, for which there is a slot.
    pub(super) fn keep(&mut self, key: Key, marks: Marks) {
        if !marks.is_none() {
            self.capacity += marks.capacity();
            self.heap += bytes_of(&marks);
            if let Some(ledger) = marks.ledger() {
                self.changed = true;
                self.records += ledger.len();
                self.open += ledger.open();
            }
            self.table.put(Marked {
                key: key.to_halves(),
                marks,
            });
        }
    }

    /// Drops the marks of a bucket that has reset. Its reservations are due.
    pub(super) fn release(&mut self, bucket: &Bucket) {
        if let Some(marks) = self.remove(bucket)
            && let Some(ledger) = marks.ledger()
        {
            let open = open_counts(ledger);
            self.counts_mut().add_expired(open, [0, 0]);
        }
    }

    /// Drops the marks of a bucket that is evicted. It has no open reservations.
    pub(super) fn evict(&mut self, bucket: &Bucket) {
        if let Some(marks) = self.remove(bucket)
            && let Some(ledger) = marks.ledger()
        {
            let records = ledger.len() as u64;
            let counts = self.counts_mut();
            counts.dropped += records;
        }
    }

    /// Removes the marks of a bucket that is removed.
    pub(super) fn remove(&mut self, bucket: &Bucket) -> Option<Marks> {
        if !bucket.is_marked() {
            return None;
        }
        let place = self.table.find(bucket.key())?;
        let marks = self.table.remove(place).marks;
        self.uncount(&marks);
        Some(marks)
    }

    /// Applies the second clock law to an idle bucket.
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

    /// Returns unused memory to the allocator.
    pub(super) fn give_back_spare(&mut self) {
        self.table.give_back_spare();
    }

    fn uncount(&mut self, marks: &Marks) {
        self.capacity = self.capacity.saturating_sub(marks.capacity());
        self.heap = self.heap.saturating_sub(bytes_of(marks));
        if let Some(ledger) = marks.ledger() {
            self.changed = true;
            self.records = self.records.saturating_sub(ledger.len());
            self.open = self.open.saturating_sub(ledger.open());
        }
    }
}

// === impl RecordCounts ===

impl RecordCounts {
    /// Counts expired reservations, by the numbers of open ones before and after.
    pub(super) fn add_expired(&mut self, before: [usize; 2], after: [usize; 2]) {
        let counts = [&mut self.charged, &mut self.released];
        for (count, (before, after)) in counts.into_iter().zip(before.into_iter().zip(after)) {
            *count += before.saturating_sub(after) as u64;
        }
    }
}

impl Slot for Marked {
    fn key(&self) -> Key {
        Key::from_halves(self.key)
    }

    fn is_free(&self) -> bool {
        self.marks.is_none()
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
