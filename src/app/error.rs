//! Errors of building and running the service.

use crate::store::BuildError;

/// Why the service could not be built or stopped running.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The system provides no randomness for the hash key.
    #[error("cannot read random bytes from the system: {0}")]
    Randomness(getrandom::Error),
    /// A defect of this program, found at start.
    #[error("this is a defect in tollgate: {0}")]
    Defect(String),
    /// A setting, or a file that one names, cannot be used.
    #[error("{0}")]
    Setting(String),
    /// The configured store cannot be built.
    #[error(transparent)]
    Store(#[from] BuildError),
    /// A part of the service ended early.
    #[error("{part} {how}")]
    Ended {
        /// Name of the part.
        part: &'static str,
        /// How it ended.
        how: String,
    },
}
