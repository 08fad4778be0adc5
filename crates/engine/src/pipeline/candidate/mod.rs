//! Candidates: rules that are decided beside those in force, and never enforced.
//!
//! A candidate is a rule set of its own (`--candidate`), or the limits that rules name in
//! `rate_limit.candidate`. It belongs to a generation of the rules in force, so a request keeps
//! both. Its buckets are in memory partitions of their own: they take no space from the live
//! buckets, also where those are in a shared store.
//!
//! A request is decided by the candidate after its response was written: its message and the live
//! verdict move to the memory of a request of the candidate (`decide`). Without a candidate a
//! request costs two comparisons.
//!
//! What it deliberately does not do: delay or change a response. A full queue skips the decision
//! and counts it.

mod batcher;
mod decide;

use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use self::batcher::CandidateBatcher;
use tollgate_store::memory::{MemoryLimits, MemoryStore, WhenFull};
use tollgate_store::{Store, Worker};
use tollgate_system::clock::Clock;
use tollgate_telemetry::metrics::Metrics;

/// The partitions in which candidates count.
pub struct CandidatePartitions(pub(super) Arc<dyn Store>);

// === impl CandidatePartitions ===

impl CandidatePartitions {
    /// Partitions with these limits, and their workers, which the caller runs.
    ///
    /// # Errors
    ///
    /// When tollgate has a defect.
    pub fn new(
        limits: MemoryLimits,
        clock: &Arc<dyn Clock>,
        metrics: &Metrics,
    ) -> Result<(Self, Vec<Worker>), String> {
        let limits = MemoryLimits {
            // A shared bucket would give a verdict that means nothing: such a check is skipped.
            when_full: WhenFull::Error,
            ..limits
        };
        // Metrics of their own: those of buckets are of live buckets.
        let own = Metrics::new().map_err(|error| error.to_string())?;
        let own = Arc::new(own);
        let (store, workers) = MemoryStore::pair(&limits, clock, &own);
        let memory_max = i64::try_from(limits.memory_max).unwrap_or(i64::MAX);
        metrics.candidates.memory_max_bytes.set(memory_max);
        let levels = store.inspect().partitions;
        metrics.candidates.memory_bytes.read_from(move || {
            let bytes = levels.iter().map(|one| one.bytes.load(Ordering::Relaxed));
            bytes.fold(0, usize::saturating_add) as u64
        });
        let workers = workers.into_iter();
        let workers = workers.map(|worker| Box::pin(worker.run()) as Worker);
        Ok((Self(Arc::new(store)), workers.collect()))
    }
}
