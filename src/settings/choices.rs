//! The values of settings that offer a choice.

use clap::ValueEnum;

/// The response when there is no decision.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Verdict {
    /// gRPC error; the caller decides, such as Envoy by failure_mode_deny
    Error,
    /// OK
    Allow,
    /// OVER_LIMIT
    Deny,
}

/// The values of `--door`, which has no effect.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum DeprecatedDoor {
    /// The only gRPC server
    H2,
    /// Removed: the second gRPC server
    Tonic,
}

/// What happens to new keys when memory is full.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum OnMemoryFull {
    /// Count new keys of a rule in one shared bucket per partition
    Share,
    /// OK, without counting
    Allow,
    /// OVER_LIMIT
    Deny,
    /// No decision; --on-overload applies
    Error,
}
