//! Why a snapshot is refused.

use std::io;

use super::VERSION;

/// Why a snapshot cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system does not give its bytes.
    #[error("it cannot be read: {0}")]
    Unreadable(io::Error),
    /// It does not begin like a snapshot.
    #[error("it is not a snapshot of tollgate")]
    Foreign,
    /// Another version of tollgate wrote it.
    #[error("it has version {0} of the format, and this tollgate reads version {VERSION}")]
    Version(u32),
    /// It ends too early, or its bytes are not those that were written.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// Its keys are hashed with another key than the configured one.
    #[error("it was written with another hash key than --store-hash-key-file names")]
    HashKey,
}

// === impl ReadError ===

impl ReadError {
    /// The cause, as metrics name it.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable",
            Self::Foreign => "foreign",
            Self::Version(_) => "version",
            Self::Damaged(_) => "damaged",
            Self::HashKey => "hash_key",
        }
    }
}
