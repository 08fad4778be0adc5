//! Overrides that replicas share: reads them each second while the store has others than this
//! replica, and removes those that have ended.
//!
//! While the store does not answer, the overrides that were read last stay until their time.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::admin_api::{Override, parse_time};
use crate::clock::Clock;
use crate::pipeline::{Generations, Parts};
use crate::store::StoreFault;
use crate::store::shared::{Records, SharedRecords};
use tollgate_limiter::Timestamp;

/// How often the version of the overrides is read.
const INTERVAL: Duration = Duration::from_secs(1);

/// Reads the overrides of a shared store for ever.
pub(super) struct SharedOverrides {
    records: Arc<dyn SharedRecords>,
    generations: Arc<Generations>,
    clock: Arc<dyn Clock>,
}

/// What was read last.
#[derive(Default)]
struct Known {
    records: Records,
    /// The ends of the records; none for one that cannot be read.
    ends: Vec<Option<Timestamp>>,
    fault: Option<StoreFault>,
}

// === impl SharedOverrides ===

impl SharedOverrides {
    /// Spawns the task, if the store is shared.
    pub(super) fn spawn(tasks: &mut JoinSet<()>, parts: &Parts) {
        if let Some(records) = parts.store.shared_records() {
            let overrides = Self {
                records,
                generations: Arc::clone(&parts.generations),
                clock: Arc::clone(&parts.clock),
            };
            tasks.spawn(overrides.run());
        }
    }

    async fn run(self) {
        let mut known = Known::default();
        loop {
            let fault = self.poll(&mut known).await.err();
            if let Some(error) = fault.filter(|_| fault != known.fault) {
                tracing::warn!(%error, "cannot read the overrides of the shared store; those that are known stay");
            }
            known.fault = fault;
            sleep(INTERVAL).await;
        }
    }

    async fn poll(&self, known: &mut Known) -> Result<(), StoreFault> {
        let max = self.generations.overrides_max();
        // A store that has lost a change has the version from before it.
        let is_known = !self.generations.overrides_changed();
        let version = is_known.then_some(&*known.records.version);
        let read = self.records.read(version, max).await?;
        let now = self.clock.now();
        if let Some(records) = read {
            let kept = records.records.iter();
            let kept: Vec<Option<Override>> = kept
                .map(|(_, record)| serde_json::from_slice(record).ok())
                .collect();
            let end = |kept: &Option<Override>| parse_time(&kept.as_ref()?.until);
            known.ends = kept.iter().map(end).collect();
            known.records = records;
            let is_current = |end: &Option<Timestamp>| end.is_some_and(|end| end > now);
            let kept = kept.into_iter().zip(&known.ends);
            let current = kept.filter(|(_, end)| is_current(end));
            let current: Vec<Override> = current.filter_map(|(kept, _)| kept).collect();
            let generations = Arc::clone(&self.generations);
            // It copies the rules.
            let replaced =
                tokio::task::spawn_blocking(move || generations.replace_overrides(current));
            drop(replaced.await);
        }
        let records = known.records.records.iter().zip(&mut known.ends);
        for ((name, record), end) in records {
            if end.is_some_and(|end| end <= now) {
                // Every replica does so; the first one that does removes it.
                let removing = self.records.remove(name.clone(), Some(record.clone()));
                removing.await?;
                *end = None;
            }
        }
        Ok(())
    }
}
