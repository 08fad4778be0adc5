//! A block: buckets of one partition as columns of numbers.
//!
//! Why columns: zstd compresses similar numbers in a row better, and a packed column is read
//! without a message for each bucket. Why fixed sizes: the memory of a block is that of its bytes,
//! whatever a file says.

use std::num::NonZeroU64;

use super::ReadError;
use tollgate_limiter::{
    Holder, Key, Ledger, Mark, Marks, REGISTER_MAX, SavedRecord, State, Timestamp,
};
use tollgate_wire::proto::tollgate::snapshot::v1 as proto;

/// Numbers of a mark.
const MARK_NUMBERS: usize = 3;

/// A bucket as a snapshot has it.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedBucket {
    /// Its key.
    pub key: Key,
    /// Its time, its registers and its marks.
    pub state: State,
    /// Whether its last outcome left nothing.
    pub exhausted: bool,
    /// How long after its last use it resets.
    pub reset_us: u64,
    /// How long after its last use it is kept.
    pub life_us: u64,
}

/// Buckets of one partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    pub(super) columns: proto::Block,
}

// === impl Block ===

impl Block {
    /// The number of the partition.
    pub fn partition(&self) -> u32 {
        self.columns.partition
    }

    /// How many buckets its partition had when they were copied.
    pub fn partition_buckets(&self) -> u64 {
        self.columns.partition_buckets
    }

    /// Sets how many buckets its partition has.
    pub fn set_partition_buckets(&mut self, buckets: usize) {
        self.columns.partition_buckets = buckets as u64;
    }

    /// How many buckets it has.
    pub fn len(&self) -> usize {
        self.columns.key_upper.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Empties it for buckets of this partition. Its memory stays, unless it is that of a bucket
    /// with very many marks.
    pub fn clear(&mut self, partition: u32) {
        const KEPT: usize = 1 << 16;
        let columns = &mut self.columns;
        columns.partition = partition;
        columns.partition_buckets = 0;
        for column in [
            &mut columns.key_upper,
            &mut columns.key_lower,
            &mut columns.updated_at_us,
            &mut columns.register_0,
            &mut columns.register_1,
            &mut columns.reset_us,
            &mut columns.life_us,
            &mut columns.marks,
            &mut columns.records,
        ] {
            column.clear();
            column.shrink_to(KEPT);
        }
        columns.exhausted.clear();
        columns.marked.clear();
        columns.marks_count.clear();
        columns.records_count.clear();
    }

    /// Adds a bucket. Its state's marks are ignored in favour of `marks`, which the caller may keep
    /// elsewhere.
    pub fn push(&mut self, bucket: &SavedBucket, marks: &Marks) {
        let columns = &mut self.columns;
        let [upper, lower] = bucket.key.to_halves();
        let place = columns.key_upper.len();
        columns.key_upper.push(upper);
        columns.key_lower.push(lower);
        columns.updated_at_us.push(bucket.state.updated_at.as_us());
        let [first, second] = bucket.state.registers;
        columns.register_0.push(first);
        columns.register_1.push(second);
        columns.reset_us.push(bucket.reset_us);
        columns.life_us.push(bucket.life_us);
        columns.exhausted.push(bucket.exhausted);
        if marks.is_none() {
            return;
        }
        let small = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        columns.marked.push(small(place));
        columns.marks_count.push(small(marks.len()));
        columns.marks.extend(marks.iter().flat_map(|mark| {
            let holder = mark.holder.map_or(0, |holder| holder.0.get());
            [mark.at.as_us(), mark.hits, holder]
        }));
        let records = marks.ledger().into_iter().flat_map(Ledger::saved);
        let before = columns.records.len();
        columns.records.extend(records.flatten());
        let added = columns.records.len().saturating_sub(before) / RECORD_NUMBERS;
        columns.records_count.push(small(added));
    }

    /// Its buckets.
    ///
    /// # Errors
    ///
    /// When the columns contradict each other or have impossible numbers. The buckets before that
    /// were given.
    pub fn for_each(&self, mut take: impl FnMut(SavedBucket)) -> Result<(), ReadError> {
        const IMPOSSIBLE: ReadError = ReadError::Damaged("a bucket is impossible");
        let columns = &self.columns;
        let lengths = [
            &columns.key_lower,
            &columns.updated_at_us,
            &columns.register_0,
            &columns.register_1,
            &columns.reset_us,
            &columns.life_us,
        ];
        let count = columns.key_upper.len();
        let differ = lengths.iter().any(|column| column.len() != count)
            || columns.exhausted.len() != count
            || columns.marks_count.len() != columns.marked.len()
            || columns.records_count.len() != columns.marked.len();
        if differ {
            return Err(ReadError::Damaged("columns of a block differ in length"));
        }
        let mut marked = columns
            .marked
            .iter()
            .zip(columns.marks_count.iter().zip(&columns.records_count))
            .peekable();
        let mut rest = Rest {
            marks: &columns.marks,
            records: &columns.records,
        };
        let numbers = columns
            .updated_at_us
            .iter()
            .zip(columns.register_0.iter().zip(&columns.register_1))
            .zip(columns.reset_us.iter().zip(&columns.life_us));
        let keys = columns.key_upper.iter().zip(&columns.key_lower);
        let all = keys.zip(numbers).zip(&columns.exhausted).enumerate();
        for (place, (((upper, lower), (state, lives)), exhausted)) in all {
            let (updated_at, (first, second)) = state;
            let is_small = [updated_at, first, second]
                .iter()
                .all(|number| **number <= REGISTER_MAX);
            if !is_small {
                return Err(IMPOSSIBLE);
            }
            let is_here =
                |(at, _): &(&u32, (&u32, &u32))| usize::try_from(**at).is_ok_and(|at| at == place);
            let marks = match marked.next_if(is_here) {
                None => Marks::default(),
                Some((_, (marks, records))) => rest.take(*marks, *records).ok_or(IMPOSSIBLE)?,
            };
            take(SavedBucket {
                key: Key::from_halves([*upper, *lower]),
                state: State {
                    updated_at: Timestamp::from_us(*updated_at),
                    registers: [*first, *second],
                    marks,
                },
                exhausted: *exhausted,
                reset_us: *lives.0,
                life_us: *lives.1,
            });
        }
        if marked.next().is_some() || !rest.marks.is_empty() || !rest.records.is_empty() {
            return Err(ReadError::Damaged("marks of a block without a bucket"));
        }
        Ok(())
    }
}

/// Numbers of a record.
const RECORD_NUMBERS: usize = size_of::<SavedRecord>() / size_of::<u64>();

/// Marks and records that no bucket has taken yet.
struct Rest<'b> {
    marks: &'b [u64],
    records: &'b [u64],
}

// === impl Rest ===

impl Rest<'_> {
    /// The next marks and records; none when they are fewer or impossible.
    fn take(&mut self, marks: u32, records: u32) -> Option<Marks> {
        let numbers = usize::try_from(marks).ok()?.checked_mul(MARK_NUMBERS)?;
        let (own, rest) = self.marks.split_at_checked(numbers)?;
        self.marks = rest;
        let numbers = usize::try_from(records).ok()?.checked_mul(RECORD_NUMBERS)?;
        let (own_records, rest) = self.records.split_at_checked(numbers)?;
        self.records = rest;
        let (marks, _) = own.as_chunks::<MARK_NUMBERS>();
        let (records, _) = own_records.as_chunks::<RECORD_NUMBERS>();
        let is_small =
            |[at, hits, _]: &[u64; MARK_NUMBERS]| *at <= REGISTER_MAX && *hits <= REGISTER_MAX;
        if !marks.iter().all(is_small) {
            return None;
        }
        let marks = marks.iter().map(|[at, hits, holder]| Mark {
            at: Timestamp::from_us(*at),
            hits: *hits,
            holder: NonZeroU64::new(*holder).map(Holder),
        });
        let ledger = match records {
            [] => None,
            records => Some(Ledger::restore(records.iter().copied())?),
        };
        Marks::restore(marks, ledger)
    }
}
