//! What is measured of buckets: how many, what they take, and checks that could not be decided.
//!
//! What it deliberately does not do: know the store that replicas share (`store`).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::{IntCounter, IntGauge, IntGaugeVec, Registry};

use super::register::{counter, counters, gauge, gauges};

/// The metrics of buckets.
#[derive(Debug)]
pub struct BucketMetrics {
    /// Checks not taken because a mailbox was full.
    pub shed_mailbox_full: IntCounter,
    /// Checks dropped undecided because their deadline had passed.
    pub shed_deadline: IntCounter,
    /// Checks dropped undecided because nobody waited for them.
    pub shed_caller_gone: IntCounter,
    /// Checks not decided because a partition had no room at all.
    pub shed_memory_full: IntCounter,
    /// Checks whose hits went back because their request did not pass.
    pub given_back: IntCounter,
    /// Bytes that all partitions may take together.
    pub memory_max_bytes: IntGauge,
    /// Buckets freed because they were as good as new.
    pub freed: IntCounter,
    /// Buckets forgotten for want of room before they were as good as new; none was exhausted.
    pub forgotten: IntCounter,
    /// Checks for whose bucket there was no room, and which were counted in one that they share.
    pub no_room_shared: IntCounter,
    /// The same, allowed.
    pub no_room_allowed: IntCounter,
    /// The same, denied.
    pub no_room_denied: IntCounter,
    mailbox_checks: IntGaugeVec,
    buckets: IntGaugeVec,
    marks: IntGaugeVec,
    memory_bytes: IntGaugeVec,
    partitions: Mutex<Vec<Arc<PartitionLevels>>>,
}

/// What a partition holds, written by those who use it and read when metrics are.
#[derive(Debug, Default)]
pub struct PartitionLevels {
    /// Checks in the mailbox.
    pub waiting: AtomicUsize,
    /// Buckets in the table.
    pub buckets: AtomicUsize,
    /// Marks that its buckets have room for.
    pub marks: AtomicUsize,
    /// Bytes of the heap that all that takes.
    pub bytes: AtomicUsize,
}

// === impl BucketMetrics ===

impl BucketMetrics {
    pub(super) fn new(r: &Registry) -> Result<Self, prometheus::Error> {
        let shed = counters(
            r,
            "tollgate_shed_total",
            "Checks that were not decided, by the bound that was met",
            &["reason"],
        )?;
        let no_room = counters(
            r,
            "tollgate_no_room_total",
            "Checks of keys for whose bucket there was no room, by what --on-memory-full made of them",
            &["answer"],
        )?;
        Ok(Self {
            shed_mailbox_full: shed.with_label_values(&["mailbox_full"]),
            shed_deadline: shed.with_label_values(&["deadline_passed"]),
            shed_caller_gone: shed.with_label_values(&["caller_gone"]),
            shed_memory_full: shed.with_label_values(&["memory_full"]),
            given_back: counter(
                r,
                "tollgate_given_back_total",
                "Checks whose hits went back because their request, all or nothing, did not pass",
            )?,
            memory_max_bytes: gauge(
                r,
                "tollgate_memory_max_bytes",
                "Bytes that all partitions may take together",
            )?,
            freed: counter(
                r,
                "tollgate_buckets_freed_total",
                "Buckets freed because they were as good as new",
            )?,
            forgotten: counter(
                r,
                "tollgate_buckets_forgotten_total",
                "Buckets forgotten for want of room before they were as good as new; none was exhausted",
            )?,
            no_room_shared: no_room.with_label_values(&["share"]),
            no_room_allowed: no_room.with_label_values(&["allow"]),
            no_room_denied: no_room.with_label_values(&["deny"]),
            mailbox_checks: gauges(
                r,
                "tollgate_mailbox_checks",
                "Checks that wait in a partition's mailbox",
                &["partition"],
            )?,
            buckets: gauges(
                r,
                "tollgate_buckets",
                "Buckets in a partition's table",
                &["partition"],
            )?,
            marks: gauges(
                r,
                "tollgate_marks",
                "Marks (logged hits, segments, slots) that a partition's buckets have room for",
                &["partition"],
            )?,
            memory_bytes: gauges(
                r,
                "tollgate_memory_bytes",
                "Bytes that a partition's buckets, marks and what they need to grow take",
                &["partition"],
            )?,
            partitions: Mutex::default(),
        })
    }

    /// Where the partition of this number keeps its levels.
    pub(super) fn levels(&self, number: usize) -> Arc<PartitionLevels> {
        let mut partitions = self
            .partitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let levels = Arc::new(PartitionLevels::default());
        if partitions.len() <= number {
            partitions.resize_with(number.saturating_add(1), Arc::default);
        }
        if let Some(slot) = partitions.get_mut(number) {
            *slot = Arc::clone(&levels);
        }
        levels
    }

    /// Tells readers how partitions are.
    pub(super) fn tell(&self) {
        let partitions = self
            .partitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (number, levels) in partitions.iter().enumerate() {
            let label = number.to_string();
            let set = |gauges: &IntGaugeVec, level: &AtomicUsize| {
                let level = i64::try_from(level.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
                gauges.with_label_values(&[&label]).set(level);
            };
            set(&self.mailbox_checks, &levels.waiting);
            set(&self.buckets, &levels.buckets);
            set(&self.marks, &levels.marks);
            set(&self.memory_bytes, &levels.bytes);
        }
    }
}
