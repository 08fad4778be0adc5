//! Whether the shares of a bucket are fair, and how long they took to become so.
//!
//! What it deliberately does not do: compare shares (`bucket::figures`).

/// Whether a bucket converges, and how long it took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Convergence {
    /// How long an open stream's assignment has differed from its fair share; none if none does.
    pub(crate) converging_ms: Option<u64>,
    /// How long that lasted the last time; none before the first.
    pub(crate) last_ms: Option<u64>,
}

/// When a bucket last converged.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ConvergenceTimes {
    pub(super) since_ms: Option<u64>,
    /// When the last convergence ended, and how long it took.
    pub(super) last_ms: Option<(u64, u64)>,
}
