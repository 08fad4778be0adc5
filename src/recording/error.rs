//! Why a recording cannot be read.

use crate::recording::{EVENTS_HELD_MAX, ITEM_BYTES_MAX, VERSION};

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("the recording cannot be read: {0}")]
    File(#[from] std::io::Error),
    /// The file does not begin like a recording.
    #[error("this is no recording of tollgate; `tollgate record` makes one")]
    NoRecording,
    /// The recording has a version that is not known.
    #[error(
        "the recording has version {0} of the format, and this tollgate reads version {VERSION}; use the tollgate that recorded it"
    )]
    Version(u32),
    /// An item is longer than any item is.
    #[error(
        "item {item} of the recording has {bytes} bytes, and at most {ITEM_BYTES_MAX} are possible; the file is damaged"
    )]
    TooLong {
        /// The number of the item, from 1.
        item: u64,
        /// How long it says it is.
        bytes: u64,
    },
    /// An item is no message.
    #[error("item {item} of the recording is damaged: {why}")]
    Damaged {
        /// The number of the item, from 1.
        item: u64,
        /// What is wrong.
        why: String,
    },
    /// Too many events wait for an earlier one.
    #[error(
        "item {item} of the recording: more than {EVENTS_HELD_MAX} requests have no known order; the file is damaged"
    )]
    NoOrder {
        /// The number of the item, from 1.
        item: u64,
    },
}
