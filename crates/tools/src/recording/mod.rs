//! Recordings: requests as a running service saw them, in a file.
//!
//! The format is that of `proto/tollgate/recording/v1/recording.proto`, compressed by zstd. A file
//! is a sequence of zstd frames, each with whole items: what a file that was cut off has whole is
//! read, and the rest is missing.
//!
//! | file | what |
//! | --- | --- |
//! | `received` | items as they come from a service |
//! | `reader` | a file in, events in their order out |
//! | [`import`] | access logs and CSV files, read like recordings |
//!
//! A writer compresses by zstd at its default level: about a tenth of the bytes for some hundred
//! megabytes a second. Each block is a frame of its own, so that a file that ends early has lost
//! its last block at most.
//!
//! What it deliberately does not do: decide requests (`replay`), or talk to a service (`cli`).

pub mod import;
mod reader;
mod received;

use std::io::{self, Write};

use prost::Message as _;

pub use self::reader::{Event, Reader, Summary, UnreadLine};
pub use self::received::Received;
use tollgate_wire::proto::tollgate::recording::v1::{Header, Item};

/// The version of the format.
pub const VERSION: u32 = 1;

/// The longest item, in bytes. A request of gRPC has at most 4 MiB.
pub const ITEM_BYTES_MAX: usize = 8 << 20;

/// How many events wait for earlier ones at most.
pub const EVENTS_HELD_MAX: usize = 1_000_000;

/// How many bytes of the requests of a log are held to sort them.
pub const SORTED_BYTES_MAX: usize = 64 << 20;

/// Events in their order: a recording, or a log that is read like one.
pub trait Events {
    /// What the recording is.
    fn header(&self) -> &Header;

    /// What was learned of it so far. Complete when all events were read.
    fn summary(&self) -> &Summary;

    /// The next event; none at the end.
    ///
    /// # Errors
    ///
    /// When the file is damaged. There are no events after an error.
    fn next_event(&mut self) -> Result<Option<Event>, ReadError>;
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("the recording cannot be read: {0}")]
    File(#[from] std::io::Error),
    /// The file does not begin like a recording.
    #[error(
        "this is no recording of tollgate; `tollgate record` makes one, and an access log or a CSV file needs --mapping"
    )]
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
    /// A line of a log ends the reading.
    #[error("line {line} of the log: {why}")]
    Line {
        /// The number of the line, from 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// A log is not text.
    #[error(
        "the log is {0}; replay the plain text as UTF-8, such as: zstdcat LOG | tollgate replay /dev/stdin"
    )]
    ForeignLog(&'static str),
    /// A CSV file does not have a column of the mapping.
    #[error("the log has no column `{field}`, which the mapping names; its columns are: {columns}")]
    NoColumn {
        /// The column.
        field: String,
        /// Those that there are.
        columns: String,
    },
    /// A log is too far from the order of its times.
    #[error(
        "line {line} of the log is earlier than requests that are replayed already; at most {} MiB of requests are sorted; sort the log by time",
        SORTED_BYTES_MAX >> 20
    )]
    Unsorted {
        /// The number of the line, from 1.
        line: u64,
    },
    /// A log has no request.
    #[error(
        "the log has no request: {unread} lines cannot be read, {without} have no value for any descriptor{first}"
    )]
    NoRequests {
        /// How many lines cannot be read.
        unread: u64,
        /// How many lines have no descriptor.
        without: u64,
        /// What is wrong with the first line that cannot be read.
        first: String,
    },
}

/// The level of compression: zstd's default.
const LEVEL: i32 = 3;

/// How many bytes of items make a block.
const BLOCK_BYTES: usize = 1 << 20;

/// Writes items to a file.
pub struct Writer<W> {
    file: W,
    block: Vec<u8>,
    bytes: u64,
}

// === impl Writer ===

impl<W: Write> Writer<W> {
    /// Writes to this file.
    pub fn new(file: W) -> Self {
        Self {
            file,
            block: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds an item.
    ///
    /// # Errors
    ///
    /// When the file cannot be written. What is in it stays readable.
    pub fn write(&mut self, item: &Item) -> io::Result<()> {
        self.write_encoded(&item.encode_length_delimited_to_vec())
    }

    /// Adds items that are encoded, each after its length.
    ///
    /// # Errors
    ///
    /// As [`Writer::write`].
    pub fn write_encoded(&mut self, items: &[u8]) -> io::Result<()> {
        self.block.extend_from_slice(items);
        if self.block.len() >= BLOCK_BYTES {
            self.end_block()?;
        }
        Ok(())
    }

    /// Writes what was added so far, as a block.
    ///
    /// # Errors
    ///
    /// As [`Writer::write`].
    pub fn end_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let block = zstd::bulk::compress(&self.block, LEVEL)?;
        self.block.clear();
        self.file.write_all(&block)?;
        self.file.flush()?;
        self.bytes = self.bytes.saturating_add(block.len() as u64);
        Ok(())
    }

    /// How many bytes the file has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes the last block, and returns the file.
    ///
    /// # Errors
    ///
    /// As [`Writer::write`].
    pub fn finish(mut self) -> io::Result<W> {
        self.end_block()?;
        Ok(self.file)
    }
}

#[cfg(test)]
mod tests;
