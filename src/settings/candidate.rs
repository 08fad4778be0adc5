//! The settings of candidates: rules that are decided beside those in force, and never enforced.
//!
//! What it deliberately does not do: read the rules (`app/candidate`).

use std::path::PathBuf;

use clap::Args;

use crate::settings::headings::RULES;
use crate::settings::parse::size;

/// Rules that are tried beside those in force.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = RULES)]
pub struct CandidateSettings {
    /// Rules file, or a directory of rules files, to try beside the rules in force
    ///
    /// Each request is decided by these rules too, in buckets of their own on this replica, and the
    /// decision is counted and never enforced. The files are polled and reloaded like the rules.
    /// With this setting, rate_limit.candidate in the rules has no effect.
    ///
    /// Example: /etc/tollgate/candidate.yaml
    #[arg(long, env = "TOLLGATE_CANDIDATE", value_name = "RULES")]
    pub candidate: Option<PathBuf>,

    /// Memory for the buckets of candidates
    ///
    /// It is not part of --memory-max. A request whose bucket has no space is not decided by the
    /// candidate, and counted.
    ///
    /// Range: 1MiB to below 4GiB
    #[arg(long, env = "TOLLGATE_CANDIDATE_MEMORY_MAX", default_value = "64MiB", value_parser = memory, value_name = "BYTES")]
    pub candidate_memory_max: usize,
}

/// The minimum of `--candidate-memory-max`.
const MEMORY_MIN: usize = 1 << 20;

fn memory(text: &str) -> Result<usize, String> {
    size(text)
        .ok()
        .filter(|bytes| *bytes >= MEMORY_MIN)
        .ok_or_else(|| "use a number and MiB, such as 64MiB, from 1MiB to below 4GiB".to_owned())
}
