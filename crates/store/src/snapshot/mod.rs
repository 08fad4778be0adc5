//! Snapshots: the buckets of the memory store in a file.
//!
//! The format is that of `proto/tollgate/snapshot/v1/snapshot.proto`: a name and a version, one
//! zstd frame, and a checksum of all bytes. Both directions stream, a [`Block`] of buckets at a
//! time.
//!
//! | file | what |
//! | --- | --- |
//! | `block` | buckets as columns of numbers |
//! | `writer` | blocks in, bytes out |
//! | `reader` | bytes in, blocks out; refuses what it does not know |
//! | `checksum` | the checksum at the end, on the way in and out |
//! | `file` | locks a path; replaces a file atomically; sets a refused one aside |
//!
//! What it deliberately does not do: copy buckets out of a partition or load them (`store/memory`),
//! or choose when (`app/snapshot`).

mod block;
mod checksum;
mod file;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::io;

pub use self::block::{Block, SavedBucket};
pub use self::file::{LockedPath, NewFile, PathError, remove_leftover, set_aside};
pub use self::reader::Reader;
#[cfg(any(test, fuzzing))]
pub use self::writer::file_of;
pub use self::writer::{Writer, Written};

/// The first bytes of every snapshot.
pub(crate) const NAME: &[u8; 16] = b"tollgate-buckets";

/// The version of the format.
pub const VERSION: u32 = 1;

/// The longest item, in bytes. A bucket is never in two blocks, and a million records of
/// reservations take 56 MB.
pub const ITEM_BYTES_MAX: usize = 64 << 20;

/// What a snapshot says about itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Header {
    /// The secret of the keyed hash that names buckets.
    pub hash_secret: [u8; 16],
    /// When the first bucket was copied.
    pub written_at: tollgate_limiter::Timestamp,
    /// How many partitions there were.
    pub partitions: u32,
    /// Overrides that operators have set, each as JSON.
    pub overrides: Vec<Vec<u8>>,
}

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
