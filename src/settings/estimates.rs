//! The setting of learnt amounts.
//!
//! What it deliberately does not do: say what is learnt (`estimates`).

use clap::Args;

use crate::settings::headings::WORKERS;
use crate::settings::parse::size;

/// Amounts that are learnt from commits.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = WORKERS)]
pub struct EstimatesSettings {
    /// Memory for learnt amounts to reserve (reserve.amount: p50 to p99)
    ///
    /// It is used when a rule has such an amount. Beyond it, a new rule or key takes the place of
    /// one that was not used recently.
    ///
    /// Range: 64KiB to below 4GiB
    #[arg(long, env = "TOLLGATE_ESTIMATES_MEMORY_MAX", default_value = "4MiB", value_parser = memory, value_name = "BYTES")]
    pub estimates_memory_max: usize,
}

/// The minimum of `--estimates-memory-max`.
const MEMORY_MIN: usize = 64 << 10;

fn memory(text: &str) -> Result<usize, String> {
    size(text)
        .ok()
        .filter(|bytes| *bytes >= MEMORY_MIN)
        .ok_or_else(|| "use a number and MiB, such as 4MiB, from 64KiB to below 4GiB".to_owned())
}
