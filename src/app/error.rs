//! Errors of building and running the service.

/// Why the service could not be built or stopped running.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The system provides no randomness for the hash key.
    #[error("cannot read random bytes from the system: {0}")]
    Randomness(getrandom::Error),
    /// A defect of this program, found at start.
    #[error("this is a defect in tollgate: {0}")]
    Defect(String),
    /// The configured store cannot be used.
    #[error("{0}")]
    Store(String),
    /// The collector of the decision log cannot be used.
    #[error("--decision-log otlp: {0}")]
    DecisionLog(String),
    /// The webhook of limits cannot be used.
    #[error("{0}")]
    Notify(String),
    /// A configured hash key cannot be used.
    #[error("{0}")]
    HashKey(String),
    /// Memory settings contradict each other.
    #[error("{0}")]
    Memory(String),
    /// Configured certificates or tokens cannot be used.
    #[error("{0}")]
    Tls(String),
    /// The configured source of rules cannot be used.
    #[error("{0}")]
    Rules(String),
    /// A part of the service ended early.
    #[error("{part} {how}")]
    Ended {
        /// Name of the part.
        part: &'static str,
        /// How it ended.
        how: String,
    },
}
