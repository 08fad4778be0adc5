//! Metrics of partitions: what each holds, read when metrics are.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use prometheus::proto::MetricFamily;

use super::declaration::{LabelValues, MetricRegistry, metrics};
use super::gauges::CollectedGauges;
use tollgate_system::per_thread::lock;

const PARTITIONS: LabelValues = LabelValues::Bounded("number of partitions");

metrics! {
    /// Gauges of partitions.
    pub(super) struct PartitionGauges {
        /// Checks in the queue of a partition.
        CollectedGauges "tollgate_mailbox_checks" [partition: PARTITIONS] => mailbox_checks;

        /// Buckets in the table of a partition.
        CollectedGauges "tollgate_buckets" [partition: PARTITIONS] => buckets;

        /// Marks (logged hits, segments, slots) that the buckets of a partition have space for.
        CollectedGauges "tollgate_marks" [partition: PARTITIONS] => marks;

        /// Open reservations in the buckets of a partition; those in a shared store are not
        /// counted.
        CollectedGauges "tollgate_reservations_open" [partition: PARTITIONS] => reservations_open;

        /// Bytes that the buckets, marks and reserves for growth of a partition use.
        CollectedGauges "tollgate_memory_bytes" [partition: PARTITIONS] => memory_bytes;
    }
}

/// The levels of all partitions.
#[derive(Debug)]
pub(super) struct Partitions {
    gauges: PartitionGauges,
    levels: Mutex<Vec<Arc<PartitionLevels>>>,
}

/// Gauges of a partition, written by its worker and read when metrics are.
#[derive(Debug, Default)]
pub struct PartitionLevels {
    /// Checks in the queue.
    pub waiting: AtomicUsize,
    /// Buckets in the table.
    pub buckets: AtomicUsize,
    /// Marks that its buckets have space for.
    pub marks: AtomicUsize,
    /// Bytes of the heap that it uses.
    pub bytes: AtomicUsize,
    /// Records of reservations: open, settled and refused.
    pub records: AtomicUsize,
    /// Open reservations.
    pub open: AtomicUsize,
    /// Checks that passed since the start.
    pub admitted: AtomicU64,
    /// Checks that were over their limit since the start.
    pub refused: AtomicU64,
    /// Idle buckets freed since the start.
    pub freed: AtomicU64,
    /// Buckets forgotten since the start: evicted for space before they were idle.
    pub forgotten: AtomicU64,
}

// === impl PartitionLevels ===

impl PartitionLevels {
    /// Sets how many checks were refused and how many passed since the start.
    #[inline]
    pub fn set_decided(&self, [refused, admitted]: [u64; 2]) {
        self.refused.store(refused, Ordering::Relaxed);
        self.admitted.store(admitted, Ordering::Relaxed);
    }
}

/// Counts a check that was refused, or that passed.
#[inline]
pub fn count_decided([refused, admitted]: &mut [u64; 2], allowed: bool) {
    let count = if allowed { admitted } else { refused };
    *count = count.wrapping_add(1);
}

// === impl Partitions ===

impl Partitions {
    pub(super) fn new(registry: &mut MetricRegistry) -> Result<Self, prometheus::Error> {
        Ok(Self {
            gauges: PartitionGauges::new(registry)?,
            levels: Mutex::default(),
        })
    }

    /// New levels for the partition of this number.
    pub(super) fn levels(&self, number: usize) -> Arc<PartitionLevels> {
        let mut partitions = lock(&self.levels);
        let levels = Arc::new(PartitionLevels::default());
        if partitions.len() <= number {
            partitions.resize_with(number.saturating_add(1), Arc::default);
        }
        if let Some(slot) = partitions.get_mut(number) {
            *slot = Arc::clone(&levels);
        }
        levels
    }

    /// The families of all partitions.
    pub(super) fn families(&self) -> [MetricFamily; 5] {
        let partitions = lock(&self.levels);
        let numbers: Vec<_> = (0..partitions.len())
            .map(|number| number.to_string())
            .collect();
        let of = |gauges: &CollectedGauges, level: fn(&PartitionLevels) -> &AtomicUsize| {
            gauges
                .0
                .of(numbers.iter().zip(&*partitions).map(|(number, levels)| {
                    let level = level(levels).load(Ordering::Relaxed);
                    ([number.as_str()], level as u64)
                }))
        };
        let gauges = &self.gauges;
        [
            of(&gauges.mailbox_checks, |levels| &levels.waiting),
            of(&gauges.buckets, |levels| &levels.buckets),
            of(&gauges.marks, |levels| &levels.marks),
            of(&gauges.reservations_open, |levels| &levels.open),
            of(&gauges.memory_bytes, |levels| &levels.bytes),
        ]
    }
}
