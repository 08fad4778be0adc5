//! Error of starting the tracer.

/// Why tracing cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// A setting is invalid.
    #[error("{0}")]
    Settings(String),
    /// There is no runtime to send spans on.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[from] tokio::runtime::TryCurrentError),
}
