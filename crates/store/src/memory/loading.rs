//! Loads the buckets of a snapshot into partitions, before their workers run.
//!
//! Each bucket goes to the partition that its key chooses now, so the number of partitions may
//! differ from that of the snapshot. One that would be swept now is dropped: it has reset. Times
//! stay as they were, and the two clock laws apply to them as in a process that went on running:
//! a clock that was set back admits nothing more.
//!
//! A file has the buckets in the order of a scan. Inserted as they come, they would all belong to
//! a few segments of a small table, and there to a few slots: each insertion would move many
//! others. So a table gets its segments first, and the buckets of a block go in with steps in
//! between.
//!
//! The memory limit applies as always: where space is short, buckets that are not exhausted are
//! evicted, and a bucket for which there is no space is dropped and counted.

use std::io::Read;
use std::sync::MutexGuard;

use super::PartitionWorker;
use super::bucket::{Bucket, BucketMeta};
use super::decider::PartitionDecider;
use super::eviction::SpaceRequest;
use super::marks_table::bytes_of;
use super::partition::Partition;
use crate::queue::partition_of;
use crate::snapshot::{Block, ReadError, Reader, SavedBucket};
use tollgate_limiter::{Ledger, Timestamp};

/// Of a block, the bucket after one that is inserted is this many places behind it.
const STEP: usize = 16;

/// What became of the buckets of a snapshot.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LoadCounts {
    /// Buckets that count on.
    pub loaded: u64,
    /// Open reservations of these.
    pub reservations: u64,
    /// Buckets that have reset meanwhile.
    pub expired: u64,
    /// Buckets for which there is no space, and shared buckets of other partitions.
    pub no_space: u64,
}

/// Loads a snapshot into the partitions of these workers. After an error they are empty.
///
/// # Errors
///
/// When the snapshot is damaged.
pub fn load<R: Read>(
    workers: &mut [PartitionWorker],
    reader: &mut Reader<R>,
    now: Timestamp,
) -> Result<LoadCounts, ReadError> {
    let mut partitions: Vec<_> = workers.iter().map(PartitionWorker::decider).collect();
    let loaded = load_blocks(&mut partitions, reader, now);
    if loaded.is_err() {
        for decider in &mut partitions {
            decider.partition.clear();
        }
    }
    loaded
}

fn load_blocks<R: Read>(
    partitions: &mut [MutexGuard<'_, PartitionDecider>],
    reader: &mut Reader<R>,
    now: Timestamp,
) -> Result<LoadCounts, ReadError> {
    let mut counts = LoadCounts::default();
    let partitions_before = usize::try_from(reader.header().partitions).unwrap_or(usize::MAX);
    let mut buckets = Vec::new();
    while let Some(block) = reader.next_block()? {
        presize(partitions, &block, partitions_before);
        buckets.clear();
        block.for_each(|bucket| buckets.push(Some(bucket)))?;
        let own = (partitions_before == partitions.len())
            .then(|| usize::try_from(block.partition()).ok())
            .flatten();
        for first in 0..STEP {
            for bucket in buckets.iter_mut().skip(first).step_by(STEP) {
                if let Some(bucket) = bucket.take() {
                    load_bucket(partitions, bucket, own, now, &mut counts);
                }
            }
        }
    }
    // Later buckets may have evicted earlier ones.
    for decider in partitions {
        let evicted = &decider.partition.tables.counts;
        let evicted = evicted.freed + evicted.forgotten;
        counts.loaded = counts.loaded.saturating_sub(evicted);
        counts.no_space += evicted;
    }
    Ok(counts)
}

/// Makes empty tables as large as they will be. Keys are hashed, so all partitions are of about one
/// size.
fn presize(
    partitions: &mut [MutexGuard<'_, PartitionDecider>],
    block: &Block,
    partitions_before: usize,
) {
    let own = usize::try_from(block.partition_buckets()).unwrap_or(usize::MAX);
    let each = own.saturating_mul(partitions_before) / partitions.len().max(1);
    for decider in partitions {
        let tables = &mut decider.partition.tables;
        // A file may name more buckets than it has.
        let most = tables.bytes_max / size_of::<Bucket>();
        tables.buckets.presize(each.min(most), tables.bytes_max);
    }
}

/// `own` is the number of the partition that the bucket was in, if it is the same one now.
fn load_bucket(
    partitions: &mut [MutexGuard<'_, PartitionDecider>],
    bucket: SavedBucket,
    own: Option<usize>,
    now: Timestamp,
    counts: &mut LoadCounts,
) {
    if now.since_us(bucket.state.updated_at) >= bucket.life_us {
        counts.expired += 1;
        return;
    }
    let number = if Partition::is_shared(bucket.key) {
        // Which of other partitions its keys have is unknown.
        own.unwrap_or(usize::MAX)
    } else {
        partition_of(bucket.key, partitions.len())
    };
    let partition = partitions
        .get_mut(number)
        .map(|decider| &mut decider.partition);
    let open = bucket.state.marks.ledger().map_or(0, Ledger::open) as u64;
    if partition.is_some_and(|partition| partition.load(bucket, now)) {
        counts.loaded += 1;
        counts.reservations += open;
    } else {
        counts.no_space += 1;
    }
}

// === impl Partition ===

impl Partition {
    /// Adds a bucket of a snapshot. Returns whether there was space. A snapshot has each bucket
    /// once; of two, the first stays.
    fn load(&mut self, mut saved: SavedBucket, now: Timestamp) -> bool {
        let (key, marks) = (saved.key, std::mem::take(&mut saved.state.marks));
        let need = SpaceRequest {
            key,
            bucket: true,
            marks_bytes: (!marks.is_none()).then(|| bytes_of(&marks)),
            shared: Self::is_shared(key),
        };
        if self.tables.buckets.find(key).is_some() || !self.tables.make_space(&need, now) {
            return false;
        }
        let meta = BucketMeta {
            exhausted: saved.exhausted,
            marked: !marks.is_none(),
            reset_us: saved.reset_us,
            life_us: saved.life_us,
        };
        self.tables
            .buckets
            .put(Bucket::new(key, &saved.state, meta));
        self.tables.marks.keep(key, marks);
        true
    }
}

#[cfg(any(test, fuzzing))]
mod tests;

#[cfg(any(test, fuzzing))]
pub use self::tests::fuzz_harness;
