//! Copies the buckets of partitions for a snapshot, in slices.
//!
//! The thread that writes a snapshot does not touch a partition. It asks the partition's worker for
//! one slice after the other; the worker answers between batches of checks. A slice has about a
//! thousand buckets, so a check waits some hundred microseconds longer at most. Only a bucket with
//! more marks than that makes a slice larger. Smaller slices were tried: an eighth made a snapshot
//! take three times as long, and checks in a running service waited no less.
//!
//! So a snapshot is not one instant over all buckets: each bucket is in it at most once, as it was
//! when it was copied. A bucket that is there from the first slice to the last is in it.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::bucket::Bucket;
use super::partition::Partition;
use super::table::{SCAN_END, ScanCursor, Slot as _};
use crate::snapshot::{Block, SavedBucket};
use tollgate_limiter::{Key, Ledger, Marks};

/// What a slice may weigh before it ends. A bucket and a mark weigh 1, a record of a reservation 4.
/// It can be exceeded by a segment of the table or by the marks of one bucket.
const SLICE_WEIGHT: usize = 512;

/// The weight of a record of a reservation: it is in a tree.
const RECORD_WEIGHT: usize = 4;

/// Asks the workers of all partitions for copies.
#[derive(Clone, Debug)]
pub struct BucketCopier {
    partitions: Arc<[mpsc::UnboundedSender<CopyRequest>]>,
}

/// A partition's worker has ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the worker of a partition has ended")]
pub struct CopyFailed;

/// A request for the next slice of a partition.
#[derive(Debug)]
pub(super) struct CopyRequest {
    slice: Box<Slice>,
    reply: oneshot::Sender<Box<Slice>>,
}

/// How far a copy of a partition is, and its next buckets.
#[derive(Debug, Default)]
struct Slice {
    cursor: ScanCursor,
    /// Buckets with marks behind the cursor that are not copied yet.
    marked: Vec<Key>,
    block: Block,
}

// === impl BucketCopier ===

impl BucketCopier {
    pub(super) fn new(partitions: Vec<mpsc::UnboundedSender<CopyRequest>>) -> Self {
        Self {
            partitions: partitions.into(),
        }
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> usize {
        self.partitions.len()
    }

    /// Copies all buckets, a slice at a time, and passes each to `write`, which gives it back.
    /// Blocks the calling thread, which must be no worker's.
    ///
    /// # Errors
    ///
    /// The first error of `write`, or that a worker has ended.
    pub fn copy_all<E: From<CopyFailed>>(
        &self,
        mut write: impl FnMut(Block) -> Result<Block, E>,
    ) -> Result<(), E> {
        let mut slice = Box::<Slice>::default();
        for (number, partition) in (0..).zip(self.partitions.iter()) {
            slice.cursor = 0;
            slice.marked.clear();
            while !slice.is_last() {
                slice.block.clear(number);
                let (reply, answer) = oneshot::channel();
                partition
                    .send(CopyRequest { slice, reply })
                    .map_err(|_| CopyFailed)?;
                slice = answer.blocking_recv().map_err(|_| CopyFailed)?;
                slice.block = write(slice.block)?;
            }
        }
        Ok(())
    }
}

// === impl CopyRequest ===

impl CopyRequest {
    /// Copies the next buckets and sends them back.
    pub(super) fn answer(self, partition: &Partition) {
        let Self { mut slice, reply } = self;
        slice.copy_next(partition);
        // The thread that asked may have stopped.
        drop(reply.send(slice));
    }
}

// === impl Slice ===

impl Slice {
    fn is_last(&self) -> bool {
        self.cursor >= SCAN_END && self.marked.is_empty()
    }

    /// Copies the next buckets.
    fn copy_next(&mut self, partition: &Partition) {
        let buckets = &partition.tables.buckets;
        self.block.set_partition_buckets(buckets.len());
        let mut weight = 0;
        while weight < SLICE_WEIGHT {
            if let Some(key) = self.marked.pop() {
                weight += self.copy_marked(key, partition);
                continue;
            }
            if self.cursor >= SCAN_END {
                break;
            }
            // An empty segment costs something too.
            weight += 1;
            let (marked, block) = (&mut self.marked, &mut self.block);
            self.cursor = buckets.scan(self.cursor, |bucket| {
                weight += 1;
                if bucket.is_marked() {
                    marked.push(bucket.key());
                } else {
                    block.push(&saved(bucket), &Marks::default());
                }
            });
        }
    }

    /// Copies a bucket that had marks when the scan passed it. Returns what it weighs.
    fn copy_marked(&mut self, key: Key, partition: &Partition) -> usize {
        let buckets = &partition.tables.buckets;
        let Some(bucket) = buckets.find(key).and_then(|place| buckets.get(place)) else {
            return 1;
        };
        let none = Marks::default();
        let marks = partition.tables.marks.get(key).unwrap_or(&none);
        self.block.push(&saved(bucket), marks);
        let records = marks.ledger().map_or(0, Ledger::len);
        records * RECORD_WEIGHT + marks.len() + 1
    }
}

/// A bucket without its marks.
fn saved(bucket: &Bucket) -> SavedBucket {
    let meta = bucket.meta();
    SavedBucket {
        key: bucket.key(),
        state: bucket.state(),
        exhausted: meta.exhausted,
        reset_us: meta.reset_us,
        life_us: meta.life_us,
    }
}
