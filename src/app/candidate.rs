//! Builds the partitions of candidates, and reloads the candidate's rules from files.
//!
//! What it deliberately does not do: decide (`pipeline/candidate`), parse rules (`crates/rules`).

use std::path::Path;
use std::sync::Arc;

use super::error::AppError;
use super::rules;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::pipeline::{CandidatePartitions, Generations};
use crate::rules::path::RulesPath;
use crate::rules::reload::RulesWatcher;
use crate::settings::Settings;
use crate::store::Worker;
use crate::store::memory::MemoryLimits;

/// The partitions of candidates: as many as those of buckets, each with a queue as long.
pub(super) fn build(
    settings: &Settings,
    live: MemoryLimits,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
) -> Result<(CandidatePartitions, Vec<Worker>), AppError> {
    let limits = MemoryLimits {
        memory_max: settings.candidate.candidate_memory_max,
        ..live
    };
    CandidatePartitions::new(limits, clock, metrics).map_err(AppError::Defect)
}

/// The task that reloads the candidate's rules; none without files of its own.
pub(super) fn watch(
    settings: &Settings,
    generations: &Arc<Generations>,
) -> Option<impl Future<Output = ()> + Send + 'static> {
    let path = settings.candidate.candidate.as_deref().map(Path::new)?;
    let path = RulesPath::Path(path.to_owned());
    let files = RulesWatcher::new(path, (&settings.rules_settings).into());
    let generations = Arc::clone(generations);
    Some(rules::watch(files, None, move |change| {
        generations.take_candidate(change);
    }))
}
